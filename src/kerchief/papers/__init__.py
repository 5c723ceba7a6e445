"""What the papers claim: experiments, their claims with verdicts, and the leaderboard."""
