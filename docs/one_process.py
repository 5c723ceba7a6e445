"""Everything in one process: choose for users as they come, each reward before the next user.

Run it twice: the second time it goes on where the first one stopped.
"""

import sys
from pathlib import Path

import numpy as np

from kerchief import Bandit, Guarantee, Problem


def main(folder: Path) -> None:
    """Serve some users with a bandit that lives in a folder."""
    # Put the witness on another disk: it notices when a backup of the folder is restored.
    witness = folder.with_name(f"{folder.name}.witness")
    if folder.exists():
        bandit = Bandit.open(folder, witness=witness)
    else:
        bandit = Bandit(
            policy="linucb",
            problem=Problem(dim=3, arms=4, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=2000),
            guarantee=Guarantee(epsilon=1.0, delta=1e-6, trust="central"),
            window_s=0,
            path=folder,
            witness=witness,
        )
    rng = np.random.default_rng()
    with bandit:
        for number in range(60):
            user = rng.dirichlet(np.ones(3))
            arms = {"news": user, "sport": user[::-1], "music": user[[1, 2, 0]]}
            choice = bandit.decide(arms)
            clicked = rng.random() < (0.8 if choice.arm == "news" else 0.3)
            # Some rewards never come: these decisions count with the default.
            if number % 20:
                bandit.reward(choice.id, float(clicked))
        print(bandit)
        print(bandit.statement())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "my-bandit"))
