"""The command lines of vLLM, as they are shown in a plan and as they are run."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_arms import NGRAM, OFF

from matrixrun.engines import flags, get, kinds
from matrixrun.engines.vllm.command import ALIASES
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Limits


def _with(**changes: object) -> ArmConfig:
    return msgspec.structs.replace(OFF, **changes)


def _argv(config: ArmConfig) -> str:
    return " ".join(get("vllm").command(config).argv)


def test_the_plain_off_arm_on_cpu() -> None:
    command = get("vllm").command(OFF)
    assert " ".join(command.argv) == (
        "$PYTHON -m vllm.entrypoints.cli.main serve $TARGET --host $HOST --port $PORT "
        "--served-model-name target --generation-config vllm --enable-prompt-tokens-details "
        "--enable-per-request-metrics --seed 0 --tensor-parallel-size 1 "
        "--pipeline-parallel-size 1 --enforce-eager"
    )
    assert command.env == {
        "VLLM_API_KEY": "$KEY",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }


def test_an_accelerator_takes_the_cpu_settings_away() -> None:
    command = get("vllm").command(_with(accelerator="H100"))
    assert "--enforce-eager" not in command.argv
    assert not [name for name in command.env if "CPU" in name or name == "OMP_NUM_THREADS"]


def test_every_field_of_an_arm_reaches_the_command_line() -> None:
    config = _with(
        target=Checkpoint(path="Org/Model", revision="abc"),
        quantization="fp8",
        dtype="float16",
        kv_cache_dtype="fp8",
        tensor_parallel_size=2,
        pipeline_parallel_size=3,
        data_parallel_size=4,
        prefix_caching=True,
        limits=Limits(
            max_model_len=512,
            max_num_seqs=8,
            max_num_batched_tokens=64,
            block_size=32,
            kv_cache_bytes=1 << 28,
        ),
    )
    argv = _argv(config)
    for part in (
        "--revision abc --tokenizer-revision abc",
        "--tensor-parallel-size 2 --pipeline-parallel-size 3",
        "--data-parallel-size 4 --api-server-count 1",
        "--quantization fp8 --dtype float16 --kv-cache-dtype fp8 --enable-prefix-caching",
        "--max-model-len 512 --max-num-seqs 8 --max-num-batched-tokens 64 --block-size 32",
        "--kv-cache-memory-bytes 268435456",
    ):
        assert part in argv
    assert "VLLM_CPU_KVCACHE_SPACE" not in get("vllm").command(config).env


def test_over_nodes_the_process_groups_differ_in_rank_and_only_the_head_serves() -> None:
    config = _with(tensor_parallel_size=16, nodes=2, accelerator="H100")
    head, other = get("vllm").command(config), get("vllm").follower_command(config)
    assert "--nnodes 2 --node-rank 0 --master-addr $HEAD --master-port $HEAD_PORT" in " ".join(
        head.argv
    )
    assert "--headless" not in head.argv
    assert " ".join(other.argv) == (
        " ".join(head.argv).replace("--node-rank 0", "--node-rank $NODE_RANK") + " --headless"
    )
    assert head.env == other.env
    assert head.env["VLLM_HOST_IP"] == "$NODE_IP"


def test_replicas_over_nodes_are_refused() -> None:
    config = _with(data_parallel_size=2, nodes=2)
    assert "data_parallel_size" in str(get("vllm").refuse(config))


def test_prefix_caching_is_left_to_the_engine_unless_it_is_an_axis() -> None:
    assert "prefix-caching" not in _argv(OFF)
    assert "--no-enable-prefix-caching" in _argv(_with(prefix_caching=False))


def test_a_quantized_checkpoint_needs_no_flag() -> None:
    config = _with(quantization="w8a8", quantized_checkpoint=True)
    assert "--quantization" not in _argv(config)


def test_only_the_on_arm_speculates() -> None:
    on = get("vllm").command(_with(arm=Arm.ON, speculation=NGRAM)).argv
    off = get("vllm").command(OFF).argv
    assert [part for part in on if part not in off] == [
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}',
        "--per-request-spec-decode-metrics",
        "detailed",
    ]


def test_a_draft_is_filled_in_where_the_process_starts() -> None:
    speculation = Speculation(
        method="draft_model", num_speculative_tokens=3, draft="near", options={"quantization": "q"}
    )
    argv = (
        get("vllm")
        .command(_with(speculation=speculation, draft=Checkpoint(path="Org/Draft", revision="r1")))
        .argv
    )
    settings = json.loads(argv[argv.index("--speculative-config") + 1])
    assert settings == {
        "method": "draft_model",
        "num_speculative_tokens": 3,
        "model": "$DRAFT",
        "revision": "r1",
        "quantization": "q",
    }


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        (("--seed", "7"), "--seed 0"),
        (("--seed=7",), "--seed 0"),
        (("--generation_config", "auto"), "--generation-config vllm"),
        (("-tp", "2"), "--tensor-parallel-size 1"),
        (("--no-enforce-eager",), "--enforce-eager "),
    ],
)
def test_a_flag_of_the_user_replaces_ours(given: tuple[str, ...], gone: str) -> None:
    argv = _argv(_with(args=given)) + " "
    assert gone not in argv.replace(" ".join(given), "")
    assert argv.rstrip().endswith(" ".join(given))


def test_variables_of_the_user_replace_ours() -> None:
    env = get("vllm").command(_with(env={"OMP_NUM_THREADS": "4", "A": "b"})).env
    assert (env["OMP_NUM_THREADS"], env["A"]) == ("4", "b")


@pytest.mark.parametrize(
    "flag", ["--port=1", "--host", "--api-key", "--served_model_name", "--config=f"]
)
def test_what_matrixrun_decides_is_not_the_users(flag: str) -> None:
    with pytest.raises(UserError, match=r"engines.vllm: args: --.* cannot be set"):
        get("vllm").command(_with(args=(flag, "x")))


@pytest.mark.parametrize(
    "flag",
    [
        *("--speculative-config", "-sc", "--speculative_config={}", "--speculative-config.method"),
        *("--speculative-conf", "--spec-method", "--spec-tokens=4", "-sc.method"),
    ],
)
def test_speculation_is_an_axis_and_no_flag_that_both_arms_would_get(flag: str) -> None:
    with pytest.raises(UserError, match=r"engines.vllm: args: (?s:.)* `speculation` axis"):
        get("vllm").command(_with(args=(flag, "x")))


def test_flags_that_only_sound_like_speculation_are_the_users() -> None:
    assert "--specialize-active-lora" in _argv(_with(args=("--specialize-active-lora",)))


@given(
    st.lists(st.sampled_from(["--a", "--b-c", "--d"]), unique=True),
    st.lists(st.sampled_from(["--a=1", "--b_c", "--no-d", "-x", "7"])),
)
def test_no_flag_is_given_twice(ours: list[str], theirs: list[str]) -> None:
    merged = flags.merge([(flag, "value") for flag in ours], tuple(theirs), {})
    assert merged[len(merged) - len(theirs) :] == tuple(theirs)
    kept = flags.flags_of(merged[: len(merged) - len(theirs)], {})
    assert kept == {flags.canonical(f, {}) for f in ours} - flags.flags_of(theirs, {})


def test_the_last_value_of_a_flag_counts() -> None:
    arguments = ("-sc", "{}", "--speculative-config={1}")
    assert flags.value_of(arguments, "--speculative-config", ALIASES) == "{1}"


def test_an_unknown_engine_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(UserError, match=r"'vlm'(?s:.)*did you mean 'vllm'"):
        get("vlm")
    assert "vllm" in kinds()


def test_planning_loads_no_http() -> None:
    code = (
        "import sys, matrixrun.engines as e; e.get('vllm');"
        "print([m for m in ('httpx', 'ray', 'mlflow', 'prometheus_client') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[]"
