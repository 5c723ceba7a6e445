"""Features of arms for a shared model, from a table of arms or per user and arm."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.data.declaration import Declaration, Declared, is_empty
from kerchief.data.features import Encoded
from kerchief.data.tables import Table, Tabular, read_table

_ARM, _PLACEHOLDER = "arm", "{arm}"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ArmFeatures:
    """Features of arms, one row per arm or one per user and arm, and how they were declared.

    Attributes:
        source: the table of arms, or the array as one, if there is either.
    """

    declaration: Declaration
    encoded: Encoded
    rows: NDArray[np.float64]
    source: Table | None

    @property
    def described(self) -> dict[str, Any]:
        """Declaration of these features, by names of command-line options."""
        parameters: dict[str, Any] = {"arm_features": self.declaration.texts()}
        if self.source is not None:
            parameters |= {"arm_table": self.source.path or self.source.name}
        return parameters


def offers_of(
    table: Table,
    arms: tuple[str, ...],
    features: Declared,
    arm_table: Tabular | None,
    *,
    intercept: float,
) -> ArmFeatures | None:
    """Encode the features of arms, if any are declared; see `from_supervised`."""
    if is_empty(features):
        if arm_table is not None:
            raise InvalidValueError(
                "a table of arms is given, and no features of arms are declared"
            )
        return None
    public = Declaration.of(features, intercept=intercept)
    source: Table | None
    shape: tuple[int, ...]
    if isinstance(arm_table, np.ndarray) and arm_table.ndim == 3:
        cells = source = _flatten_array(table, arms, arm_table)
        shape = (table.rows, len(arms))
    else:
        source = None if arm_table is None else read_table(arm_table, name="the table of arms")
        cells, shape = _build_table(table, arms, public, source)
    encoded = public.encode(cells)
    rows = encoded.rows.reshape(*shape, -1)
    return ArmFeatures(declaration=public, encoded=encoded, rows=rows, source=source)


def _flatten_array(table: Table, arms: tuple[str, ...], array: NDArray[Any]) -> Table:
    """Flatten an array to a table with one row per user and arm."""
    if array.shape[:2] != (table.rows, len(arms)):
        raise InvalidValueError(
            f"features of arms have shape {array.shape}, and there are {table.rows} users and "
            f"{len(arms)} arms; give users x arms x features"
        )
    return read_table(array.reshape(-1, array.shape[2]), name="the features of arms")


def _build_table(
    table: Table, arms: tuple[str, ...], public: Declaration, source: Table | None
) -> tuple[Table, tuple[int, ...]]:
    """Build a table with one row per arm, or per user and arm if a feature varies."""
    varying = [name for name in public.names if _PLACEHOLDER in name]
    if source is not None and len(varying) == len(public.names):
        raise InvalidValueError(
            "a table of arms is given, and every declared feature of arms has a column of the data "
            "per arm; leave the table out, or declare what of it is a feature"
        )
    if source is None and not varying:
        raise InvalidValueError(
            "features of arms are declared, and there is no table of arms; give one, or a column "
            f"of the data for every arm, as in price_{_PLACEHOLDER}=0:10"
        )
    arm_columns = {} if source is None else _order_by_arm(source, arms)
    name = "the features of arms"
    if not varying:
        return read_table(arm_columns, name=name), (len(arms),)
    columns: dict[str, Any] = {
        key: np.tile(column, table.rows) for key, column in arm_columns.items()
    }
    for key in varying:
        values = [table.column(key.replace(_PLACEHOLDER, arm)) for arm in arms]
        columns[key] = np.stack(values, axis=1).ravel()
    return read_table(columns, name=name), (table.rows, len(arms))


def _order_by_arm(source: Table, arms: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Sort the columns of a table of arms by the order of the arms."""
    names = source.words(_ARM).tolist()
    for arm in arms:
        if names.count(arm) != 1:
            raise InvalidValueError(
                f"{source.name} has {names.count(arm)} rows for arm {arm!r}; give one for every "
                "arm, its name in a column 'arm'"
            )
    order = [names.index(arm) for arm in arms]
    return {key: column[order] for key, column in source.columns.items() if key != _ARM}
