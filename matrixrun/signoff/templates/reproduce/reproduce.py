"""Show that an engine answers otherwise with speculation on than with it off.

Start the two servers (off.sh, on.sh), then:

    python reproduce.py --off http://127.0.0.1:8001 --on http://127.0.0.1:8002
    python reproduce.py --off ... --on ... --minimise requests.min.json

Needs the standard library only, and `engine.py` beside it, which speaks the engine's own HTTP.
Every request is sent to both servers, greedy, as token ids, with as many in flight as in the run
that found the fault. Where the answers part, the server without speculation is asked how much it
prefers its own best token to the one that the other emitted. Exit code 1: it does by more than the
ceiling, so the fault is there; 0: it is not; 2: a server cannot be asked.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import engine  # type: ignore[import-not-found]

# No answer, or none that an engine gives: exit code 1 is for the fault alone.
TROUBLE = (OSError, HTTPException, ValueError, LookupError, TypeError)

Case = dict[str, Any]
Found = list[dict[str, Any]]


def main() -> int:
    """Parse, run, print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--off", required=True, help="the server without speculation")
    parser.add_argument("--on", required=True, help="the server with it")
    parser.add_argument("--key", default="none", help="the servers' API key")
    parser.add_argument("--requests", type=Path, default=Path(__file__).with_name("requests.json"))
    parser.add_argument("--minimise", type=Path, help="write the smallest set that still fails")
    options = parser.parse_args()
    try:
        case = json.loads(options.requests.read_text())
        found = differences(options, case)
        for one in found:
            print(described(one, case["ceiling"]))
        faults = beyond(found, case)
        print(f"{len(found)} of {len(case['requests'])} requests differ, {len(faults)} at fault")
        if faults and options.minimise:
            smallest = minimised(options, case, {one["request"] for one in faults})
            options.minimise.write_text(json.dumps(smallest) + "\n")
            lengths = [len(request["prompt"]) for request in smallest["requests"]]
            print(f"{options.minimise}: {len(lengths)} requests, prompts of {lengths} tokens")
    except TROUBLE as error:
        print(f"cannot ask a server: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 1 if faults else 0


def differences(options: Namespace, case: Case) -> Found:
    """Send all requests to both servers; returns where answers part, with the regret there."""
    answers = [answers_of(url, options.key, case) for url in (options.off, options.on)]
    found = []
    for request, off, on in zip(case["requests"], *answers, strict=True):
        shared = min(len(off), len(on))
        place = next((i for i in range(shared) if off[i] != on[i]), None)
        if place is None:
            continue
        prefix = request["prompt"] + on[:place]
        regret = engine.regret(options.off, options.key, prefix, on[place])
        found.append(
            {
                "request": request["id"],
                "position": place,
                "on": on[place],
                "off": off[place],
                "regret": regret,
            }
        )
    return found


def beyond(found: Found, case: Case) -> Found:
    """The differences that rounding does not explain."""
    return [one for one in found if one["regret"] > case["ceiling"]]


def described(one: dict[str, Any], ceiling: float) -> str:
    verdict = "FAULT" if one["regret"] > ceiling else "explained"
    return (
        f"{verdict}: request {one['request']}, token {one['position']}: on {one['on']}, off "
        f"{one['off']}; {one['regret']:.3g} nats below the target's best (ceiling {ceiling:.3g})"
    )


def answers_of(url: str, key: str, case: Case) -> list[list[int]]:
    """The token ids that a server gives to each request, in a cache namespace of its own."""
    salt = uuid.uuid4().hex

    def ask(request: dict[str, Any]) -> list[int]:
        tokens: list[int] = engine.emitted(url, key, request, case["sampling"], salt)
        return tokens

    engine.begin(url, key)
    with ThreadPoolExecutor(case["concurrency"]) as pool:
        return list(pool.map(ask, case["requests"]))


def minimised(options: Namespace, case: Case, names: set[str]) -> Case:
    """The smallest case found that still fails: fewer requests, shorter prompts and answers."""

    def fails(smaller: Case) -> Found:
        found = beyond(differences(options, smaller), smaller)
        return [one for one in found if one["request"] in names]

    implicated = [request for request in case["requests"] if request["id"] in names]
    tries = [[request] for request in implicated] + [implicated]
    for requests in tries:
        if fails({**case, "requests": requests}):
            case = {**case, "requests": requests}
            break
    case = fewer(case, fails)
    for place in range(len(case["requests"])):
        case = shorter(case, place, fails)
    ends = {one["request"]: one["position"] + 1 for one in fails(case)}
    cut = [{**r, "max_tokens": ends.get(r["id"], r["max_tokens"])} for r in case["requests"]]
    return {**case, "requests": cut} if fails({**case, "requests": cut}) else case


def fewer(case: Case, fails: Callable[[Case], Found]) -> Case:
    """Leave out requests in ever smaller runs, as long as it still fails."""
    size = len(case["requests"]) // 2
    while size:
        start = 0
        while start < len(case["requests"]) > size:
            left = case["requests"][:start] + case["requests"][start + size :]
            if fails({**case, "requests": left}):
                case = {**case, "requests": left}
            else:
                start += size
        size //= 2
    return case


def shorter(case: Case, place: int, fails: Callable[[Case], Found]) -> Case:
    """Cut the start of one prompt, in ever smaller pieces, as long as it still fails."""
    size = len(case["requests"][place]["prompt"]) // 2
    while size:
        request = case["requests"][place]
        cut = {**request, "prompt": request["prompt"][size:]}
        smaller = {**case, "requests": [*case["requests"]]}
        smaller["requests"][place] = cut
        if cut["prompt"] and fails(smaller):
            case = smaller
        else:
            size //= 2
    return case


if __name__ == "__main__":
    sys.exit(main())
