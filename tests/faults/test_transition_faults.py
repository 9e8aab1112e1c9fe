"""Faults that only the state probes meet, in a real engine: one matrix, a fault for each engine of
it, all against the same off launch. Six launches: `pytest -m long tests/faults`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.faultbench.catalogue import TRANSITIONS
from matrixrun.faultbench.control import Switch
from matrixrun.record import Store

pytestmark = [pytest.mark.engine, pytest.mark.long]

STATE = Path(__file__).parents[2] / "matrices" / "state.yaml"
# What each is caught by, of the findings of its cell.
CAUGHT_BY = {
    "damaged-on-resume": ("unexplained-token", "[pressure]"),
    "damaged-bystander": ("unexplained-token", "[pressure]"),
    "leaked-block": ("leak", ""),
    "answers-uncached": ("reuse", ""),
}


def matrix(switches: dict[str, Switch]) -> str:
    """The state matrix with one engine a fault, on n-gram speculation alone."""
    import yaml

    sections = yaml.safe_load(STATE.read_text(encoding="utf-8"))
    engine = sections["engines"]["vllm"]
    sections["engines"] = {
        "healthy": engine,
        **{name: {**engine, "on": {"env": one.environment}} for name, one in switches.items()},
    }
    sections["grid"]["engine"] = list(sections["engines"])
    sections["grid"]["speculation"] = sections["grid"]["speculation"][1:]
    sections["probes"] = ["equality", "acceptance", "conversation", "pressure"]
    return yaml.safe_dump(sections)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, CellResult]:
    """The sweep's results by engine."""
    folder = tmp_path_factory.mktemp("transitions")
    switches = {one.name: Switch(folder, one.name) for one in TRANSITIONS}
    for one in TRANSITIONS:
        switches[one.name].set(one.injection, seed=1)
    file = folder / "faulty.yaml"
    file.write_text(matrix(switches), encoding="utf-8")
    command = [sys.executable, "-m", "matrixrun", "run", str(file), "--no-tracking"]
    command += ["--results", str(folder / "out"), "--deadline", "20"]
    subprocess.run(command, cwd=folder, check=False, timeout=1300)
    for one in TRANSITIONS:
        assert switches[one.name].struck().times > 0, one.name
    found = Store.open(folder / "out").results()
    return {str(result.cell.axes["engine"]): result for result in found}


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_the_fault_is_caught_by_what_it_breaks(results: dict[str, CellResult], name: str):
    kind, text = CAUGHT_BY[name]
    faults = [one for one in results[name].findings if one.severity is Severity.FAULT]
    assert results[name].verdict is Verdict.FAIL
    assert [one for one in faults if one.kind == kind and one.text.startswith(text)]


def test_equality_alone_sees_none_of_them(results: dict[str, CellResult]):
    for name in CAUGHT_BY:
        assert results[name].metrics["unexplained/tokens.on"] == 0


def test_the_healthy_engine_passes(results: dict[str, CellResult]):
    assert results["healthy"].verdict is Verdict.PASS, results["healthy"].reason
