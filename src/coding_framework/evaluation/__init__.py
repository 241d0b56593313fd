"""Evaluation: conversations on held-out tasks, metrics with intervals, a report to look at."""
