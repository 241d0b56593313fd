"""Times: measured, modelled, compared with the least that hardware allows."""
