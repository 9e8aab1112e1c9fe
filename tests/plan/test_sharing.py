"""What is started the same way is started once."""

import pytest
from plan_matrices import DRAFT, GRID, NGRAM, matrix, plan

from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Arm, Role
from matrixrun.matrix import expand
from matrixrun.plan import build


def ids(made) -> set[str]:
    return {launch.id for launch in made.launches}


def test_methods_and_batch_sizes_meet_the_same_off_launch():
    made = plan(grid={**GRID, "prefix_caching": True})
    assert ids(made) == {
        "A.vllm.dense.pc-on",
        "on.vllm.dense.pc-on.ngram-k4",
        "on.vllm.dense.pc-on.draft_model-small-k3",
    }
    assert {pair.off for pair in made.pairs} == {"A.vllm.dense.pc-on"}
    assert len(made.pairs) == 4
    assert made.naive_launches == 8


def test_each_target_configuration_has_an_off_launch_of_its_own():
    made = plan()
    assert {i for i in ids(made) if i.startswith("A.")} == {
        "A.vllm.dense.pc-on",
        "A.vllm.dense.pc-off",
    }


def test_a_null_launch_is_planned_only_between_launches():
    between = plan(control="between-launches")
    assert {i for i in ids(between) if i.startswith("B.")} == {
        "B.vllm.dense.pc-on",
        "B.vllm.dense.pc-off",
    }
    assert all(pair.null == f"B{pair.off[1:]}" for pair in between.pairs)
    assert not any(i.startswith("B.") for i in ids(plan()))
    assert all(pair.null is None for pair in plan().pairs)


def test_both_off_launches_are_started_alike():
    made = plan(control="between-launches")
    by_id = {launch.id: launch for launch in made.launches}
    scorer, null = by_id["A.vllm.dense.pc-on"], by_id["B.vllm.dense.pc-on"]
    assert scorer.command == null.command
    assert scorer.fingerprint != null.fingerprint


def test_the_largest_batch_size_is_pinned_in_every_launch():
    made = plan()
    assert {launch.config.limits.max_num_seqs for launch in made.launches} == {8}


def test_a_batch_size_beyond_the_limit_is_an_error():
    made = matrix()
    cells = expand(made, file="small.yaml")
    tight = matrix(engines={"vllm": {"kind": "vllm", "limits": {"max_num_seqs": 4}}})
    with pytest.raises(UserError, match=r"vllm\.limits\.max_num_seqs: 4 .*8(?s:.*)remedy"):
        build(tight, cells)


def test_a_context_too_short_for_the_workload_is_an_error():
    with pytest.raises(UserError, match=r"max_model_len: 384 does not hold .*384 tokens"):
        plan(engines={"vllm": {"kind": "vllm", "limits": {"max_model_len": 384}}})


def test_the_context_holds_prompt_answer_and_the_scored_token_by_default():
    (length,) = {launch.config.limits.max_model_len for launch in plan().launches}
    assert length > 128 + 256


def test_each_arm_gets_its_own_arguments_and_variables():
    engine = {
        "kind": "vllm",
        "args": ["--block-size", "32"],
        "env": {"SHARED": "1"},
        "on": {"args": ["--async-scheduling"], "env": {"ONLY": "on"}},
        "off": {"env": {"ONLY": "off"}},
    }
    made = plan(engines={"vllm": engine})
    for launch in made.launches:
        on = launch.role is Role.ON
        assert ("--async-scheduling" in launch.command.argv) == on
        assert launch.command.argv[launch.command.argv.index("--block-size") + 1] == "32"
        assert launch.command.env["ONLY"] == ("on" if on else "off")
        assert launch.command.env["SHARED"] == "1"
        assert launch.config.arm is (Arm.ON if on else Arm.OFF)


def test_drafts_and_quantized_checkpoints_are_the_models_own():
    models = {
        "dense": {
            "targets": {"none": {"path": "org/plain"}, "fp8": {"path": "org/fp8"}},
            "drafts": {"small": {"path": "org/small", "revision": "abc"}},
        }
    }
    grid = {**GRID, "quantization": ["none", "fp8"], "prefix_caching": True}
    for launch in plan(models=models, grid=grid).launches:
        quantized = launch.config.quantization == "fp8"
        assert launch.config.target.path == ("org/fp8" if quantized else "org/plain")
        assert launch.config.quantized_checkpoint == quantized
        drafts = "draft_model" in launch.id
        assert (launch.config.draft is not None) == drafts
        assert not drafts or launch.config.draft.revision == "abc"


