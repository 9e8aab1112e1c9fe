"""Photograph a report, to be looked at by a person.

python tests/signoff/report_screenshots.py results/SWEEP/report.html --out screenshots

Needs Chromium.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from browser import browser, installed


def main() -> None:
    """Write light.png, dark.png, narrow.png, and the worst cell in each, as tall as they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if installed() is None:
        sys.exit("no Chromium is installed")
    options.out.mkdir(parents=True, exist_ok=True)
    report = options.report.resolve()
    with browser() as page:
        for name, width, dark in (
            ("light", 1500, False),
            ("dark", 1500, True),
            ("narrow", 420, False),
        ):
            page.open(report, width=width, height=1400)
            page.dark(dark)
            page.photograph(options.out / f"{name}.png")
            page.ask("openCell(0)")
            page.open(report, page.ask("location.hash.slice(1)"), width=width, height=2600)
            page.photograph(options.out / f"{name}-cell.png")


if __name__ == "__main__":
    main()
