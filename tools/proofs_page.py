"""The page that says where every promise is proved."""

from __future__ import annotations

from kerchief.checks.proofs import proofs

# What stands above the table.
_PREFACE = """\
# Where every promise is proved

Made by `make pages`. A policy's promise rests on two things: how far apart two
statistics of its queries can be (the note named here), and what the privatizer does with
them (the notes of mechanisms and privatizers). Nothing else of a policy matters to it.
*Idealized* noise is floating point and for simulation alone: deployment uses an exact
twin. *Certified* means by a computation that the note justifies, *for study* a paper's
own version, which is not offered. Policies that ask nothing have nothing to prove.

Each note ends with what it does not cover. No note covers these:

- **Users who return.** A guarantee is for one visit. Under local trust a device with a
  ledger of its own charges every visit and stops; elsewhere `kerchief ledger show --visits`
  says what k visits cost.
- **Side channels.** When a user takes part, from where, how long noise took to draw, what is
  left in memory. A service should answer on a clock.
- **The action.** Whoever carries out a user's action sees it, and it depends on that user's
  own context. What is promised is that nobody learns it from what others are shown.
- **Public facts that are not.** Bounds, horizons and tuned numbers that were read off the
  private data of the same people.

| kind | name | status | note |
|---|---|---|---|"""


def page() -> str:
    """The page of the documentation."""
    lines = [
        f"| {proof.kind} | {proof.name} | {proof.status} | "
        f"[{proof.note.as_posix()}](../src/kerchief/{proof.note.as_posix()}) |"
        for proof in proofs()
    ]
    return "\n".join([_PREFACE, *lines]) + "\n"
