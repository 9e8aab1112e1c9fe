"""The faults of the bench, each named after what went wrong in public, with the report."""

from __future__ import annotations

from matrixrun.evidence.errors import UserError
from matrixrun.faultbench.specimen import Specimen
from matrixrun.faultbench.specimens import drafts, output, requests, state

SPECIMENS: tuple[Specimen, ...] = (
    *output.SPECIMENS,
    *drafts.SPECIMENS,
    *requests.SPECIMENS,
    *state.SPECIMENS,
)


def select(names: tuple[str, ...]) -> tuple[Specimen, ...]:
    """Return the specimens of these names, or all; those that damage the engine's state last.

    Raises:
        UserError: there is none of that name.
    """
    known = {one.name for one in SPECIMENS}
    unknown = sorted(set(names) - known)
    if unknown:
        raise UserError(
            f"faultbench: there is no fault {unknown[0]!r}",
            remedy=f"one of: {', '.join(sorted(known))}",
        )
    wanted = [one for one in SPECIMENS if not names or one.name in names]
    return tuple(sorted(wanted, key=lambda one: one.corrupting))
