"""How long does judging take, reading from disk included, and how much memory?

    python benchmarks/judge_speed.py [--requests 1000] [--tokens 256] [--noise 0.1]

Writes one cell as a sweep does (on, off and control with their scores, 1,000 requests of 256 tokens
each, made by the tests' simulator; 128 samples at temperature 1 for each arm besides), then judges
the folder in a process of its own. Given are the seconds of wall time and of CPU from opening the
folder to the verdict, and the largest resident memory with what the imports alone take. The cell
says that it drafts by n-gram, so that this is predicted too; its made-up steps are not, and it
FAILs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

FACTS = {"engine": "vllm", "speculative_method": "ngram", "speculative_prompt_lookup_min": 1,
         "speculative_prompt_lookup_max": 4, "speculative_num_speculative_tokens": 3}  # fmt: skip


def write(folder: Path, requests: int, tokens: int, noise: float) -> None:
    """Write a sweep of one healthy cell."""
    from judge.sampling_simulator import Sampler, observed
    from judge.simulator import Pair, outcome, simulate

    from matrixrun.evidence.requests import ProbeRecords
    from matrixrun.judge import JudgeSettings
    from matrixrun.record import Store, new_sweep
    from matrixrun.workloads.prompts import Prompt, workload_of

    cell = simulate(Pair(prompts=requests, tokens=tokens).noisy(noise))
    store = Store.create(folder, new_sweep("speed", "name: speed\n", store_text=True))
    with store.writing():
        store.write_matrix("name: speed\n")
        names = {one.request: one.prompt for one in cell.off}
        prompts = {names[request]: ids for request, ids in (cell.prompts or {}).items()}
        made = tuple(Prompt(id=name, category="natural", token_ids=tuple(ids))
                     for name, ids in prompts.items())  # fmt: skip
        store.write_workload("small", workload_of(made))
        store.write_settings(JudgeSettings())
        records = {}
        for arm in ("on", "off", "null"):
            records[arm] = store.write_observations(arm, "equality.b8", getattr(cell, arm))
            scores = getattr(cell, f"{arm}_scores")
            records[f"{arm}.scores"] = store.write_scores("A", f"score.{arm}", scores)
        sampling = observed(Sampler(seed=1), prompts=32, tokens=min(64, tokens))
        probes = tuple(
            ProbeRecords(
                kind="sampling", arm=arm, compared=False,
                passes=(store.write_observations(arm, "sampling.b8", sampling.answers(arm)),),
                scores=(store.write_scores("A", f"score.s.{arm}", sampling.scores[arm]),),
            )
            for arm in ("on", "off", "null")
        )  # fmt: skip
        outcomes = {**cell.evidence.outcomes, "on": outcome("on", facts=FACTS)}
        evidence = msgspec.structs.replace(
            cell.evidence, records=records, probes=probes, outcomes=outcomes
        )
        store.write_evidence(evidence)


def judge(folder: Path) -> dict[str, float | str]:
    """Judge the folder in this process, and return what it took."""
    from matrixrun.judge import JudgeSettings
    from matrixrun.record import Store
    from matrixrun.record.replay import judge_store

    imports = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = time.monotonic(), time.process_time()
    store = Store.open(folder)
    (result,) = judge_store(store, store.settings(JudgeSettings))
    return {
        "wall_seconds": time.monotonic() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "megabytes_of_imports": imports,
        "verdict": result.verdict.value,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.judge:
        print(json.dumps(judge(given.judge)))
        return
    with tempfile.TemporaryDirectory() as folder:
        sweep = Path(folder) / "sweep"
        write(sweep, given.requests, given.tokens, given.noise)
        size = sum(path.stat().st_size for path in sweep.rglob("*") if path.is_file())
        command = [sys.executable, __file__, "--judge", str(sweep)]
        told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    print(f"{given.requests} requests x {given.tokens} tokens, {size / 1e6:.0f} MB on disk: "
          f"{told['wall_seconds']:.2f} s ({told['cpu_seconds']:.2f} s of CPU), "
          f"{told['megabytes']:.0f} MB resident, {told['megabytes_of_imports']:.0f} MB of them "
          f"imports; {told['verdict']}")  # fmt: skip


if __name__ == "__main__":
    main()
