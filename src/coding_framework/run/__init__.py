"""A whole run: from a base model through SFT, RL and evaluations to the report."""
