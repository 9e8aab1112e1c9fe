"""The command lines of SGLang, what is refused before one is run, and how its own refusals are told
from its crashes."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from sglang_arms import DRAFT, NGRAM, OFF, STAND_IN

from matrixrun.engines import get
from matrixrun.engines.sglang.command import DEFAULT_RECIPE, LAUNCH
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Limits, Recipe

SGLANG = get("sglang")
LOGS = Path(__file__).with_name("logs")


def with_(**changes: object) -> ArmConfig:
    return msgspec.structs.replace(OFF, **changes)


def argv(config: ArmConfig) -> str:
    return " ".join(SGLANG.command(config).argv[3:])


def speculating(method: str, **fields: object) -> str:
    """The flags that only the on arm has."""
    draft = fields.pop("checkpoint", None)
    length = fields.pop("k", 3)
    speculation = Speculation(method=method, num_speculative_tokens=length, options=dict(fields))
    on = SGLANG.command(with_(arm=Arm.ON, speculation=speculation, draft=draft)).argv
    return " ".join(on[len(SGLANG.command(OFF).argv) :])


def test_the_plain_off_arm_on_cpu() -> None:
    command = SGLANG.command(OFF)
    assert command.argv[:3] == ("$PYTHON", "-c", LAUNCH)
    assert argv(OFF) == (
        "--model-path $TARGET --host $HOST --port $PORT --random-seed 0 --enable-metrics "
        "--incremental-streaming-output --tp-size 1 --pp-size 1 --device cpu "
        "--max-total-tokens 16384"
    )
    assert command.env == {
        "SGLANG_API_KEY": "$KEY",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
        "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
        "SGLANG_USE_CPU_ENGINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


def test_the_key_is_on_no_command_line() -> None:
    assert not [part for part in SGLANG.command(OFF).argv if "$KEY" in part]


def test_an_accelerator_takes_the_cpu_settings_away() -> None:
    command = SGLANG.command(with_(accelerator="H100"))
    assert not {"--device", "--max-total-tokens"} & set(command.argv)
    assert not [name for name in command.env if "CPU" in name or name == "OMP_NUM_THREADS"]


def test_every_field_of_an_arm_reaches_the_command_line() -> None:
    line = argv(
        with_(
            target=Checkpoint(path="Org/Model", revision="abc"),
            quantization="fp8",
            dtype="float16",
            kv_cache_dtype="fp8_e5m2",
            tensor_parallel_size=2,
            pipeline_parallel_size=3,
            data_parallel_size=4,
            prefix_caching=False,
            limits=Limits(
                max_model_len=512, max_num_seqs=8, max_num_batched_tokens=64, block_size=32
            ),
        )
    )
    for part in (
        "--revision abc --tp-size 2 --pp-size 3 --dp-size 4",
        "--quantization fp8 --dtype float16 --kv-cache-dtype fp8_e5m2 --disable-radix-cache",
        "--context-length 512 --max-running-requests 8",
        "--chunked-prefill-size 64 --max-prefill-tokens 64 --page-size 32",
    ):
        assert part in line


def test_a_quantized_checkpoint_needs_no_flag_and_a_radix_cache_that_is_on_neither() -> None:
    assert argv(with_(quantization="w8a8", quantized_checkpoint=True, prefix_caching=True)) == (
        argv(OFF)
    )


CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("ngram", "NGRAM --speculative-num-draft-tokens 4"),
        ("draft_model", f"STANDALONE {CHAIN}"),
        ("standalone", f"STANDALONE {CHAIN}"),
        ("eagle", f"EAGLE {CHAIN}"),
        ("eagle3", f"EAGLE3 {CHAIN}"),
        ("mtp", f"NEXTN {CHAIN}"),
        ("frozen_kv_mtp", f"FROZEN_KV_MTP {CHAIN}"),
        ("dflash", "DFLASH --speculative-num-draft-tokens 4"),
        ("dspark", "DSPARK --speculative-dspark-block-size 3"),
        ("uno", "UNO --speculative-num-draft-tokens 4"),
        ("of_a_plugin", "OF_A_PLUGIN --speculative-num-draft-tokens 4"),
    ],
)
def test_every_algorithm_gets_its_draft_length_where_it_reads_it(method: str, flags: str) -> None:
    assert speculating(method) == f"--speculative-algorithm {flags}"


def test_a_draft_is_filled_in_where_the_process_starts() -> None:
    flags = speculating("eagle3", checkpoint=Checkpoint(path="Org/Head", revision="r1"))
    assert "--speculative-draft-model-path $DRAFT --speculative-draft-model-revision r1 " in flags


def test_options_have_sglangs_own_names_and_win() -> None:
    tree = speculating(
        "eagle3", k=5, speculative_eagle_topk=4, speculative_num_draft_tokens=16,
        speculative_adaptive=True, speculative_use_rejection_sampling=False,
        speculative_enable_w4a4_mxfp4_megamoe=False,
    )  # fmt: skip
    assert tree == (
        "--speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-eagle-topk 4 "
        "--speculative-num-draft-tokens 16 --speculative-adaptive "
        "--no-speculative-enable-w4a4-mxfp4-megamoe"
    )
    uno = speculating("uno", uno_lora_path="/lora", speculative_num_draft_tokens=9)
    assert (
        uno == "--speculative-algorithm UNO --uno-lora-path /lora --speculative-num-draft-tokens 9"
    )


def test_hybrid_cache_and_determinism_go_through_args_to_both_arms() -> None:
    args = (
        "--mamba-radix-cache-strategy", "extra_buffer", "--mamba-track-interval", "64",
        "--enable-deterministic-inference", "--attention-backend", "fa3",
    )  # fmt: skip
    for speculation in (None, NGRAM):
        line = argv(with_(args=args, speculation=speculation, accelerator="H100"))
        assert line.endswith(" ".join(args))
    assert SGLANG.refuse(with_(args=args)) is None


def test_a_flag_of_the_user_replaces_ours_under_either_name() -> None:
    line = argv(with_(args=("--tensor-parallel-size", "2", "--max_total_tokens=99")))
    assert "--tp-size" not in line
    assert "16384" not in line


@pytest.mark.parametrize(
    "flag", ["--port=1", "--model", "--api-key", "--config", "--nnodes", "--nccl-init-addr"]
)
def test_what_matrixrun_decides_is_not_the_users(flag: str) -> None:
    with pytest.raises(UserError, match=r"engines.sglang: args: --.* cannot be set"):
        SGLANG.command(with_(args=(flag, "x")))


@pytest.mark.parametrize(
    "flag",
    ["--speculative-algorithm", "--speculative_algo=EAGLE", "--spec", "--uno-lora-path"],
)
def test_speculation_is_an_axis_and_no_flag_that_both_arms_would_get(flag: str) -> None:
    with pytest.raises(UserError, match=r"(?s)args: .* `speculation` axis"):
        SGLANG.command(with_(args=(flag, "x")))


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {"speculative_accept_threshold_single": 0.9}},
        {"options": {"speculative-accept-threshold-acc": "0.5"}},
        {"env": {"SGLANG_SIMULATE_ACC_LEN": "3.5"}},
    ],
)
def test_settings_that_change_the_output_by_design_are_refused(changes: dict) -> None:
    speculation = msgspec.structs.replace(NGRAM, options=changes.get("options", {}))
    config = with_(speculation=speculation, env=changes.get("env", {}))
    assert "lossy by design" in str(SGLANG.refuse(config))


@pytest.mark.parametrize(
    "options",
    [
        {"speculative_accept_threshold_single": 1.0},
        {"speculative_use_rejection_sampling": True},
        {"speculative_use_block_verification": True},
    ],
)
def test_lossless_settings_are_not_refused(options: dict) -> None:
    config = with_(
        speculation=msgspec.structs.replace(DRAFT, options=options),
        env={"SGLANG_SIMULATE_ACC_LEN": "-1"},
    )
    assert SGLANG.refuse(config) is None


def test_a_cache_in_bytes_is_not_expressible() -> None:
    reason = SGLANG.refuse(with_(limits=Limits(kv_cache_bytes=1 << 30)))
    assert "--max-total-tokens" in str(reason)


def test_sglangs_package_alone_does_not_run_on_cpu() -> None:
    plain = with_(recipe=DEFAULT_RECIPE)
    assert "GPUs only" in str(SGLANG.refuse(plain))
    assert SGLANG.refuse(msgspec.structs.replace(plain, accelerator="H100")) is None
    for recipe in (STAND_IN, Recipe(python="/venv/bin/python"), Recipe(image="sglang:xeon")):
        assert SGLANG.refuse(with_(recipe=recipe)) is None


def test_a_further_node_is_started_alike_but_for_its_rank() -> None:
    arm = with_(accelerator="H100", tensor_parallel_size=16, nodes=2)
    head, follower = SGLANG.command(arm), SGLANG.follower_command(arm)
    text = " ".join(head.argv)
    assert "--nnodes 2 --node-rank 0 --dist-init-addr $HEAD:$HEAD_PORT" in text
    assert " ".join(follower.argv) == text.replace("--node-rank 0", "--node-rank $NODE_RANK")
    assert follower.env == head.env


def ranks_of(node: int, tensor: int, stages: int, nodes: int) -> set[tuple[int, int]]:
    """The ranks (stage, tensor) that SGLang 0.5.23 starts on a node, as its engine.py counts."""
    stages_a_node, nodes_a_stage = max(stages // nodes, 1), max(nodes // stages, 1)
    width = tensor // nodes_a_stage
    first, left = stages_a_node * (node // nodes_a_stage), width * (node % nodes_a_stage)
    return {(s, t) for s in range(first, first + stages_a_node) for t in range(left, left + width)}


def test_what_sglang_would_start_only_in_part_over_nodes_is_refused() -> None:
    arm = with_(accelerator="H100")
    for tensor, stages, nodes in itertools.product(range(1, 9), range(1, 7), range(2, 9)):
        if (tensor * stages) % nodes:
            continue  # no launch is spread so
        sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": stages}
        reason = SGLANG.refuse(msgspec.structs.replace(arm, nodes=nodes, **sizes))
        started = [r for node in range(nodes) for r in ranks_of(node, tensor, stages, nodes)]
        all_once = sorted(started) == list(itertools.product(range(stages), range(tensor)))
        assert (reason is None) == all_once, (sizes, nodes, reason)


def test_replicas_over_nodes_are_refused() -> None:
    reason = SGLANG.refuse(with_(accelerator="H100", data_parallel_size=2, nodes=2))
    assert "--attn-dp-size" in str(reason)
    assert SGLANG.refuse(with_(accelerator="H100", data_parallel_size=2)) is None


# Logs of SGLang 0.5.23 with the stand-in kernels, cut to the tracebacks.
REFUSED = {
    "sglang-refused-unknown-flag": "unrecognized arguments: --no-such-flag",
    "sglang-refused-unknown-algorithm": "Unknown speculative algorithm name: TELEPATHY",
    "sglang-refused-dflash-on-cpu": "DFLASH speculative decoding is not supported by",
    "sglang-refused-stages": "Pipeline parallelism currently only supports EAGLE",
    "sglang-refused-deterministic-on-cpu": "supported for deterministic inference",
}


@pytest.mark.parametrize(("name", "words"), REFUSED.items())
def test_a_refusal_is_recognised_in_sglangs_own_words(name: str, words: str) -> None:
    assert words in str(SGLANG.recognise_refusal((LOGS / f"{name}.log").read_text()))


def test_a_checkpoint_that_is_not_there_is_no_refusal() -> None:
    log = (LOGS / "sglang-died-no-checkpoint.log").read_text()
    assert "OSError: Repo id must be" in log
    assert SGLANG.recognise_refusal(log) is None


def test_a_scheduler_that_died_is_no_refusal() -> None:
    log = (LOGS / "sglang-died-in-scheduler.log").read_text()
    assert "TypeError: verify_tree_greedy_cpu() got an unexpected keyword" in log
    assert SGLANG.recognise_refusal(log) is None


SCHEDULER = """\
[2026-11-29 22:00:00] Scheduler hit an exception: Traceback (most recent call last):
  File "/env/site-packages/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process
    scheduler.run_event_loop()
