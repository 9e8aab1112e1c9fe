"""What launch A scores, and where the scores are found."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from probe_sweeps import observation, workload

from matrixrun.evidence.requests import Evaluation, Pass, Score
from matrixrun.probes import Emitted, Source, score_passes

A, B, ON = "A.x", "B.x", "on.x.ngram-k4"
MAIN = "equality.b8"


def emitted(launch: str, *observations, pass_id: str = MAIN) -> Emitted:
    return Emitted(launch=launch, pass_id=pass_id, observations=observations)


def answer(passes: tuple[Pass, ...]) -> dict[str, list[Score]]:
    """Score each text with minus its last token, so that texts can be told apart."""
    return {
        one.id: [
            Score(
                request=request.id,
                evaluation=request.evaluation,
                start=request.start,
                token_logprobs=-np.array(request.token_ids[request.start :], np.float32),
                best_logprobs=np.zeros(len(request.token_ids) - request.start, np.float32),
                best_ids=np.zeros(len(request.token_ids) - request.start, np.int32),
            )
            for request in one.scores
        ]
        for one in passes
    }


def test_prompt_and_answer_are_scored_from_the_prompts_end_in_one_prefill():
    scoring = score_passes(A, [emitted(A, observation(2, 7, 8))], workload())
    (one,) = scoring.passes
    (request,) = one.scores
    assert one.id == "score.A.x.equality.b8"
    assert request.token_ids == (100, 101, 102, 7, 8)
    assert request.start == 3
    assert request.evaluation is Evaluation.PREFILL
    assert one.requests == ()


def test_what_a_emitted_itself_is_not_scored_again_for_the_others():
    scoring = score_passes(
        A,
        [
            emitted(ON, observation(0, 7, 8), observation(1, 7, 9)),
            emitted(A, observation(0, 7, 8), observation(1, 7, 8)),
            emitted(B, observation(0, 7, 8), observation(1, 7, 9)),
        ],
        workload(),
    )
    scored = {one.id: [request.id for request in one.scores] for one in scoring.passes}
    assert scored == {
        "score.A.x.equality.b8": ["p-0", "p-1"],
        "score.B.x.equality.b8": ["p-1"],
    }
    assert scoring.lookup(Source(ON, MAIN), "p-1") == ("score.B.x.equality.b8", "p-1")
    assert scoring.lookup(Source(ON, MAIN), "p-0") == ("score.A.x.equality.b8", "p-0")


def test_equal_answers_to_different_prompts_are_different_texts():
    scoring = score_passes(A, [emitted(A, observation(0, 7), observation(1, 7))], workload())
    assert len(scoring.passes[0].scores) == 2


def test_an_answer_without_tokens_has_no_score():
    observations = (observation(0), observation(1, 5))
    scoring = score_passes(A, [emitted(ON, *observations)], workload())
    assert scoring.lookup(Source(ON, MAIN), "p-0") is None
    found = scoring.assemble(Source(ON, MAIN), observations, answer(scoring.passes))
    assert [score.request for score in found] == ["p-1"]


def test_a_score_that_did_not_come_is_left_out():
    observations = (observation(0, 4), observation(1, 5))
    scoring = score_passes(A, [emitted(ON, *observations)], workload())
    assert scoring.assemble(Source(ON, MAIN), observations, {}) == []


def test_scoring_is_one_text_at_a_time_in_its_own_namespace():
    scoring = score_passes(
        A, [emitted(A, observation(0, 4)), emitted(B, observation(0, 5))], workload()
    )
    assert {one.concurrency for one in scoring.passes} == {1}
    salts = {one.salt for one in scoring.passes}
    assert len(salts) == 2
    assert f"{A}/{MAIN}" not in salts


ANSWERS = st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=5, max_size=5)


@given(
    answers=st.dictionaries(st.sampled_from([A, B, ON, "on.y"]), ANSWERS, min_size=1),
    data=st.data(),
)
def test_every_answer_gets_its_own_score_and_no_text_is_scored_twice(answers, data):
    observed = {
        launch: [observation(i, *tokens) for i, tokens in enumerate(many)]
        for launch, many in answers.items()
    }
    parts = [emitted(launch, *many) for launch, many in observed.items()]
    shuffled = data.draw(st.permutations(parts))
    scoring = score_passes(A, shuffled, workload())
    assert scoring == score_passes(A, parts, workload())
    texts = [request.token_ids for one in scoring.passes for request in one.scores]
    assert len(set(texts)) == len(texts)
    scores = answer(scoring.passes)
    for launch, many in observed.items():
        found = {s.request: s for s in scoring.assemble(Source(launch, MAIN), many, scores)}
        for one in many:
            tokens = one.token_ids.tolist()
            assert (one.request in found) == bool(tokens)
            if tokens:
                assert (-found[one.request].token_logprobs).tolist() == tokens
