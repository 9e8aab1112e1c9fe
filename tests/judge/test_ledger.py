"""The rules that a state ledger is checked by: a scheduler that keeps them is never accused, and
one that breaks any of them is, in that very step."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from matrixrun.evidence import ledger
from matrixrun.judge.ledger import MOST_VIOLATIONS, Rule, audit
from matrixrun.judge.witnesses.ledger import broken_rules

from .ledger_double import STOP, Double

BROKEN = {
    "rollback": Rule.ROLLBACK,
    "unverified": Rule.UNVERIFIED,
    "shared": Rule.SHARED,
    "freed": Rule.FREED,
    "leaked": Rule.LEAKED,
    "past the end": Rule.PAST_END,
}


def ran(seed: int, *, fault: str = "", draft: int = 3, requests: int = 6, drops: int = 1) -> Double:
    """Return a double that has run requests of which some share a prefix, in a cache for two."""
    double = Double(seed, blocks=14, size=4, draft=draft, fault=fault)
    for number in range(requests):
        prefix = [number % 2] * 9
        double.add(number, [*prefix, number % 5, *double.random.choices(range(7), k=3)], 16)
    for _ in range(drops):
        for _ in range(4):
            double._one_step()
        double.abort()
    double.run()
    return double


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), draft=st.integers(0, 5), requests=st.integers(1, 8))
def test_a_scheduler_that_keeps_the_rules_is_not_accused(seed: int, draft: int, requests: int):
    account = audit(ran(seed, draft=draft, requests=requests).events)
    assert account.violations == ()
    assert account.cut is None


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), fault=st.sampled_from(sorted(BROKEN)))
def test_whatever_rule_is_broken_is_named_with_its_step(seed: int, fault: str):
    double = ran(seed, fault=fault)
    assume(double.struck)
    violations = audit(double.events).violations
    assert violations, fault
    assert violations[0].rule is BROKEN[fault]
    assert 0 < violations[0].step <= double.step


@pytest.mark.parametrize("fault", BROKEN)
def test_every_rule_can_be_broken_at_all(fault: str):
    assert any(ran(seed, fault=fault).struck for seed in range(8))


def test_transitions_are_counted():
    counts: dict[str, int] = {}
    for seed in range(10):
        for name, count in audit(ran(seed).events).counts.items():
            counts[name] = counts.get(name, 0) + count
    assert not [name for name, count in counts.items() if count == 0]


def test_what_is_written_is_what_is_read():
    events = tuple(ran(1).events)
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in events)
    assert ledger.read_events(lines) == events


def test_a_last_line_that_was_cut_is_left_out():
    events = tuple(ran(1).events)
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in events)
    assert ledger.read_events(lines[:-3]) == events[:-1]


def turn(*kept: tuple[int, ...], limit: int = 10, ended: bool = True) -> list[ledger.Event]:
    """Return a ledger of one request whose steps keep these tokens."""
    events: list[ledger.Event] = [ledger.Arrived(request=0, prompt=4, limit=limit, stop=(STOP,))]
    committed = 4
    for step, tokens in enumerate(kept, start=1):
        committed += len(tokens)
        events.append(
            ledger.Verified(
                step=step,
                request=0,
                proposed=3,
                accepted=3,
                kept=tokens,
                committed=committed,
                computed=committed - 1,
                ended="FINISHED_STOPPED" if ended and step == len(kept) else None,
            )
        )
    return events


def test_a_turn_may_end_inside_an_accepted_draft():
    assert audit(turn((1, 2), (3, STOP))).violations == ()


@pytest.mark.parametrize(
    "events",
    [
        turn((1, 2), (STOP, 3)),
        turn((1, STOP), ended=False),
        turn((1, 2), (3, 4), limit=3),
    ],
    ids=["tokens behind it", "the request goes on", "beyond the limit"],
)
def test_nothing_is_kept_past_the_end_of_a_turn(events: list[ledger.Event]):
    found = audit(events).violations
    assert [one.rule for one in found] == [Rule.PAST_END]


def test_a_request_is_not_scheduled_after_its_end():
    ended = ledger.Ended(step=3, request=0, how="FINISHED_ABORTED", committed=6, seconds=1.0)
    later = ledger.Scheduled(step=4, request=0, start=6, tokens=1)
    assert [one.rule for one in audit([ended, later]).violations] == [Rule.PAST_END]


def test_a_published_block_is_not_written_again_until_it_is_handed_out_anew():
    def scheduled(step: int) -> ledger.Scheduled:
        return ledger.Scheduled(step=step, request=0, start=0, tokens=4, more=(5,), wrote=(5,))

    published = ledger.Published(step=1, request=0, blocks=(5,), end=4, committed=4)
    taken = ledger.Taken(step=2, blocks=(5,))
    freed = ledger.Freed(step=1, request=0, blocks=(5,), holders=(1,))
    again = audit([scheduled(1), published, scheduled(2)])
    assert [one.rule for one in again.violations] == [Rule.SHARED]
    assert audit([scheduled(1), published, freed, taken, scheduled(2)]).violations == ()


def test_blocks_are_not_handed_out_while_somebody_owns_them():
    owned = ledger.Scheduled(step=1, request=0, start=0, tokens=4, more=(5,), wrote=(5,))
    taken = ledger.Taken(step=2, blocks=(5,))
    assert [one.rule for one in audit([owned, taken]).violations] == [Rule.SHARED]


def test_tokens_that_nobody_kept_do_not_add_up():
    (arrived, verified) = turn((1, 2))
    short = msgspec.structs.replace(verified, committed=5, computed=3)
    assert [one.rule for one in audit([arrived, short]).violations] == [Rule.LENGTHS]


def test_a_ledger_that_was_cut_says_so():
    cut = ledger.Full(step=9, why="ValueError: x")
    assert audit([cut]).cut == "ValueError: x"


def test_a_flood_of_one_rule_is_kept_small_counted_on_and_hides_no_other():
    events: list[ledger.Event] = [
        ledger.Published(step=n, request=0, blocks=(1,), end=9, committed=1) for n in range(99)
    ]
    account = audit([*events, ledger.Closed(step=99, in_use=1, requests=0)])
    assert account.broken == {Rule.UNVERIFIED: 99, Rule.LEAKED: 1}
    assert len(account.violations) == MOST_VIOLATIONS + 1
    told = broken_rules(account, "traced")
    assert [(one.numbers["step"], one.numbers["times"]) for one in told.findings] == [
        (0, 99),
        (99, 1),
    ]
    assert "(and 98 times more)" in told.findings[0].text
    assert told.metrics["ledger/traced.violations"] == 100
