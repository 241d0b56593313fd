"""Rewards: pure functions from a conversation to named parts."""