def test_two_names_of_one_engine_share_their_launches():
    engines = {"old": {"kind": "vllm"}, "new": {"kind": "vllm"}}
    made = plan(engines=engines, grid={**GRID, "engine": ["old", "new"]})
    assert len(made.launches) == len(plan().launches)
    assert len(made.pairs) == 2 * len(plan().pairs)


def test_two_versions_of_an_engine_share_nothing():
    engines = {
        "old": {"kind": "vllm", "install": ["vllm==0.31.0"]},
        "new": {"kind": "vllm", "install": ["vllm==0.32.0"]},
    }
    made = plan(engines=engines, grid={**GRID, "engine": ["old", "new"]})
    assert len(made.launches) == 2 * len(plan().launches)


def test_an_engines_own_recipe_is_the_default_and_single_fields_replace_its():
    by_default = plan().launches[0].config.recipe
    assert by_default.install
    changed = plan(engines={"vllm": {"kind": "vllm", "fallback_index": "https://index.example"}})
    recipe = changed.launches[0].config.recipe
    assert recipe.fallback_index == "https://index.example"
    assert recipe.install == by_default.install
    own = plan(engines={"vllm": {"kind": "vllm", "python": "/opt/venv/bin/python"}})
    assert own.launches[0].config.recipe.install == ()


def test_different_settings_never_share_an_id():
    options = [{**NGRAM, "prompt_lookup_min": n} for n in (1, 2)]
    made = plan(grid={**GRID, "speculation": [NGRAM, *options]})
    assert len(ids(made)) == len(made.launches) == 8
    shouting = {"Dense": {"target": {"path": "org/b"}}, "dense": {"target": {"path": "org/a"}}}
    grid = {**GRID, "model": ["dense", "Dense"], "speculation": NGRAM}
    made = plan(models=shouting, grid=grid)
    assert len({launch.id.casefold() for launch in made.launches}) == len(made.launches) == 8


def test_what_the_engine_could_not_answer_is_refused_with_its_reason():
    lossy = {**NGRAM, "rejection_sample_method": "synthetic"}
    made = plan(grid={**GRID, "speculation": [NGRAM, lossy]})
    assert len(made.refused) == 4
    assert all(reason for reason in made.refused.values())
    assert set(made.refused).isdisjoint(pair.cell for pair in made.pairs)
    assert not any(set(launch.cells) & set(made.refused) for launch in made.launches)
    assert made.naive_launches == 8


def test_a_gang_is_one_accelerator_a_rank_or_cores_without_one():
    grid = {**GRID, "tensor_parallel_size": 2, "pipeline_parallel_size": 2, "speculation": NGRAM}
    on_cpu = plan(grid=grid, resources={"cpus_per_rank": 1.5, "memory_gib_per_rank": 2})
    assert on_cpu.accelerators_at_once == 0
    assert on_cpu.cpus_at_once == 6
    assert on_cpu.launches[0].gang.memory_bytes == 8 * 2**30
    gpu = {"vllm": {"kind": "vllm", "install": ["vllm==0.32.0"]}}
    on_gpu = plan(grid=grid, engines=gpu, resources={"accelerator": "H100"})
    assert on_gpu.accelerators_at_once == 4
    assert on_gpu.launches[0].gang.accelerator == "H100"


def test_a_new_token_makes_no_new_launch_but_a_new_setting_does():
    def fingerprints(**env):
        made = plan(engines={"vllm": {"kind": "vllm", "env": env}})
        return {launch.id: launch.fingerprint for launch in made.launches}

    assert fingerprints(HF_TOKEN="one") == fingerprints(HF_TOKEN="two")
    one, two = fingerprints(MAX_TOKENS="1"), fingerprints(MAX_TOKENS="2")
    assert all(one[name] != two[name] for name in one)


def test_an_unknown_workload_is_an_error_of_the_plan():
    with pytest.raises(UserError, match="there is no workload 'natral'"):
        plan(workload={"categories": ["natral"]})


def test_launches_have_the_cells_they_serve():
    made = plan()
    for pair in made.pairs:
        serving = {launch.id for launch in made.launches if pair.cell in launch.cells}
        assert serving == {pair.on, pair.off}


def test_the_draft_is_part_of_what_distinguishes_a_launch():
    models = {
        "dense": {
            "target": {"path": "org/target"},
            "drafts": {"small": {"path": "d"}, "other": {"path": "e"}},
        }
    }
    grid = {**GRID, "speculation": [DRAFT, {**DRAFT, "draft": "other"}]}
    on = [x for x in plan(models=models, grid=grid).launches if x.role is Role.ON]
    assert len({launch.fingerprint for launch in on}) == 4
