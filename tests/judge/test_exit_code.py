"""What a release gate reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.verdicts import EXIT_CODES, CellResult, Verdict, exit_text
from matrixrun.judge import exit_code


def results(*verdicts: str) -> list[CellResult]:
    """Return results of these verdicts; a trailing `!` marks an expected one."""
    return [
        CellResult(
            cell=Cell(id=str(number), axes={}, fingerprint=""),
            verdict=Verdict(name.rstrip("!")),
            reason="",
            expected=name.endswith("!"),
        )
        for number, name in enumerate(verdicts)
    ]


@pytest.mark.parametrize(
    ("verdicts", "complete", "code"),
    [
        (("PASS", "PASS"), True, 0),
        (("PASS", "REFUSED"), True, 0),
        (("PASS", "FAIL", "INCONCLUSIVE"), True, 1),
        (("ERROR",), True, 1),
        (("FAIL",), False, 1),
        (("PASS", "INACTIVE"), True, 6),
        (("INCONCLUSIVE",), True, 6),
        (("INCONCLUSIVE",), False, 2),
        (("PASS",), False, 2),
        ((), True, 5),
        (("REFUSED", "REFUSED"), True, 5),
        (("REFUSED!",), True, 5),
        (("REFUSED",), False, 2),
        (("REFUSED", "PASS!"), True, 0),
        ((), False, 2),
        (("FAIL!", "PASS"), True, 0),
        (("ERROR!", "INACTIVE!"), True, 0),
        (("FAIL!", "FAIL"), True, 1),
    ],
)
def test_the_worst_verdict_decides_and_an_expected_one_counts_as_good(verdicts, complete, code):
    assert exit_code(results(*verdicts), complete) == code


@pytest.mark.parametrize(
    ("verdicts", "code", "text"),
    [
        (("PASS",), 0, "nothing against shipping"),
        (("PASS", "REFUSED"), 0, "nothing against shipping (REFUSED cells are listed)"),
        (("REFUSED",), 5, "nothing was measured: every cell was refused"),
        ((), 5, "nothing to run"),
    ],
)
def test_the_words_of_an_exit_code_say_only_what_is_there(verdicts, code, text):
    assert exit_code(results(*verdicts), True) == code
    assert exit_text(code, results(*verdicts)) == text


def test_the_table_of_exit_codes_in_the_readme_is_the_programs():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    for code, text in EXIT_CODES.items():
        assert f"| {code} | {text} |" in readme
