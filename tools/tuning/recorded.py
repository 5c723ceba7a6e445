"""The searches that are recorded here, and the defaults that follow from them.

A search is declared in `searches/NAME.toml`; what it has found is `searches/NAME.json`, which
`python -m tools.tune` writes. `make tuned` writes the numbers down for the bandits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from tools.tuning.outcome import Outcome
from tools.tuning.search import Search

from kerchief.core.registry import Registry
from kerchief.policies import POLICIES, PrivacyBudget
from kerchief.policies.tuned import TUNED

FOLDER = Path(__file__).with_name("searches")

_HEAD = '''"""Numbers that bandits play with by default, as recorded searches chose them.

`make tuned` writes this file from `tools/tuning/searches`; a test fails when it is stale.
"""

from __future__ import annotations

from collections.abc import Mapping

TUNED: Mapping[str, Mapping[str, float]] = {
'''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recorded:
    """A search of ours: its declaration, and its outcome."""

    name: str

    @property
    def search(self) -> Search:
        """Read the search as its file declares it."""
        return Search.read(self.declaration)

    @property
    def declaration(self) -> Path:
        """The file that declares it."""
        return FOLDER / f"{self.name}.toml"

    @property
    def outcome(self) -> Outcome | None:
        """What was found, where anything was."""
        path = FOLDER / f"{self.name}.json"
        return Outcome.read(path) if path.exists() else None

    @property
    def chosen(self) -> Mapping[str, float]:
        """The numbers to play with: until a search was played, the incumbent's."""
        outcome = self.outcome
        return dict(self.search.incumbent) if outcome is None else outcome.chosen

    def complaints(self) -> list[str]:
        """Why the code does not play what was found, one line each; none where it does."""
        outcome = self.outcome
        if outcome is None:
            return [f"{self.name}.json is missing; play the search, and copy it"]
        messages = []
        if outcome.search != self.search:
            messages.append("it was declared anew since; play the search, and copy it")
        if TUNED.get(self.name) != outcome.chosen:
            messages.append(f"policies/tuned.py has {TUNED.get(self.name)}; run `make tuned`")
        for numbers in self.played():
            if numbers != outcome.chosen:
                messages.append(
                    f"the bandit plays {numbers}, and {dict(outcome.chosen)} was chosen"
                )
        return messages

    def played(self) -> list[dict[str, float]]:
        """The numbers that the bandit has where nobody replaces any: one set, or it is no default.

        It is built for every cell of the search.
        """
        search, number_sets = self.search, list[dict[str, float]]()
        for world in search.worlds:
            problem = world.environment().problem(world.horizon)
            for cell in world.cells(search.policy, ()):
                player, budget = cell.player, cell.asked
                terms = budget and PrivacyBudget(
                    epsilon=budget[0], delta=budget[1], trust=player.trust
                )
                policy = POLICIES[search.policy].build(problem, "tuned", terms)
                numbers = {name: float(getattr(policy, name)) for name, _ in search.incumbent}
                number_sets += [] if numbers in number_sets else [numbers]
        return number_sets


def _read_searches() -> Registry[Recorded]:
    registry: Registry[Recorded] = Registry("search")
    for path in sorted(FOLDER.glob("*.toml")):
        registry.add(path.stem, Recorded(name=path.stem))
    return registry


SEARCHES = _read_searches()
"""Every recorded search by the name of its bandit."""


def module() -> str:
    """The text of `policies/tuned.py`."""
    lines = []
    for name, search in SEARCHES.items():
        numbers = [
            f'        "{number}": {value!r},' for number, value in sorted(search.chosen.items())
        ]
        lines += [f'    "{name}": {{', *numbers, "    },"]
    return _HEAD + "\n".join(lines) + "\n}\n"
