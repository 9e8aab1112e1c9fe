"""Healthy pairs, really noisy ones most of them, each with prompts and launches of its own.

    python benchmarks/healthy_pairs.py run FOLDER [--first 0] [--last 21]
    python benchmarks/healthy_pairs.py judge FOLDER
    python benchmarks/healthy_pairs.py null FOLDER [--sweeps 10000] [--seed 0] [--processes 2]

`run` starts pair after pair on llama.cpp (a second a launch): a type of weights, a drafter, a
length of drafts, a seed for its prompts, and two off launches. Ready ones are left alone. `judge`
divides each pair's prompts into groups of 30 and judges every group as a sweep of its own, from
what was stored: no two judgements share a prompt. Given are the verdicts, the exact one-sided
bound at 95 % on FAIL for one judgement, and that on pairs with a FAIL, since judgements of a pair
share its launches. `null` judges null sweeps: each takes one group from each of five pairs drawn at
random, and exchanges on arm and control at random within each prompt (see `null_sweeps.py`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from null_sweeps import disjoint, healthy_cells, swapped, upper_bound

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import CellObservations, JudgeSettings, judge_sweep

# As many as every witness of a llama.cpp pair needs to have a word.
GROUP = 30
# What so many prompts show at a confidence of 95 %.
DETECT = 0.1
GROUPS = 10
CELLS_OF_A_NULL_SWEEP = 5
MATRIX = """
name: healthy-{number}
engines:
  llamacpp: {{kind: llamacpp}}
models:
  gguf-dense:
    targets: {{none: {{path: "builtin:gguf-dense{suffix}"}}}}
    drafts:
      near: {{path: "builtin:gguf-dense/draft"}}
      far: {{path: "builtin:gguf-dense/draft-far"}}
grid:
  engine: llamacpp
  model: gguf-dense
  quantization: {quantization}
  prefix_caching: true
  batch_size: 1
  speculation: {{method: draft-simple, draft: {draft}, num_speculative_tokens: {tokens}}}
workload: {{prompts: {prompts}, max_tokens: 24}}
detect: {{request_fault_rate: {detect}, confidence: 0.95}}
control: between-launches
seed: {seed}
"""
# Weights, drafter and draft length of the pairs. Q4_K_M computes other numbers from four rows on,
# BF16 from two on; F16 and Q8_0 nearly or always the same.
KINDS = (
    ("q4_k_m", "near", 3), ("none", "near", 3), ("q4_k_m", "far", 7), ("none", "far", 1),
    ("q4_k_m", "near", 5), ("none", "near", 7), ("f16", "near", 3), ("q8_0", "near", 3),
)  # fmt: skip
NOISY = ("q4_k_m", "none")


def kind_of(number: int) -> tuple[str, str, int]:
    return KINDS[number % len(KINDS)]


def matrix_of(number: int) -> str:
    """Return the matrix file of a pair."""
    weights, draft, tokens = kind_of(number)
    suffix = "" if weights == "none" else f"/{weights}"
    text = MATRIX.format(
        number=number, suffix=suffix, quantization=weights, draft=draft, tokens=tokens,
        prompts=GROUP * GROUPS, detect=DETECT, seed=1000 + number,
    )  # fmt: skip
    return text.replace("targets: {none:", f"targets: {{{weights}:")


def run(folder: Path, numbers: range) -> None:
    """Run the pairs of these numbers, each into a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        file, results = folder / f"healthy-{number}.yaml", folder / f"healthy-{number}"
        file.write_text(matrix_of(number), encoding="utf-8")
        if (results / "summary.json").exists():
            continue
        command = [sys.executable, "-m", "matrixrun", "run", str(file), "--results", str(results)]
        ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        print(f"pair {number} {kind_of(number)}: exit {ended.returncode}", flush=True)


def pairs_in(folder: Path) -> list[int]:
    """Return the numbers of the pairs that have run."""
    ready = (path.parent.name for path in folder.glob("healthy-*/summary.json"))
    return sorted(int(name.split("-")[1]) for name in ready)


