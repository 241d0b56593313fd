"""From launch plans to launch templates: record at several addresses, derive, replay, compare.

`recording` writes a candidate's calls down on paper, `derive` compares the records and makes the
template or says why none can be, `replay` carries a template out on a device, `make` judges it as a
template. No other room makes one.
"""
