"""The figure of online LinUCB: who has the printed noise, and who the extra noise ζ."""

from __future__ import annotations

from typing import Any

import pytest

from kerchief.comparison.players import Player
from kerchief.environments import make_environment
from kerchief.papers.catalogue.local import AS_PRINTED, DELTA, FIGURE, ONLINE, PRINTED
from kerchief.privacy.printed import printed_std

HORIZON = 20_000


@pytest.mark.parametrize("contexts", FIGURE)
@pytest.mark.parametrize(("nominal", "player"), list(zip((1.0, 10.0), PRINTED, strict=True)))
def test_rows_with_the_printed_noise_have_it(nominal: float, player: Player, contexts: str) -> None:
    """Epsilon is that of the figure's arms: in a ball the same noise would spend 17.9, not 11.5."""
    problem = make_environment(contexts=contexts, dim=5, arms=100).problem(HORIZON)
    privatizer = player.build_protected(problem, player.promise(DELTA, HORIZON)).privatizers["pair"]
    (noise,) = privatizer.noises
    assert noise.std == pytest.approx(printed_std(nominal, DELTA), rel=1e-6)


def policies() -> dict[str, Any]:
    """The bandits with printed constants at the figure's size, and a repaired one."""
    problem = make_environment(contexts=FIGURE[0], dim=5, arms=100).problem(HORIZON)
    return {
        player.policy: player.build_protected(problem, player.promise(DELTA, HORIZON)).policy
        for player in (*AS_PRINTED, ONLINE[2])
    }


def test_extra_noise_is_played_by_the_anytime_version() -> None:
    """1/d is above T^(-1/4) at the horizon, and not above it in epochs of up to 512 users."""
    played = policies()
    assert played["online-linucb@paper"].ridge == 0
    epochs = played["online-linucb-anytime@paper"].epochs["ridge"]
    assert [ridge > 0 for ridge in epochs] == [True] * 10 + [False] * (len(epochs) - 10)


def test_printed_versions_protect_the_shared_coordinate() -> None:
    """The paper adds noise to all coordinates; repaired bandits know which one is public."""
    noisy = {name: policy.queries["pair"].noisy.tolist() for name, policy in policies().items()}
    assert noisy.pop("online-linucb") == [1, 1, 1, 1, 0]
    assert all(mask == [1] * 5 for mask in noisy.values())
