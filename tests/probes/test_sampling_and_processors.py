"""What the probes above temperature 0 and with logits processors send."""

from __future__ import annotations

import msgspec
import pytest
from probe_sweeps import matrix, observation, plan, workload

from matrixrun.evidence.launches import Role
from matrixrun.evidence.requests import BadWord, Observation, Pass
from matrixrun.judge import Processor, Setting
from matrixrun.judge.sampled import setting_of
from matrixrun.probes import TOPS, Answered, Data, Emitted, get, score_passes, with_prompts
from matrixrun.probes.processors import processor_requests
from matrixrun.probes.sampling import sampling_requests
from matrixrun.workloads.prompts import workload_of

MATRIX = matrix(control="within-launch", probes=["equality", "sampling", "processors"])
PLAN = plan(MATRIX)


def sent(kind, launch):
    """All passes of a probe on a launch, whatever is answered."""
    cells = [cell for cell in PLAN.cells if cell.id in launch.cells]
    passes, found = get(kind).passes(launch, cells, workload(), MATRIX), []
    pass_ = next(passes, None)
    while pass_ is not None:
        found.append(pass_)
        try:
            pass_ = passes.send(Answered((), {}, {}))
        except StopIteration:
            pass_ = None
    return found


def launch(role):
    return next(one for one in PLAN.launches if one.role is role)


@pytest.mark.parametrize("kind", ["sampling", "processors"])
def test_every_source_of_a_cell_is_sent(kind):
    known = {(one.id, pass_.id) for one in PLAN.launches for pass_ in sent(kind, one)}
    for cell, pair in zip(PLAN.cells, PLAN.pairs, strict=True):
        sources = get(kind).sources(cell, pair)
        assert set(sources) == {"on", "off", "null"}
        assert {tuple(source) for many in sources.values() for source in many} <= known


@pytest.mark.parametrize("kind", ["sampling", "processors"])
def test_ids_say_which_probe_they_belong_to(kind):
    for pass_ in sent(kind, launch(Role.A)):
        assert pass_.id.startswith(f"{kind}.b")
        names = [request.id for request in pass_.requests]
        assert all(name.startswith(f"{kind}.") for name in names)
        assert len(set(names)) == len(names)


def seeds(pass_):
    return {request.id: request.sampling.seed for request in pass_.requests}


def test_samples_are_drawn_from_the_whole_law_and_from_cut_ones_and_no_token_ends_them():
    (first, *_) = sent("sampling", launch(Role.ON))
    found = {}
    for request in first.requests:
        sampling = request.sampling
        assert sampling.ignore_eos
        law = sampling.temperature, sampling.top_k, sampling.top_p
        found.setdefault(law, []).append(setting_of(request.id))
    assert found == {
        (1.0, 0, 1.0): [Setting.WHOLE] * 25,
        (0.7, 8, 1.0): [Setting.COOLED] * 10,
        (1.0, 0, 0.8): [Setting.NUCLEUS] * 10,
    }


def test_few_prompts_show_whether_settings_reach_draft_positions():
    many = workload_of(
        tuple(
            msgspec.structs.replace(workload().prompts[0], id=f"q-{place}") for place in range(40)
        )
    )
    requests = sampling_requests(many, MATRIX, key="on")
    cut = {one.prompt for one in requests if setting_of(one.id) is not Setting.WHOLE}
    assert cut == {f"q-{place}" for place in range(8)}
    assert len({one.prompt for one in requests}) == 32


def test_half_of_the_samples_have_seeds_of_their_own_and_one_is_sent_again():
    (first, *_) = sent("sampling", launch(Role.ON))
    found = seeds(first)
    distinct = [seed for name, seed in found.items() if not name.endswith(".again")]
    given = [seed for seed in distinct if seed is not None]
    assert len(given) == len(set(given)) == len(distinct) / 2
    for name, seed in found.items():
        if name.endswith(".again"):
            assert seed == found[name.removesuffix(".again")] is not None


