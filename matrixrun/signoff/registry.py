"""The sign-off where MLflow's users look for it: the model registry.

A registered model for each target and draft, a version for each sweep, tags for the engine, the
decision and who signed, the alias `approved` on the last version that was signed. The sweep's run
gets the same tags, and the report and the decision as artifacts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.errors import TrackingError
from matrixrun.record import Store
from matrixrun.record.files import read_json, sha256
from matrixrun.record.masking import mask
from matrixrun.record.tracking import ENVIRONMENT, LEDGER, Ledger, default_uri
from matrixrun.signoff.decision import Decision
from matrixrun.signoff.levels import SweepLevels, levels_of
from matrixrun.signoff.report import REPORT_FILE
from matrixrun.signoff.wording import decision_markdown

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALIAS = "approved"
LONGEST_DESCRIPTION = 4000
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
    uri = _uri(tracking_uri)
    run_id, levels = _runs(store, uri)[store.info.id], levels_of(store)
    with _connected(uri) as client:
        for key, value in _tags(decision, by).items():
            client.set_tag(run_id, key, value)
        for name in ARTIFACTS:
            client.log_artifact(run_id, str(store.root / name))
        return tuple(
            _register(client, name, run_id, decision, {"engine": engine} | _tags(decision, by))
            for name, engine in _models(levels)
        )


def _uri(given: str | None) -> str:
    return given or os.environ.get("MLFLOW_TRACKING_URI") or default_uri()


@contextlib.contextmanager
def _connected(uri: str) -> Iterator[MlflowClient]:
    """MLflow; what it does not take becomes a TrackingError."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield MlflowClient(tracking_uri=uri)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        words = mask(" ".join(str(error).split()), uri)[:500]
        raise TrackingError(
            f"MLflow at {mask(uri)} did not record it: {words}",
            remedy="nothing else is lost; run the same command again later",
        ) from error


def tag_baseline(store: Store, text: str, tracking_uri: str | None = None) -> int:
    """Tag a sweep's runs as an accepted baseline, with the hash of its file; returns how many.

    Runs are found by `tags.baseline = 'accepted'`, the file by the tag `baseline_sha256`.

    Args:
        text: the baseline file's content.
        tracking_uri: as for a run.

    Raises:
        TrackingError: MLflow is away, or does not hold the sweep.
    """
    tags = {"baseline": "accepted", "baseline_sha256": sha256(text.encode())}
    uri = _uri(tracking_uri)
    runs = sorted(set(_runs(store, uri).values()))
    with _connected(uri) as client:
        for run_id in runs:
            for key, value in tags.items():
                client.set_tag(run_id, key, value)
    return len(runs)


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
        client.create_registered_model(name)
    known = client.search_model_versions(f"name = '{_quoted(name)}'")
    found = next((one for one in known if one.tags.get("sweep") == decision.sweep), None)
    if found is None:
        source = client.get_run(run_id).info.artifact_uri
        sweep = {"sweep": decision.sweep}
        found = client.create_model_version(name, source, run_id=run_id, tags=sweep)
    version = str(found.version)
    for key, value in tags.items():
        client.set_model_version_tag(name, version, key, value)
    # In the table of versions the text stands as it is: no heading's sign at its beginning.
    words = decision_markdown(decision).removeprefix("# ")[:LONGEST_DESCRIPTION]
    client.update_model_version(name, version, description=words)
    _point(client, name, version, signed=decision.signed)
    client.update_registered_model(name, description=_approved(client, name))
    return Registration(model=name, version=version, approved=decision.signed)


def _point(client: MlflowClient, name: str, version: str, *, signed: bool) -> None:
    """Move the alias to a signed version, and take it from one that is not signed any more."""
    if signed:
        client.set_registered_model_alias(name, ALIAS, version)
        return
    aliases = client.get_registered_model(name).aliases
    if str(aliases.get(ALIAS, "")) == version:
        client.delete_registered_model_alias(name, ALIAS)


def _approved(client: MlflowClient, name: str) -> str:
    """Say which version is approved: what a reader of the model's page wants to know first."""
    head = "Sweeps of matrixrun, a version each."
    aliases = client.get_registered_model(name).aliases
    if ALIAS not in aliases:
        return f"{head} None is approved."
    version = client.get_model_version(name, str(aliases[ALIAS]))
    tags = version.tags
    return (
        f"{head} The one approved is version {version.version}: {tags.get('engine')}, sweep "
        f"{tags.get('sweep')}, signed by {tags.get('signed_by')} on {tags.get('signed_on')}."
    )


def _tags(decision: Decision, by: str) -> dict[str, str]:
    return {
        "signed": "yes" if decision.signed else "no",
        "signed_by": by,
        "signed_on": decision.date,
        "against": decision.against,
    }


def _runs(store: Store, uri: str) -> dict[str, str]:
    """The runs of a sweep and of its cells, by sweep id and fingerprint."""
    path = store.root / LEDGER
    ledgers = read_json(path, dict[str, Ledger]) if path.exists() else {}
    ledger = ledgers.get(mask(uri))
    if ledger is None or store.info.id not in ledger.runs:
        raise TrackingError(
            f"MLflow at {mask(uri)} does not hold sweep {store.info.id}",
            remedy="send it with `matrixrun sync`, then run the same command again",
        )
    return ledger.runs


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
