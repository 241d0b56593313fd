"""The only code that knows a run folder: its layout, its records, how they are written and read."""
