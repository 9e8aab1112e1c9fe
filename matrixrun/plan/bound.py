"""The least time in which any order could run a plan's launches on given nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from matrixrun.evidence.launches import Launch, Role
from matrixrun.plan.nodes import Node, share
from matrixrun.plan.order import longest_chain

MOST_LENGTHS = 24  # of launches, at which rounds are counted
ROUNDING = 1e-9
# A bound is raised by what lengths do not fit together: up to so many times itself, by so many
# halvings.
MOST_RAISED = 1.5
HALVINGS = 16

Size = Fraction
Seen = Callable[[Size], Size]


def lower_bound(launches: Sequence[Launch], nodes: Sequence[Node]) -> float:
    """Return seconds that no schedule can be shorter than, however it is ordered.

    The largest of

    - the longest chain: a launch and the scorer that waits for it;
    - the work of all launches over what the nodes hold, gangs counted whole;
    - the rounds that the launches of some length or more take, each at least that long;
    - the longest time into which the lengths do not fit together: where there is no room for two
      long ones after another, short ones have what is left beside each;
    - both for all but the scorers, and the shortest scorer: whichever of them ends last, its
      scorer is still to come; also for the launches of some width or more alone.
    """
    bounds = [longest_chain(launches)]
    kinds = {node.accelerator for node in nodes}
    for kind in kinds:
        mine = [n for n in nodes if n.accelerator == kind]
        theirs = [x for x in launches if kinds == {kind} or x.gang.accelerator == kind]
        if theirs:
            bounds += [_no_shorter(theirs, mine), *_before_the_last_scorer(theirs, mine)]
    return max(bounds)


def _before_the_last_scorer(launches: Sequence[Launch], nodes: Sequence[Node]) -> Iterator[float]:
    """Bounds for the scored launches of each width or more, and the scorer behind the last."""
    scorers = {
        cell: launch.seconds
        for launch in launches
        if launch.role is Role.A
        for cell in launch.cells
    }
    scored = [
        launch
        for launch in launches
        if launch.role is not Role.A and all(cell in scorers for cell in launch.cells)
    ]
    for width in {_held(launch, nodes) for launch in scored}:
        wide = [launch for launch in scored if _held(launch, nodes) >= width]
        last = min(scorers[cell] for launch in wide for cell in launch.cells)
        yield _no_shorter(wide, nodes) + last


def _no_shorter(launches: Sequence[Launch], nodes: Sequence[Node]) -> float:
    """The earliest end of the last of these launches: by their work, by whole rounds, and by what
    fits together."""
    plain = max(_whole_gangs(launches, nodes, _seconds), *_rounds(launches, nodes))
    return _raised(launches, nodes, plain)


def _raised(launches: Sequence[Launch], nodes: Sequence[Node], least: float) -> float:
    """Return the longest time, `least` or more, of which it is shown that these launches take
    longer."""
    counts = Counter((launch.gang, launch.seconds) for launch in launches)
    kinds = {(launch.gang, launch.seconds): launch for launch in launches}
    lengths = sorted({launch.seconds for launch in launches if launch.seconds > 0})
    lengths = lengths[:: len(lengths) // MOST_LENGTHS + 1]

    def needed(shortest: float, time: float) -> float:
        seen = _beside_long(shortest / time)
        return _whole_gangs(
            kinds.values(), nodes, lambda x: counts[x.gang, x.seconds] * seen(x.seconds / time)
        )

    def too_short(time: float) -> bool:
        tried = [shortest for shortest in lengths if 2 * shortest <= time]
        return any(needed(shortest, time) > 1 + ROUNDING for shortest in tried)

    low, high = least, MOST_RAISED * least
    if not too_short(low * (1 + ROUNDING)):
        return least
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if too_short(middle) else (low, middle)
    return low


def _beside_long(shortest: float) -> Callable[[float], float]:
    """A dual feasible function of lengths as shares of a time, the third of Fekete and Schepers: a
    long launch leaves room for so many of the shortest, and each of these counts as one."""
    most = math.floor(1 / shortest + ROUNDING)

    def seen(length: float) -> float:
        if length > 1 / 2 + ROUNDING:
            return 1 - math.floor((1 - length) / shortest + ROUNDING) / most
        return 0.0 if length < shortest - ROUNDING else 1 / most

    return seen


def _rounds(launches: Sequence[Launch], nodes: Sequence[Node]) -> Iterator[float]:
    """Bounds by counting. Of what ends before k + 1 times a length, each launch of that length or
    more runs at one of the first k multiples of it: at none of them do more than the nodes hold."""
    lengths = sorted({launch.seconds for launch in launches})
    for shortest in lengths[:: len(lengths) // MOST_LENGTHS + 1]:
        long = [launch for launch in launches if launch.seconds >= shortest]
        needed = _whole_gangs(long, nodes, lambda _: 1.0)
        yield math.ceil(needed - ROUNDING) * shortest


def _seconds(launch: Launch) -> float:
    return launch.seconds


def _whole_gangs(
    launches: Iterable[Launch], nodes: Sequence[Node], value: Callable[[Launch], float]
) -> float:
    """What all these launches are worth, over what the nodes hold at once.

    Gangs are counted by dual feasible functions (Fekete and Schepers, "New classes of fast lower
    bounds for bin packing problems", 2001): what stands on one node at one time has sizes of 1
    together at most, and so have their images. On unlike nodes only the plain sum holds.
    """
    sizes = [_size(node) for node in nodes]
    largest, alike = max(sizes), min(sizes) == max(sizes)
    capacity = sum(sizes) / largest
    pieces: dict[Size, float] = {}
    for launch in launches:
        size = _held(launch, nodes) / largest
        pieces[size] = pieces.get(size, 0.0) + value(launch) * launch.gang.nodes
    functions = _dual_feasible(sorted(pieces)) if alike else iter([_plain])
    return max(
        sum(float(seen(size)) * worth for size, worth in pieces.items()) / float(capacity)
        for seen in functions
    )


def _held(launch: Launch, nodes: Sequence[Node]) -> Size:
    """What a launch holds on each of its nodes, in what these nodes are counted in."""
    part = share(launch.gang)
    held = part.accelerators if nodes[0].accelerators else part.cpus
    return Fraction(held).limit_denominator(1000)


def _size(node: Node) -> Fraction:
    return Fraction(node.accelerators) if node.accelerators else Fraction(node.cpus)


def _dual_feasible(sizes: Sequence[Size]) -> Iterator[Seen]:
    yield _plain
    for threshold in {min(size, 1 - size) for size in sizes if 0 < size < 1}:
        yield _large_and_small(threshold)
    for steps in range(1, 8):
        yield _rounded(steps)


def _plain(size: Size) -> Size:
    return size


def _large_and_small(threshold: Size) -> Seen:
    """What is larger than 1 - threshold fills a node alone, what is smaller than it counts not."""

    def seen(size: Size) -> Size:
        if size > 1 - threshold:
            return Fraction(1)
        return Fraction(0) if size < threshold else size

    return seen


def _rounded(steps: int) -> Seen:
    """Sizes counted in parts of 1 / steps, of which steps + 1 would have to stand together."""

    def seen(size: Size) -> Size:
        scaled = size * (steps + 1)
        return size if scaled.denominator == 1 else Fraction(int(scaled), steps)

    return seen