def test_every_arm_has_other_seeds():
    on, (off, null, *_) = sent("sampling", launch(Role.ON))[0], sent("sampling", launch(Role.A))
    drawn = [{seed for seed in seeds(one).values() if seed is not None} for one in (on, off, null)]
    assert not drawn[0] & drawn[1]
    assert not drawn[1] & drawn[2]


def test_the_first_prompts_are_sent_with_each_processor():
    (first, *_) = sent("processors", launch(Role.ON))
    found = {(request.prompt, request.id.split(".")[1]) for request in first.requests}
    expected = set(Processor) - {Processor.BAD_WORDS}  # the workload has no words for it
    assert found == {(f"p-{i}", str(one)) for i in range(5) for one in expected}
    assert all(request.sampling.temperature == 0.0 for request in first.requests)


WORD = BadWord(text="a word", sequences=((5, 6), (7, 6)))


def spoken():
    """The workload with a bad word for two of its prompts."""
    prompts = [
        msgspec.structs.replace(prompt, bad_words=(WORD,))
        if prompt.id in ("p-1", "p-3")
        else prompt
        for prompt in workload().prompts
    ]
    return workload_of(tuple(prompts))


def test_bad_words_are_sent_to_prompts_that_have_some_and_recorded_with_the_answers():
    requests = processor_requests(spoken(), MATRIX)
    sent_words = {one.prompt: one.sampling.bad_words for one in requests if ".bad-words." in one.id}
    assert sent_words == {"p-1": (WORD,), "p-3": (WORD,)}
    assert not any(one.sampling.bad_words for one in requests if ".bad-words." not in one.id)
    pass_ = Pass(id="processors.b8", requests=requests)
    answers = [Observation(request=one.id, prompt=one.prompt, category="c") for one in requests]
    for one in with_prompts(pass_, answers, spoken()):
        banned = WORD.sequences if ".bad-words." in one.request else ()
        assert one.banned_sequences == banned


def test_bad_words_are_not_sent_where_texts_are_not_stored():
    silent = matrix(control="within-launch", probes=["equality", "processors"], store_text=False)
    assert not any(one.sampling.bad_words for one in processor_requests(spoken(), silent))


def test_no_grammar_is_sent_where_texts_are_not_stored():
    silent = matrix(control="within-launch", probes=["equality", "processors"], store_text=False)
    sent_silently = processor_requests(workload(), silent)
    assert not any(".grammar." in request.id for request in sent_silently)
    spoken = processor_requests(workload(), MATRIX)
    assert len(spoken) == len(sent_silently) + 5
    assert all(
        (request.sampling.grammar is not None) == (".grammar." in request.id) for request in spoken
    )


def test_penalties_begin_from_shorter_starts_too():
    (first, *_) = sent("processors", launch(Role.ON))
    whole = {prompt.id: prompt.token_ids for prompt in workload().prompts}
    starts = [one for one in first.requests if one.id.startswith("processors.penalties.p-4")]
    assert {one.prompt for one in starts} == {"p-4"}
    assert (
        len({one.id for one in starts})
        == len({one.token_ids for one in starts})
        == len(starts)
        == 3
    )
    assert all(one.token_ids == whole["p-4"][: len(one.token_ids)] for one in starts)
    assert [one.id for one in starts if one.token_ids == whole["p-4"]] == [
        "processors.penalties.p-4"
    ]
    others = [one for one in first.requests if ".penalties." not in one.id]
    assert all(one.token_ids == whole[one.prompt] for one in others)


def test_what_these_probes_emit_is_scored_with_the_best_tokens():
    for kind in ("sampling", "processors"):
        assert Data.TOPS in get(kind).needs
    both = [
        Emitted(launch="A", pass_id="equality.b8", observations=[observation(0, 7)]),
        Emitted(launch="A", pass_id="sampling.b8", observations=[observation(0, 7)], top=TOPS),
    ]
    scoring = score_passes("A", both, workload())
    assert [[request.top for request in one.scores] for one in scoring.passes] == [[1], [TOPS]]
