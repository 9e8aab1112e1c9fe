"""The probes by name. A new one is a file with a class and a line here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from matrixrun.evidence.errors import UserError
from matrixrun.probes.acceptance import Acceptance
from matrixrun.probes.accuracy import Accuracy
from matrixrun.probes.conversation import Conversation
from matrixrun.probes.equality import Equality
from matrixrun.probes.ledger import Ledger
from matrixrun.probes.pressure import Pressure
from matrixrun.probes.processors import ProcessorsProbe
from matrixrun.probes.protocol import Probe
from matrixrun.probes.rollback import Rollback
from matrixrun.probes.sampling import SamplingProbe
from matrixrun.probes.surface import Surface

PROBES: dict[str, Probe] = {
    probe.kind: probe
    for probe in (
        *(Equality(), Acceptance(), SamplingProbe(), ProcessorsProbe(), Surface()),
        *(Conversation(), Pressure(), Rollback(), Ledger(), Accuracy()),
    )
}


def names() -> tuple[str, ...]:
    """Return the names that `probes:` may hold."""
    return tuple(PROBES)


def get(kind: str) -> Probe:
    """Return the probe of that name; UserError with a suggestion when there is none."""
    if kind in PROBES:
        return PROBES[kind]
    close = difflib.get_close_matches(kind, PROBES, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(PROBES)}"
    raise UserError(f"probes: there is no probe {kind!r}", remedy=hint)


def resolve(kinds: Iterable[str]) -> tuple[Probe, ...]:
    """Return the probes of these names, each once, in the registry's order.

    Raises:
        UserError: none is given, one does not exist, or one rides on a probe that is missing.
    """
    wanted = {probe.kind: probe for probe in map(get, kinds)}
    if not wanted:
        raise UserError("probes: the list is empty", remedy=f"name some of: {', '.join(PROBES)}")
    if "equality" not in wanted and all(probe.rides_on is None for probe in wanted.values()):
        raise UserError(
            "probes: 'equality' is missing, on which every verdict rests",
            remedy="add 'equality' to `probes:`",
        )
    for probe in wanted.values():
        if probe.rides_on is not None and probe.rides_on not in wanted:
            raise UserError(
                f"probes: {probe.kind!r} reads what {probe.rides_on!r} sends, which is not listed",
                remedy=f"add {probe.rides_on!r} to `probes:`",
            )
    return tuple(probe for kind, probe in PROBES.items() if kind in wanted)
