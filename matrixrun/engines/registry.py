"""Which engines there are: one line each."""

from __future__ import annotations

import difflib

from matrixrun.engines import llamacpp, sglang, vllm
from matrixrun.engines.protocol import Engine
from matrixrun.evidence.errors import UserError

_ENGINES: dict[str, Engine] = {
    engine.kind: engine for engine in (vllm.ENGINE, sglang.ENGINE, llamacpp.ENGINE)
}


def kinds() -> tuple[str, ...]:
    """The engines that a matrix may name, sorted."""
    return tuple(sorted(_ENGINES))


def get(kind: str) -> Engine:
    """The engine of this kind; UserError with a suggestion when there is none."""
    if kind in _ENGINES:
        return _ENGINES[kind]
    close = difflib.get_close_matches(kind, _ENGINES, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UserError(
        f"there is no engine of kind {kind!r}",
        remedy=f"{hint}known kinds: {', '.join(kinds())}",
    )
