"""Greedy answers with a logits processor on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from matrixrun.evidence.requests import BadWord, Evaluation, Observation, Score, banned_by
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, ProbeObserved, Processor, judge_sweep
from matrixrun.judge.bad_words import completing
from matrixrun.judge.grammar import LONGEST_LINE, fork_values
from matrixrun.judge.processors import (
    FREQUENCY,
    MIN_TOKENS,
    PRESENCE,
    REPETITION,
    allowed,
    processed_values,
    sampling_of,
    stops,
)

from .simulator import VOCABULARY, Pair, Target, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
CELL = simulate(Pair())
NAMES = {one.request: one.prompt for one in CELL.off}
PROMPTS = {NAMES[request]: ids for request, ids in CELL.prompts.items()}
TARGET = Target(spread=1.0)
TOP, TOKENS = 8, 24
# With a grammar every token is text: some end a line, the others are one to five characters of it.
TEXTS = ["\n" if token % 6 == 0 else "abcde"[: token % 6] for token in range(VOCABULARY)]
LENGTHS = np.array([0 if text == "\n" else len(text) for text in TEXTS])


def processed(processor, logits, prompt, history, place):
    """What an engine does to the logits, with `history` for generated."""
    made = logits.copy()
    counts = np.bincount(history, minlength=logits.size) if history else np.zeros(logits.size)
    if processor is Processor.PENALTIES:
        made -= PRESENCE * (counts > 0) + FREQUENCY * counts
    elif processor is Processor.REPETITION:
        seen = np.isin(np.arange(logits.size), [*prompt, *history])
        lower = np.where(made > 0, made / REPETITION, made * REPETITION)
        made = np.where(seen, lower, made)
    elif processor is Processor.ALLOWED:
        made[~np.isin(np.arange(logits.size), allowed(prompt))] = -np.inf
    elif processor is Processor.GRAMMAR:
        line = len(text_of(history).rpartition("\n")[2])
        made[(LENGTHS == 0) if line == 0 else (line + LENGTHS > LONGEST_LINE)] = -np.inf
    elif processor is Processor.BAD_WORDS:
        made[list(completing(history, BANNED[prompt]))] = -np.inf
    elif place < MIN_TOKENS:
        made[list(stops(prompt))] = -np.inf
    return made


def free_answer(name):
    """What is said where nothing is forbidden."""
    ids = [PROMPTS[name][-1]]
    for place in range(TOKENS):
        law = TARGET.logits(np.array([int(name[1:])]), place, np.array(ids[-1:]))[0]
        ids.append(int(law.argmax()))
    return ids[1:]


# A word of two tokens, and one of one that would come behind it.
BANNED = {
    prompt: (tuple(said[4:6]), tuple(said[9:10]))
    for name, prompt in PROMPTS.items()
    for said in [free_answer(name)]
}


def text_of(ids):
    return "".join(TEXTS[token] for token in ids)


def answer(processor, name, *, lag=0, masked=True, noise=0.0, twice=False):
    """One arm's answer and its score; every third token does not see the `lag` tokens before it,
    as if they were a draft's, or sees the last one `twice`. Without `masked` every third token sees
    no mask."""
    index, prompt = int(name[1:]), PROMPTS[name]
    random = np.random.default_rng([index, int(1000 * noise)])
    ids: list[int] = []
    raws = []
    for place in range(TOKENS):
        last = ids[-1] if ids else prompt[-1]
        raw = TARGET.logits(np.array([index]), place, np.array([last]))[0]
        late = place % 3 == 2
        history = (ids[: place - lag] + ids[-1:] * twice) if late else ids
        seen = raw + noise * random.standard_normal(raw.size)
        if late and not masked:
            ids.append(int(seen.argmax()))
        else:
            ids.append(int(processed(processor, seen, prompt, history, place).argmax()))
        raws.append(special.log_softmax(raw))
    request = f"processors.{processor}.{name}"
    seen_by_judge = Observation(
        request=request, prompt=name, category="natural", token_ids=np.array(ids, np.int32),
        text=text_of(ids), finish_reason="length",
        banned=banned_by(sampling_of(processor, prompt, 0, (
            BadWord(text="unseen", sequences=BANNED[prompt]),
        ))),
    )  # fmt: skip
    return seen_by_judge, score_of(request, np.array(raws), np.array(ids))


def score_of(request, laws, ids):
    order = np.argsort(-laws, axis=1)[:, :TOP]
    return Score(
        request=request, evaluation=Evaluation.PREFILL, start=4,
        token_logprobs=laws[np.arange(len(ids)), ids].astype(np.float32),
        best_logprobs=laws.max(axis=1).astype(np.float32), best_ids=order[:, 0].astype(np.int32),
        top_ids=order.astype(np.int32),
        top_logprobs=np.take_along_axis(laws, order, axis=1).astype(np.float32),
    )  # fmt: skip


def seen(only=None, hit=None, **on):
    """What the probe saw; the on arm differs as said, with the processor `only` or with all, in the
    prompts `hit` or in all."""
    names = sorted(PROMPTS)[:16]
    arms = {
        arm: {
            f"{processor}.{name}": answer(
                processor,
                name,
                **(
                    on
                    if arm == "on" and only in (None, processor) and (hit is None or name in hit)
                    else {}
                ),
            )
            for name in names
            for processor in Processor
        }
        for arm in ("on", "off", "null")
    }
    return ProbeObserved(
        kind="processors", compared=False, records={},
        observations={arm: tuple(one for one, _ in many.values()) for arm, many in arms.items()},
        scores={arm: tuple(score for _, score in many.values()) for arm, many in arms.items()},
    )  # fmt: skip


def result_of(probe):
    return judge_sweep([replace(CELL, probes=(probe,))], SETTINGS).results[0]


def settled_result(probe, off=0.0, **on):
    """The verdict after A has scored again what was wanted, the worse token higher by `off`; `on`
    is what the on arm did."""
    on = on or {"lag": 2}
    observed = replace(CELL, probes=(probe,))
    wants = judge_sweep([observed], SETTINGS).wants
    given = tuple(rescored(one, off, on) for want in wants for one in want.scores)
    again = judge_sweep([replace(observed, confirmations=given)], SETTINGS)
    assert not again.wants
    return again.results[0]


def rescored(wanted, off, on):
    _, processor, name, place, evaluation, token = wanted.id.removeprefix("on.").split(".")
    law = law_after(name, wanted.token_ids[:-1])
    emitted = answer(Processor(processor), name, **on)[0].token_ids[int(place)]
    value = np.array([law[int(token)] + off * (int(token) == emitted)], np.float32)
    return Score(
        request=wanted.id, evaluation=Evaluation(evaluation), start=wanted.start,
        token_logprobs=value, best_logprobs=np.array([law.max()], np.float32),
        best_ids=np.array([law.argmax()], np.int32),
    )  # fmt: skip


def law_after(name, text):
    place = len(text) - len(PROMPTS[name])
    return special.log_softmax(TARGET.logits(np.array([int(name[1:])]), place,
                                             np.array([text[-1]]))[0])  # fmt: skip


def faults(result):
    return {one.kind for one in result.findings if one.severity is Severity.FAULT}


def test_answers_with_processors_pass_and_fit_the_arithmetic():
    result = result_of(seen())
    assert result.verdict is Verdict.PASS, result.reason
    for processor in Processor:
        assert result.metrics[f"processors.regret/max.{processor}.on"] < 1e-3
        assert result.metrics[f"processors.exact_match/{processor}.on"] == 1.0


def test_rounding_is_no_fault():
    assert result_of(seen(noise=0.05)).verdict is Verdict.PASS


def test_draft_positions_missing_from_the_penalties_history_fail():
    result = result_of(seen(only=Processor.PENALTIES, lag=2))
    assert faults(result) == {"processing"}
    assert "penalties" in result.reason


HIT = [name for name in sorted(PROMPTS)[:16]
       if answer(Processor.PENALTIES, name, lag=2)[0].token_ids.tolist()
       != answer(Processor.PENALTIES, name)[0].token_ids.tolist()][:1]  # fmt: skip


def test_one_answer_whose_penalties_miss_the_draft_fails_when_re_scoring_confirms_it():
    result = settled_result(seen(only=Processor.PENALTIES, hit=HIT, lag=2))
    assert result.verdict is Verdict.FAIL
    assert faults(result) == {"misprocessed-token"}
    assert f"processors.penalties.{HIT[0]}" in result.reason


def test_before_it_is_scored_again_it_is_a_suspicion():
    result = result_of(seen(only=Processor.PENALTIES, hit=HIT, lag=2))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "re-scoring has not settled" in result.reason


def test_a_token_that_decoding_explains_is_no_fault():
    result = settled_result(seen(only=Processor.PENALTIES, hit=HIT, lag=2), off=9.0)
    assert result.verdict is Verdict.PASS, result.reason


def test_a_single_token_is_no_event_where_an_off_arm_shows_the_like():
    probe = seen(only=Processor.PENALTIES, hit=HIT, lag=2)
    like = {name: {one.request: one for one in getattr(probe, name)["on"]}
            for name in ("observations", "scores")}  # fmt: skip
    swapped = {
        field: {**getattr(probe, field),
                "null": tuple(like[field][one.request] for one in getattr(probe, field)["null"])}
        for field in like
    }  # fmt: skip
    result = settled_result(replace(probe, **swapped))
    assert result.verdict is Verdict.PASS, result.reason


@pytest.mark.parametrize(
    "processor", [Processor.ALLOWED, Processor.MIN_TOKENS, Processor.BAD_WORDS]
)
def test_masks_that_do_not_hold_everywhere_fail(processor):
    result = result_of(seen(only=processor, masked=False))
    assert "forbidden-token" in faults(result)
    assert processor in result.reason


def test_a_bad_word_that_begins_inside_a_draft_and_is_not_seen_fails():
    """Half of it stands in the draft: it comes; or it is banned where it has not begun."""
    result = settled_result(seen(only=Processor.BAD_WORDS, lag=1), lag=1)
    assert faults(result) & {"forbidden-token", "misprocessed-token"}
    assert "bad-words" in result.reason


def test_a_bad_word_that_the_off_arms_say_too_is_not_judged():
    """Another tokenizer than the workload's makes other tokens of it."""
    free = {
        arm: tuple(
            replace(one, banned=np.array([1, one.token_ids[0]], np.int32))
            if ".bad-words." in one.request else one
            for one in many
        )
        for arm, many in seen().observations.items()
    }  # fmt: skip
    result = result_of(replace(seen(), observations=free))
    assert result.verdict is Verdict.PASS, result.reason
    assert "bad-words is not judged: the off arms' own answers do not fit it" in notices(result)


