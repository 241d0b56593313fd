"""The device that runs candidate device code, as the judge and its process see it."""
