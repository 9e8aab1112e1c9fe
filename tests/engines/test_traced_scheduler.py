"""vLLM's own scheduler with a ledger, without a model: it keeps its rules, and a fault put into it
is found in the step at which it strikes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from matrixrun import models
from matrixrun.engines import Environment
from matrixrun.engines.vllm import forcing
from matrixrun.evidence.ledger import Event, Full, read_events
from matrixrun.faultbench.control import INJECTION, Switch
from matrixrun.faultbench.specimen import Injection
from matrixrun.judge.ledger import Account, Rule, audit

pytestmark = pytest.mark.engine

DRIVER = Path(__file__).with_name("inside") / "drive_scheduler.py"


@pytest.fixture(scope="module")
def target(vllm_python: Path, cache: Path) -> Path:
    return models.build("builtin:tiny-dense", vllm_python, cache, print)


def kept(
    environment: Environment, target: Path, folder: Path, *order: str, **variables: str
) -> tuple[Event, ...]:
    """Return the ledger of the driver's run."""
    parts = (environment.overlay, forcing.FOLDER, INJECTION)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(part) for part in parts if part is not None),
        "MATRIXRUN_LEDGER": str(folder / "ledger.jsonl"),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    command = [str(environment.python), str(DRIVER), str(target), "1", *order]
    subprocess.run(command, env=env, check=True, timeout=300)
    return read_events((folder / "ledger.jsonl").read_bytes())


@pytest.mark.parametrize("order", ["after", "ahead"])
def test_the_engines_own_scheduler_keeps_every_rule(
    vllm_environment: Environment, target: Path, tmp_path: Path, order: str
):
    account = audit(kept(vllm_environment, target, tmp_path, order))
    assert account.violations == ()
    assert account.cut is None
    assert len(account.turns) == 24
    assert all(one.ended is not None for one in account.turns)
    assert not [name for name, count in account.counts.items() if count == 0]
    assert [one.number for one in account.turns if one.called_off_late] == [0]


FAULTS = {
    "leaked-block": Rule.LEAKED,
    "late-rollback": Rule.ROLLBACK,
    "kept-past-the-end": Rule.PAST_END,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_it_is_found(
    vllm_environment: Environment, target: Path, tmp_path: Path, fault: str
):
    switch = Switch(tmp_path, "control")
    switch.set(Injection(name=fault, parameters={"share": 0.05, "most": 4}), seed=1)
    control = str(tmp_path / "control.json")
    account: Account = audit(kept(vllm_environment, target, tmp_path, "after", control))
    assert switch.struck().times > 0
    assert {one.rule for one in account.violations} == {FAULTS[fault]}
    assert account.violations[0].step > 0


def test_a_ledger_that_cannot_go_on_leaves_the_engine_alone(
    vllm_environment: Environment, target: Path, tmp_path: Path
):
    events = kept(vllm_environment, target, tmp_path, "after", MATRIXRUN_LEDGER_LARGEST="20000")
    assert isinstance(events[-1], Full)
    assert (tmp_path / "ledger.jsonl").stat().st_size < 21_000
