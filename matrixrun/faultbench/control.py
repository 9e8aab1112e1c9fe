"""The bench's side of the injection's control file, see `injection/matrixrun_faults/control.py`."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from matrixrun.evidence.errors import EngineError
from matrixrun.faultbench.specimen import Injection

INJECTION = Path(__file__).with_name("injection")
VARIABLE = "FAULTBENCH_CONTROL"
COUNTERS = struct.Struct("<QQQ")


@dataclass(frozen=True)
class Struck:
    """What an injection has done: how often it struck, and the verification steps it saw."""

    times: int
    steps: int


class Switch:
    """Says which injection is active in one launch."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.json"
        self._generation = 0
        self.set(None, seed=0)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the engine's process finds the injection and this file."""
        return {"PYTHONPATH": str(INJECTION), VARIABLE: str(self._path)}

    def set(self, injection: Injection | None, *, seed: int) -> None:
        """Make `injection` the only active one, or none; the engine sees it at its next step."""
        self._generation += 1
        content = {
            "generation": self._generation,
            "fault": None if injection is None else injection.name,
            "seed": seed,
            "parameters": {} if injection is None else injection.parameters,
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(content), encoding="utf-8")
        fresh.replace(self._path)

    def struck(self) -> Struck:
        """Return what the active injection did.

        Raises:
            EngineError: the engine's process has not taken it up.
        """
        known = [
            COUNTERS.unpack(file.read_bytes())
            for file in self._path.parent.glob(f"{self._path.name}.*")
        ]
        current = [one for one in known if one[0] == self._generation]
        if not current:
            raise EngineError(
                f"the engine has not taken up {self._path.name}: none of its "
                f"{len(known)} processes has; the injection is not installed in its process",
                remedy="the fault bench fits vLLM 0.32 on its V1 runner",
            )
        return Struck(sum(one[1] for one in current), max(one[2] for one in current))