[2026-11-29 22:00:00] INFO: something else was logged meanwhile
  File "/env/site-packages/sglang/srt/{file}", line 2, in f
    {source}
{error}

[2026-11-29 22:00:01] Received sigquit from a child process. It usually means the child failed.
Traceback (most recent call last):
  File "/env/site-packages/sglang/srt/managers/tokenizer_manager.py", line 3, in g
    raise ValueError("passed on")
ValueError: passed on
"""


@pytest.mark.parametrize(
    ("file", "source", "error", "words"),
    [
        ("arg_groups/x.py", "raise ValueError(", "ValueError: page size must be 1", "page size"),
        ("x.py", "raise NotImplementedError(", "NotImplementedError: no topk here", "no topk"),
        (
            "arg_groups/x.py",
            "assert a == b, (",
            "AssertionError: only EAGLE supported",
            "only EAGLE",
        ),
        # A crash: it merely happened.
        ("managers/x.py", "assert a == b, (", "AssertionError: token leak", None),
        ("arg_groups/x.py", "assert a == b", "AssertionError", None),
        ("layers/x.py", "q.shape", "AttributeError: 'NoneType' object has no 'shape'", None),
        ("layers/x.py", "int(x)", "ValueError: invalid literal for int()", None),
        # Out of memory, and checkpoints that cannot be read, are nobody's refusal.
        ("x.py", "raise ValueError(", "ValueError: Not enough memory. Try --mem-fraction", None),
        ("model_loader/x.py", "raise ValueError(", "ValueError: no weights found", None),
        ("x.py", "raise RuntimeError(", "RuntimeError: kernel image is invalid", None),
    ],
)
def test_a_schedulers_exception_is_a_refusal_only_where_it_was_raised_on_purpose(
    file: str, source: str, error: str, words: str | None
) -> None:
    said = SGLANG.recognise_refusal(SCHEDULER.format(file=file, source=source, error=error))
    assert (said is None) if words is None else (words in str(said))


def test_an_older_sglang_that_does_not_know_how_we_observe_has_refused_nothing() -> None:
    log = "sglang serve: error: unrecognized arguments: --incremental-streaming-output"
    assert SGLANG.recognise_refusal(log) is None
    assert SGLANG.recognise_refusal(log + " --made-up") is not None
