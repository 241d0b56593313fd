"""The turn loop. Start at `turn.py`: plain functions that every driver calls."""
