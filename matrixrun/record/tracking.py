"""MLflow, where people look. A projection of the results folder, which stays the truth.

One experiment a matrix. Every cell is a flat run beside one run a sweep; they share the tag
`sweep` (nested runs collapse into one row and leave MLflow's charts empty). A run is found again
by its fingerprint, first in the ledger `mlflow.json` of the results folder, then by its tags, so
nothing is logged twice. There is one writer: the driver, or `matrixrun sync`.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from matrixrun.evidence.errors import StoreError, TrackingError, UserError
from matrixrun.matrix.problems import did_you_mean
from matrixrun.record.artifacts import Artifact, cell_artifacts, digest, staged, sweep_artifacts
from matrixrun.record.files import read_json, require_place, write_json
from matrixrun.record.grid import worst_first
from matrixrun.record.masking import mask
from matrixrun.record.runs import (
    FINGERPRINT,
    KIND,
    REVISION,
    SWEEP,
    RunContent,
    cell_run,
    sweep_run,
)
from matrixrun.record.summary import summary_markdown
from matrixrun.record.view import view, view_page, view_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlflow import MlflowClient
    from mlflow.entities import Run

    from matrixrun.evidence.verdicts import CellResult
    from matrixrun.record.store import Store

LEDGER = "mlflow.json"
SENT = "matrixrun.artifacts"

# MLflow waits for minutes by default. A sweep must not: whatever is missed, `sync` sends later.
# Its progress bars, links and notes about new databases would break into the display, and it would
# report its use to its makers. What the user has set stays.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
PAUSE_SECONDS = 60.0
TELL_SECONDS = 5.0
# Of MLflow's own stores; its plugins tell theirs as entry points.
SCHEMES = frozenset(
    {
        "file",
        "http",
        "https",
        "databricks",
        "mssql",
        "mysql",
        "postgresql",
        "sqlite",
        "uc",
    }
)

LOCAL_UI = "http://127.0.0.1:5000"  # where `mlflow ui` listens by default


class Ledger(msgspec.Struct, kw_only=True):
    """Which run holds what, for one tracking server: cell fingerprint or sweep id -> run id."""

    experiment: str
    experiment_id: str
    runs: dict[str, str] = {}


class Tracking:
    """Logs a sweep to MLflow.

    Args:
        uri: tracking URI; None takes MLFLOW_TRACKING_URI, else SQLite in the working folder.
        experiment: the experiment's name, which is the matrix's.

    Raises:
        UserError: MLflow knows no such scheme.

    Every method that talks to MLflow raises TrackingError. After a failure the methods fail at
    once for a minute, so that a server that is away does not slow a sweep down.
    """

    def __init__(self, uri: str | None, experiment: str) -> None:
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri()
        check_scheme(self.uri)
        self.experiment = experiment
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._runs: dict[str, dict[str, str]] = {}
        self._away_until = 0.0
        self._last_failure = ""
        self._page = ""

    def start(self, store: Store) -> None:
        """Open the sweep's own run, or again the one of a sweep that is resumed."""
        with self._talking():
            self._send_sweep(store, store.results())

    def log_cell(self, store: Store, result: CellResult) -> None:
        """Log a cell with all its artifacts; again with another verdict, it changes the run."""
        with self._talking():
            self._send_cell(store, result)

    def sync(
        self,
        store: Store,
        *,
        pending: Sequence[str] = (),
        most_seconds: float = math.inf,
        say: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Fill MLflow from the results folder, the worst verdicts first; returns the number of
        cells.

        What is there already is left as it is, what has changed is brought up to date. A driver
        calls this last and waits `most_seconds` for cells; the sweep's own run is sent in any case.
        `say` is told every few seconds how far it is. Raises TrackingError too where the time was
        up before all cells were there.
        """
        self._away_until = 0.0
        with self._talking():
            results = store.results()
            began = told = time.monotonic()
            sent = 0
            for result in worst_first(results):
                if time.monotonic() - began >= most_seconds:
                    break
                self._send_cell(store, result)
                sent += 1
                if time.monotonic() - told >= TELL_SECONDS:
                    told = time.monotonic()
                    say(f"MLflow has {sent} of {len(results)} cells")
            self._send_sweep(store, results, pending)
            self._send_view(store, results)
        if sent < len(results):
            raise TrackingError(
                f"MLflow has {sent} of {len(results)} cells after {most_seconds:g} s",
                remedy="results are safe in the results folder; `matrixrun sync` sends the rest",
            )
        return sent

    def where(self) -> str:
        """Where a person looks: the page, and for a database the command that serves it."""
        page = self._page
        if self.uri.startswith(("http://", "https://")):
            return mask(self.uri).rstrip("/") + page
        command = f"mlflow ui --backend-store-uri {shlex.quote(mask(self.uri))}"
        return command + (f"\nand open {LOCAL_UI}{page}" if page else "")

    # -- runs --------------------------------------------------------------------------------

    def _send_cell(self, store: Store, result: CellResult) -> None:
        evidence = store.evidence(result.cell.id)
        self._send(
            store, cell_run(result, evidence, store.info), cell_artifacts(store, result, evidence)
        )

    def _send_sweep(
        self, store: Store, results: Sequence[CellResult], pending: Sequence[str] = ()
    ) -> None:
        # MLflow folds a description after a few lines, below a title that counts the verdicts.
        text = summary_markdown(
            results, store.info.id, store.info.exit_code, pending=pending, headed=False
        )
        content = sweep_run(store.info, results, text, pending)
        self._send(store, content, sweep_artifacts(store))

    def _send(self, store: Store, content: RunContent, artifacts: Sequence[Artifact]) -> None:
        run = self._find(store, content) or self._create(store, content)
        client, run_id = self._connected(), run.info.run_id
        if run.info.run_name != content.name:
            client.update_run(run_id, name=content.name)
        self._send_figures(run, content)
        sent = digest(artifacts)
        if run.data.tags.get(SENT) != sent:
            with staged(artifacts) as folder:
                client.log_artifacts(run_id, str(folder))
            client.set_tag(run_id, SENT, sent)
        if content.status == "RUNNING":
            client.update_run(run_id, status="RUNNING")
        elif (run.info.status, run.info.end_time) != (content.status, content.end):
            client.set_terminated(run_id, content.status, content.end)

    def _send_figures(self, run: Run, content: RunContent) -> None:
        """Send what differs. A changed metric gets a later time: at equal times MLflow shows
        the larger value; one that is gone becomes NaN, since MLflow cannot take it back."""
        from mlflow.entities import Metric, Param, RunTag

        known = run.data.metrics
        wanted = content.metrics | {name: float("nan") for name in known.keys() - content.metrics}
        changed = {name: v for name, v in wanted.items() if not _same(known.get(name), v)}
        tags = {k: v for k, v in content.tags.items() if run.data.tags.get(k) != v}
        missing = {k: v for k, v in content.params.items() if k not in run.data.params}
        if not (changed or tags or missing):
            return
        revision = int(run.data.tags.get(REVISION, "0")) + 1
        at = content.start + revision
        self._connected().log_batch(
            run.info.run_id,
            metrics=[Metric(name, value, at, 0) for name, value in changed.items()],
            params=[Param(name, value) for name, value in missing.items()],
            tags=[RunTag(k, v) for k, v in {**tags, REVISION: str(revision)}.items()],
        )

    def _send_view(self, store: Store, results: Sequence[CellResult]) -> None:
        """Keep a view of this sweep with the experiment, where MLflow keeps its shared views."""
        key, value = view_tag(store.info.id), view(results, store.info.id)
        client = self._connected()
        if client.get_experiment(self._experiment_id).tags.get(key) != value:
            client.set_experiment_tag(self._experiment_id, key, value)
        self._page = view_page(self._experiment_id, store.info.id)

    def _create(self, store: Store, content: RunContent) -> Run:
        identity = {k: v for k, v in content.tags.items() if k in (SWEEP, KIND, FINGERPRINT)}
        run = self._connected().create_run(
            self._experiment_id, start_time=content.start, tags=identity, run_name=content.name
        )
        self._remember(store, content.key, run.info.run_id)
        return run

    def _find(self, store: Store, content: RunContent) -> Run | None:
        self._connected()
        known = self._known(store).get(content.key)
        run = None if known is None else self._get(known)
        return run if run is not None and run.info.lifecycle_stage == "active" else None

    def _get(self, run_id: str) -> Run | None:
        from mlflow.exceptions import MlflowException

        try:
            return self._connected().get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise

    # -- what is there already ---------------------------------------------------------------

    def _known(self, store: Store) -> dict[str, str]:
        """Key -> run id of this sweep, from the ledger and from the runs' tags."""
        sweep = store.info.id
        if sweep not in self._runs:
            found = self._ledger(store).runs | self._tagged(sweep)
            self._runs[sweep] = found
        return self._runs[sweep]

    def _tagged(self, sweep: str) -> dict[str, str]:
        found: dict[str, str] = {}
        token: str | None = None
        while True:
            page = self._connected().search_runs(
                [self._experiment_id], f"tags.{SWEEP} = '{sweep}'", page_token=token
            )
            for run in page:
                tags = run.data.tags
                key = sweep if tags.get(KIND) == "sweep" else tags.get(FINGERPRINT)
                if key is not None:
                    found[key] = run.info.run_id
            token = page.token
            if not token:
                return found

    def _remember(self, store: Store, key: str, run_id: str) -> None:
        self._known(store)[key] = run_id
        ledgers = _ledgers(store.root / LEDGER)
        ledgers[mask(self.uri)] = Ledger(
            experiment=self.experiment,
            experiment_id=self._experiment_id,
            runs=dict(self._known(store)),
        )
        write_json(store.root / LEDGER, ledgers)

    def _ledger(self, store: Store) -> Ledger:
        empty = Ledger(experiment=self.experiment, experiment_id=self._experiment_id)
        ledger = _ledgers(store.root / LEDGER).get(mask(self.uri), empty)
        return ledger if ledger.experiment_id == self._experiment_id else empty

    # -- the connection ----------------------------------------------------------------------

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        if time.monotonic() < self._away_until:
            raise TrackingError(self._last_failure, remedy=_LATER)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            self._connected()
            yield
        except StoreError as error:  # the ledger or an artifact; what MLflow has is not at risk
            raise TrackingError(
                f"MLflow is not up to date: {error.message}", remedy=error.remedy
            ) from error
        except (MlflowException, SQLAlchemyError, OSError) as error:
            self._away_until = time.monotonic() + PAUSE_SECONDS
            reason = mask(" ".join(str(error).split()), self.uri)[:500]
            self._last_failure = f"MLflow at {mask(self.uri)} did not take what was sent: {reason}"
            raise TrackingError(self._last_failure, remedy=_LATER) from error

    def _connected(self) -> MlflowClient:
        if self._client is None:
            from mlflow import MlflowClient

            client = MlflowClient(tracking_uri=self.uri)
            self._experiment_id = self._open_experiment(client)
            self._client = client
        return self._client

    def _open_experiment(self, client: MlflowClient) -> str:
        from mlflow.exceptions import MlflowException

        found = client.get_experiment_by_name(self.experiment)
        if found is None:
            try:
                location = artifact_location(self.uri, self.experiment)
                return str(client.create_experiment(self.experiment, location))
            except MlflowException as error:
                found = client.get_experiment_by_name(self.experiment)
                if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"MLflow's experiment {self.experiment!r} was deleted, and its name is still taken",
                remedy=f"bring it back with `mlflow experiments restore --experiment-id "
                f"{found.experiment_id}`, or give the matrix another name; "
                "then `matrixrun sync` sends what is missing",
            )
        return str(found.experiment_id)


