"""Attacks and honest kernels that the judge is measured on: data, no test is in here."""
