"""Findings and pitfalls in a source: explanations for people and prompts, never a verdict."""
