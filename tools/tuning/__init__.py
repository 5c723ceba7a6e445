"""Recorded searches: how the numbers that bandits play with by default were chosen."""
