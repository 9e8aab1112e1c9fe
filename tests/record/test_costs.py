"""What launches took in an earlier sweep corrects the next one's estimates."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome, Role
from matrixrun.matrix import Matrix, expand
from matrixrun.plan import Plan, build, to_json, with_costs
from matrixrun.record import Store, new_sweep
from matrixrun.record.costs import read_costs

TEXT = "name: earlier\n"


def plan(*lengths: int, engine: str = "vllm") -> Plan:
    matrix = Matrix.model_validate(
        {
            "name": "earlier",
            "engines": {engine: {"kind": "vllm"}},
            "models": {"dense": {"target": {"path": "org/target"}}},
            "grid": {
                "engine": engine,
                "model": "dense",
                "speculation": [
                    {"method": "ngram", "num_speculative_tokens": length} for length in lengths
                ],
            },
            "control": "within-launch",
        }
    )
    return build(matrix, expand(matrix, file="earlier.yaml"))


def swept(root: Path, made: Plan, times: dict[Role, float], **changes: object) -> Store:
    """A results folder whose launches took so many times their estimates."""
    store = Store.create(root, new_sweep("earlier", TEXT))
    store.write_plan(to_json(made))
    for launch in made.launches:
        outcome = LaunchOutcome(
            launch=launch.id,
            fingerprint=launch.fingerprint,
            end=LaunchEnd.SERVED,
            seconds=launch.seconds * times[launch.role],
        )
        store.write_outcome(msgspec.structs.replace(outcome, **changes))
    return store


def ratios(before: Plan, after: Plan) -> dict[str, float]:
    return {
        old.id: round(new.seconds / old.seconds, 2)
        for old, new in zip(before.launches, after.launches, strict=True)
    }


def test_the_same_launch_its_like_and_its_kind_teach_in_this_order(tmp_path: Path) -> None:
    swept(tmp_path / "a", plan(2, 4), {Role.ON: 3.0, Role.A: 0.5})
    swept(tmp_path / "b", plan(6, 8, engine="other"), {Role.ON: 5.0, Role.A: 0.5})
    costs = read_costs([tmp_path])
    again = plan(2, 10)
    assert ratios(again, with_costs(again, costs)) == {
        "on.vllm.dense.ngram-k2": 3.0,
        "on.vllm.dense.ngram-k10": 3.0,
        "A.vllm.dense": 0.5,
    }
    unknown = plan(12, engine="third")
    assert ratios(unknown, with_costs(unknown, costs))["on.third.dense.ngram-k12"] == 4.0


def test_nothing_but_estimates_changes(tmp_path: Path) -> None:
    swept(tmp_path / "a", plan(2), {Role.ON: 3.0, Role.A: 3.0})
    before = plan(2)
    after = with_costs(before, read_costs([tmp_path / "a"]))
    assert after.seconds == pytest.approx(3 * before.seconds, abs=1)
    kept = [msgspec.structs.replace(launch, seconds=0.0) for launch in before.launches]
    assert [msgspec.structs.replace(launch, seconds=0.0) for launch in after.launches] == kept


@pytest.mark.parametrize("changes", [{"end": LaunchEnd.DIED}, {"attempts": 2}, {"seconds": None}])
def test_launches_that_did_not_go_through_at_once_teach_nothing(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    swept(tmp_path / "a", plan(2), {Role.ON: 3.0, Role.A: 3.0}, **changes)
    before = plan(2)
    assert with_costs(before, read_costs([tmp_path / "a"])) == before


def test_a_folder_without_sweeps_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--costs"):
        read_costs([tmp_path])