def groups_of(folder: Path, number: int) -> tuple[list[CellObservations], JudgeSettings]:
    """Return a pair's groups, each a cell of its own name, and what they are judged by."""
    cells, settings = healthy_cells(folder / f"healthy-{number}")
    groups = [one for cell in cells for one in disjoint(cell, GROUP)]
    named = [
        replace(one, evidence=msgspec.structs.replace(
            one.evidence, cell=msgspec.structs.replace(one.cell, id=f"{number}.{place}")
        ))
        for place, one in enumerate(groups)
    ]  # fmt: skip
    return named, msgspec.structs.replace(settings, detect_rate=DETECT)


def judge(folder: Path) -> None:
    """Print what the judge says of every group of every pair, and the bounds."""
    verdicts: Counter[tuple[bool, str]] = Counter()
    differing: Counter[bool] = Counter()
    failed: set[int] = set()
    pairs = pairs_in(folder)
    for number in pairs:
        groups, settings = groups_of(folder, number)
        noisy = kind_of(number)[0] in NOISY
        for group in groups:
            result = judge_sweep([group], settings, final=True).results[0]
            verdicts[noisy, result.verdict.value] += 1
            theirs = {one.request: one.token_ids for one in group.off}
            differing[noisy] += any(
                not np.array_equal(one.token_ids, theirs[one.request]) for one in group.on
            )
            if result.verdict is Verdict.FAIL:
                failed.add(number)
                kinds = {one.kind for one in result.findings if one.severity is Severity.FAULT}
                print(f"pair {number} {kind_of(number)}: {sorted(kinds)}: {result.reason}")
    for noisy in (True, False):
        mine = {name: count for (which, name), count in verdicts.items() if which is noisy}
        total = sum(mine.values())
        print(f"{'BF16 and Q4_K_M' if noisy else 'F16 and Q8_0'}: {total} judgements of {GROUP} "
              f"prompts, on and off differ in {differing[noisy]} of them: {mine}")  # fmt: skip
    total = sum(verdicts.values())
    accused = sum(count for (_, name), count in verdicts.items() if name == "FAIL")
    single, clustered = upper_bound(accused, total), upper_bound(len(failed), len(pairs))
    print(f"in all {accused} of {total} accused, at most {single:.2%} at 95 %; {len(failed)} of "
          f"{len(pairs)} pairs, at most {clustered:.2%}")  # fmt: skip


def null_sweeps(folder: Path, seed: int, sweeps: int) -> Counter[str]:
    """Return how many of `sweeps` null sweeps end in an accusation, and by what."""
    ready = [groups_of(folder, number) for number in pairs_in(folder)]
    settings, random = ready[0][1], np.random.default_rng(seed)
    told: Counter[str] = Counter()
    for _ in range(sweeps):
        drawn = random.choice(len(ready), CELLS_OF_A_NULL_SWEEP, replace=False).tolist()
        cells = [
            swapped(groups[random.integers(len(groups))], random)
            for groups, _ in (ready[number] for number in drawn)
        ]
        results = judge_sweep(cells, settings, final=True).results
        bad = [one for one in results if one.verdict is Verdict.FAIL]
        told["sweeps"] += 1
        told["accused"] += bool(bad)
        told["cells"] += len(cells)
        told["cells not PASS"] += sum(one.verdict is not Verdict.PASS for one in results)
        told.update(f"by {f.kind}" for one in bad for f in one.findings
                    if f.severity is Severity.FAULT)  # fmt: skip
    return told


def null(folder: Path, sweeps: int, seed: int, processes: int) -> None:
    """Print how many null sweeps are accused, and the bound."""
    began, share = time.monotonic(), -(-sweeps // processes)
    with ProcessPoolExecutor(processes) as pool:
        seeds = [seed * 1000 + number for number in range(processes)]
        many = pool.map(null_sweeps, [folder] * processes, seeds, [share] * processes)
        told = sum(many, Counter[str]())
    bound = upper_bound(told["accused"], told["sweeps"])
    print(f"{told['sweeps']} null sweeps of {CELLS_OF_A_NULL_SWEEP} cells of {GROUP} prompts from "
          f"{len(pairs_in(folder))} pairs: {told['accused']} accused, at most {bound:.3%} at 95 %; "
          f"{dict(told)}; {time.monotonic() - began:.0f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "judge", "null"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=21)
    parser.add_argument("--sweeps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if given.what == "run":
        run(given.folder, range(given.first, given.last + 1))
    elif given.what == "null":
        null(given.folder, given.sweeps, given.seed, given.processes)
    else:
        judge(given.folder)


if __name__ == "__main__":
    main()