@pytest.mark.parametrize("wrong", [{"masked": False}, {"lag": 2}])
def test_a_text_that_no_grammar_allows_fails(wrong):
    result = result_of(seen(only=Processor.GRAMMAR, **wrong))
    assert "forbidden-text" in faults(result)
    assert "answers with grammar hold a text that it forbids" in result.reason


def test_a_valid_text_whose_lines_end_too_early_fails_at_its_first_fork():
    result = settled_result(seen(only=Processor.GRAMMAR, twice=True), twice=True)
    assert result.verdict is Verdict.FAIL
    assert faults(result) == {"misprocessed-token", "processing"}
    assert "with grammar" in result.reason


def test_a_fork_that_decoding_explains_is_no_misprocessed_token():
    result = settled_result(seen(only=Processor.GRAMMAR, twice=True), off=99.0, twice=True)
    assert "misprocessed-token" not in faults(result)


def changed(probe, arms, change):
    """The probe with `change` made to the arms' answers with a grammar."""
    observations = {
        arm: tuple(change(one) if arm in arms and ".grammar." in one.request else one
                   for one in many)
        for arm, many in probe.observations.items()
    }  # fmt: skip
    return replace(probe, observations=observations)


def failed(words):
    return lambda one: replace(one, token_ids=one.token_ids[:0], text=None, error=words)


