"""Draw what the fault bench found.

    python benchmarks/bench_plots.py JSON... [--out docs/images]

JSON are files of `matrixrun faultbench --json`. Two pictures: the largest regret of each trial
against the ceiling of its cell (`bench-regret.svg`), and the share of trials of faults that are
caught after so many requests (`bench-detection.svg`), without those of transitions, of which the
requests needed are not counted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from matrixrun.faultbench.catalogue import SPECIMENS
from matrixrun.judge.verdict import ACCEPTANCE_KINDS

mpl.use("svg")
from matplotlib import pyplot as plt

HARMLESS, FAULTY, CEILING = "#2b6cb0", "#c53030", "#718096"
LEAST_SHOWN = 1e-3
CLASSES = {
    "tokens wrong": ("unexplained-token", "regret", "degeneration", "equality"),
    "ends, failures, logprobs": ("past-the-end", "length-limit", "stopped-early", "failed-request",
                                 "drift", "target-path", "answers", "nan", "empty"),
    "acceptance": ("inactive", *sorted(ACCEPTANCE_KINDS)),
    "sampling and processors": ("distribution", "correlated-samples", "processing",
                                "misprocessed-token", "forbidden-token", "sample-logprob",
                                "sample-similarity", "seeds"),
}  # fmt: skip


def read(files: list[Path]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the lines by specimen and all trials; a later file's specimen takes the place of an
    earlier one's, and one that the bench has no more is left out."""
    known = {one.name for one in SPECIMENS}
    lines: dict[str, Any] = {}
    trials: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        told = _load(file)
        for line in told["lines"]:
            name = line["specimen"]
            if name not in known:
                continue
            lines[name] = line
            trials[name] = [one for one in told["trials"] if one["specimen"] == name]
    return lines, [one for many in trials.values() for one in many]


def _load(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        told["lines"], told["trials"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SystemExit(
            f"{file}: no output of `matrixrun faultbench --json` ({error}); run it again"
        ) from None
    return told


def draw_regret(lines: dict[str, Any], trials: list[dict[str, Any]], out: Path) -> None:
    """Draw each trial's largest regret, specimens in order of it, with the ceilings; without those
    that moved no token, whose number is told."""
    shown = [one for one in trials if one["ceiling"] > 0]
    largest = {
        name: max((one["regret_max"] for one in shown if one["specimen"] == name), default=0.0)
        for name in lines
    }
    moved = [name for name in largest if largest[name] > LEAST_SHOWN]
    shown = [one for one in shown if one["specimen"] in moved]
    order = sorted(moved, key=lambda name: (lines[name]["harmless"], largest[name], name))
    places = {name: place for place, name in enumerate(order)}
    figure, axes = plt.subplots(figsize=(8, 0.2 * len(order) + 1.2))
    for harmless, colour, label in ((True, HARMLESS, "harmless"), (False, FAULTY, "fault")):
        some = [one for one in shown if lines[one["specimen"]]["harmless"] is harmless]
        axes.plot(
            [max(LEAST_SHOWN, one["regret_max"]) for one in some],
            [places[one["specimen"]] for one in some],
            "o", color=colour, alpha=0.7, markersize=5, label=label,
        )  # fmt: skip
    axes.plot(
        [one["ceiling"] for one in shown], [places[one["specimen"]] for one in shown],
        "|", color=CEILING, markersize=9, label="ceiling",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yticks(range(len(order)), order, fontsize=7)
    axes.set_ylim(-1, len(order))
    left = [lines[name]["harmless"] for name in largest if name not in moved]
    axes.set_xlabel(
        f"largest regret of a trial, nats (at the left edge: at most {LEAST_SHOWN:g})\nnot shown: "
        f"{len(left)} specimens that moved no token, {sum(left)} of them harmless",
        fontsize=8,
    )
    axes.legend(loc="lower right", fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    figure.savefig(out / "bench-regret.svg", metadata={"Date": None})
    plt.close(figure)


def draw_detection(lines: dict[str, Any], trials: list[dict[str, Any]], out: Path) -> None:
    """Draw the share of trials caught after so many requests, by what catches them."""
    counted = {one.name for one in SPECIMENS if not one.harmless and not one.of_state}
    faulty = [one for one in trials if one["specimen"] in counted and one["specimen"] in lines]
    figure, axes = plt.subplots(figsize=(7, 4))
    for label, kinds in CLASSES.items():
        names = {one["specimen"] for one in faulty if one["caught"] and one["finding"] in kinds}
        mine = [one for one in faulty if one["specimen"] in names]
        if not mine:
            continue
        caught = np.sort([one["requests"] for one in mine if one["caught"]])
        axes.step(
            [*caught, max(100, caught.max())],
            [*(np.arange(1, caught.size + 1) / len(mine)), caught.size / len(mine)],
            where="post", label=f"{label} ({len(names)} kinds, {len(mine)} trials)",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("requests of the on arm, in the order sent")
    axes.set_ylabel("share of trials caught")
    axes.legend(loc="lower right", fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(out / "bench-detection.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "matrixrun"
    lines, trials = read(given.files)
    draw_regret(lines, trials, given.out)
    draw_detection(lines, trials, given.out)
    print(f"{len(trials)} trials of {len(lines)} specimens")


if __name__ == "__main__":
    main()
