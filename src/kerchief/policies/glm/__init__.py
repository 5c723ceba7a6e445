"""Bandits whose expected reward is a known curve of a linear score."""
