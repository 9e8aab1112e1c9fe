"""JUnit XML, checked against the rules of the xunit2 schema (Jenkins' junit-10.xsd)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_sweeps import (
    CRASHED,
    FAULTY,
    HEALTHY,
    IDLE,
    REFUSED,
    SHORT,
    Made,
    make_cell,
    make_store,
)

from matrixrun.evidence.verdicts import CellResult, Finding, Severity, Verdict
from matrixrun.judge import ExpectedVerdict, JudgeSettings
from matrixrun.signoff.junit import CHECKS, junit
from matrixrun.signoff.report import write_junit

# Attributes and children that the schema allows; those in capitals here are required by it.
SCHEMA = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"NAME", "TESTS", "FAILURES", "ERRORS", "skipped", "time", "timestamp", "hostname", "id",
         "package", "file", "log", "url", "version", "group"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"NAME", "VALUE"}, set()),
    "testcase": (
        {"NAME", "time", "classname", "group"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "system-out": (set(), set()),
    "skipped": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "failure": ({"type", "message"}, set()),
}  # fmt: skip

ARMS = [
    (make_cell(batch_size=1), HEALTHY),
    (make_cell(batch_size=2), FAULTY),
    (make_cell(batch_size=4), replace(CRASHED, words="bell \x07 and <markup> & nul \x00")),
    (make_cell(batch_size=8), REFUSED),
    (make_cell(batch_size=16), SHORT),
    (make_cell(batch_size=32), IDLE),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> ElementTree.Element:
    folder = tmp_path_factory.mktemp("junit")
    plan = {
        "excluded": [{"axes": make_cell(batch_size=64).axes, "reason": "exclude[0]: too large"}]
    }
    store = Made(folder / "sweep", ARMS, plan=plan).write()
    return ElementTree.fromstring(write_junit(store, folder / "junit.xml").read_bytes())


def cell(root: ElementTree.Element, batch_size: int) -> dict[str, ElementTree.Element]:
    """A cell's test cases by check."""
    name = make_cell(batch_size=batch_size).id
    (suite,) = [one for one in root if one.get("name") == name]
    return {one.get("name", "").rpartition(" ")[2]: one for one in suite.iter("testcase")}


def test_every_element_is_as_the_schema_wants_it(root: ElementTree.Element) -> None:
    for element in root.iter():
        attributes, children = SCHEMA[element.tag]
        required = {name.lower() for name in attributes if name.isupper()}
        assert required <= set(element.keys()), element.tag
        assert set(element.keys()) <= {name.lower() for name in attributes}, element.tag
        assert {child.tag for child in element} <= children, element.tag


def test_counts_are_those_of_the_elements(root: ElementTree.Element) -> None:
    for suite in root:
        assert int(suite.get("tests", "")) == len(list(suite.iter("testcase")))
        for attribute, tag in (
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            assert int(suite.get(attribute, "")) == len(list(suite.iter(tag)))
    assert int(root.get("failures", "")) == len(list(root.iter("failure"))) > 0


def test_a_healthy_cell_passes_every_check_that_applies_to_it(root: ElementTree.Element) -> None:
    found = cell(root, 1)

    assert tuple(found) == CHECKS
    ends = {check: [child.tag for child in one] for check, one in found.items() if len(one)}
    # Nothing was attached, sent twice, or has a known answer; the drafter is not read from facts.
    none = ("attached", "known_answers", "prediction", "repeats", "warm")
    assert ends == {check: ["skipped"] for check in none}
    assert "did not apply" in found["repeats"].find("skipped").get("message")  # type: ignore


def test_a_notice_stands_in_the_output_of_its_check_and_fails_nothing() -> None:
    noticed = Finding(kind="numerics-changed", severity=Severity.NOTICE, text="43 % differ \x07")
    result = CellResult(
        cell=make_cell(), verdict=Verdict.PASS, reason="", findings=(noticed,), metrics={}
    )
    root = ElementTree.fromstring(junit([result], "s", timestamp="2026-01-01T00:00:00"))

    (one,) = [case for case in root.iter("testcase") if case.find("system-out") is not None]
    assert one.get("name", "").endswith(" equality")
    assert one.findtext("system-out", "").startswith("notice numerics-changed: 43 % differ")
    assert root.get("failures") == "0"


def test_a_fault_fails_its_own_check_alone(root: ElementTree.Element) -> None:
    found = cell(root, 2)

    failed = [check for check, one in found.items() if one.find("failure") is not None]
    assert failed == ["unexplained"]
    assert "4 nats below" in found["unexplained"].find("failure").get("message")  # type: ignore


def test_a_crash_is_an_error_with_the_end_of_its_log(root: ElementTree.Element) -> None:
    error = cell(root, 4)["launch"].find("error")

    assert error is not None
    assert "Traceback" in (error.text or "")
    assert "\N{REPLACEMENT CHARACTER}" in error.get("message", "")


def test_a_refusal_and_what_is_left_out_are_skipped_with_the_reason(
    root: ElementTree.Element,
) -> None:
    for one in cell(root, 8).values():
        assert "no speculation with pipelines" in one.find("skipped").get("message")  # type: ignore
    (excluded,) = [suite for suite in root if suite.get("name") == "excluded"]
    assert excluded.find("testcase/skipped").get("message") == "exclude[0]: too large"  # type: ignore


@pytest.mark.parametrize(("batch_size", "kind"), [(16, "INCONCLUSIVE"), (32, "INACTIVE")])
def test_what_is_not_decided_is_not_green(
    root: ElementTree.Element, batch_size: int, kind: str
) -> None:
    failure = cell(root, batch_size)["verdict"].find("failure")

    assert failure is not None
    assert failure.get("type") == kind


def test_axes_are_properties(root: ElementTree.Element) -> None:
    suite = root[0]

    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}

    assert properties["spec.method"] == "ngram"
    assert properties["tp"] == "1"


def test_what_the_matrix_file_expects_is_skipped(tmp_path: Path) -> None:
    expect = ExpectedVerdict(when={"batch_size": 2}, verdict=Verdict.FAIL, reason="known")
    settings = JudgeSettings(detect_rate=0.1, expect=(expect,))
    store = make_store(tmp_path / "sweep", ARMS[1:2], settings=settings)

    root = ElementTree.fromstring(junit(store.results(), "s", timestamp="2026-01-01T00:00:00"))

    assert root.get("failures") == "0"
    said = [one.get("message", "") for one in root.iter("skipped")]
    assert sum("expected by the matrix file" in one for one in said) == 1


def test_a_cell_without_a_verdict_is_an_error() -> None:
    root = ElementTree.fromstring(junit([], "s", timestamp="2026-01-01T00:00:00", pending=["c"]))

    assert root.get("errors") == "1"
