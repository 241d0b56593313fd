"""The candidate's host code in a process of its own, and the channel to it (session.py)."""
