"""A launch without Ray: what its engine is handed, what is said of it. The engine is a double."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from doubles import plan

from matrixrun.engines import prepare
from matrixrun.evidence.launches import Checkpoint, Command, Gang, Launch, LaunchEnd, Recipe
from matrixrun.evidence.requests import Pass
from matrixrun.fanout.actor import FollowerBody, LaunchBody, LaunchSettings, Rendezvous
from matrixrun.fanout.followers import Followers
from matrixrun.fanout.passes import WARM_UP, PassAnswer
from matrixrun.models import checkpoint_identity, weights
from matrixrun.models.identity import Identity
from matrixrun.record.in_use import claimed

STANDIN = str(Path(__file__).with_name("standin.py"))


def launch(target: Path, recipe: Recipe, nodes: int = 1) -> Launch:
    """A launch of the stand-in; over more nodes than one it waits for the others' processes."""
    one = plan().launches[0]
    checkpoint = Checkpoint(path=str(target))
    config = msgspec.structs.replace(one.config, recipe=recipe, target=checkpoint)
    words = ("$PYTHON", STANDIN, "$HOST", "$PORT", "127.0.0.1", "0", str(nodes), "0")
    command = Command(argv=words, env={"NODE_IP": "127.0.0.1"})
    return msgspec.structs.replace(one, config=config, command=command, gang=Gang(accelerators=0))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def started(target: Path, cache: Path, recipe: Recipe) -> tuple[dict[str, str], dict[str, str]]:
    """Where the engine was told to keep what it compiles, and the identities in its outcome."""
    body = LaunchBody(launch(target, recipe), LaunchSettings(cache, 60.0, 20.0, 60.0))
    outcome = body.start()
    assert outcome.end is LaunchEnd.SERVED, outcome
    _, log, _ = body.finish()
    return json.loads(log.decode().splitlines()[0])["caches"], body.identities()


