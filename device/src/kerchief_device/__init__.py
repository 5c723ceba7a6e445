"""A user's device in a private bandit: it chooses, records, randomizes and reports.

NumPy is all that it needs.
"""
