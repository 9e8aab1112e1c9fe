"""vLLM's own detokeniser and tool parser, without a model: parts of several tokens are whole, and
what the bench's faults do to them is found."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from matrixrun import models
from matrixrun.engines import Environment
from matrixrun.engines.replies import Parts
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.replies import Ask, Form
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import CellEvidence, Severity
from matrixrun.faultbench.control import INJECTION, VARIABLE
from matrixrun.judge import JudgeSettings, ProbeObserved
from matrixrun.judge.witnesses import ProbeExamination
from matrixrun.judge.witnesses.replies import examine_replies

pytestmark = pytest.mark.engine

DRIVER = Path(__file__).with_name("inside") / "drive_replies.py"
FAULTS = {
    "none": [],
    "piece-lost": ["surface-stream", "surface-tool-call"],
    "arguments-torn": ["surface-tool-call"],
    "markup-leaked": ["surface-stream"],
    "stop-string-missed": [],
}


@pytest.fixture(scope="module")
def driven(
    vllm_environment: Environment, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What the driver prints, a line for each fault."""
    target = models.build("builtin:tiny-dense", vllm_environment.python, cache, print)
    control = tmp_path_factory.mktemp("control") / "control.json"
    path = (vllm_environment.overlay, INJECTION)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(part) for part in path if part is not None),
        VARIABLE: str(control),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_ENFORCE_STRICT_TOOL_CALLING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [str(vllm_environment.python), str(DRIVER), str(target), str(control), *FAULTS]
    done = subprocess.run(command, env=env, check=True, timeout=300, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def told(driven: list[dict[str, Any]]) -> dict[str, tuple[Observation, ...]]:
    """The replies by fault."""
    return {
        line["fault"]: (
            *replies(Form.CHAT, line["plain"]),
            *replies(Form.TOOL_REQUIRED, line["called"]),
        )
        for line in driven
    }


def replies(form: Form, said: dict[str, Any]) -> tuple[Observation, Observation]:
    """Both replies as a client puts them together, with the rest of what a server sends."""
    reason = "tool_calls" if form.has_tools else "length"
    made = []
    for streamed in (False, True):
        ask = Ask(id=f"{form}.{streamed}", prompt="p", form=form, streamed=streamed, max_tokens=99)
        parts = Parts(ask)
        for choice in said["parts"] if streamed else [said["whole"]]:
            parts.add({"choices": [choice]})
        usage = {"prompt_tokens": 1, "completion_tokens": len(said["whole"]["token_ids"])}
        parts.add({"choices": [{"finish_reason": reason}], "usage": usage})
        parts.line("data: [DONE]")
        decoded = None if form.has_tools else said["text"]
        made.append(parts.observation(seconds=1.0, decoded=decoded))
    return made[0], made[1]


NOTHING = CellEvidence(
    cell=Cell(id="c", axes={}, fingerprint=""), outcomes={}, records={}, workload_sha256="",
    settings_sha256="", program="",
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_judge_finds_what_the_fault_breaks_and_nothing_else(
    told: dict[str, tuple[Observation, ...]], fault: str
) -> None:
    arms = {"on": told[fault], "off": told["none"]}
    seen = ProbeObserved(kind="surface", compared=False, observations=arms, scores={}, records={})
    testimony = examine_replies(ProbeExamination(NOTHING, JudgeSettings(), seen, None))
    faults = [one.kind for one in testimony.findings if one.severity is Severity.FAULT]
    assert faults == FAULTS[fault]
    assert testimony.objections == ()
    assert testimony.coverage["surface.several_in_tool_calls"] > 0


def test_each_fault_breaks_streams_alone(told: dict[str, tuple[Observation, ...]]) -> None:
    for seen in told.values():
        for one, healthy in zip(seen[::2], told["none"][::2], strict=True):
            assert one.reply == healthy.reply


def test_a_stop_string_that_ends_inside_a_step_is_missed_by_its_fault_alone(
    driven: list[dict[str, Any]],
) -> None:
    kept = {line["fault"]: line["stopped"] for line in driven}
    missed = kept.pop("stop-string-missed")
    assert set(kept.values()) == {3}
    assert missed > 3