def test_launches_of_one_engine_version_find_what_the_earlier_ones_compiled(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, recipe = tmp_path / "cache", Recipe(python=sys.executable)
    key = prepare(recipe, cache=cache, timeout=60, on_line=print).key
    first, _ = started(target, cache, recipe)
    assert first["VLLM_CACHE_ROOT"] == str(cache / "compiled" / key / "vllm")
    assert started(target, cache, recipe)[0] == first
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/the/nodes/own")
    assert started(target, cache, recipe)[0]["VLLM_CACHE_ROOT"] == "/the/nodes/own"


def test_another_engine_version_has_a_cache_of_its_own(tmp_path: Path) -> None:
    from matrixrun.engines.environments import key

    versions = [Recipe(install=(f"vllm==0.3{n}.0",)) for n in (1, 2)]
    assert len({key(recipe) for recipe in versions}) == 2


def test_what_ended_a_launch_first_is_its_end_not_how_its_engine_was_stopped_then(
    target: Path, tmp_path: Path
) -> None:
    """The head of a launch over nodes still starts when a process group elsewhere has ended."""
    waiting = launch(target, Recipe(python=sys.executable), nodes=2)
    body = LaunchBody(waiting, LaunchSettings(tmp_path / "cache", 60.0, 20.0, 60.0))
    starting = threading.Thread(target=body.start)
    starting.start()
    while not [p for p in psutil.process_iter(["cmdline"]) if STANDIN in (p.info["cmdline"] or ())]:
        time.sleep(0.02)
    abandoned = body.abandon(LaunchEnd.DIED, "its process group on node 1 ended", "why")
    starting.join(60)
    outcome = body.finish().outcome
    assert abandoned.end is outcome.end is LaunchEnd.DIED
    assert "node 1" in outcome.message


def test_an_outcome_names_the_checkpoint_that_was_served(target: Path, tmp_path: Path) -> None:
    _, found = started(target, tmp_path / "cache", Recipe(python=sys.executable))
    assert found == {"target": checkpoint_identity(target).sha256}


def test_a_launch_that_serves_nothing_does_not_hold_its_gang_for_a_hash(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def hash_for_long(*_: Path) -> None:
        over.wait()
        raise OSError

    monkeypatch.setattr(weights, "checkpoint_identity", hash_for_long)
    refused = launch(target, Recipe(python=sys.executable))
    words = ("$PYTHON", "-c", "raise SystemExit(1)")
    refused = msgspec.structs.replace(refused, command=Command(argv=words, env={}))
    body = LaunchBody(refused, LaunchSettings(tmp_path / "cache", 60.0, 20.0, 60.0))
    outcome = body.start()
    assert body.identities() == {}  # would wait for ever
    over.set()
    assert outcome.end is LaunchEnd.DIED
    body.finish()


def test_passes_begin_before_what_is_served_is_hashed(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, known = threading.Event(), checkpoint_identity(target)

    def hash_for_long(*_: Path) -> Identity:
        over.wait()
        return known

    monkeypatch.setattr(weights, "checkpoint_identity", hash_for_long)
    served = launch(target, Recipe(python=sys.executable))
    body = LaunchBody(served, LaunchSettings(tmp_path / "cache", 60.0, 20.0, 60.0))
    assert body.start().end is LaunchEnd.SERVED  # would wait for ever
    answer = body.run(Pass(id="equality.c1", requests=(WARM_UP,), salt="s"))
    assert isinstance(answer, PassAnswer), answer
    assert body.finish().outcome.end is LaunchEnd.SERVED  # nor does this wait
    over.set()
    assert body.identities() == {"target": known.sha256}


def test_a_further_node_of_a_launch_does_not_hash_what_the_head_hashes(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rendezvous, "places", lambda self, rank: {"$NODE_RANK": str(rank)})
    head = launch(target, Recipe(python=sys.executable), nodes=2)
    both = msgspec.structs.replace(head, follower=head.command)
    cache = tmp_path / "cache"
    body = FollowerBody(both, LaunchSettings(cache, 60.0, 20.0, 60.0))
    body.follow(Rendezvous("127.0.0.1", 1), rank=1)
    body.finish()
    assert not (cache / "identities").exists()


def test_a_launch_claims_what_it_works_with_for_as_long_as_it_lives(
    target: Path, tmp_path: Path
) -> None:
    cache, recipe = tmp_path / "cache", Recipe(python=sys.executable)
    body = LaunchBody(launch(target, recipe), LaunchSettings(cache, 60.0, 20.0, 60.0))
    body.start()
    key = prepare(recipe, cache=cache, timeout=60, on_line=print).key
    assert claimed(cache) == {str(cache / "compiled" / key)}
    body.finish()
    assert claimed(cache) == set()


SAYS = "Traceback (most recent call last):\n  File 'x', line 1, in y\nRuntimeError: no peer"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (SAYS.replace("'", '"') + "\n\nkilling all processes", "RuntimeError: no peer"),
        ("one\ntwo\n\nthree\nfour", "two | three | four"),
        ("", ""),
    ],
)
def test_a_follower_that_kills_itself_is_told_with_what_its_log_says(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, said: str
) -> None:
    """As SGLang does with all its processes: by the signal alone it was killed from outside."""
    monkeypatch.setattr(Rendezvous, "places", lambda self, rank: {"$NODE_RANK": str(rank)})
    program = f"import os; print({log!r}, flush=True); os.kill(os.getpid(), 9)"
    command = Command(argv=("$PYTHON", "-c", program), env={})
    head = launch(target, Recipe(python=sys.executable), nodes=2)
    both = msgspec.structs.replace(head, follower=command)
    body = FollowerBody(both, LaunchSettings(tmp_path / "cache", 60.0, 20.0, 60.0))
    body.follow(Rendezvous("127.0.0.1", 1), rank=1)
    end, why, _ = body.hold()
    body.finish()
    assert end is LaunchEnd.LOST
    assert why == said

    async def ended() -> tuple[LaunchEnd, str, str]:
        followers = Followers.__new__(Followers)
        hold = asyncio.get_running_loop().create_future()
        hold.set_result((end, why, log))
        followers._holds = [hold]
        return await followers.ended()

    told = asyncio.run(ended())[1]
    assert told.startswith("its process group on node 1 was killed")
    assert told.endswith(said)