def notices(result):
    return " ".join(one.text for one in result.findings if one.severity is Severity.NOTICE)


def test_requests_that_fail_with_a_grammar_on_the_on_arm_alone_fail():
    result = result_of(changed(seen(), ["on"], failed("HTTP 500: internal error")))
    assert faults(result) == {"failed-request"}
    assert "16 requests with grammar failed on the on arm" in result.reason


def test_a_grammar_that_the_engine_does_not_take_with_speculation_is_not_judged():
    refusal = "HTTP 400: not supported with speculative decoding"
    result = result_of(changed(seen(), ["on"], failed(refusal)))
    assert result.verdict is Verdict.PASS, result.reason
    assert f"grammar is not judged: the on arm says: {refusal}" in notices(result)


def test_a_grammar_that_the_off_arm_does_not_hold_to_is_not_judged():
    free = changed(seen(), ["on", "off", "null"], lambda one: replace(one, text="no line at all"))
    assert result_of(free).verdict is Verdict.PASS
    loose = changed(free, ["on", "off", "null"], lambda one: replace(one, text="a" * 40))
    result = result_of(loose)
    assert result.verdict is Verdict.PASS, result.reason
    assert "grammar is not judged: the off arms' own answers do not fit it" in notices(result)


def test_a_fork_is_valued_by_the_other_answer_and_what_follows_is_not():
    ours, others = np.array([5, 6, 7, 8]), np.array([5, 9, 7, 1])
    mine, theirs = np.float32([-1, -3, -9, -9]), np.float32([-1, -0.5, 0, 0])
    regrets, rivals = fork_values(ours, mine, others, theirs)
    assert regrets.tolist() == [0, 2.5, 0, 0]
    assert rivals.tolist() == [5, 9, 7, 8]
    assert not fork_values(others, theirs, ours, mine)[0].any()
    assert not fork_values(ours, mine, ours[:2], mine[:2])[0].any()
    assert not fork_values(ours, np.float32([-1, np.nan, 0, 0]), others, theirs)[0].any()


