"""A results folder loses nothing, and says what is wrong with it."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest
from small_sweeps import (
    FINDING,
    MATRIX,
    make_cell,
    make_observation,
    make_result,
    make_store,
    run_cell,
)

from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.evidence.requests import BadWord, Evaluation, Score
from matrixrun.evidence.verdicts import Verdict
from matrixrun.record import Store, SweepState, find_sweep, new_sweep
from matrixrun.record.files import file_name, write_json
from matrixrun.workloads.prompts import Prompt, workload_of

PROMPTS = (
    Prompt(
        id="copy-0", category="decided", token_ids=(1, 2, 3), text="a private text",
        bad_words=(BadWord(text="a private text", sequences=((1, 2),)),),
    ),
    Prompt(id="own-0", category="own", token_ids=(4,)),
)  # fmt: skip


def disk_full(*_: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_sweep_is_found_again_as_it_was_left(store: Store) -> None:
    evidence = run_cell(store, make_cell())
    result = make_result(make_cell(), findings=(FINDING,))
    store.write_result(result)
    store.set_state(SweepState.COMPLETE, exit_code=0)

    again = Store.open(store.root)
    assert again.info == store.info
    assert again.info.state is SweepState.COMPLETE
    assert again.info.finished is not None
    assert again.matrix_text() == MATRIX
    assert again.evidences() == (evidence,)
    assert again.finished(evidence.cell.fingerprint) == evidence
    assert again.finished("another fingerprint") is None
    assert again.results() == (result,)
    assert list(again.results()[0].cell.axes) == list(result.cell.axes)


def test_a_launch_that_runs_again_overwrites_no_file_that_evidence_refers_to(store: Store) -> None:
    first = store.write_observations("on.x", "equality.b8", [make_observation()], seconds=1.0)
    again = replace(make_observation(), finished=99.0)
    second = store.write_observations("on.x", "equality.b8", [again], seconds=1.0)
    assert store.read_observations(first)[0].finished != 99.0
    assert store.read_observations(second)[0].finished == 99.0
    assert store.records("on.x") == (second,)


def test_observations_and_scores_lie_where_their_record_says(store: Store) -> None:
    record = store.write_observations(
        "on.x", "equality.b8", [make_observation()], seconds=1.5, notes={"salt": "s"}
    )
    assert record.path == f"launches/on.x/passes/equality.b8-{record.sha256[:8]}.parquet"
    assert (record.kind, record.requests, record.seconds) == ("observations", 1, 1.5)
    assert store.read_observations(record)[0].text == "a private text"

    score = Score(
        request="p0",
        evaluation=Evaluation.EXTEND,
        start=3,
        token_logprobs=np.float32([-1]),
        best_logprobs=np.float32([-0.5]),
        best_ids=np.int32([7]),
    )
    scored = store.write_scores("A.x", "score.on.x.equality.b8", [score])
    assert store.read_scores(scored)[0].regret.tolist() == [0.5]
    assert store.records("on.x") == (record,)
    assert store.records("A.x") == (scored,)
    assert store.records("never started") == ()


def test_a_private_sweep_holds_no_text_anywhere(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", store_text=False)
    store.write_workload("tiny", workload_of(PROMPTS))
    run_cell(store, make_cell())
    for path in store.root.rglob("*"):
        assert path.is_dir() or b"a private text" not in path.read_bytes()
    stored = store.workload("tiny")
    assert [prompt.text for prompt in stored.prompts] == [None, None]
    assert not any(prompt.bad_words for prompt in stored.prompts)
    assert stored.sha256 == workload_of(PROMPTS).sha256


def test_workloads_are_one_prompt_a_line_and_checked(store: Store) -> None:
    store.write_workload("hub/tiny", workload_of(PROMPTS))
    assert store.workload("hub/tiny") == workload_of(PROMPTS)
    (path,) = (store.root / "workloads").iterdir()
    assert len([line for line in path.read_text().splitlines() if "token_ids" in line]) == 2
    path.write_text(path.read_text().replace("[1,2,3]", "[1,2,4]"))
    with pytest.raises(StoreError, match="changed after it was written"):
        store.workload("hub/tiny")


def test_figures_that_json_cannot_write_come_back(store: Store) -> None:
    result = make_result(
        make_cell(), metrics={"b": math.inf, "a": math.nan, "c": float(np.float32(0.1))}
    )
    store.write_result(result)
    text = (store.cell_folder(result.cell.id) / "result.json").read_text()
    json.loads(text, parse_constant=disk_full)  # plain JSON: no NaN or Infinity literal
    read = store.result(result.cell.id)
    assert read is not None
    assert math.isnan(read.metrics["a"])
    assert (read.metrics["b"], read.metrics["c"]) == (math.inf, result.metrics["c"])


def test_numpy_figures_are_written_as_plain_numbers(store: Store) -> None:
    finding = msgspec.structs.replace(
        FINDING, numbers={"share": np.float32(0.5), "ids": np.int32([1, 2])}
    )
    store.write_result(make_result(make_cell(), findings=(finding,)))
    read = store.result(make_cell().id)
    assert read is not None
    assert read.findings[0].numbers == {"share": 0.5, "ids": [1, 2]}


def test_evidence_is_written_once(store: Store) -> None:
    evidence = run_cell(store, make_cell())
    store.write_evidence(evidence)
    with pytest.raises(StoreError, match="never changed"):
        store.write_evidence(msgspec.structs.replace(evidence, program="0.2.0"))
    assert store.evidence(evidence.cell.id) == evidence


def test_without_the_plan_nobody_says_that_nothing_is_missing(store: Store) -> None:
    assert store.pending() == ()
    run_cell(store, make_cell())
    with pytest.raises(StoreError, match=r"plan\.json is gone") as caught:
        store.pending()
    assert "writes it again" in str(caught.value)


def test_a_full_disk_keeps_the_old_file_and_leaves_no_rest(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_result(make_cell())
    store.write_result(old)
    for call in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, disk_full)
            with pytest.raises(StoreError, match=r"result\.json.*\n.*free some space"):
                store.write_result(make_result(make_cell(), Verdict.FAIL))
    assert store.results() == (old,)
    assert not list(store.root.rglob("*.tmp"))


def test_a_folder_that_may_not_be_written_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(StoreError, match=r"sweep\.json: Permission denied\n.*--results"):
        store.set_state(SweepState.COMPLETE)


def test_modes_follow_the_umask(store: Store) -> None:
    before = os.umask(0o022)
    try:
        store.write_result(make_result(make_cell()))
    finally:
        os.umask(before)
    folder = store.cell_folder(make_cell().id)
    assert stat.S_IMODE((folder / "result.json").stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b[:-1] + b"x"])
def test_a_damaged_pass_is_noticed_on_reading_and_on_resuming(store: Store, damage: Any) -> None:
    evidence = run_cell(store, make_cell())
    path = store.root / evidence.records["on"].path
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=r"equality\.b8-\w+\.parquet is damaged"):
        store.read_observations(evidence.records["on"])
    with pytest.raises(StoreError, match="damaged"):
        Store.open(store.root).finished(evidence.cell.fingerprint)


def test_a_lost_pass_is_noticed(store: Store) -> None:
    evidence = run_cell(store, make_cell())
    (store.root / evidence.records["off"].path).unlink()
    with pytest.raises(StoreError, match="No such file"):
        store.finished(evidence.cell.fingerprint)


def test_half_a_json_file_is_noticed(store: Store) -> None:
    path = store.cell_folder(run_cell(store, make_cell()).cell.id) / "evidence.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"evidence\.json is damaged"):
        store.evidences()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("sweep.json", "choose another --results"),
        ("evidence.json", "matrixrun run FILE --results FOLDER`: damaged cells are set aside"),
        ("result.json", "`matrixrun judge SWEEP`"),
    ],
)
def test_the_remedy_keeps_what_a_sweep_cannot_do_without(
    store: Store, name: str, remedy: str
) -> None:
    cell = run_cell(store, make_cell()).cell
    store.write_result(make_result(cell))
    (path,) = store.root.rglob(name)
    path.write_bytes(path.read_bytes()[:50])

    with pytest.raises(StoreError) as caught:
        (Store.open(store.root).evidences(), store.results())

    assert remedy in str(caught.value)
    assert "remove" not in str(caught.value)


def test_a_damaged_pass_is_set_aside_by_its_remedy(store: Store) -> None:
    evidence = run_cell(store, make_cell())
    (store.root / evidence.records["on"].path).write_bytes(b"cut")

    with pytest.raises(StoreError, match="set aside in damaged/") as caught:
        store.read_observations(evidence.records["on"])

    assert "remove" not in str(caught.value)
    (trouble,) = store.set_damaged_aside()
    assert "is damaged" in trouble


def test_another_matrix_is_not_taken_for_this_one(store: Store) -> None:
    with pytest.raises(StoreError, match="not the one"):
        store.write_matrix("name: other\n")
    (store.root / "matrix.yaml").write_text("name: other\n")
    with pytest.raises(StoreError, match="changed"):
        store.matrix_text()


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="not empty and not the results folder"):
        make_store(tmp_path)
    with pytest.raises(UserError, match="not the results folder"):
        Store.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_sweep_is_not_begun_twice(store: Store) -> None:
    with pytest.raises(UserError, match="holds a sweep already"):
        make_store(store.root)


def test_only_one_process_writes(store: Store) -> None:
    with store.writing():
        with pytest.raises(UserError, match="another process"), Store.open(store.root).writing():
            pass
        store.write_result(make_result(make_cell()))
    with Store.open(store.root).writing():
        pass


def test_a_sweep_is_found_by_folder_and_by_id(tmp_path: Path) -> None:
    results = tmp_path / "results"
    store = make_store(results / "mine")
    assert find_sweep(str(store.root), results) == store.root
    assert find_sweep(store.info.id, results) == store.root
    assert find_sweep("mine", results) == results / "mine"


def test_a_mistyped_sweep_gets_a_suggestion(tmp_path: Path) -> None:
    info = new_sweep("upgrade", MATRIX)
    Store.create(tmp_path / info.id, info)
    with pytest.raises(UserError, match=f"did you mean {info.id}"):
        find_sweep(info.id[:-1] + "z", tmp_path)
    with pytest.raises(UserError, match="newest sweeps are upgrade-"):
        find_sweep("qqqq", tmp_path)
    with pytest.raises(UserError, match="run a matrix first"):
        find_sweep("x", tmp_path / "nothing here")


def test_ids_become_safe_file_names_without_collisions() -> None:
    assert file_name("vllm.tiny-dense.ngram-k4.b8") == "vllm.tiny-dense.ngram-k4.b8"
    assert "/" not in file_name("a/b")
    assert len({file_name("a/b"), file_name("a:b"), file_name("a-b")}) == 3
    assert not file_name("../up").startswith(".")
    assert len(file_name("x" * 1000)) < 200


def test_the_plan_comes_back_as_its_type(store: Store) -> None:
    store.write_plan([make_cell()])
    assert store.plan(list[type(make_cell())]) == [make_cell()]  # type: ignore[misc]


def test_a_value_that_json_cannot_hold_is_a_mistake_of_ours(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="object"):
        write_json(tmp_path / "x.json", {"a": object()})
    assert not list(tmp_path.iterdir())
