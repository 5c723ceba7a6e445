"""The figure of online LinUCB: rows with the printed noise have it, and pay what it spends."""

from __future__ import annotations

import pytest

from kerchief.environments import make_environment
from kerchief.experiments.catalogue.local import DELTA, FIGURE, PRINTED
from kerchief.experiments.players import Player
from kerchief.privacy.printed import printed_std

HORIZON = 20_000


@pytest.mark.parametrize("contexts", FIGURE)
@pytest.mark.parametrize(("nominal", "player"), list(zip((1.0, 10.0), PRINTED, strict=True)))
def test_rows_with_the_printed_noise_have_it(nominal: float, player: Player, contexts: str) -> None:
    """Epsilon is that of the figure's arms: in a ball the same noise would spend 17.9, not 11.5."""
    problem = make_environment(contexts=contexts, dim=5, arms=100).problem(HORIZON)
    privatizer = player.arrange(problem, player.promise(DELTA, HORIZON)).privatizers["pair"]
    (noise,) = privatizer.noises
    assert noise.std == pytest.approx(printed_std(nominal, DELTA), rel=1e-6)