_LATER = "results are safe in the results folder; when it is back, `matrixrun sync` sends them"


def default_uri() -> str:
    """SQLite in the working folder, where `mlflow ui` looks by itself."""
    return f"sqlite:///{Path('mlflow.db').absolute()}"


def check_scheme(uri: str) -> None:
    """Refuse an address that MLflow has no store for, before it and its stores are imported, and a
    database in a folder that would have to be made with all those above it.

    Raises:
        UserError: MLflow knows no such scheme, or there is no such folder.
    """
    if uri.startswith("sqlite:///") and (file := uri.removeprefix("sqlite:///").split("?")[0]):
        require_place(Path(file), "--tracking-uri")
    scheme, separator, _ = uri.partition("://")
    if not separator or scheme.partition("+")[0].lower() in SCHEMES:
        return
    plugins = {one.name for one in entry_points(group="mlflow.tracking_store")}
    if scheme in plugins:
        return
    raise UserError(
        f"--tracking-uri {mask(uri)}: MLflow knows no scheme {scheme!r}",
        remedy=did_you_mean(scheme, SCHEMES | plugins)
        + " (given by --tracking-uri or MLFLOW_TRACKING_URI)",
    )


def artifact_location(uri: str, experiment: str) -> str | None:
    """Beside a SQLite file, so that both can be moved together; a server decides for itself."""
    if not uri.startswith("sqlite:///"):
        return None
    database = Path(uri.removeprefix("sqlite:///").split("?")[0]).absolute()
    return str(database.parent / "mlruns" / experiment)


def _ledgers(path: Path) -> dict[str, Ledger]:
    return read_json(path, dict[str, Ledger]) if path.exists() else {}


def _same(known: float | None, wanted: float) -> bool:
    return known is not None and (known == wanted or (known != known and wanted != wanted))  # noqa: PLR0124
