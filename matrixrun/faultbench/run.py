"""`matrixrun faultbench`: every specimen over several seeds, on the bench's launches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console

from matrixrun.evidence.errors import EngineDied
from matrixrun.faultbench.catalogue import Specimen, select
from matrixrun.faultbench.pair import Launches
from matrixrun.faultbench.table import BAD, Line, as_json, as_table, summarise
from matrixrun.faultbench.trial import Baseline, Bench, TrialResult, died
from matrixrun.judge import settings_for

Say = Callable[[str], None]


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`only` names specimens (none: all of them), `seeds` the trials of each."""

    only: tuple[str, ...] = ()
    seeds: int = 3
    json_file: Path | None = None


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Every trial, and a line for each specimen."""

    lines: tuple[Line, ...]
    trials: tuple[TrialResult, ...]

    @property
    def good(self) -> bool:
        """Whether every fault above the floor was caught and nothing harmless accused."""
        return not any(line.outcome in BAD for line in self.lines)


def run_bench(options: BenchOptions, *, cache: Path, say: Say) -> BenchResult:
    """Run the bench and write its JSON where one is asked for, again after every specimen.

    Raises:
        UserError: `only` names what does not exist.
        EngineError: a launch does not serve, or the injection is not in its process.
    """
    chosen, began = select(options.only), time.monotonic()
    trials: list[TrialResult] = []
    with Launches(cache, say, {one.method for one in chosen}) as launches:
        prompts = launches.workload(launches.matrix.workload.prompts * options.seeds)
        settings, baselines = settings_for(launches.matrix), dict[str, Baseline]()
        benches = {
            method: Bench(pair, prompts, settings, baselines)
            for method, pair in launches.pairs.items()
        }
        lines: list[Line] = []
        for specimen in chosen:
            bench = benches[specimen.method]
            mine = [_trial(bench, specimen, seed, say) for seed in range(options.seeds)]
            trials.extend(mine)
            lines.append(summarise(specimen, mine))
            about = {
                "seconds": time.monotonic() - began,
                "seeds": options.seeds,
                "facts": {name: one.facts for name, one in launches.outcomes.items()},
            }
            if options.json_file is not None:
                options.json_file.write_bytes(as_json(lines, trials, about))
    return BenchResult(lines=tuple(lines), trials=tuple(trials))


def show(result: BenchResult) -> None:
    """Print the table."""
    Console(width=None if Console().is_terminal else 160).print(as_table(result.lines))


def _trial(bench: Bench, specimen: Specimen, seed: int, say: Say) -> TrialResult:
    """Run one trial; an engine that dies of a fault is what the judge calls an ERROR."""
    try:
        result = bench.trial(specimen, seed)
    except EngineDied as error:
        bench.pair.restart()
        result = died(specimen, seed, error)
    finding = result.finding or "nothing"
    say(f"{specimen.name}, seed {seed}: {result.verdict} ({finding}) after {result.requests} of "
        f"{result.sent} requests; struck {result.struck} times")  # fmt: skip
    return result


__all__ = ["BenchOptions", "BenchResult", "run_bench", "show"]
