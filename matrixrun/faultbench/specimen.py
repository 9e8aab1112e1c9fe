"""What a specimen is: what is put into an engine, where, and what it damages."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

STATE_PROBES = ("conversation", "pressure", "rollback", "ledger")
NO_REPORT = "no report of its own"


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """What is switched on in an engine's process: a name of the injection package's registry."""

    name: str
    parameters: dict[str, Any] = {}


class Load(StrEnum):
    """What is sent: prompts that run to the output limit or the model's own end, or the same
    prompts with a stop token that many answers contain."""

    PLAIN = "plain"
    STOPS = "stops"


class Harm(StrEnum):
    """What a fault damages: tokens or logprobs, whose size can be compared with the floor; how many
    draft tokens are accepted, of which a tenth is what the judge calls a loss; or something else
    (an answer's end, what is cached), which has no floor."""

    OUTPUT = "output"
    ACCEPTANCE = "acceptance"
    OTHER = "other"


class Specimen(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of speculation, or something harmless that must not be accused.

    `injection` goes into the on launch; with `in_both` into both, as a property of the engine.
    `report` is the public report it is modelled on, `harm` what it damages. `off_as_on` puts the
    off launch's own answers where the on arm's belong. `corrupting` ones may leave the engine's
    state damaged and run last. `method` names the on launch that it goes into, `probe` the further
    probe that shows it: the probes of state have launches of their own, with a small cache.
    """

    name: str
    what: str
    report: str
    injection: Injection | None = None
    harmless: bool = False
    in_both: bool = False
    off_as_on: bool = False
    corrupting: bool = False
    load: Load = Load.PLAIN
    harm: Harm = Harm.OUTPUT
    method: str = "draft_model"
    probe: str | None = None

    @property
    def of_state(self) -> bool:
        """Whether it is shown on the launches for the probes of state."""
        return self.probe in STATE_PROBES


def fault(name: str, what: str, report: str, injected: str, **others: Any) -> Specimen:
    """Return a fault whose injection is `injected`; what is no field of a specimen is a parameter
    of the injection."""
    fields = ("load", "corrupting", "harm", "method", "probe")
    named = {key: others.pop(key) for key in fields if key in others}
    injection = Injection(name=injected, parameters=others)
    return Specimen(name=name, what=what, report=report, injection=injection, **named)


def harmless(
    name: str, what: str, report: str, injection: Injection | None = None, **others: Any
) -> Specimen:
    """Return something harmless; an `injection` is a property of the engine and goes into both
    launches."""
    return Specimen(
        name=name, what=what, report=report, injection=injection, harmless=True,
        in_both=injection is not None, **others,
    )  # fmt: skip
