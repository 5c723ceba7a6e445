"""The searches that are recorded here, and the defaults that follow from them.

A search is declared in `searches/NAME.toml`; what it has found is `searches/NAME.json`, which
`kerchief tune` writes. `make tuned` writes the numbers down for the bandits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from kerchief.core.registry import Registry
from kerchief.experiments.tuning.outcome import Outcome
from kerchief.experiments.tuning.search import Search
from kerchief.policies import POLICIES, Terms
from kerchief.policies.tuned import TUNED

FOLDER = Path(__file__).with_name("searches")

_HEAD = '''"""Numbers that bandits play with by default, as recorded searches chose them.

`make tuned` writes this file from `experiments/tuning/searches`; a test fails when it is stale.
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
        """As it is declared now."""
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
        found = self.outcome
        return dict(self.search.incumbent) if found is None else found.chosen

    def complaints(self) -> list[str]:
        """Why the code does not play what was found, one line each; none where it does."""
        found = self.outcome
        if found is None:
            return [f"{self.name}.json is missing; run `kerchief tune {self.name}`, and copy it"]
        made = []
        if found.search != self.search:
            made.append(f"it was declared anew since; run `kerchief tune {self.name}`, and copy it")
        if TUNED.get(self.name) != found.chosen:
            made.append(f"policies/tuned.py has {TUNED.get(self.name)}; run `make tuned`")
        for played in self.played():
            if played != found.chosen:
                made.append(f"the bandit plays {played}, and {dict(found.chosen)} was chosen")
        return made

    def played(self) -> list[dict[str, float]]:
        """The numbers that the bandit has where nobody replaces any: one set, or it is no default.

        It is built for every cell of the search.
        """
        search, found = self.search, list[dict[str, float]]()
        for world in search.worlds:
            problem = world.environment().problem(world.horizon)
            for cell in world.cells(search.policy, ()):
                player, asked = cell.player, cell.asked
                terms = asked and Terms(epsilon=asked[0], delta=asked[1], trust=player.trust)
                built = POLICIES[search.policy].build(problem, "tuned", terms)
                mine = {name: float(getattr(built, name)) for name, _ in search.incumbent}
                found += [] if mine in found else [mine]
        return found


def _recorded() -> Registry[Recorded]:
    made: Registry[Recorded] = Registry("search")
    for path in sorted(FOLDER.glob("*.toml")):
        made.add(path.stem, Recorded(name=path.stem))
    return made


SEARCHES = _recorded()
"""Every recorded search by the name of its bandit."""


def module() -> str:
    """The text of `policies/tuned.py`."""
    lines = []
    for name, one in SEARCHES.items():
        numbers = [
            f'        "{number}": {value!r},' for number, value in sorted(one.chosen.items())
        ]
        lines += [f'    "{name}": {{', *numbers, "    },"]
    return _HEAD + "\n".join(lines) + "\n}\n"
