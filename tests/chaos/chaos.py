"""Faults at random, seeded moments of real sweeps, and what must hold afterwards.

    python tests/chaos/chaos.py --faults 50 --seed 1 [--tracking] [--real]

The long form: sweep after sweep on one cluster until so many faults have hit something alive. After
each sweep every cell has exactly one result, each verdict is that of an undisturbed run, no
observation is missing or damaged, and no process is left over. Says what was hit and what did not
hold; ends with 0 when all held.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
from grounds import Grounds, verdicts, wait_for

from matrixrun.evidence.launches import LaunchEnd
from matrixrun.record import Store

PAUSE = (1.0, 6.0)  # seconds between two faults
FAULTS_A_SWEEP = 12  # with more, a sweep hardly gets past its first launches
RESTARTS = 60
SWEEP_SECONDS = 600.0


class Chaos:
    """Disturbs sweeps on given grounds; `hit` are the faults that found a victim."""

    def __init__(self, grounds: Grounds, seed: int, kinds: tuple[str, ...] = ()) -> None:
        self.grounds = grounds
        self.chance = random.Random(seed)
        self.hit: list[str] = []
        self.results = grounds.folder
        known: dict[str, Callable[[], bool]] = {
            "driver": self._driver,
            "worker": lambda: self._signal(grounds.launchers(), signal.SIGKILL),
            "raylet": self._raylet,
            "engine": lambda: self._signal(grounds.engines(), signal.SIGKILL),
            "guard": lambda: self._signal(grounds.guards(), signal.SIGKILL),
            "freeze": lambda: self._signal(grounds.engines(), signal.SIGSTOP),
            "corrupt": self._corrupt,
            "full disk": self._full_disk,
        }
        if grounds.tracking_uri:
            known["tracking"] = self._tracking
        self.kinds = {name: known[name] for name in kinds or known}
        self._waiting: list[str] = []

    def sweep(self, name: str, faults: int) -> Path:
        """Run one sweep to its end while at most so many faults hit it; returns its folder."""
        self.results = self.grounds.folder / name
        until, next_at, left = time.monotonic() + SWEEP_SECONDS, self._soon(), faults
        self.grounds.start_driver(self.results)
        restarts = 0
        while True:
            assert time.monotonic() < until, f"the sweep did not end\n{self.grounds.words()}"
            driver = self.grounds.driver
            assert driver is not None
            if driver.poll() is not None:
                if driver.returncode in (0, 1, 6) and not self._again():
                    return self.results
                restarts += 1
                assert restarts < RESTARTS, self.grounds.outputs[-1].read_text()[-3000:]
                self.grounds.start_driver(self.results)
            if left and time.monotonic() > next_at and self._strike():
                left, next_at = left - 1, self._soon()
            time.sleep(0.2)

    def _soon(self) -> float:
        return time.monotonic() + self.chance.uniform(*PAUSE)

    def _strike(self) -> bool:
        """One fault of the first kind that finds a victim; every kind has its turn."""
        if not self._waiting:
            self._waiting = self.chance.sample(sorted(self.kinds), len(self.kinds))
        for kind in list(self._waiting):
            with contextlib.suppress(psutil.Error, OSError):
                if self.kinds[kind]():
                    self._waiting.remove(kind)
                    self.hit.append(kind)
                    print(f"{time.strftime('%H:%M:%S')} hit: {kind}", flush=True)
                    return True
        return False

    # -- faults; each says whether it found a victim ---------------------------------------------

    def _signal(self, victims: list[psutil.Process], number: signal.Signals) -> bool:
        if not victims:
            return False
        self.chance.choice(victims).send_signal(number)
        return True

    def _driver(self) -> bool:
        driver = self.grounds.driver
        if driver is None or driver.poll() is not None or not self._begun():
            return False
        driver.kill()
        driver.wait()
        return True

    def _begun(self) -> bool:
        return (self.results / "plan.json").exists()

    def _raylet(self) -> bool:
        """A node is lost with all on it, and another comes."""
        self.grounds.kill_raylet(self.chance.choice(self.grounds.worker_nodes()))
        self.grounds.add_node()
        return True

    def _corrupt(self) -> bool:
        """A byte of what a finished cell's evidence points to changes, or the evidence is cut; then
        the driver is killed, since it looks at what is finished when it starts."""
        files = sorted(self.results.glob("cells/*/evidence.json"))
        if not files or not self._driver():
            return False
        evidence = self.chance.choice(files)
        found = Store.open(self.results).evidence(evidence.parent.name)
        assert found is not None
        records = [self.results / record.path for record in found.records.values()]
        victim = self.chance.choice([evidence, *records])
        data = bytearray(victim.read_bytes())
        if victim == evidence:
            victim.write_bytes(data[: len(data) // 2])
        else:
            data[self.chance.randrange(len(data))] ^= 0xFF
            victim.write_bytes(data)
        return True

    def _full_disk(self) -> bool:
        """A double of a full disk: the driver may write no file of more than so many bytes."""
        driver = self.grounds.driver
        if driver is None or driver.poll() is not None or not self._begun():
            return False
        resource.prlimit(driver.pid, resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
        return True

    def _tracking(self) -> bool:
        """The tracking server is killed, and another started."""
        self.grounds.kill_tracking()
        self.grounds.start_tracking()
        return True

    # -- afterwards ------------------------------------------------------------------------------

    def _again(self) -> bool:
        """Follow the documented remedy for cells that an engine's hang has cost: it may be the
        engine's own fault, so it is an ERROR and is not tried again unasked."""
        store = Store.open(self.results)
        hung = [
            evidence.cell.id
            for evidence in store.evidences()
            if any(outcome.end is LaunchEnd.HUNG for outcome in evidence.outcomes.values())
        ]
        for cell in hung:
            shutil.rmtree(store.cell_folder(cell))
        return bool(hung)

    def check(self, expected: dict[str, str]) -> list[str]:
        """What does not hold after a sweep."""
        wrong = []
        store = Store.open(self.results)
        found = verdicts(self.results)
        if found != expected:
            wrong.append(f"verdicts {found} instead of {expected}")
        ids = [evidence.cell.id for evidence in store.evidences()]
        if sorted(ids) != sorted(expected) or len(store.results()) != len(expected):
            wrong.append(f"{len(ids)} pieces of evidence, {len(store.results())} results")
        prompts = 30
        for evidence in store.evidences():
            store.finished(evidence.cell.fingerprint)  # raises when anything of it is damaged
            for name in ("on", "off") if expected[evidence.cell.id] != "REFUSED" else ():
                seen = store.read_observations(evidence.records[name])
                if len({one.request for one in seen}) != len(seen) or len(seen) < prompts:
                    wrong.append(f"{evidence.cell.id}: {len(seen)} observations for {name}")
        left = self.leftovers
        if not wait_for(lambda: not left(), 60):
            wrong.append(f"left over: {left()}")
        return wrong

    def leftovers(self) -> list[str]:
        """Processes of launches that nobody needs any more."""
        grounds = self.grounds
        found = [*grounds.engines(), *grounds.guards(), *grounds.launchers()]
        return [" ".join(one.cmdline())[:200] for one in found if one.is_running()]


