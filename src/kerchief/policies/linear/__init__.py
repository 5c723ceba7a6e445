"""Bandits whose expected reward is linear in the features."""
