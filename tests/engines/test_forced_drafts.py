"""Planned drafts: right up to a place and wrong there."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from vllm_arms import NGRAM, OFF

from matrixrun import engines
from matrixrun.engines.vllm import forcing
from matrixrun.evidence.launches import Arm

PLACES, VOCABULARY = 3, 100


@pytest.fixture
def module():
    path = forcing.FOLDER / f"{forcing.DRAFTER.partition('.')[0]}.py"
    spec = importlib.util.spec_from_file_location("forced", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def drafter(module):
    return module.Drafter(
        SimpleNamespace(
            speculative_config=SimpleNamespace(num_speculative_tokens=PLACES),
            model_config=SimpleNamespace(get_vocab_size=lambda: VOCABULARY),
        )
    )


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def propose(drafter, *texts: list[int]) -> list[list[int]]:
    """What a runner hands over: rows of a wider array, and how long each text is."""
    rows = np.zeros((len(texts), 300), np.int32)
    for row, tokens in enumerate(texts):
        rows[row, : len(tokens)] = tokens
    lengths = np.array([len(tokens) for tokens in texts])
    return drafter.propose([[0]] * len(texts), lengths, rows, slot_mappings=None)


def seen_once(drafter, whole: list[int], prompt: int) -> None:
    for length in range(prompt + 1, len(whole) + 1):
        assert propose(drafter, whole[:length]) == [[]]


def test_a_text_seen_for_the_first_time_gets_no_drafts(drafter):
    seen_once(drafter, text(1, 40), prompt=10)


def test_drafts_are_the_known_continuation_up_to_a_place_and_wrong_there(drafter, module):
    whole = text(1, 80)
    seen_once(drafter, whole, prompt=10)
    places = Counter()
    for length in range(11, 77):
        (draft,) = propose(drafter, whole[:length])
        wrong = [i for i, token in enumerate(draft) if token != whole[length + i]]
        planned = module.wrong_place(length, whole[length - 1], PLACES)
        assert wrong == [planned][: planned < PLACES]
        places[planned] += 1
    assert set(places) == set(range(PLACES + 1))


def test_every_place_comes_up_about_as_often(module):
    found = Counter(
        module.wrong_place(length, token, PLACES) for length in range(500) for token in range(8)
    )
    assert all(abs(count - 1000) < 120 for count in found.values())


def test_answers_that_follow_the_plan_reject_at_every_place(drafter):
    whole = text(3, 200)
    seen_once(drafter, whole, prompt=10)
    length, places = 11, Counter()
    while length < 190:
        (draft,) = propose(drafter, whole[:length])
        accepted = next(
            (i for i, token in enumerate(draft) if token != whole[length + i]), len(draft)
        )
        places[accepted] += 1
        length += accepted + 1
    assert set(places) == set(range(PLACES + 1))


def test_texts_are_told_apart_in_one_batch_also_where_they_begin_alike(drafter):
    shared = text(5, 20)
    one, other = shared + text(6, 20), shared + text(7, 20)
    seen_once(drafter, one, prompt=20)
    for length in range(21, 41):
        assert propose(drafter, other[:length], one[:length])[0] == []
    drafts = propose(drafter, one[:25], other[:25])
    for draft, whole in zip(drafts, (one, other), strict=True):
        assert sum(a != b for a, b in zip(draft, whole[25:], strict=False)) <= 1


def test_a_part_of_a_prompt_gets_none(drafter):
    whole = text(1, 40)
    seen_once(drafter, whole, prompt=10)
    rows = np.array([whole], np.int32)
    assert drafter.propose([[]], np.array([20]), rows) == [[]]


def test_the_arm_keeps_everything_but_its_method_and_draft():
    arm = msgspec.structs.replace(OFF, arm=Arm.ON, speculation=NGRAM, env={"A": "1"})
    forced = engines.get("vllm").forced(arm)
    assert forced.draft is None
    assert forced.speculation.num_speculative_tokens == arm.speculation.num_speculative_tokens
    assert forced.env["PYTHONPATH"].startswith(str(forcing.FOLDER))
    kept = msgspec.structs.replace(
        forced, draft=arm.draft, speculation=arm.speculation, env=arm.env, args=arm.args
    )
    assert kept == arm


def test_a_traced_arm_keeps_everything_but_its_scheduler():
    arm = msgspec.structs.replace(OFF, arm=Arm.ON, speculation=NGRAM, env={"PYTHONPATH": "/mine"})
    traced = engines.get("vllm").traced(arm)
    assert traced.args[-2:] == ("--scheduler-cls", "matrixrun_ledger.scheduler")
    assert traced.env["PYTHONPATH"] == f"{forcing.FOLDER}{os.pathsep}/mine"
    assert traced.env["MATRIXRUN_LEDGER"] == "$LEDGER"
    assert msgspec.structs.replace(traced, args=arm.args, env=arm.env) == arm
    assert (forcing.FOLDER / "matrixrun_ledger.py").is_file()


def test_a_scheduler_of_the_users_own_is_left_in_its_place():
    arm = msgspec.structs.replace(
        OFF, arm=Arm.ON, speculation=NGRAM, args=("--scheduler_cls=mine.Scheduler",)
    )
    assert engines.get("vllm").traced(arm) is None
    assert engines.get("vllm").forced(arm).args == arm.args


def test_replicas_that_have_a_scheduler_each_are_not_traced():
    arm = msgspec.structs.replace(OFF, arm=Arm.ON, speculation=NGRAM, data_parallel_size=2)
    assert engines.get("vllm").traced(arm) is None


def test_a_planned_arm_without_speculation_there_is_none():
    arm = msgspec.structs.replace(OFF, arm=Arm.ON, speculation=NGRAM)
    assert engines.get("vllm").forced(msgspec.structs.replace(arm, speculation=None)) is None
