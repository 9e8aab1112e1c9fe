"""What the bench holds, without an engine."""

from __future__ import annotations

import ast
import json
import os
import struct
from pathlib import Path

import pytest

from matrixrun.engines.vllm import forcing
from matrixrun.evidence.errors import EngineError, UserError
from matrixrun.evidence.launches import Role
from matrixrun.faultbench.catalogue import SPECIMENS, select
from matrixrun.faultbench.control import INJECTION, Switch
from matrixrun.faultbench.pair import BENCH, STATE_BENCH, Launches
from matrixrun.faultbench.specimen import STATE_PROBES, Injection


def registered() -> set[str]:
    """The names that the injection package knows, read from its source: it needs torch to run."""
    tree = ast.parse((INJECTION / "matrixrun_faults" / "faults.py").read_text())
    (table,) = (node.value for node in tree.body if isinstance(node, ast.AnnAssign))
    assert isinstance(table, ast.Dict)
    return {key.value for key in table.keys if isinstance(key, ast.Constant)}


def test_every_specimen_switches_on_something_that_exists():
    assert {one.injection.name for one in SPECIMENS if one.injection} == registered()


def test_every_fault_has_a_name_of_its_own_and_a_report_it_is_modelled_on():
    assert len({one.name for one in SPECIMENS}) == len(SPECIMENS)
    for one in SPECIMENS:
        assert one.harmless or (one.injection is not None and one.report)
        assert one.harmless or not one.in_both


def test_what_damages_the_engine_runs_last():
    order = [one.corrupting for one in select(())]
    assert order == sorted(order)
    assert any(order)


@pytest.mark.parametrize("probe", STATE_PROBES)
def test_each_probe_of_state_has_faults_of_its_own_and_a_healthy_trial(probe: str):
    some = [one for one in SPECIMENS if one.probe == probe]
    assert {one.harmless for one in some} == {True, False}
    assert all(one.of_state for one in some)


def test_the_probes_of_state_have_launches_with_the_injection_beside_what_is_theirs(tmp_path: Path):
    bench = Launches(
        tmp_path, print, {"draft_model"}, file=STATE_BENCH, probes={"ledger", "rollback", None}
    )
    roles = {one.role: one.command.env for one in bench.launches.values()}
    assert set(roles) == {Role.ON, Role.A, Role.FORCED, Role.TRACED}
    for role, env in roles.items():
        assert env["FAULTBENCH_CONTROL"].endswith(".json")
        path = env["PYTHONPATH"].split(os.pathsep)
        assert path[0] == str(INJECTION)
        assert (str(forcing.FOLDER) in path) == role.extra
    bench.stop()


@pytest.mark.parametrize("file", [BENCH, STATE_BENCH])
def test_the_launches_are_planned_for_every_probe_that_shows_something(file: Path, tmp_path: Path):
    """A probe that the file does not name is sent what no launch was made for, or nothing."""
    bench = Launches(tmp_path, print, {"draft_model"}, file=file)
    state = file == STATE_BENCH
    shown = {one.probe for one in SPECIMENS if one.probe is not None and one.of_state is state}
    assert shown <= set(bench.matrix.probes)
    bench.stop()


def test_an_unknown_name_is_a_mistake_of_the_user():
    with pytest.raises(UserError, match="no fault 'let-trough'"):
        select(("let-trough",))


def test_the_injection_stands_alone():
    """Only what vLLM's environment has: nothing of matrixrun, and vLLM itself inside functions."""
    for file in (INJECTION / "matrixrun_faults").glob("*.py"):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [str(node.module)]
            assert not any(name.split(".")[0] == "matrixrun" for name in names), file
        top = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        assert not any(str(node.module).startswith("vllm") for node in top), file


def engine_says(folder: Path, generation: int, times: int, steps: int, process: int = 7) -> None:
    content = struct.pack("<QQQ", generation, times, steps)
    (folder / f"on.json.{process}").write_bytes(content)


def test_the_control_file_names_one_active_injection(tmp_path: Path):
    switch = Switch(tmp_path, "on")
    switch.set(Injection(name="let-through", parameters={"share": 0.02}), seed=5)
    told = json.loads((tmp_path / "on.json").read_text())
    assert told["fault"] == "let-through"
    assert (told["seed"], told["parameters"]) == (5, {"share": 0.02})
    switch.set(None, seed=0)
    after = json.loads((tmp_path / "on.json").read_text())
    assert after["fault"] is None
    assert after["generation"] == told["generation"] + 1


def test_counters_of_the_engines_processes_are_added(tmp_path: Path):
    switch = Switch(tmp_path, "on")
    switch.set(Injection(name="past-the-end"), seed=1)
    engine_says(tmp_path, 2, times=3, steps=0, process=7)
    engine_says(tmp_path, 2, times=1, steps=40, process=8)
    struck = switch.struck()
    assert (struck.times, struck.steps) == (4, 40)


def test_an_engine_that_did_not_take_up_the_fault_is_no_miss_of_the_judge(tmp_path: Path):
    switch = Switch(tmp_path, "on")
    switch.set(Injection(name="shifted"), seed=1)
    engine_says(tmp_path, 1, times=9, steps=9)
    with pytest.raises(EngineError, match="has not taken up"):
        switch.struck()
