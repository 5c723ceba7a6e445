"""The picture of an audit: what can be told apart, beside the most that the claim allows."""

from __future__ import annotations

import io

import numpy as np

from kerchief.audits.audit import Audit
from kerchief.core.errors import InvalidValueError
from kerchief.reports.extras import require


def picture(audit: Audit) -> bytes:
    """Draw false alarms against misses, as PNG.

    Raises:
        KerchiefError: matplotlib is not installed, or the audit has no curve.
    """
    require("picture")
    from matplotlib.figure import Figure

    if audit.curve is None:
        raise InvalidValueError(f"the audit of {audit.name!r} is from one run, which has no curve")
    alarms, hits = audit.curve
    claim, shares = audit.claim, np.linspace(0, 1, 401)
    steep = 1 - claim.delta - np.exp(claim.epsilon) * shares
    flat = np.exp(-claim.epsilon) * (1 - claim.delta - shares)
    allowed = np.maximum(0, np.maximum(steep, flat))
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(shares, 0, allowed, color="#D55E00", alpha=0.12, linewidth=0)
    axes.plot(
        shares, allowed, color="#D55E00", label=f"the claim: below this, ε > {claim.epsilon:g}"
    )
    axes.plot(alarms, 1 - hits, color="#0072B2", label="seen by the test")
    axes.plot(shares, 1 - shares, color="#767676", linestyle=(0, (2, 2)), label="guessing")
    axes.set(xlabel="false alarms", ylabel="misses", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(
        f"{audit.name}, {claim.trust}: ε ≥ {audit.epsilon_lower:.3g}, claimed {claim.epsilon:g}",
        loc="left",
        fontsize=10,
    )
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=160)
    return stream.getvalue()
