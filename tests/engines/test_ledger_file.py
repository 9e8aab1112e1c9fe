"""The ledger's file inside vLLM: what the file system refuses ends the ledger, never the engine.
vLLM's schedulers are doubles here, which answer and do nothing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from matrixrun.engines.vllm import forcing
from matrixrun.evidence.ledger import Full, read_events


class SchedulerDouble:
    """Answers; it has no block pool, so that a ledger over it is mistaken at once."""

    def __init__(self, **_: object) -> None:
        self.requests: dict[str, object] = {}

    def update_from_output(self, *_: object) -> str:
        return "answered"

    def _free_request(self, *_: object) -> str:
        return "freed"


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module as the engine's process imports it."""
    for name in ("scheduler", "async_scheduler"):
        double = ModuleType(name)
        double.Scheduler = SchedulerDouble
        double.AsyncScheduler = type("AsyncDouble", (SchedulerDouble,), {})
        monkeypatch.setitem(sys.modules, f"vllm.v1.core.sched.{name}", double)
    for name in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    spec = importlib.util.spec_from_file_location(
        "matrixrun_ledger", forcing.FOLDER / "matrixrun_ledger.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["no such folder", "the disk is full"])
def refused(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return where a ledger cannot be written."""
    if request.param == "no such folder":
        return tmp_path / "absent" / "ledger.jsonl"
    path = tmp_path / "ledger.jsonl"
    path.symlink_to("/dev/full")
    return path


def test_an_engine_whose_ledger_cannot_be_written_answers_as_ever(
    inside: ModuleType, refused: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATRIXRUN_LEDGER", str(refused))
    config = SimpleNamespace(scheduler_config=SimpleNamespace(async_scheduling=False))
    scheduler = inside.scheduler(vllm_config=config)
    output = SimpleNamespace(num_scheduled_tokens={})
    assert scheduler.update_from_output(output, None) == "answered"
    ended = SimpleNamespace(request_id="r", status=SimpleNamespace(name="X"), num_tokens=1)
    assert scheduler._free_request(ended) == "freed"
    assert not refused.is_symlink()


def test_a_ledger_that_could_not_be_written_to_its_end_is_none(
    inside: ModuleType, refused: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = inside.Journal(str(refused))
    journal.write("reset", step=1)
    journal.flush()
    assert not journal.open
    assert not refused.is_symlink()
    assert "no ledger is kept" in caplog.text
    journal.write("reset", step=2)
    journal.flush()
    journal.close("again")


def test_a_mistake_of_its_own_is_written_as_the_ledgers_end(
    inside: ModuleType, tmp_path: Path
) -> None:
    journal = inside.Journal(str(tmp_path / "ledger.jsonl"))
    journal.write("reset", step=1)
    journal.close("KeyError: 'x'")
    assert not journal.open
    events = read_events((tmp_path / "ledger.jsonl").read_bytes())
    assert events[1:] == (Full(step=0, why="KeyError: 'x'"),)
