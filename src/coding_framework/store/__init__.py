"""The only code that knows a run folder: its layout, its records, how they are written and read.

`folder` has every name, `records` what the lines hold, `lines` how a line survives a kill.
"""