def run(folder: Path, *, faults: int, seed: int, tracking: bool, real: bool) -> int:
    """The long form; returns the exit code."""
    wrong: list[str] = []
    with Grounds(folder, tracking=tracking, real=real) as grounds:
        if tracking:
            assert wait_for(grounds.tracking_answers, 300), "no tracking server"
        expected = grounds.undisturbed()
        print(f"undisturbed: {Counter(expected.values())}", flush=True)
        chaos = Chaos(grounds, seed)
        began, number = time.monotonic(), 0
        while len(chaos.hit) < faults and not wrong:
            number += 1
            chaos.sweep(f"sweep-{number}", min(FAULTS_A_SWEEP, faults - len(chaos.hit)))
            wrong = chaos.check(expected)
            held = wrong or "all held"
            print(f"sweep {number}: {len(chaos.hit)} faults so far; {held}", flush=True)
        counted = ", ".join(f"{kind} {count}" for kind, count in sorted(Counter(chaos.hit).items()))
        seconds = time.monotonic() - began
        print(f"{len(chaos.hit)} faults in {number} sweeps, {seconds:.0f} s: {counted}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tracking", action="store_true", help="log to a server that is hit too")
    parser.add_argument("--real", action="store_true", help="on llama.cpp, not on a double")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mr-chaos-"))
    print(f"in {folder}, seed {given.seed}", flush=True)
    options = {"tracking": given.tracking, "real": given.real}
    return run(folder, faults=given.faults, seed=given.seed, **options)


if __name__ == "__main__":
    raise SystemExit(main())
