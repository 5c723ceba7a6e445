"""From a table to a world in which every arm's reward is known."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from kerchief.core.errors import InvalidValue
from kerchief.core.validate import positive
from kerchief.data.aims import Aims, aims_of
from kerchief.data.declaration import Declaration, Declared, is_empty
from kerchief.data.features import Encoded
from kerchief.data.offers import Offers, offers_of
from kerchief.data.tables import Table, Tabular, check_digest, read_table
from kerchief.environments.ranges import RANGED_CONSTANT
from kerchief.environments.supervised import Origin, Supervised


def from_supervised(
    X: Tabular,
    y: str | ArrayLike | None = None,
    *,
    features: Declared = (),
    rewards: Sequence[str] = (),
    reward_range: tuple[float, float] | None = None,
    arm_features: Declared = (),
    arm_table: Tabular | None = None,
    norm: float | None = None,
    intercept: float = RANGED_CONSTANT,
    orders: str = "permutation",
    sha256: str | None = None,
) -> Supervised:
    """Make a world of data, whose public bounds are declared and never read off the data.

    Args:
        X: a CSV or Parquet file, a frame of pandas or Polars, a mapping of columns, or an array,
            whose columns are called x0, x1 and so on.
        y: the column of the right label, as "plan", or as "plan=basic|gold" where the arms are
            these alone and in this order; or the labels themselves, or a table of rewards with one
            column per arm. The right label brings reward 1, and all others bring 0.
        features: of users, each arm with a model of its own; see `Declaration.of`.
        rewards: in place of `y`, the columns of rewards, one per arm.
        reward_range: the least and the greatest reward, where rewards are given.
        arm_features: of arms, with one model for all. One with `{arm}` in its name has a column
            per arm in the data, such as price_{arm}; all others are columns of `arm_table`.
        arm_table: a table with a column `arm` and one row per arm, or an array of users x arms x
            features.
        norm: bound on the norm of those features of users that have no range.
        intercept: the constant behind all features that are no `Declaration`, which has its own.
        orders: "permutation", each user once, or "bootstrap", drawn with replacement.
        sha256: the digest that the data must have, with labels, rewards and features of arms that
            are given apart, if they are to be the same as before.

    >>> from kerchief.experiments import Comparison
    >>> people = {"age": [20, 70, 35, 51], "plan": ["basic", "gold", "basic", "gold"]}
    >>> world = from_supervised(people, "plan", features="age=18:90")
    >>> plan = Comparison.on(world, trusts=("joint",), epsilons=(1.0,), replicates=2)
    >>> [cell.label() for cell in plan.cells()][2:]
    ['single-arm not private', 'own-models not private', 'own-models joint ε=1']
    """
    table = read_table(X, name="the data")
    aims = aims_of(table, y, rewards, reward_range)
    known = table.without(*((y.partition("=")[0].strip(),) if isinstance(y, str) else rewards))
    users, mine = _users(known, features, norm, intercept, needed=is_empty(arm_features))
    constant = 0.0 if users else intercept
    offers = offers_of(known, aims.arms, arm_features, arm_table, intercept=constant)
    theirs = None if offers is None else offers.encoded
    parts = [one for one in (mine, theirs) if one is not None]
    # A declaration has a constant of its own.
    declarations = (users, None if offers is None else offers.declaration)
    declared = next(one for one in declarations if one is not None)
    described = _described(table, aims, users, offers, declared.intercept) | {"orders": orders}
    check_digest(described["data_sha256"], sha256)
    return Supervised.of(
        users=None if mine is None else mine.rows,
        offers=None if offers is None else offers.rows,
        arms=len(aims.arms),
        norm=math.hypot(*(one.norm for one in (users, offers and offers.declaration) if one)),
        constant=declared.intercept,
        orders=orders,
        origin=Origin(
            name=table.name,
            parameters=tuple(described.items()),
            clipped=max(float(one.clipped.mean()) for one in parts),
            shares=tuple(share for one in parts for share in one.shares),
        ),
        **aims.given,
    )


def _digest(table: Table, aims: Aims, offers: Offers | None) -> str:
    """That of the file, or of several digests where labels, rewards or arms are given apart."""
    aimed = [] if aims.source is None else [f"y={aims.source.digest}"]
    offered = [] if offers is None or offers.source is None else [offers.source.digest]
    if not aimed and not offered:
        return table.digest
    return hashlib.sha256(" ".join([table.digest, *aimed, *offered]).encode()).hexdigest()


def _users(
    table: Table, features: Declared, norm: float | None, intercept: float, *, needed: bool
) -> tuple[Declaration | None, Encoded | None]:
    """What is declared about users, and their features; none where arms have features."""
    if not needed and is_empty(features):
        if norm is not None:
            given = positive("norm", norm)
            raise InvalidValue(
                f"norm is {given}, and no features of users are declared; declare some, or leave "
                "it out"
            )
        return None, None
    declared = Declaration.of(features, norm=norm, intercept=intercept).on(table.free)
    return declared, declared.encode(table)


def _described(
    table: Table, aims: Aims, users: Declaration | None, offers: Offers | None, intercept: float
) -> dict[str, Any]:
    """How the data were declared, in the words of the command line."""
    data = table.path or table.name
    said: dict[str, Any] = {"data": data, "data_sha256": _digest(table, aims, offers)}
    if users is not None:
        said |= {"features": users.texts()}
        said |= {} if users.vector_norm is None else {"norm": users.vector_norm}
    said |= {} if offers is None else offers.described
    return said | {**aims.described, "intercept": intercept}
