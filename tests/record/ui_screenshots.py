"""Photograph MLflow's pages of a sweep, to be looked at by a person.

python tests/record/ui_screenshots.py --tracking-uri sqlite:///mlflow.db --experiment quickstart \
    --out screenshots

Needs Chromium. A database is served on a free loopback port meanwhile; a server is used as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from mlflow import MlflowClient

from matrixrun.record.view import view_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
SERVER_SECONDS = 180
PAGE_MILLISECONDS = 60_000  # of the page's own clock, which runs ahead while nothing is loading
COMPARED = 7


def main() -> None:
    """Write runs.png, charts.png, compare.png and worst.png."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracking-uri", required=True)
    parser.add_argument("--experiment", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pages = pages_of(MlflowClient(options.tracking_uri), options.experiment)
    with served(options.tracking_uri) as address:
        for name, (page, height) in pages.items():
            photograph(f"{address}{page}", options.out / f"{name}.png", height)


def pages_of(client: MlflowClient, experiment: str) -> dict[str, tuple[str, int]]:
    """File name -> page and height in pixels, for the newest sweep of the experiment."""
    found = client.get_experiment_by_name(experiment)
    if found is None:
        sys.exit(f"there is no experiment {experiment!r}")
    number = found.experiment_id
    sweeps = client.search_runs([number], "tags.`matrixrun.kind` = 'sweep'", max_results=1)
    sweep = sweeps[0].data.tags["sweep"]
    wanted = f"tags.sweep = '{sweep}' and tags.`matrixrun.kind` = 'cell'"
    cells = client.search_runs([number], wanted, order_by=["tags.verdict"])
    ids = [run.info.run_id for run in cells]
    compared = quote(json.dumps(ids[:COMPARED])), quote(json.dumps([number]))
    view = view_page(number, sweep)
    return {
        "runs": (view, 1000),
        "charts": (f"{view}&compareRunsMode=CHART", 1900),
        "compare": ("/#/compare-runs?runs={}&experiments={}".format(*compared), 2000),
        "worst": (f"/#/experiments/{number}/runs/{ids[0]}", 1300),
        "default": (f"/#/experiments/{number}/runs", 1000),
    }


@contextlib.contextmanager
def served(uri: str) -> Iterator[str]:
    """The address of MLflow's pages."""
    if uri.startswith("http"):
        yield uri.rstrip("/")
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    server = subprocess.Popen(
        [*command, "--backend-store-uri", uri],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/health")
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def wait_for(url: str) -> None:
    """Return when `url` answers."""
    limit = time.monotonic() + SERVER_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(1)


def photograph(url: str, path: Path, height: int) -> None:
    """Write a picture of a page."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("no Chromium found: install `chromium`")
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        subprocess.run(
            [
                browser,
                *BROWSER_FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size=1900,{height}",
                f"--virtual-time-budget={PAGE_MILLISECONDS}",
                f"--screenshot={path.absolute()}",
                url,
            ],
            check=True,
            timeout=300,
            stderr=subprocess.DEVNULL,
        )
    print(path)


if __name__ == "__main__":
    main()
