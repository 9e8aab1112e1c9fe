"""The smallest combination of settings that explains what failed."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from made_sweeps import DRAFTED, MTP, grid

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.signoff.localise import Condition, Localisation, localise, sentence, settings_of

NGRAM = Speculation(method="ngram", num_speculative_tokens=4)
AXES = {
    "tensor_parallel_size": [1, 2],
    "pipeline_parallel_size": [1, 2],
    "prefix_caching": [True, False],
    "speculation": [NGRAM, DRAFTED, MTP],
    "batch_size": [1, 8, 16, 32],
}
CELLS = grid(**AXES)
NAMES = {cell.id: cell for cell in CELLS}


def split(failing: set[str]) -> tuple[list[Cell], list[Cell]]:
    return [c for c in CELLS if c.id in failing], [c for c in CELLS if c.id not in failing]


def found_for(rule: object) -> Localisation:
    failing = {cell.id for cell in CELLS if rule(cell.axes)}  # type: ignore[operator]
    return localise(*split(failing))


def words(found: Localisation) -> list[set[str]]:
    return [{str(condition) for condition in cause.conditions} for cause in found.causes]


def matches(conditions: tuple[Condition, ...], cell: Cell) -> bool:
    known = settings_of(cell)
    for one in conditions:
        value = known[one.axis]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if one.relation == "=" and text != one.value:
            return False
        if one.relation == ">=" and float(str(value)) < float(one.value):
            return False
        if one.relation == "<=" and float(str(value)) > float(one.value):
            return False
    return True


def test_three_settings_together_are_named_and_each_is_needed() -> None:
    found = found_for(
        lambda a: (
            a["pipeline_parallel_size"] == 2
            and a["speculation"].method == "mtp"
            and a["prefix_caching"]
        )
    )

    assert words(found) == [
        {"pipeline_parallel_size=2", "speculation.method=mtp", "prefix_caching=true"}
    ]
    assert len(found.causes[0].needed) == 3
    assert "good with any one of them changed" in sentence(found, "FAIL")


def test_a_bound_is_found_where_large_batches_fail() -> None:
    found = found_for(lambda a: a["batch_size"] >= 8)

    assert words(found) == [{"batch_size>=8"}]


def test_two_faults_in_one_sweep_are_two_causes() -> None:
    found = found_for(
        lambda a: (
            a["tensor_parallel_size"] == 2
            or (a["batch_size"] == 32 and a["speculation"].method == "mtp")
        )
    )

    assert words(found) == [{"tensor_parallel_size=2"}, {"speculation.method=mtp", "batch_size=32"}]


def test_what_the_grid_cannot_tell_apart_is_said() -> None:
    cells = [c for c in CELLS if (c.axes["tensor_parallel_size"] == 2) == c.axes["prefix_caching"]]
    failing = [c for c in cells if c.axes["tensor_parallel_size"] == 2]

    found = localise(failing, [c for c in cells if c not in failing])

    assert len(found.causes[0].conditions) == 1
    assert len(found.causes[0].instead) == 1
    assert "the grid does not tell this from" in sentence(found, "FAIL")


def test_where_everything_fails_nothing_is_blamed() -> None:
    found = localise(CELLS, [])

    assert found.everywhere
    assert found.causes == ()


def test_failures_without_a_pattern_are_not_given_one() -> None:
    one = grid(**{axis: [values[0]] for axis, values in AXES.items()})
    twin = Cell(id="twin", axes=one[0].axes, fingerprint="")

    found = localise([one[0]], [twin])

    assert found.causes == ()
    assert found.unexplained == (one[0].id,)


@given(st.sets(st.sampled_from(sorted(NAMES)), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_no_good_cell_is_ever_blamed_and_no_failure_forgotten(failing: set[str]) -> None:
    bad, good = split(failing)

    found = localise(bad, good)

    explained = set().union(*(cause.cells for cause in found.causes), found.unexplained)
    assert explained == failing or len(found.causes) == 6
    for cause in found.causes:
        assert not [cell.id for cell in good if matches(cause.conditions, cell)]
        assert {c.id for c in bad if matches(cause.conditions, c)} == set(cause.cells)


@given(
    st.dictionaries(
        st.sampled_from(["tensor_parallel_size", "pipeline_parallel_size", "prefix_caching"]),
        st.integers(0, 1),
        max_size=2,
    ),
    st.sampled_from([NGRAM, DRAFTED, MTP]),
)
@settings(max_examples=40, deadline=None)
def test_a_planted_combination_is_found_with_nothing_to_spare(
    planted: dict[str, int], speculation: Speculation
) -> None:
    wanted = {axis: AXES[axis][place] for axis, place in planted.items()}
    found = found_for(
        lambda a: a["speculation"] == speculation and all(a[x] == v for x, v in wanted.items())
    )

    (cause,) = found.causes
    assert {one.axis.split(".")[0] for one in cause.conditions} == {"speculation", *wanted}
    for one in cause.conditions:
        others = tuple(other for other in cause.conditions if other != one)
        assert any(matches(others, cell) for cell in CELLS if cell.id not in cause.cells)


def test_a_thousand_cells_take_a_moment() -> None:
    cells = [
        Cell(id=f"{cell.id}-{n}", axes={**cell.axes, "model": f"m{n}"}, fingerprint="")
        for cell, n in itertools.product(CELLS, range(12))
    ]
    failing = [c for c in cells if c.axes["model"] in ("m1", "m7") and c.axes["batch_size"] == 8]

    found = localise(failing, [c for c in cells if c not in failing])

    assert words(found) == [{"model=m1", "batch_size=8"}, {"model=m7", "batch_size=8"}]
