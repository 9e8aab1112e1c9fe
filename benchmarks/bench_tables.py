"""Write what the fault bench found as a page of tables.

    python benchmarks/bench_tables.py JSON... > docs/faultbench-results.md

JSON are files of `matrixrun faultbench --json`; a later file's specimen takes the place of an
earlier one's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench_plots import read

from matrixrun.faultbench.catalogue import SPECIMENS
from matrixrun.faultbench.specimen import STATE_PROBES, Specimen
from matrixrun.judge import JudgeSettings

STATE = "state"
MOST_SUSPICIONS = JudgeSettings().max_suspicions
GROUPS = {
    None: "Greedy answers, their ends, drafts and acceptance",
    "sampling": "Samples above temperature 0",
    "processors": "Logits processors",
    "surface": "Replies to users",
    "accuracy": "A task",
    STATE: "Transitions",
}
FAULTS = ("put in", "after", "outcome", "seeds", "first finding", "requests / tokens",
          "regret: largest / mean", "struck")  # fmt: skip
HARMLESS = ("put in", "after", "outcome", "accused", "regret: largest / mean",
            "same answers: on / control", "struck")  # fmt: skip


def page(lines: dict[str, Any], trials: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the page's lines: a table of faults and one of what is harmless for each group."""
    harmless = sum(one["harmless"] for one in lines.values())
    yield "# What the fault bench found"
    yield ""
    yield "Written by `benchmarks/bench_tables.py`; what the columns mean is told in"
    yield "[faultbench.md](faultbench.md)."
    yield ""
    yield f"{len(trials)} trials of {len(lines)} specimens, {harmless} of them harmless."
    yield _sensitivity(lines, trials)
    specimens = [one for one in SPECIMENS if one.name in lines]
    for group, title in GROUPS.items():
        mine = [one for one in specimens if _group(one) == group]
        if mine:
            yield from ("", f"## {title}")
        for is_harmless, head in ((False, FAULTS), (True, HARMLESS)):
            some = [one for one in mine if one.harmless is is_harmless]
            if some:
                yield ""
                yield from _table(head, (_cells(one, lines[one.name], trials) for one in some))


def _sensitivity(lines: dict[str, Any], trials: list[dict[str, Any]]) -> str:
    """Say in how many of the answers that a fault changed the judge names a token, of trials in
    which it did not have to leave tokens out."""
    changed = named = 0
    for one in trials:
        metrics, harmless = one["metrics"], lines[one["specimen"]]["harmless"]
        beyond = one["regret_max"] > one["ceiling"]
        if harmless or not beyond or "same/exact_match.on" not in metrics:
            continue
        if metrics["unexplained/suspicions.on"] <= MOST_SUSPICIONS:
            changed += round(metrics["power/requests"] * (1 - metrics["same/exact_match.on"]))
            named += round(metrics["unexplained/requests.on"])
    return (
        f"Of {changed} greedy answers that a fault changed, {named} have a token that the judge "
        f"names ({named / max(1, changed):.0%}; of trials in which no more than {MOST_SUSPICIONS} "
        "tokens were suspected, and some beyond the ceiling)."
    )


def _group(specimen: Specimen) -> str | None:
    return STATE if specimen.probe in STATE_PROBES else specimen.probe


def _table(head: Iterable[str], rows: Iterable[list[str]]) -> Iterator[str]:
    titles = ["", *head]
    for row in (titles, ["---"] * len(titles), *rows):
        yield f"| {' | '.join(row)} |".replace("|  |", "| |")


def _cells(specimen: Specimen, line: dict[str, Any], trials: list[dict[str, Any]]) -> list[str]:
    mine = [one for one in trials if one["specimen"] == specimen.name]
    regret = f"{line['regret_max']:.2g} / {line['regret_mean']:.2g}"
    told = line["outcome"]
    seeds, struck = f"{line['caught']}/{line['trials']}", str(line["struck"])
    begun = [specimen.name, specimen.what, specimen.report]
    if specimen.harmless:
        return [*begun, told, seeds, regret, _same(mine), struck]
    needed = "-"
    if line["requests"] is not None and not specimen.of_state:
        needed = f"{line['requests']:.0f} / {line['tokens']:.0f}"
    return [*begun, told, seeds, line["finding"] or "-", needed, regret, struck]


def _same(trials: list[dict[str, Any]]) -> str:
    """Return how many of `equality`'s answers were the off arm's, over the seeds."""
    arms = [
        [one["metrics"][f"same/exact_match.{arm}"] for one in trials if one["metrics"]]
        for arm in ("on", "null")
    ]
    return " / ".join(_range(values) for values in arms) if all(arms) else "-"


def _range(values: list[float]) -> str:
    least, most = f"{min(values):.0%}", f"{max(values):.0%}"
    return least if least == most else f"{least} to {most}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    print("\n".join(page(*read(parser.parse_args().files))))


if __name__ == "__main__":
    main()
