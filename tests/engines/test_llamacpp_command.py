"""The command lines of llama.cpp, what is refused before a launch, and how the engine says no."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from matrixrun.engines import get, prepare
from matrixrun.engines.llamacpp.command import CPU_RECIPE, LAUNCHER
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Limits, Recipe

ENGINE = get("llamacpp")
OFF = ArmConfig(
    engine="llamacpp",
    kind="llamacpp",
    arm=Arm.OFF,
    recipe=CPU_RECIPE,
    model="gguf-dense",
    target=Checkpoint(path="builtin:gguf-dense"),
    limits=Limits(max_model_len=250, max_num_seqs=4),
)
BINARY = Recipe(python="python3", binary="llama-server")


def _with(**changes: object) -> ArmConfig:
    return msgspec.structs.replace(OFF, **changes)


def _argv(config: ArmConfig) -> str:
    return " ".join(ENGINE.command(config).argv)


def _on(method: str, **changes: object) -> str:
    speculation = Speculation(method=method, **changes)  # type: ignore[arg-type]
    draft = Checkpoint(path="d.gguf") if speculation.draft else None
    return _argv(_with(arm=Arm.ON, speculation=speculation, draft=draft)).partition("--spec-")[2]


def test_the_plain_off_arm_on_cpu() -> None:
    command = ENGINE.command(OFF)
    assert " ".join(command.argv) == (
        f"$PYTHON {LAUNCHER} --model $TARGET --host $HOST --port $PORT --alias matrixrun --seed 0 "
        "--metrics --slots --no-ui --offline --fit off --cache-ram 0 --slot-save-path . "
        "--parallel 4 --no-kv-unified --ctx-size 1024 --threads 1 --threads-batch 1"
    )
    assert command.env == {"LLAMA_API_KEY": "$KEY"}


def test_a_real_llama_server_is_started_by_its_own_name() -> None:
    argv = ENGINE.command(_with(recipe=BINARY)).argv
    assert argv[:3] == ("$BINARY", "--model", "$TARGET")


def test_a_binary_that_is_not_there_is_named(tmp_path: Path) -> None:
    recipe = Recipe(python="python3", binary=str(tmp_path / "llama-server"))
    with pytest.raises(UserError, match=r"binary: .*llama-server.* is not an executable"):
        prepare(recipe, cache=tmp_path, timeout=1, on_line=print)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"prefix_caching": True}, "--cache-prompt"),
        ({"prefix_caching": False}, "--no-cache-prompt"),
        (
            {"kv_cache_dtype": "q8_0"},
            "--cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on",
        ),
        ({"kv_cache_dtype": "f32"}, "--cache-type-k f32 --cache-type-v f32"),
        ({"limits": Limits(max_num_batched_tokens=64)}, "--batch-size 64 --ubatch-size 64"),
        (
            {"recipe": BINARY, "accelerator": "H100"},
            "--n-gpu-layers all --split-mode none",
        ),
        (
            {"recipe": BINARY, "accelerator": "H100", "tensor_parallel_size": 2},
            "--n-gpu-layers all --split-mode tensor --tensor-split 1,1",
        ),
        (
            {"recipe": BINARY, "accelerator": "H100", "pipeline_parallel_size": 3},
            "--split-mode layer --tensor-split 1,1,1",
        ),
    ],
)
def test_an_axis_reaches_the_command_line(changes: dict[str, object], expected: str) -> None:
    assert expected in _argv(_with(**changes))


@pytest.mark.parametrize(
    ("method", "fields", "expected"),
    [
        ("draft-simple", {"draft": "d"}, "type draft-simple --spec-draft-model $DRAFT "
         "--spec-draft-n-max 4"),
        ("draft_model", {"draft": "d"}, "type draft-simple --spec-draft-model $DRAFT "
         "--spec-draft-n-max 4"),
        ("draft-eagle3", {"draft": "d"}, "type draft-eagle3 --spec-draft-model $DRAFT "
         "--spec-draft-n-max 4"),
        ("mtp", {}, "type draft-mtp --spec-draft-n-max 4"),
        ("draft-dflash", {"draft": "d"}, "type draft-dflash --spec-draft-model $DRAFT "
         "--spec-draft-n-max 4"),
        ("draft-dspark", {"draft": "d"}, "type draft-dspark --spec-draft-model $DRAFT "
         "--spec-draft-n-max 4"),
        ("ngram-simple", {}, "type ngram-simple --spec-ngram-simple-size-m 4"),
        ("ngram-map-k", {}, "type ngram-map-k --spec-ngram-map-k-size-m 4"),
        ("ngram-map-k4v", {}, "type ngram-map-k4v --spec-ngram-map-k4v-size-m 4"),
        ("ngram-mod", {}, "type ngram-mod --spec-ngram-mod-n-max 4 --spec-ngram-mod-n-min 4"),
        ("ngram-cache", {}, "type ngram-cache --spec-draft-n-max 4"),
        ("draft-mtp,ngram-mod", {}, "type draft-mtp,ngram-mod --spec-draft-n-max 4 "
         "--spec-ngram-mod-n-max 4 --spec-ngram-mod-n-min 4"),
    ],
)  # fmt: skip
def test_every_method_has_its_draft_length_where_it_reads_it(
    method: str, fields: dict[str, str], expected: str
) -> None:
    assert _on(method, num_speculative_tokens=4, **fields) == expected


def test_options_are_the_engines_own_flags_and_win_over_ours() -> None:
    options = {"spec_ngram_simple_size_n": 2, "spec-ngram-simple-size-m": 9, "spec_flag": True}
    assert _on("ngram-simple", num_speculative_tokens=4, options=options) == (
        "type ngram-simple --spec-ngram-simple-size-n 2 --spec-ngram-simple-size-m 9 --spec-flag"
    )


def test_the_users_flags_win_in_any_spelling() -> None:
    argv = _argv(_with(args=("-np", "7", "-t=2", "--no-repack")))
    assert "--parallel" not in argv
    assert "--threads 1" not in argv
    assert argv.endswith("-np 7 -t=2 --no-repack")


@pytest.mark.parametrize("flag", ["--port", "-m", "--api-key", "-md", "--metrics", "--alias"])
def test_what_matrixrun_decides_cannot_be_given(flag: str) -> None:
    with pytest.raises(UserError, match="cannot be set"):
        ENGINE.command(_with(args=(flag, "x")))


@pytest.mark.parametrize(
    "flag",
    [
        *("--spec-type", "--spec_type=ngram-simple", "-md", "--model-draft", "--draft-max", "-hfd"),
        *("--spec-draft-n-max", "-ngld", "--threads-draft", "-lcs", "--lookup-cache-dynamic"),
        *("--spec-default", "--fim-qwen-7b-spec"),
    ],
)
def test_speculation_is_an_axis_and_no_flag_that_both_arms_would_get(flag: str) -> None:
    with pytest.raises(UserError, match=r"args: (?s:.)* `speculation` axis"):
        ENGINE.command(_with(args=(flag, "x")))


@pytest.mark.parametrize("name", ["LLAMA_ARG_SPEC_TYPE", "LLAMA_ARG_DRAFT_MAX"])
def test_speculation_is_no_variable_that_both_arms_would_get(name: str) -> None:
    with pytest.raises(UserError, match=rf"env: {name}(?s:.)* `speculation` axis"):
        ENGINE.command(_with(env={name: "x"}))


def test_flags_that_only_sound_like_speculation_are_the_users() -> None:
    assert "--special -t 2" in _argv(_with(args=("--special", "-t", "2")))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quantization": "q4_k_m"}, "does not quantize while loading"),
        ({"dtype": "float16"}, "dtype 'float16' is not expressible"),
        ({"data_parallel_size": 2}, "data_parallel_size 2 is not expressible"),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, "one --split-mode"),
        ({"tensor_parallel_size": 2}, "not split over 2 devices on one CPU"),
        ({"limits": Limits(block_size=16)}, "no blocks"),
        ({"limits": Limits(kv_cache_bytes=1)}, "max_model_len times max_num_seqs"),
        ({"accelerator": "H100"}, "installs llama.cpp's CPU build"),
        ({"args": ("--spec-synth-len", "2")}, "lossy by design"),
        (
            {"speculation": Speculation(method="ngram-mod", options={"spec_synth_rates": "1,0"})},
            "lossy by design",
        ),
    ],
)
def test_what_cannot_be_or_must_not_be_is_refused_with_a_reason(
    changes: dict[str, object], words: str
) -> None:
    assert words in (ENGINE.refuse(_with(**changes)) or "")


def test_a_file_for_each_quantization_and_rpc_workers_are_no_reason_to_refuse() -> None:
    assert ENGINE.refuse(_with(quantization="q4_k_m", quantized_checkpoint=True)) is None
    assert ENGINE.refuse(_with(tensor_parallel_size=2, args=("--rpc", "a:1,b:1"))) is None
    assert ENGINE.refuse(_with(speculation=Speculation(method="not-yet-invented"))) is None


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("logs/llamacpp-*.log")),
                         ids=lambda path: path.stem)  # fmt: skip
def test_real_logs_are_told_apart(path: Path) -> None:
    words = ENGINE.recognise_refusal(path.read_text())
    expected = {
        "llamacpp-refused-unknown-flag": "invalid argument: --no-such-flag",
        "llamacpp-refused-method": '"--spec-type": unknown speculative type: nope',
        "llamacpp-refused-cache-type": '"--cache-type-k": Unsupported cache type: fp8',
        "llamacpp-refused-removed-flag": '"--draft-max": the argument has been removed. use '
        "--spec-draft-n-max or --spec-ngram-mod-n-max",
        "llamacpp-died-no-file": None,
        "llamacpp-died-no-draft": None,
        "llamacpp-refused-no-mtp": "context type MTP requested but model doesn't contain MTP "
        "layers",
        "llamacpp-died-assertion": None,
    }
    assert words == expected[path.stem]
