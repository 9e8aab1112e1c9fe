"""What a plan says of itself in words: what is left open, and what cannot be seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matrixrun import engines
from matrixrun.evidence.launches import ArmConfig, Launch
from matrixrun.matrix import Expansion, Matrix
from matrixrun.plan.arms import CHAT_TOKENS

# What each of these cannot tell on a server that somebody else started and others use too.
ATTACHED_PROBES = {
    "conversation": (
        "a turn that others' requests evicted from the cache looks like one that speculation lost: "
        "such a loss leaves a cell INCONCLUSIVE."
    ),
    "pressure": (
        "their caches are as large as they are: no prefix is evicted and nothing preempted where "
        "that takes more than is sent, and elsewhere it is others' prefixes too. Requests and "
        "cache that are left behind may be anybody's, so they are a notice."
    ),
    "rollback": (
        "planned drafts need a launch of their own: nothing is sent, and rejections are those that "
        "come by themselves."
    ),
}


def strength_notes(matrix: Matrix, expansion: Expansion) -> tuple[str, ...]:
    """Say where no covering array is as strong as was asked for."""
    held, strength = expansion.interactions, matrix.strategy.strength
    if held is None or strength <= len(held.axes):
        return ()
    return (
        f"strategy.strength {strength} is more than the axes that vary ({len(held.axes)}): every "
        "allowed cell is run, and the strength is that of the full grid.",
    )


def surface_notes(matrix: Matrix, launches: Sequence[Launch]) -> tuple[str, ...]:
    """Say what the probe `surface` does not look at."""
    if "surface" not in matrix.probes:
        return ()
    if not matrix.store_text:
        return ("probe surface: nothing is sent, since replies are texts (`store_text: false`).",)
    found = {
        f"probe surface on engines.{one.config.engine}: {words}"
        for one in launches
        for words in _surface_words(one.config)
    }
    return tuple(sorted(found))


def _surface_words(config: ArmConfig) -> Iterator[str]:
    forms = engines.get(config.kind).forms(config)
    if not forms:
        yield "nothing is sent: how it answers users' programs is not looked at yet."
        return
    if not any(form.has_tools for form in forms):
        yield "no tools are offered, since its `args` name no parser of tool calls."
        return
    length = config.limits.max_model_len
    if config.endpoint is None and length is not None and length < CHAT_TOKENS:
        yield (
            f"limits.max_model_len ({length}) may not hold a chat with a tool, which takes up to "
            f"{CHAT_TOKENS} tokens with some templates: what the engine refuses is not looked at."
        )


def attach_notes(matrix: Matrix, launches: Sequence[Launch]) -> tuple[str, ...]:
    """Say what it means that an engine's servers are somebody else's."""
    notes = []
    for name in sorted({one.config.engine for one in launches if one.config.endpoint is not None}):
        notes.append(
            f"engines.{name} is attached: nothing is started, the axes say what you declare of its "
            "servers, and what they do not report is not known. Its counters count everybody's "
            "requests."
        )
        if matrix.control_of(name) == "within-launch":
            notes.append(
                f"engines.{name} has no second off server (`second_off`): its own repetition is "
                "the null, and what differs between two servers without speculation is not in it."
            )
        notes += [
            f"probe {probe} on engines.{name}: {words}"
            for probe, words in ATTACHED_PROBES.items()
            if probe in matrix.probes
        ]
    return tuple(notes)


def capacity_notes(launches: Sequence[Launch]) -> tuple[str, ...]:
    """Say where the arms may differ in capacity: a draft takes memory that the off arm has."""
    found = {
        f"engines.{one.config.engine}: {pin} is not set"
        for one in launches
        if one.config.endpoint is None
        and (pin := engines.get(one.config.kind).open_cache(one.config)) is not None
    }
    return tuple(
        f"{words}: the draft takes memory, so the arms' KV caches differ in size (recorded with "
        "each launch)."
        for words in sorted(found)
    )
