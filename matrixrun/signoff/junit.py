"""JUnit XML for CI, family xunit2: one suite a cell, one test case a check.

Axes are the suite's properties (xunit2 has none on test cases). A fault is a failure, a launch that
ended badly an error, what was refused or left out is skipped with its reason. INCONCLUSIVE and
INACTIVE are failures too: a gate must not take them for green. Notices stand in `system-out` of
their check; a check that did not apply to a cell is skipped, not passed. What the matrix file
expects is skipped, as tests that are expected to fail are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree

import msgspec

from matrixrun.evidence.verdicts import CellResult, Finding, Severity, Verdict
from matrixrun.judge.witnesses import PROBE_WITNESSES, WITNESSES
from matrixrun.record.naming import params

# Which check a finding belongs to, where its kind is not a witness's name.
CHECK_OF = {
    "launch": "launch",
    "unexplained-token": "unexplained",
    "target-path": "target_path",
    "surface-text": "surface",
    "surface-stream": "replies",
    "surface-decoding": "replies",
    "surface-tool-call": "replies",
    "surface-usage": "replies",
    "surface-finish": "replies",
    "surface-inherited": "replies",
    "surface-unconfirmed": "replies",
    "surface-unasked": "replies",
    "baseline-unsound": "baseline",
    "numerics-changed": "equality",
    "length": "equality",
    "logprob-contract": "drift",
    "inactive": "activity",
    "acceptance-invariance": "acceptance",
    "acceptance-by-step": "acceptance",
    "predicted-acceptance": "prediction",
    "acceptance-by-position": "drafting",
    "acceptance-after-whole-draft": "drafting",
    "idle-drafter": "drafting",
    "repeated-acceptance": "repeats",
    "fading-acceptance": "fading",
    "correlated-samples": "distribution",
    "sample-similarity": "distribution",
    "sample-logprob": "distribution",
    "forbidden-token": "processing",
    "forbidden-text": "processing",
    "misprocessed-token": "processing",
    "counters": "acceptance",
    "all-accepted": "coverage",
    "finish-reason": "answers",
    "expected-verdict": "verdict",
    "known-answers": "known_answers",
}
# Checks that not every cell is put to, by the figures that show that this one was.
APPLIED_BY: dict[str, tuple[str, ...]] = {
    "attached": (),
    "target_path": ("target/",),
    "regret": ("regret/",),
    "degeneration": ("degenerate/",),
    "known_answers": ("known/",),
    "drift": ("drift/",),
    "acceptance": ("acceptance/mean_acceptance_length",),
    "prediction": ("acceptance/as_predicted",),
    "drafting": ("acceptance/conditional.", "acceptance/idle_share"),
    "repeats": ("acceptance/repeated.",),
    "fading": ("acceptance/early",),
    "warm": ("reuse/again.",),
    "coverage": ("exposure/",),
}
FIGURES_ONLY = ("performance",)
CHECKS = (
    "launch",
    *(witness.name for witness in WITNESSES if witness.name not in FIGURES_ONLY),
    "verdict",
)
PROBE_CHECKS = frozenset(witness.name for witness in PROBE_WITNESSES)
OPEN = (Verdict.INCONCLUSIVE, Verdict.INACTIVE)

# Characters that XML 1.0 cannot hold, escaped or not; model output may contain them.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One test case; `outcome` is `passed`, `failure`, `error` or `skipped`, `notices` what was
    remarked and is no fault."""

    check: str
    outcome: str = "passed"
    type: str = ""
    message: str = ""
    text: str = ""
    notices: tuple[str, ...] = ()


def cases(result: CellResult) -> list[Case]:
    """Return a cell's test cases, one a check, in a fixed order."""
    if result.verdict is Verdict.REFUSED:
        return [
            Case(check=c, outcome="skipped", message=f"REFUSED: {result.reason}") for c in CHECKS
        ]
    if result.verdict is Verdict.ERROR:
        return [_expected(case, result) for case in _errored(result)]
    found: dict[str, list[Finding]] = {check: [] for check in CHECKS}
    for finding in result.findings:
        check = CHECK_OF.get(finding.kind, finding.kind)
        # A further probe's witness has a case where it found something.
        known = check in found or check in PROBE_CHECKS
        found.setdefault(check if known else "answers", []).append(finding)
    told = [_judged(check, findings, result.metrics) for check, findings in found.items()]
    if result.verdict in OPEN:
        place = list(found).index("verdict")
        told[place] = Case(check="verdict", outcome="failure", type=result.verdict.value,
                           message=f"{result.verdict.value}: {result.reason}",
                           notices=told[place].notices)  # fmt: skip
    return [_expected(case, result) for case in told]


