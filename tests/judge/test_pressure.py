"""Which transitions happened under pressure, and what was left behind."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.requests import CANCELLED, Observation, PassRecord
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, ProbeObserved
from matrixrun.judge.witnesses import ProbeExamination
from matrixrun.judge.witnesses.pressure import examine_pressure

from .simulator import Pair, simulate

IDLE = {"num_requests_running": 0.0, "num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}


def record(name: str, before=IDLE, after=IDLE) -> PassRecord:
    return PassRecord(
        launch="L",
        pass_id=f"pressure.b8.{name}",
        kind="observations",
        path="",
        sha256="",
        requests=1,
        seconds=1.0,
        counters_before=before,
        counters_after=after,
    )


def answer(name: str, *, cached: int = 0, reason: str = "length", prompt: str = "") -> Observation:
    return Observation(
        request=f"pressure.{name}",
        prompt=f"pressure.{prompt or name}",
        category="pressure",
        token_ids=np.arange(3, dtype=np.int32),
        cached_tokens=cached,
        finish_reason=reason,
    )


def told(
    on_records,
    on=(),
    *,
    off_records=(),
    off=(),
    null=(),
    first: PassRecord | None = None,
    attached=False,
):
    observed = ProbeObserved(
        kind="pressure",
        compared=True,
        observations={"on": tuple(on), "off": tuple(off), "null": tuple(null)},
        scores={},
        records={"on": tuple(on_records), "off": tuple(off_records)},
    )
    evidence = simulate(Pair(prompts=2, tokens=4)).evidence
    if first is not None:
        evidence = msgspec.structs.replace(evidence, records={"on": first})
    if attached:
        for role, one in evidence.outcomes.items():
            evidence.outcomes[role] = msgspec.structs.replace(
                one, facts={"attached": "http://staging"}
            )
    return examine_pressure(ProbeExamination(evidence, JudgeSettings(), observed, None))


def preempting(times: float) -> PassRecord:
    return record("preempt0", {"num_preemptions": 2.0}, {"num_preemptions": 2.0 + times})


def reasons(found) -> str:
    assert all(one.verdict is Verdict.INCONCLUSIVE for one in found.objections)
    return "; ".join(one.reason for one in found.objections)


def test_preemptions_are_counted_and_their_absence_is_told():
    assert told([preempting(3)]).coverage == {"pressure.preemptions": 3}
    assert told([preempting(3)]).objections == ()
    assert "a request preempted" in reasons(told([preempting(0)]))


def test_an_engine_that_counts_no_preemptions_was_not_asked_for_one():
    found = told([record("preempt0", {}, {})])
    assert found.objections == ()
    assert "pressure.preemptions" not in found.coverage


def test_what_was_not_sent_is_not_missing():
    assert told([record("identical")], [answer("identical.0.0")]).objections == ()


def test_evictions_are_prefixes_that_were_warm_and_are_no_more():
    passes = [record(name) for name in ("shared", "warm", "evict0", "again0")]

    def answers(cached):
        return [
            answer("shared.0", prompt="shared.0"),
            answer("shared.0.warm", prompt="shared.0", cached=32),
            answer("shared.0.again0", prompt="shared.0", cached=cached),
        ]

    found = told(passes, answers(cached=0))
    assert found.coverage["pressure.prefixes_evicted"] == 1
    assert found.coverage["pressure.prefixes_reused"] == 1
    assert "evicted" in reasons(told(passes, answers(cached=32)))


def test_a_request_counts_as_dropped_when_no_answer_came_first():
    passes = [record("cancel0")]
    found = told(passes, [answer("cancel0.victim0", reason=CANCELLED)])
    assert found.coverage["pressure.requests_dropped"] == 1
    assert "dropped in flight" in reasons(told(passes, [answer("cancel0.victim0")]))


@pytest.mark.parametrize("gauge", list(IDLE))
def test_what_the_on_arm_alone_leaves_behind_is_a_fault(gauge):
    left = {**IDLE, gauge: 0.5}
    clean, leaky = ([record("identical"), record("end", after=after)] for after in (IDLE, left))
    some = [answer("identical.0.0")]
    (finding,) = told(leaky, some, off_records=clean).findings
    assert (finding.kind, finding.severity) == ("leak", Severity.FAULT)
    (finding,) = told(leaky, some, off_records=leaky).findings
    assert finding.severity is Severity.NOTICE
    assert told(clean, some, off_records=leaky).findings == ()


def test_what_was_lost_before_the_probe_began_is_left_behind_too():
    lost = {**IDLE, "kv_cache_usage_perc": 0.25}
    records = [record("identical", before=lost, after=lost), record("end", before=lost, after=lost)]
    some = [answer("identical.0.0")]
    assert told(records, some).findings == ()
    (finding,) = told(records, some, first=record("equality", before=IDLE)).findings
    assert (finding.kind, finding.severity) == ("leak", Severity.FAULT)


def test_what_others_may_have_left_on_an_attached_server_is_a_notice():
    left = [record("identical"), record("end", after={**IDLE, "num_requests_running": 1.0})]
    found = told(left, [answer("identical.0.0")], off_records=[], attached=True)
    assert [one.severity for one in found.findings] == [Severity.NOTICE]
    assert "anybody's" in found.findings[0].text


def test_what_was_in_use_before_is_no_leak():
    used = {**IDLE, "kv_cache_usage_perc": 0.25}
    records = [record("identical", before=used), record("end", after=used)]
    assert told(records, [answer("identical.0.0")]).findings == ()


def copies(*cached: int) -> list[Observation]:
    """The identical request three times, which take so many tokens from the cache."""
    return [answer(f"identical.0.{copy}", cached=taken) for copy, taken in enumerate(cached)]


def test_the_first_repetition_that_finds_nothing_is_a_fault():
    (found,) = told(
        [record("identical")], copies(0, 0, 64), off=copies(0, 64, 64), null=copies(64, 64, 0)
    ).findings
    assert (found.kind, found.severity) == ("reuse", Severity.FAULT)
    assert found.numbers["requests"] == 1
    assert found.numbers["tokens"] == 64


@pytest.mark.parametrize(
    ("on", "off", "null"),
    [
        ((0, 64, 64), (0, 64, 64), (0, 64, 64)),
        ((0, 64, 64), (0, 0, 64), (0, 0, 64)),  # more than the off arm
        ((0, 63, 63), (0, 64, 64), (0, 64, 64)),  # one token, where the engine names no blocks
        ((0, 0, 64), (0, 64, 64), (0, 0, 64)),  # the control does the same
    ],
)
def test_what_the_off_arms_do_as_well_is_not_accused(on, off, null):
    found = told([record("identical")], copies(*on), off=copies(*off), null=copies(*null))
    assert found.findings == ()


def test_on_a_server_of_others_a_lost_prefix_is_a_notice():
    (found,) = told(
        [record("identical")], copies(0, 0, 64), off=copies(0, 64, 64), attached=True
    ).findings
    assert found.severity is Severity.NOTICE
