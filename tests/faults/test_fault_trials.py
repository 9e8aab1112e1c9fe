"""Trials whose launches are doubles: what of them is an effect of the fault, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from matrixrun.evidence.errors import EngineError
from matrixrun.evidence.launches import Launch, LaunchEnd, LaunchOutcome, Role
from matrixrun.evidence.ledger import Closed, Event
from matrixrun.evidence.requests import Observation, Pass, Request
from matrixrun.fanout.actor import PassAnswer
from matrixrun.faultbench import pair, run
from matrixrun.faultbench.catalogue import SPECIMENS
from matrixrun.faultbench.pair import STATE_BENCH, LaunchDied, Launches
from matrixrun.faultbench.probed import Asked, joined, send
from matrixrun.faultbench.result import Seen
from matrixrun.faultbench.specimen import Specimen
from matrixrun.faultbench.trial import Bench
from matrixrun.judge import ProbeObserved, settings_for
from matrixrun.workloads.prompts import workload_of

TRACED_FAULT = next(one for one in SPECIMENS if one.name == "leaked-step")
PLAIN_FAULT = next(one for one in SPECIMENS if one.name == "damaged-on-resume")
HARMLESS = next(one for one in SPECIMENS if one.name == "healthy-ledger")


@pytest.fixture
def ledgers() -> dict[Role, bytes]:
    """What the launches have written down."""
    return {}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, ledgers: dict[Role, bytes]) -> list[Role]:
    """The launches started, in order; their engines are doubles that die of every pass."""
    roles: list[Role] = []

    class BodyDouble:
        def __init__(self, launch: Launch, _: object) -> None:
            self._launch = launch

        def start(self) -> LaunchOutcome:
            roles.append(self._launch.role)
            return self._outcome(LaunchEnd.SERVED)

        def run(self, _: Pass) -> LaunchOutcome:
            return self._outcome(LaunchEnd.DIED)

        def finish(self) -> None:
            return None

        def ledger(self) -> bytes:
            return ledgers.get(self._launch.role, b"")

        def _outcome(self, end: LaunchEnd) -> LaunchOutcome:
            return LaunchOutcome(launch=self._launch.id, fingerprint="", end=end, message="words")

    monkeypatch.setattr(pair, "LaunchBody", BodyDouble)
    return roles


@pytest.fixture
def launches(started: list[Role], tmp_path: Path) -> Launches:
    return Launches(tmp_path, print, {"draft_model"}, file=STATE_BENCH, probes={"ledger", None})


def dying(launches: Launches, role: Role, specimen: Specimen) -> run.TrialResult:
    """Return what comes of a trial in whose first pass the engine of `role` dies."""
    (one,) = launches.pairs.values()
    pass_ = Pass(id="p", requests=())

    class BenchDouble(Bench):
        def trial(self, *_: object) -> run.TrialResult:
            self.pair.run(role, pass_)
            raise AssertionError

    bench = BenchDouble(one, workload_of(()), settings_for(launches.matrix), {})
    return run._trial(bench, specimen, 0, print)


@pytest.mark.parametrize(
    ("specimen", "role", "caught"),
    [
        (TRACED_FAULT, Role.TRACED, True),
        (TRACED_FAULT, Role.ON, False),
        (PLAIN_FAULT, Role.ON, True),
        (HARMLESS, Role.ON, True),
    ],
)
def test_the_launch_that_died_is_started_again_and_a_fault_is_caught_where_it_is(
    launches: Launches, started: list[Role], specimen: Specimen, role: Role, caught: bool
):
    result = dying(launches, role, specimen)
    assert started == [role]
    assert (result.verdict, result.finding, result.caught) == ("ERROR", "died", caught)
    launches.stop()


def test_an_off_launch_that_dies_ends_the_bench(launches: Launches):
    with pytest.raises(EngineError, match="words") as raised:
        dying(launches, Role.A, TRACED_FAULT)
    assert not isinstance(raised.value, LaunchDied)
    launches.stop()


START = b'{"event":"start","blocks":9,"block_size":16}\n'
STEP = b'{"event":"closed","step":1,"in_use":0,"requests":0}\n'
FULL = b'{"event":"full","step":2}\n'


def written_in_a_trial(
    launches: Launches, ledgers: dict[Role, bytes], more: bytes, place: Role
) -> dict[str, tuple[Event, ...]]:
    """Return what a trial sees of ledgers to which it adds `more`; the traced launch's alone."""
    (one,) = launches.pairs.values()
    launches.outcomes = {name: launches._bodies[name].start() for name in launches.launches}
    ledgers[Role.TRACED] = START
    bench = Bench(one, workload_of(()), settings_for(launches.matrix), {})
    written = bench._written()
    ledgers[Role.TRACED] += more
    return bench._ledgers(written, place)


