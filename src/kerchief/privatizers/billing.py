"""Bills: what a run may cost is paid before it begins, and settled for what really happened."""

from __future__ import annotations

from collections.abc import Mapping

from kerchief.core.errors import InvalidValueError
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import Ledger
from kerchief.privacy.receipts import Receipt
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.shuffled_fits import ShuffledFits

_SHUFFLED = (ShuffledSums, BitSums, ShuffledFits)

Receipts = Mapping[str, tuple[Receipt, ...]]


def pay(
    privatizers: Mapping[str, Privatizer],
    ledger: Ledger,
    *,
    horizon: int,
    users: int | None = None,
) -> Receipts:
    """Charge all that a run of this length may cost, before any noise is drawn for it.

    Where it is not one in each round, `users` is how many may report.

    Raises:
        BudgetExceededError: the ledger refuses; nothing was charged.
        InvalidValueError: the budget promises something else than the privatizers keep.
    """
    _agree(privatizers, ledger.budget, horizon)
    count = horizon if users is None else users
    bills = {name: privatizer.charges(count) for name, privatizer in privatizers.items()}
    receipts = iter(ledger.charge_all([line for bill in bills.values() for line in bill]))
    return {name: tuple(next(receipts) for _ in bill) for name, bill in bills.items()}


def settle(
    privatizers: Mapping[str, Privatizer],
    ledger: Ledger,
    receipts: Receipts,
    *,
    users: int,
    covered: Mapping[str, int],
    releases: Mapping[str, int],
) -> None:
    """Settle each receipt of `pay` for what its users really took part in.

    So many users have reported; for each query, `covered` is how many of them its last release
    spoke about, and `releases` how often it was released.
    """
    for name, query_receipts in receipts.items():
        for receipt in query_receipts:
            times = privatizers[name].took_part(
                receipt.cohort, users=users, covered=covered[name], releases=releases[name]
            )
            ledger.settle(receipt, used=times)


def _agree(privatizers: Mapping[str, Privatizer], budget: Guarantee, horizon: int) -> None:
    """Refuse a promise whose words the run would not keep, whatever its numbers."""
    if budget.rounds is not None and budget.rounds < horizon:
        raise InvalidValueError(
            f"the budget speaks of {budget.rounds} rounds and the run has {horizon}; let it speak "
            f"of all {horizon}, or leave its rounds out"
        )
    open_ones = [n for n, p in privatizers.items() if not isinstance(p, _SHUFFLED)]
    if budget.trust is Trust.SHUFFLE and open_ones:
        raise InvalidValueError(
            f"the budget promises shuffle privacy and {', '.join(open_ones)} is not shuffled; "
            "state the trust that the privatizers need"
        )
    bare = [name for name, privatizer in privatizers.items() if not privatizer.noisy_device]
    if budget.trust is Trust.LOCAL and bare:
        raise InvalidValueError(
            f"the budget promises local privacy and no device adds noise to {', '.join(bare)}; "
            f"state the trust that the privatizers need"
        )
