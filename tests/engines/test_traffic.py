"""A pass: so many requests in flight, started in the order of the list."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.engines import run_pass
from matrixrun.evidence.errors import EngineDied, EngineHung
from matrixrun.evidence.requests import Observation, Pass, Request, Score, ScoreRequest


class CountingClient:
    """A double that answers after a random moment and counts what is in flight."""

    def __init__(self, seed: int = 0, dies_at: int | None = None) -> None:
        self.order: list[str] = []
        self.salts: set[str] = set()
        self.most = self.now = 0
        self._random, self._dies_at = random.Random(seed), dies_at

    async def generate(self, request: Request, *, salt: str, logprobs: int) -> Observation:
        self.order.append(request.id)
        self.salts.add(salt)
        await self._work()
        if len(self.order) == self._dies_at:
            raise EngineDied("gone")
        return Observation(
            request=request.id,
            prompt=request.prompt,
            category=request.category,
            first_token=0.001,
            finished=0.002,
        )

    async def score(self, score: ScoreRequest, *, salt: str) -> Score:
        self.order.append(score.id)
        await self._work()
        return Score(
            request=score.id,
            evaluation=score.evaluation,
            start=score.start,
            token_logprobs=None,
            best_logprobs=None,
            best_ids=None,
        )

    async def _work(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)
        self.now -= 1


def _requests(count: int) -> tuple[Request, ...]:
    return tuple(
        Request(id=f"r{i}", prompt=f"p{i}", category="c", token_ids=(1,), max_tokens=1)
        for i in range(count)
    )


@given(count=st.integers(1, 20), concurrency=st.integers(1, 24), seed=st.integers(0, 99))
def test_requests_start_in_order_and_so_many_are_in_flight(
    count: int, concurrency: int, seed: int
) -> None:
    client = CountingClient(seed)
    requests = _requests(count)
    pass_ = Pass(id="x", requests=requests, concurrency=concurrency, salt="own")
    answers = asyncio.run(run_pass(client, pass_))
    assert client.order == [request.id for request in requests]
    assert [answer.request for answer in answers] == client.order
    assert client.most <= concurrency
    assert client.salts == {"own"}


def test_all_workers_are_used() -> None:
    client = CountingClient()
    asyncio.run(run_pass(client, Pass(id="x", requests=_requests(30), concurrency=4)))
    assert client.most == 4


def test_times_are_seconds_since_the_pass_began() -> None:
    answers = asyncio.run(run_pass(CountingClient(), Pass(id="x", requests=_requests(5))))
    starts = [answer.started for answer in answers]
    assert starts == sorted(starts)
    assert all(a.first_token == pytest.approx(a.started + 0.001) for a in answers)
    assert all(a.finished == pytest.approx(a.started + 0.002) for a in answers)


def test_scores_are_sent_as_scores() -> None:
    scores = tuple(ScoreRequest(id=f"s{i}", token_ids=(1, 2), start=1) for i in range(3))
    answers = asyncio.run(run_pass(CountingClient(), Pass(id="x", scores=scores, concurrency=2)))
    assert [answer.request for answer in answers] == ["s0", "s1", "s2"]


def test_an_empty_pass_has_no_answers() -> None:
    assert asyncio.run(run_pass(CountingClient(), Pass(id="x"))) == []


def test_a_dead_engine_ends_the_pass() -> None:
    client = CountingClient(dies_at=3)
    with pytest.raises(EngineDied):
        asyncio.run(run_pass(client, Pass(id="x", requests=_requests(50), concurrency=2)))
    assert len(client.order) < 10


class StuckClient(CountingClient):
    """A double that answers nothing any more after its first so many requests."""

    def __init__(self, answered: int) -> None:
        super().__init__()
        self._answered = answered

    async def generate(self, request: Request, *, salt: str, logprobs: int) -> Observation:
        seen = await super().generate(request, salt=salt, logprobs=logprobs)
        if len(self.order) <= self._answered:
            return seen
        return replace(seen, error="timeout: no answer within 300 s")


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_engine_that_answers_nothing_any_more_hangs_within_a_round(concurrency: int) -> None:
    client = StuckClient(answered=5)
    with pytest.raises(EngineHung, match="no progress"):
        asyncio.run(run_pass(client, Pass(id="x", requests=_requests(60), concurrency=concurrency)))
    assert len(client.order) <= 5 + 2 * max(2, concurrency)


@pytest.mark.parametrize("count", [2, 30])
def test_a_pass_smaller_than_its_concurrency_hangs_too(count: int) -> None:
    pass_ = Pass(id="x", requests=_requests(count), concurrency=64)
    with pytest.raises(EngineHung, match=f"{count} requests in a row"):
        asyncio.run(run_pass(StuckClient(answered=0), pass_))


def test_the_only_request_of_a_pass_may_be_slow() -> None:
    pass_ = Pass(id="x", requests=_requests(1), concurrency=64)
    (answer,) = asyncio.run(run_pass(StuckClient(answered=0), pass_))
    assert answer.error == "timeout: no answer within 300 s"


def test_a_slow_request_now_and_then_is_no_hang() -> None:
    client = CountingClient()
    plain = client.generate

    async def sometimes(request: Request, *, salt: str, logprobs: int) -> Observation:
        seen = await plain(request, salt=salt, logprobs=logprobs)
        return replace(seen, error="timeout: late") if len(client.order) % 3 == 0 else seen

    client.generate = sometimes  # type: ignore[method-assign]
    answers = asyncio.run(run_pass(client, Pass(id="x", requests=_requests(30))))
    assert sum(answer.error is not None for answer in answers) == 10


class SlowClient(CountingClient):
    """A double that never answers a request named `slow`, and knows which were given up."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped: list[str] = []

    async def generate(self, request: Request, *, salt: str, logprobs: int) -> Observation:
        if request.id.startswith("slow"):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.dropped.append(request.id)
                raise
        return await super().generate(request, salt=salt, logprobs=logprobs)


def test_a_request_is_dropped_when_its_time_comes_and_the_others_are_answered():
    def request(name: str, cancel_after: float | None) -> Request:
        return Request(
            id=name, prompt=name, category="c", token_ids=(1, 2), max_tokens=4,
            cancel_after=cancel_after,
        )  # fmt: skip

    client = SlowClient()
    requests = (request("slow", 0.01), request("fast", 30.0), request("other", None))
    seen = asyncio.run(run_pass(client, Pass(id="p", requests=requests, concurrency=3)))
    assert [one.finish_reason for one in seen] == ["cancelled", None, None]
    assert seen[0].error is None
    assert client.dropped == ["slow"]