def test_a_trial_sees_what_its_ledger_holds_since_the_one_before(
    launches: Launches, ledgers: dict[Role, bytes]
):
    assert written_in_a_trial(launches, ledgers, STEP, Role.TRACED) == {
        "traced": (Closed(step=1, in_use=0, requests=0),)
    }


@pytest.mark.parametrize("more", [b"", FULL, STEP + FULL])
def test_a_ledger_that_has_ended_is_no_miss_of_the_judge(
    launches: Launches, ledgers: dict[Role, bytes], more: bytes
):
    with pytest.raises(EngineError, match=r"its ledger has ended(?s:.)*LARGEST"):
        written_in_a_trial(launches, ledgers, more, Role.TRACED)


def test_the_ledger_of_a_launch_that_is_sent_nothing_may_be_as_it_was(
    launches: Launches, ledgers: dict[Role, bytes]
):
    assert written_in_a_trial(launches, ledgers, b"", Role.ON) == {"traced": ()}


def test_the_benchs_ledgers_have_room_for_all_trials(launches: Launches):
    traced = launches.pairs["draft_model"].launch(Role.TRACED)
    assert int(traced.command.env["MATRIXRUN_LEDGER_LARGEST"]) == 1_000_000_000


def test_what_earlier_trials_left_in_the_cache_is_in_use_before_this_one(launches: Launches):
    (one,) = launches.pairs.values()
    bench = Bench(one, workload_of(()), settings_for(launches.matrix), {})
    seen = Seen(before={"kv_cache_usage": 0.25}, growth={"kv_cache_usage": 0.05})
    record = bench.evidence(seen).evidence.records["on"]
    assert record.counters_before == {"kv_cache_usage": 0.25}
    assert record.counters_after == pytest.approx({"kv_cache_usage": 0.3})


def test_parts_of_a_probes_requests_are_judged_as_one():
    def part(*names: str) -> ProbeObserved:
        seen = tuple(
            Observation(request=name, prompt=name, category="", token_ids=np.zeros(1, np.int32))
            for name in names
        )
        return ProbeObserved("sampling", False, {"on": seen, "off": seen[:1]}, {}, {})

    whole = joined(part("a", "b"), part("c"))
    assert [one.request for one in whole.answers("on")] == ["a", "b", "c"]
    assert [one.request for one in whole.answers("off")] == ["a", "c"]


def test_a_trial_is_looked_at_early_and_goes_on_to_the_planned_number():
    assert Bench._blocks(64) == [(0, 16), (16, 32), (32, 64)]
    assert Bench._blocks(32) == [(0, 16), (16, 32)]
    assert Bench._blocks(10) == [(0, 10)]


def test_a_portion_of_a_probe_is_what_it_sends_of_the_prompts_not_left_out():
    """Doubles of a pair and of a probe with one pass, a request of which is of no prompt."""
    sent: list[str] = []
    requests = tuple(
        Request(id=name, prompt=name, category="c", token_ids=(1,), max_tokens=1)
        for name in ("p-0", "p-1", "filler")
    )

    class ProbeDouble:
        @staticmethod
        def passes(*_: object) -> Iterator[Pass]:
            yield Pass(id="main", requests=requests, salt="s")

    def run_pass(_: Role, pass_: Pass) -> PassAnswer:
        sent.extend(one.id for one in pass_.requests)
        return PassAnswer((), (), {}, {}, 0.0)

    pair_double = SimpleNamespace(
        launch=lambda _: SimpleNamespace(id="a"),
        bench=SimpleNamespace(matrix=None),
        cell=None,
        run=run_pass,
    )
    asked = Asked(ProbeDouble(), workload_of(()), {"p-1"})
    assert set(send(pair_double, Role.ON, asked, "key")) == {"main"}
    assert sent == ["p-0", "filler"]
