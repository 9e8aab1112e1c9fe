"""What a probe of state asked for and what never happened makes a cell INCONCLUSIVE: each
transition of each probe."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from matrixrun.evidence import ledger
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import LaunchEnd
from matrixrun.evidence.requests import CANCELLED, Observation, PassRecord
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, ProbeObserved, testimony
from matrixrun.judge.witnesses import PROBE_WITNESSES, ProbeExamination

from .simulator import Pair, simulate

BLOCK = 8


def record(name: str, preempted: float | None = 0.0) -> PassRecord:
    """Return a pass in which so many requests were preempted; None: the engine counts none."""
    before = {} if preempted is None else {"num_preemptions": 1.0}
    return PassRecord(
        launch="L",
        pass_id=name,
        kind="observations",
        path="",
        sha256="",
        requests=1,
        seconds=1.0,
        counters_before=before,
        counters_after={name: value + (preempted or 0.0) for name, value in before.items()},
    )


def examined(
    probe: str, on, *, off=(), records=(), ledgers=None, end: LaunchEnd | None = LaunchEnd.SERVED
) -> testimony.Testimony:
    """Return what the probe's own witnesses say, beside launches for planned drafts and a ledger,
    which ended so (None: there are none)."""
    evidence = simulate(Pair(prompts=2, tokens=4)).evidence
    plain = evidence.outcomes["on"]
    facts = {"block_size": BLOCK}
    extra = {
        role: msgspec.structs.replace(plain, facts=facts, end=end, message="in its own words")
        for role in ("forced", "traced")
        if end is not None
    }
    cell = msgspec.structs.replace(
        evidence.cell,
        axes={
            "speculation": Speculation(method="ngram", num_speculative_tokens=2),
            "prefix_caching": True,
        },
    )
    evidence = msgspec.structs.replace(evidence, cell=cell, outcomes={**evidence.outcomes, **extra})
    observed = ProbeObserved(
        kind=probe,
        compared=True,
        observations={"on": tuple(on), "off": tuple(off)},
        scores={},
        records={"on": tuple(records)},
    )
    examination = ProbeExamination(evidence, JudgeSettings(), observed, None, {}, ledgers or {})
    told = testimony.Testimony()
    for witness in PROBE_WITNESSES:
        if witness.probe == probe:
            told += witness.examine(examination)
    return told


def missing(found: testimony.Testimony) -> str:
    assert all(one.verdict is Verdict.INCONCLUSIVE for one in found.objections)
    return "; ".join(one.reason for one in found.objections)


def answer(name: str, category: str = "", *, reason: str = "length", **fields) -> Observation:
    return Observation(
        request=name,
        prompt=name.rpartition(".t")[0] or name,
        category=category,
        token_ids=np.arange(8, dtype=np.int32),
        finish_reason=reason,
        **fields,
    )


# -- conversation --------------------------------------------------------------------------------


def talk(end: str, reason: str) -> list[Observation]:
    """Return two turns of a conversation, the second of them on the first."""
    first = answer(f"conversation.{end}.t1", end, reason=reason, sent=np.arange(20, dtype=np.int32))
    history = np.concatenate([first.sent, first.token_ids, first.token_ids])
    second = answer(f"conversation.{end}.t2", end, reason=reason, sent=history, cached_tokens=16)
    return [first, second]


ENDS = {"natural": "stop", "stop": "stop", "string": "stop", "length": "length"}


def test_conversations_that_ended_in_every_way_miss_nothing():
    turns = [turn for end, reason in ENDS.items() for turn in talk(end, reason)]
    found = examined("conversation", turns, off=turns)
    assert found.objections == ()
    assert {name for name in found.coverage if ".end." in name} == {
        f"conversation.end.{name}" for name in ("natural", "stop_token", "stop_string", "length")
    }


@pytest.mark.parametrize("never", ENDS)
def test_an_end_that_never_came_is_missing(never: str):
    other = {"stop": "length", "length": "stop"}
    turns = [
        turn
        for end, reason in ENDS.items()
        for turn in talk(end, other[reason] if end == never else reason)
    ]
    assert "conversation: no answer ended" in missing(examined("conversation", turns, off=turns))


def test_an_end_that_was_not_asked_for_is_not_missing():
    turns = talk("length", "length")
    assert examined("conversation", turns, off=turns).objections == ()


# -- rollback ------------------------------------------------------------------------------------


def steps(accepted: tuple[int, ...], *, size: int, cached: int = 0, prompt: int = 6) -> Observation:
    return Observation(
        request="rollback.0.cold",
        prompt="rollback.0",
        category="rollback",
        token_ids=np.zeros(size, np.int32),
        accepted=np.array(accepted, np.int32),
        drafted=np.full(len(accepted), 2, np.int32),
        prompt_tokens=prompt,
        cached_tokens=cached,
    )


# 1 from the prompt, then 1, 2 and 3 of which one is cut: rejections at 0 and 1, one on a border.
WHOLE = steps((0, 1, 2), size=6, cached=8)


def rolled_back(
    on=(WHOLE,), preempted: float | None = 1.0, after: int = 1, *, told: bool = True
) -> testimony.Testimony:
    return examined(
        "rollback",
        on,
        records=[record("rollback.b8.cold"), record("rollback.b8.preempt0", preempted)],
        ledgers={"forced": after_preemptions(after)} if told else {},
    )


def after_preemptions(rejections: int) -> tuple[ledger.Event, ...]:
    """Return a ledger of a request that is preempted, and then has drafts rejected so often."""
    events: list[ledger.Event] = [
        ledger.Start(blocks=9, block_size=BLOCK, draft_tokens=2),
        ledger.Arrived(request=0, prompt=4, limit=99),
        ledger.Preempted(step=1, request=0),
    ]
    events += [
        ledger.Verified(
            step=2 + step, request=0, proposed=2, accepted=0, token=1, kept=(1,),
            committed=5 + step, computed=4 + step,
        )
        for step in range(rejections)
    ]  # fmt: skip
    return tuple(events)


def test_planned_drafts_that_went_through_everything_miss_nothing():
    found = rolled_back()
    assert found.objections == ()
    assert found.coverage["rollback.rejections.after_preemption"] == 1


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"on": [steps((1, 2), size=5, cached=8)]}, "rejections.position.0"),
        ({"on": [steps((0, 2), size=4, cached=8)]}, "rejections.position.1"),
        ({"on": [steps((0, 1, 2), size=6, cached=8, prompt=10)]}, "rejections.at_border"),
        ({"on": [steps((0, 1, 2), size=6, cached=0)]}, "rejections.reused_prefix"),
        ({"on": [steps((0, 1, 2), size=7, cached=8)]}, "ended_inside_draft"),
        ({"preempted": 0.0, "told": False}, "preemptions"),
        ({"preempted": 0.0}, "preemptions"),
        ({"after": 0}, "rejections.after_preemption"),
    ],
)
def test_a_planned_rejection_that_never_came_is_missing(changes: dict, name: str):
    assert name in missing(rolled_back(**changes))


def test_where_the_engine_counts_no_preemptions_the_ledger_tells_of_them():
    assert rolled_back(preempted=None).objections == ()


@pytest.mark.parametrize("end", [LaunchEnd.DIED, LaunchEnd.HUNG])
def test_a_planned_launch_that_ended_early_is_inconclusive_though_it_answered(end: LaunchEnd):
    found = examined("rollback", [WHOLE], records=[record("rollback.b8.cold")], end=end)
    assert f"the launch with planned drafts {end}: in its own words" in missing(found)


def test_where_the_cache_was_never_outgrown_no_preemption_is_missing():
    found = examined("rollback", [WHOLE], records=[record("rollback.b8.cold")])
    assert found.objections == ()


def test_a_broken_rule_of_the_planned_launch_is_a_fault_of_its_own():
    broken = (*after_preemptions(1), ledger.Closed(step=3, in_use=2, requests=1))
    found = examined("rollback", [WHOLE], ledgers={"forced": broken})
    (finding,) = found.findings
    assert (finding.kind, finding.severity) == ("ledger", Severity.FAULT)
    assert "step 3" in finding.text


# -- pressure ------------------------------------------------------------------------------------

SENT = {
    "k2": "prompts as long as a verification step",
    "borders": "an answer close to the longest context",
    "identical": "the identical request again",
    "warm": "a shared prefix taken from the cache",
    "evict0": "a prefix evicted and computed again",
    "preempt0": "a request preempted",
    "cancel0": "a request dropped in flight",
}


@pytest.mark.parametrize("part", SENT)
def test_a_transition_that_never_came_under_pressure_is_missing(part: str):
    found = examined("pressure", [], records=[record(f"pressure.b8.{part}")])
    assert SENT[part] in missing(found)


# -- ledger --------------------------------------------------------------------------------------


def traced(*, ends=("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_ABORTED"),
           proposed: int = 2, published: bool = True,
           preempted: bool = True) -> tuple[ledger.Event, ...]:  # fmt: skip
    """Return a ledger with a request for each end; answers are tokens 0 to 7."""
    events: list[ledger.Event] = [ledger.Start(blocks=9, block_size=BLOCK, draft_tokens=2)]
    for number, how in enumerate(ends):
        events += [
            ledger.Arrived(request=number, prompt=0, limit=99, stop_strings=True),
            ledger.Verified(
                step=number + 1, request=number, proposed=proposed, accepted=7, token=7,
                kept=tuple(range(8)), committed=8, computed=7, ended=how,
            ),
            ledger.Ended(step=number + 1, request=number, how=how, committed=8, seconds=2.0),
            ledger.Closed(step=number + 1, in_use=0, requests=0, seconds=1.0),
        ]  # fmt: skip
    if published:
        events.append(ledger.Published(step=1, request=0, blocks=(3,), end=8, committed=8))
    if preempted:
        events.append(ledger.Preempted(step=1, request=0))
    return tuple(events)


ANSWERS = (
    answer("ledger.0.stop", "stop", reason="stop"),
    answer("ledger.1.length", "length"),
    answer("ledger.2.string", "string", reason="stop"),
    answer("ledger.cancel0.victim", "ledger", reason=CANCELLED),
)
PASSES = [record(f"ledger.b8.{name}") for name in ("turns", "again", "preempt0", "cancel0")]


def test_a_ledger_of_everything_misses_nothing():
    found = examined("ledger", ANSWERS, records=PASSES, ledgers={"traced": traced()})
    assert found.objections == ()
    assert found.findings == ()
    assert found.coverage["ledger.ends.stop_string"] == 1
    assert found.metrics["ledger/past_stop_string.tokens.max"] == 0


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"ends": ("FINISHED_LENGTH_CAPPED", "FINISHED_ABORTED")}, "ends.stop_token"),
        ({"ends": ("FINISHED_STOPPED", "FINISHED_ABORTED")}, "ends.length"),
        ({"ends": ()}, "ends.stop_string"),
        ({"proposed": 0}, "steps.verified"),
        ({"published": False}, "blocks_published"),
        ({"preempted": False}, "preemptions"),
    ],
)
def test_what_a_ledger_does_not_hold_is_missing(changes: dict, name: str):
    found = examined("ledger", ANSWERS, records=PASSES, ledgers={"traced": traced(**changes)})
    assert name in missing(found)


def test_requests_that_nobody_dropped_are_missing():
    found = examined("ledger", ANSWERS[:3], records=PASSES, ledgers={"traced": traced()})
    assert "dropped" in missing(found)


def test_without_a_traced_launch_every_cause_is_told():
    found = examined("ledger", [], end=None)
    assert found.objections == ()
    (notice,) = found.findings
    assert notice.severity is Severity.NOTICE
    for cause in ("has no place for one", "scheduler of your own", "replicas", "it is attached"):
        assert cause in notice.text


def test_a_traced_launch_without_a_ledger_is_inconclusive():
    assert "it wrote no ledger" in missing(examined("ledger", ANSWERS, records=PASSES))


@pytest.mark.parametrize("end", [LaunchEnd.DIED, LaunchEnd.HUNG])
def test_a_traced_launch_that_ended_early_is_inconclusive_though_its_ledger_is_whole(
    end: LaunchEnd,
):
    found = examined("ledger", ANSWERS, records=PASSES, ledgers={"traced": traced()}, end=end)
    assert missing(found) == f"ledger: the traced launch {end}: in its own words"


def test_a_ledger_that_broke_off_by_a_mistake_of_its_own_is_inconclusive():
    cut = (*traced(), ledger.Full(step=9, why="KeyError: 'x'"))
    found = examined("ledger", ANSWERS, records=PASSES, ledgers={"traced": cut})
    assert "could not go on with it: KeyError" in missing(found)


def test_a_ledger_cut_at_its_size_is_a_notice():
    cut = (*traced(), ledger.Full(step=9))
    found = examined("ledger", ANSWERS, records=PASSES, ledgers={"traced": cut})
    assert found.objections == ()
    (finding,) = found.findings
    assert finding.severity is Severity.NOTICE


def past_a_stop_string(steps: int, *, called_off: bool = False) -> testimony.Testimony:
    """Return what is said of an answer that ended at a string in the second of four tokens of a
    step, while its request went on for further steps, to its limit, and was `called_off` then."""
    tokens = tuple(range(4 * (1 + steps)))
    events: list[ledger.Event] = [
        ledger.Arrived(request=0, prompt=0, limit=len(tokens), stop_strings=True)
    ]
    events += [
        ledger.Verified(
            step=step + 1, request=0, proposed=3, accepted=3, committed=4 * step + 4,
            computed=4 * step + 3, kept=tokens[4 * step : 4 * step + 4],
            ended="FINISHED_LENGTH_CAPPED" if step == steps else None,
        )
        for step in range(1 + steps)
    ]  # fmt: skip
    events.append(
        ledger.Ended(step=1 + steps, request=0, how="FINISHED_LENGTH_CAPPED",
                     committed=len(tokens), seconds=2.0)
    )  # fmt: skip
    events += [ledger.CalledOff(step=1 + steps, request=0)] * called_off
    short = replace(answer("ledger.0.string", "string", reason="stop"), token_ids=np.arange(2))
    return examined("ledger", [short], ledgers={"traced": tuple(events)})


def test_a_request_that_is_never_called_off_past_its_stop_string_is_a_fault():
    """Its client was answered; the scheduler went on to the limit."""
    (fault,) = past_a_stop_string(steps=3).findings
    assert fault.severity is Severity.FAULT
    assert "went on by 14 tokens in 3 steps" in fault.text


def test_a_front_end_whose_word_comes_after_the_limit_is_a_figure_and_no_fault():
    """A server that is short of time is no fault of speculation."""
    found = past_a_stop_string(steps=30, called_off=True)
    assert found.findings == ()
    assert found.metrics["ledger/past_stop_string.steps.max"] == 30


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_limit_that_comes_before_the_front_ends_word_is_a_figure_and_no_fault(steps: int):
    found = past_a_stop_string(steps)
    assert found.findings == ()
    assert found.metrics["ledger/past_stop_string.tokens.max"] == 2 + 4 * steps
    assert found.metrics["ledger/past_stop_string.steps.max"] == steps
