"""Environments from a table in which the reward of every arm is known."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import positive
from kerchief.data.arm_features import ArmFeatures, offers_of
from kerchief.data.declaration import Declaration, Declared, is_empty
from kerchief.data.features import Encoded
from kerchief.data.tables import Table, Tabular, check_digest, read_table
from kerchief.data.targets import Targets, aims_of
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

    >>> from kerchief.comparison import Comparison
    >>> people = {"age": [20, 70, 35, 51], "plan": ["basic", "gold", "basic", "gold"]}
    >>> world = from_supervised(people, "plan", features="age=18:90")
    >>> plan = Comparison.on(world, trusts=("joint",), epsilons=(1.0,), replicates=2)
    >>> [cell.label() for cell in plan.cells()][2:]
    ['single-arm not private', 'own-models not private', 'own-models joint ε=1']
    """
    table = read_table(X, name="the data")
    targets = aims_of(table, y, rewards, reward_range)
    feature_table = table.without(
        *((y.partition("=")[0].strip(),) if isinstance(y, str) else rewards)
    )
    users, user_encoding = _encode_users(
        feature_table, features, norm, intercept, required=is_empty(arm_features)
    )
    constant = 0.0 if users else intercept
    offers = offers_of(feature_table, targets.arms, arm_features, arm_table, intercept=constant)
    arm_encoding = None if offers is None else offers.encoded
    parts = [encoded for encoded in (user_encoding, arm_encoding) if encoded is not None]
    # A declaration has a constant of its own.
    declarations = (users, None if offers is None else offers.declaration)
    applied = next(declaration for declaration in declarations if declaration is not None)
    parameters = _describe_data(table, targets, users, offers, applied.intercept) | {
        "orders": orders
    }
    check_digest(parameters["data_sha256"], sha256)
    return Supervised.of(
        users=None if user_encoding is None else user_encoding.rows,
        offers=None if offers is None else offers.rows,
        arms=len(targets.arms),
        norm=math.hypot(
            *(
                declaration.norm
                for declaration in (users, offers and offers.declaration)
                if declaration
            )
        ),
        constant=applied.intercept,
        orders=orders,
        origin=Origin(
            name=table.name,
            parameters=tuple(parameters.items()),
            clipped=max(float(encoded.clipped.mean()) for encoded in parts),
            shares=tuple(share for encoded in parts for share in encoded.shares),
        ),
        **targets.given,
    )


def _compute_digest(table: Table, targets: Targets, offers: ArmFeatures | None) -> str:
    """Compute the digest of the file, or of all sources where there are several."""
    target_digests = [] if targets.source is None else [f"y={targets.source.digest}"]
    arm_digests = [] if offers is None or offers.source is None else [offers.source.digest]
    if not target_digests and not arm_digests:
        return table.digest
    return hashlib.sha256(
        " ".join([table.digest, *target_digests, *arm_digests]).encode()
    ).hexdigest()


def _encode_users(
    table: Table, features: Declared, norm: float | None, intercept: float, *, required: bool
) -> tuple[Declaration | None, Encoded | None]:
    """Encode features of users, if they are declared or required."""
    if not required and is_empty(features):
        if norm is not None:
            checked_norm = positive("norm", norm)
            raise InvalidValueError(
                f"norm is {checked_norm}, and no features of users are declared; declare some, or "
                "leave it out"
            )
        return None, None
    declaration = Declaration.of(features, norm=norm, intercept=intercept).on(table.free)
    return declaration, declaration.encode(table)


def _describe_data(
    table: Table,
    targets: Targets,
    users: Declaration | None,
    offers: ArmFeatures | None,
    intercept: float,
) -> dict[str, Any]:
    """Describe the declaration of the data by names of command-line options."""
    data = table.path or table.name
    parameters: dict[str, Any] = {
        "data": data,
        "data_sha256": _compute_digest(table, targets, offers),
    }
    if users is not None:
        parameters |= {"features": users.texts()}
        parameters |= {} if users.vector_norm is None else {"norm": users.vector_norm}
    parameters |= {} if offers is None else offers.described
    return parameters | {**targets.described, "intercept": intercept}
