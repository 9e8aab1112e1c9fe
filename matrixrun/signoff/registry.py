"""The sign-off where MLflow's users look for it: the model registry.

A registered model for each target and draft, a version for each sweep, tags for the engine, the
decision and who signed, the alias `approved` on the last version that was signed. The sweep's run
gets the same tags, and the report and the decision as artifacts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.errors import TrackingError
from matrixrun.record import Store
from matrixrun.record.files import read_json
from matrixrun.record.masking import mask
from matrixrun.record.tracking import ENVIRONMENT, LEDGER, Ledger, default_uri
from matrixrun.signoff.decision import Decision
from matrixrun.signoff.levels import SweepLevels, levels_of
from matrixrun.signoff.report import REPORT_FILE
from matrixrun.signoff.wording import decision_markdown

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALIAS = "approved"
ARTIFACTS = (REPORT_FILE, "signoff.json", "signoff.md")


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """Where a decision was recorded: a registered model's name and its version."""

    model: str
    version: str
    approved: bool


def record(
    store: Store, decision: Decision, by: str, tracking_uri: str | None = None
) -> tuple[Registration, ...]:
    """Record a decision; again for the same sweep, its version is brought up to date.

    Args:
        store: the sweep that was decided on; it must be in MLflow already.
        by: who signs (or does not).
        tracking_uri: as for a run.

    Raises:
        TrackingError: MLflow is away, or does not hold the sweep.
    """
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    run_id = _run_id(store, uri)
    levels = levels_of(store)
    try:
        client = MlflowClient(tracking_uri=uri)
        for key, value in _tags(decision, by).items():
            client.set_tag(run_id, key, value)
        for name in ARTIFACTS:
            client.log_artifact(run_id, str(store.root / name))
        return tuple(
            _register(client, name, run_id, decision, {"engine": engine} | _tags(decision, by))
            for name, engine in _models(levels)
        )
    except (MlflowException, SQLAlchemyError, OSError) as error:
        words = mask(" ".join(str(error).split()), uri)[:500]
        raise TrackingError(
            f"MLflow at {mask(uri)} did not record the sign-off: {words}",
            remedy="the decision is in the results folder; run the same command again later",
        ) from error


def model_name(cell: Cell) -> str:
    """Return the registered model of a cell: its target, and its draft where it has one."""
    speculation = cell.axes["speculation"]
    assert isinstance(speculation, Speculation)
    draft = f" + {speculation.draft}" if speculation.draft else ""
    return f"{cell.axes['model']}{draft}"


def _models(levels: SweepLevels) -> Iterator[tuple[str, str]]:
    """Each registered model of a sweep with the engines it ran on."""
    engines: dict[str, set[str]] = {}
    for result in levels.results:
        engine = levels.cells[result.cell.id].engine
        engines.setdefault(model_name(result.cell), set()).add(engine)
    for name, found in sorted(engines.items()):
        yield name, ", ".join(sorted(found - {""})) or "none answered"


def _register(
    client: MlflowClient,
    name: str,
    run_id: str,
    decision: Decision,
    tags: dict[str, str],
) -> Registration:
    if not client.search_registered_models(f"name = '{_quoted(name)}'"):
        client.create_registered_model(name, description="Signed off by matrixrun")
    known = client.search_model_versions(f"name = '{_quoted(name)}'")
    found = next((one for one in known if one.tags.get("sweep") == decision.sweep), None)
    if found is None:
        source = client.get_run(run_id).info.artifact_uri
        sweep = {"sweep": decision.sweep}
        found = client.create_model_version(name, source, run_id=run_id, tags=sweep)
    version = str(found.version)
    for key, value in tags.items():
        client.set_model_version_tag(name, version, key, value)
    client.update_model_version(name, version, description=decision_markdown(decision)[:4000])
    _point(client, name, version, signed=decision.signed)
    return Registration(model=name, version=version, approved=decision.signed)


def _point(client: MlflowClient, name: str, version: str, *, signed: bool) -> None:
    """Move the alias to a signed version, and take it from one that is not signed any more."""
    if signed:
        client.set_registered_model_alias(name, ALIAS, version)
        return
    aliases = client.get_registered_model(name).aliases
    if str(aliases.get(ALIAS, "")) == version:
        client.delete_registered_model_alias(name, ALIAS)


def _tags(decision: Decision, by: str) -> dict[str, str]:
    return {
        "signed": "yes" if decision.signed else "no",
        "signed_by": by,
        "signed_on": decision.date,
        "against": decision.against,
    }


def _run_id(store: Store, uri: str) -> str:
    path = store.root / LEDGER
    ledgers = read_json(path, dict[str, Ledger]) if path.exists() else {}
    ledger = ledgers.get(mask(uri))
    found = None if ledger is None else ledger.runs.get(store.info.id)
    if found is None:
        raise TrackingError(
            f"MLflow at {mask(uri)} does not hold sweep {store.info.id}",
            remedy="send it with `matrixrun sync`, then run the same command again",
        )
    return found


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
