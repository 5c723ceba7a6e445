"""What crosses a wire in a private bandit: tasks, reports, releases and the chain, as bytes.

The standard library and NumPy are all that this package needs. Nothing here draws noise.
"""
