"""Every registered policy beside the NumPy yardstick: microseconds per decision of a whole run.

Each plays in its home with the home's own options, without protection and under the first private
trust that it has, on one core. The yardstick is a plain NumPy LinUCB (d = 5, 20 arms), timed before
and after; the better time counts. Compilation is not counted. What --seconds do not suffice for is
named.
"""

from __future__ import annotations

import argparse
import json
import time

from tools.baseline import time_numpy
from tools.benchmark import one_core, time_run

from kerchief.cli.device import use_device
from kerchief.comparison.versions import machine, versions
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.policies import POLICIES

_WORLD = "linear"
"""World of policies that have no home of their own."""


def rows(
    names: list[str], *, horizon: int, replicates: int, seconds: float
) -> tuple[list[dict[str, object]], list[str]]:
    """Time each policy and trust, and list those left out."""
    end, timings, skipped = time.monotonic() + seconds, [], []
    for name in names:
        entry = POLICIES[name]
        world = entry.default_environment or _WORLD
        for trust in entry.trusts[:2]:
            if time.monotonic() > end:
                skipped.append(f"{name} {trust}")
                continue
            duration = time_run(
                name, trust, ENVIRONMENTS[world].make(), horizon=horizon, replicates=replicates
            )
            timings.append(
                {"policy": name, "trust": trust, "world": world, "microseconds": duration}
            )
    return timings, skipped


def main() -> None:
    """Print a table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--horizon", type=int, default=2000)
    parser.add_argument("--replicates", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with one_core() as core:
        use_device("cpu")
        before = time_numpy(arms=20, dim=5)
        timings, skipped = rows(
            options.policies.split(","),
            horizon=options.horizon,
            replicates=options.replicates,
            seconds=options.seconds,
        )
        numpy = min(before, time_numpy(arms=20, dim=5))
    for row in timings:
        row["ratio"] = float(str(row["microseconds"])) / numpy
    if options.json:
        report = {"yardstick_microseconds": numpy, "rows": timings, "left_out": skipped}
        print(json.dumps({**report, "core": core, "machine": machine(), "versions": versions()}))
        return
    print(
        f"NumPy LinUCB: {numpy:.1f} µs per decision; {options.replicates} replicates on core {core}"
    )
    print("| policy | world | trust | µs | of NumPy's |\n|---|---|---|---|---|")
    for row in timings:
        cells = (row["policy"], row["world"], row["trust"])
        print(f"| {' | '.join(map(str, cells))} | {row['microseconds']:.2f} | {row['ratio']:.2f} |")
    print(
        f"left out for want of --seconds: {', '.join(skipped)}"
        if skipped
        else "nothing was left out"
    )


if __name__ == "__main__":
    main()
