"""Replies of users' endpoints in a sweep: kept with the cell, judged with the sweep, and judged
again from the folder. The engine is a double here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest
from doubles import launches, matrix, new_store, plan, sweep

from matrixrun.evidence.launches import Role
from matrixrun.evidence.replies import Ask, Form, Reply, Stream
from matrixrun.evidence.requests import Observation, Pass
from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.fanout import sweep as driver
from matrixrun.fanout.actor import PassAnswer
from matrixrun.fanout.cluster import Node
from matrixrun.judge import settings_for
from matrixrun.record import Store
from matrixrun.record.replay import judge_store


def replied(ask: Ask, text: str) -> Observation:
    stream = Stream(tokens=(2, 1, 1), finishes=1, usages=1, dones=1)
    reply = Reply(
        form=ask.form, text=text, completion_tokens=4, prompt_tokens=3, decoded="abcd",
        stream=stream if ask.streamed else None,
    )  # fmt: skip
    return Observation(
        request=ask.id, prompt=ask.prompt, category="surface", finish_reason="length",
        token_ids=np.array([1, 2, 3, 4], np.int32), reply=reply,
    )  # fmt: skip


def results(
    folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str = "abcd"
) -> tuple[Store, tuple[CellResult, ...]]:
    """A sweep whose on arms stream `broken` in the place of abcd."""
    plain = launches({}, [])

    class Replying(plain):  # type: ignore[misc, valid-type]
        async def run(self, pass_: Pass) -> PassAnswer:
            if not pass_.asks:
                return await super().run(pass_)
            on = self.launch.role is Role.ON
            seen = [replied(one, broken if on and one.streamed else "abcd") for one in pass_.asks]
            return PassAnswer(tuple(seen), (), {}, {}, 1.0)

    monkeypatch.setattr(driver, "RunningLaunch", Replying)
    monkeypatch.setattr(driver.cluster, "nodes", lambda: [Node("n", 8, 0, None)])
    monkeypatch.setattr(driver.cluster, "free", lambda nodes, _: nodes)
    store = new_store(folder)
    made = sweep(store, plan())
    made.matrix = matrix().model_copy(update={"probes": ("equality", "acceptance", "surface")})
    made.__post_init__()
    asyncio.run(made.run())
    return store, judge_store(store, settings_for(matrix()))


def test_replies_that_agree_pass_and_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, found = results(tmp_path / "out", monkeypatch)
    assert {one.verdict for one in found} == {Verdict.PASS}, [one.reason for one in found]
    assert all(one.coverage["surface.several_tokens"] > 0 for one in found)
    (evidence, *_) = store.evidences()
    kept = store.read_observations(evidence.all_records()["surface.on.0"])
    assert {one.reply.form for one in kept if one.reply} == {Form.COMPLETION, Form.CHAT}
    assert all(one.reply and one.reply.text == "abcd" for one in kept)


def test_a_stream_that_lost_a_piece_fails_the_cell_and_does_so_again_from_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = results(tmp_path / "out", monkeypatch, broken="abd")
    assert {one.verdict for one in found} == {Verdict.FAIL}
    for one in found:
        kinds = {f.kind for f in one.findings if f.severity is Severity.FAULT}
        assert kinds == {"surface-stream"}
    again = judge_store(Store.open(tmp_path / "out"), settings_for(matrix()))
    assert msgspec.json.encode(again) == msgspec.json.encode(found)
