"""`matrixrun faultbench`: every specimen over several seeds, on the bench's launches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from matrixrun.faultbench.catalogue import select
from matrixrun.faultbench.pair import BENCH, STATE_BENCH, LaunchDied, Launches
from matrixrun.faultbench.result import TrialResult, died
from matrixrun.faultbench.specimen import Specimen
from matrixrun.faultbench.table import BAD, Line, as_json, as_table, summarise
from matrixrun.faultbench.trial import Baseline, Bench
from matrixrun.judge import settings_for
from matrixrun.record.files import write_bytes

Say = Callable[[str], None]
# The specimens that switch nothing on, by the method of their launch.
HEALTHY = {"draft_model": "healthy", "ngram": "ngram-healthy"}
Keep = Callable[[Sequence[TrialResult], dict[str, dict[str, Any]]], None]


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
        EngineError: a launch does not serve, the injection is not in its process, or the ledger of
            the launch with the fault has ended.
        StoreError: the JSON cannot be written.
    """
    chosen, began = select(options.only), time.monotonic()
    trials: list[TrialResult] = []
    facts: dict[str, dict[str, Any]] = {}

    def keep(some: Sequence[TrialResult], told: dict[str, dict[str, Any]]) -> None:
        trials.extend(some)
        facts.update(told)
        about = {"seconds": time.monotonic() - began, "seeds": options.seeds, "facts": facts}
        if options.json_file is not None:
            write_bytes(options.json_file, as_json(list(_lines(chosen, trials)), trials, about))

    for of_state, file in ((False, BENCH), (True, STATE_BENCH)):
        some = [one for one in chosen if one.of_state is of_state]
        if some:
            _on_launches(some, options.seeds, file, cache=cache, say=say, keep=keep)
    return BenchResult(lines=tuple(_lines(chosen, trials)), trials=tuple(trials))


def _on_launches(
    chosen: Sequence[Specimen], seeds: int, file: Path, *, cache: Path, say: Say, keep: Keep
) -> None:
    """Run the trials of specimens on the launches of one file; each specimen's are kept with what
    the launches say of themselves."""
    methods, needed = {one.method for one in chosen}, {one.probe for one in chosen}
    with Launches(cache, say, methods, file=file, probes=needed) as launches:
        prompts = launches.workload(launches.matrix.workload.prompts * seeds)
        settings, baselines = settings_for(launches.matrix), dict[str, Baseline]()
        benches = {
            method: Bench(pair, prompts, settings, baselines)
            for method, pair in launches.pairs.items()
        }
        facts = {name: one.facts for name, one in launches.outcomes.items()}
        for specimen in chosen:
            bench = benches[specimen.method]
            keep([_trial(bench, specimen, seed, say) for seed in range(seeds)], facts)


def _lines(chosen: Sequence[Specimen], trials: Sequence[TrialResult]) -> Iterator[Line]:
    """Return a line for every specimen that has been tried."""
    for specimen in chosen:
        mine = [one for one in trials if one.specimen == specimen.name]
        nothing = HEALTHY.get(specimen.method)
        healthy = {one.seed: one for one in trials if one.specimen == nothing}
        if mine:
            yield summarise(specimen, mine, healthy)


def show(result: BenchResult) -> None:
    """Print the table."""
    Console(width=None if Console().is_terminal else 160).print(as_table(result.lines))


def _trial(bench: Bench, specimen: Specimen, seed: int, say: Say) -> TrialResult:
    """Run one trial; an engine that dies of a fault is what the judge calls an ERROR. It is started
    again, whichever launch's it was."""
    try:
        result = bench.trial(specimen, seed)
    except LaunchDied as error:
        bench.pair.restart(error.role)
        result = died(specimen, seed, error)
    finding = result.finding or "nothing"
    say(f"{specimen.name}, seed {seed}: {result.verdict} ({finding}) after {result.requests} of "
        f"{result.sent} requests; struck {result.struck} times")  # fmt: skip
    return result


__all__ = ["BenchOptions", "BenchResult", "run_bench", "show"]
