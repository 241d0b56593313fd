"""The launch plan: what host code asked of the device, as data."""