def junit(
    results: Sequence[CellResult],
    sweep: str,
    *,
    timestamp: str,
    pending: Sequence[str] = (),
    excluded: Sequence[tuple[str, str]] = (),
) -> bytes:
    """Return a sweep as JUnit XML.

    `pending` are cells without a verdict (errors); `excluded` are what the matrix file takes out,
    with the reason (skipped).
    """
    root = ElementTree.Element("testsuites", name=sweep)
    for result in results:
        _suite(root, result.cell.id, timestamp, cases(result), params(result.cell))
    for cell in pending:
        case = Case(check="verdict", outcome="error", type="pending", message="no verdict yet")
        _suite(root, cell, timestamp, [case], {})
    if excluded:
        told = [Case(check=name, outcome="skipped", message=reason) for name, reason in excluded]
        _suite(root, "excluded", timestamp, told, {})
    for attribute in ("tests", "failures", "errors"):
        root.set(attribute, str(sum(int(suite.get(attribute, "0")) for suite in root)))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _judged(check: str, findings: Sequence[Finding], metrics: Mapping[str, float]) -> Case:
    notices = tuple(
        f"notice {one.kind}: {one.text}" for one in findings if one.severity is Severity.NOTICE
    )
    faults = [one.text for one in findings if one.severity is Severity.FAULT]
    if faults:
        return Case(check=check, outcome="failure", type="fault", message=faults[0],
                    text="\n".join(faults), notices=notices)  # fmt: skip
    if not findings and not any(name.startswith(APPLIED_BY.get(check, "")) for name in metrics):
        message = "did not apply: nothing that it looks at was there"
        return Case(check=check, outcome="skipped", message=message)
    return Case(check=check, notices=notices)


def _errored(result: CellResult) -> Iterator[Case]:
    log = [str(f.numbers["log_tail"]) for f in result.findings if f.numbers.get("log_tail")]
    yield Case(check="launch", outcome="error", type="ERROR", message=result.reason,
               text="\n".join(log))  # fmt: skip
    for check in CHECKS[1:]:
        yield Case(check=check, outcome="skipped", message="the launch ended before")


def _expected(case: Case, result: CellResult) -> Case:
    if not result.expected or case.outcome not in ("failure", "error"):
        return case
    message = f"expected by the matrix file: {result.verdict.value}: {case.message}"
    return msgspec.structs.replace(case, outcome="skipped", message=message)


def _suite(
    root: ElementTree.Element,
    name: str,
    timestamp: str,
    told: Sequence[Case],
    properties: dict[str, str],
) -> None:
    def count(outcome: str) -> str:
        return str(sum(case.outcome == outcome for case in told))

    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=_clean(name),
        tests=str(len(told)),
        failures=count("failure"),
        errors=count("error"),
        skipped=count("skipped"),
        timestamp=timestamp,
    )
    if properties:
        box = ElementTree.SubElement(suite, "properties")
        for key, value in properties.items():
            ElementTree.SubElement(box, "property", name=key, value=_clean(value))
    classname = ".".join(properties.get(key, "") for key in ("engine", "model")).strip(".") or name
    for case in told:
        element = ElementTree.SubElement(
            suite, "testcase", name=_clean(f"{name} {case.check}"), classname=_clean(classname)
        )
        if case.outcome != "passed":
            ending = ElementTree.SubElement(element, case.outcome, message=_clean(case.message))
            if case.outcome != "skipped":
                ending.set("type", case.type)
                ending.text = _clean(case.text)
        if case.notices:
            told_so = ElementTree.SubElement(element, "system-out")
            told_so.text = _clean("\n".join(case.notices))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
