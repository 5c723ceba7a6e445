"""Plans for a deployment: what to expect of bandits, trust models and epsilons in bounded time."""