def test_an_engine_that_counts_the_prompt_too_is_judged_by_its_own_arithmetic(monkeypatch):
    def whole(processor, logits, prompt, history, place, ours=processed):
        return ours(processor, logits, prompt, [*prompt, *history], place)

    monkeypatch.setattr("judge.test_processors.processed", whole)
    result = result_of(seen())
    assert result.verdict is Verdict.PASS
    assert result.metrics["processors.regret/max.penalties.off"] < 1e-3


def test_an_engine_that_masks_its_own_end_token_with_min_tokens_is_not_accused(monkeypatch):
    def stricter(processor, logits, prompt, history, place, ours=processed):
        made = ours(processor, logits, prompt, history, place)
        if processor is Processor.MIN_TOKENS and place < MIN_TOKENS:
            made[made.argmax()] = -np.inf
        return made

    monkeypatch.setattr("judge.test_processors.processed", stricter)
    result = result_of(seen())
    assert result.verdict is Verdict.PASS
    assert result.metrics["processors.regret/max.min-tokens.off"] < 1e-3


def test_a_processor_that_the_engine_cannot_express_is_not_judged():
    probe = seen()

    def failing(many):
        return tuple(
            replace(one, token_ids=one.token_ids[:0], error="not expressible")
            if ".allowed." in one.request else one
            for one in many
        )  # fmt: skip

    observations = {arm: failing(many) for arm, many in probe.observations.items()}
    result = result_of(replace(probe, observations=observations))
    assert result.verdict is Verdict.PASS
    assert any("allowed is not judged" in one.text for one in result.findings)


@pytest.mark.parametrize("processor", sorted(set(Processor) - {Processor.GRAMMAR}))
def test_the_regret_is_never_more_than_the_true_one(processor):
    name = sorted(PROMPTS)[5]
    one, score = answer(processor, name, lag=2)
    values = processed_values(
        processor, PROMPTS[name], one.token_ids.astype(np.int64), score, whole=False,
        banned=one.banned_sequences,
    )  # fmt: skip
    for place, bound in enumerate(values.regrets):
        last = int(one.token_ids[place - 1]) if place else PROMPTS[name][-1]
        raw = TARGET.logits(np.array([int(name[1:])]), place, np.array([last]))[0]
        made = processed(processor, raw, PROMPTS[name], one.token_ids[:place].tolist(), place)
        assert bound <= made.max() - made[one.token_ids[place]] + 1e-4


def test_an_engine_that_names_no_tokens_besides_the_best_cannot_be_judged():
    probe = seen()
    empty = np.zeros(0, np.int32), np.zeros(0, np.float32)
    scores = {
        arm: tuple(replace(one, top_ids=empty[0], top_logprobs=empty[1]) for one in many)
        for arm, many in probe.scores.items()
    }
    result = result_of(replace(probe, scores=scores))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert any("do not name the best tokens" in one.text for one in result.findings)
