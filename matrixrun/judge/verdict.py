"""From testimony to a verdict: the one place where precedence is decided."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.verdicts import (
    EXIT_PRECEDENCE,
    CellResult,
    Finding,
    Severity,
    Verdict,
)
from matrixrun.judge.settings import JudgeSettings
from matrixrun.judge.testimony import Objection, Testimony

# Findings that lean on the off arm's soundness; they count for nothing where it is unsound.
RELATIVE_KINDS = frozenset({
    "unexplained-token", "equality", "regret", "degeneration", "drift", "distribution",
    "correlated-samples", "sample-similarity", "sample-logprob", "processing", "misprocessed-token",
    "target-path", "accuracy", "seeds",
})  # fmt: skip
# Findings about speed alone: of them nothing follows for the outputs.
ACCEPTANCE_KINDS = frozenset({
    "acceptance", "predicted-acceptance", "acceptance-by-position", "idle-drafter",
    "repeated-acceptance", "fading-acceptance", "acceptance-by-step",
    "acceptance-after-whole-draft",
})  # fmt: skip
# What ends a cell before its tokens are looked at, the worse first.
OUTCOMES = (Verdict.ERROR, Verdict.REFUSED)
LESSER = (Verdict.INACTIVE, Verdict.INCONCLUSIVE)


def assemble(cell: Cell, told: Testimony, settings: JudgeSettings) -> CellResult:
    """Return a cell's result from all its testimony, rate findings that stand included.

    ERROR and REFUSED come from outcomes alone; then a fault is FAIL; then INACTIVE, then
    INCONCLUSIVE; PASS is what is left. Faults measured against an unsound off arm do not count.
    """
    findings = told.findings
    unsound = [objection for objection in told.objections if objection.voids]
    if unsound:
        findings = tuple(_voided(finding) for finding in findings)
    verdict, reason = _decide(findings, told.objections, told, settings)
    if _outputs_failed(findings):
        findings = tuple(_void_acceptance(finding) for finding in findings)
    expected, notices = _expectation(cell, verdict, settings)
    return CellResult(
        cell=cell,
        verdict=verdict,
        reason=reason,
        findings=findings + notices,
        metrics={name: told.metrics[name] for name in sorted(told.metrics)
                 if math.isfinite(told.metrics[name])},
        coverage=told.coverage,
        expected=expected,
    )  # fmt: skip


def exit_code(results: Sequence[CellResult], complete: bool) -> int:
    """Return the exit code of a sweep by the table in `evidence.verdicts`.

    An expected verdict counts as good. REFUSED never fails, but where there is nothing else,
    nothing was measured, expected or not. `complete` is False when cells were left out or
    interrupted.
    """
    codes = {0}
    if all(result.verdict is Verdict.REFUSED for result in results):
        codes.add(5)
    if not complete:
        codes.add(2)
    for result in results:
        if result.expected:
            continue
        if result.verdict in (Verdict.FAIL, Verdict.ERROR):
            codes.add(1)
        elif result.verdict in LESSER:
            codes.add(6)
    return next(code for code in EXIT_PRECEDENCE if code in codes)


def _decide(
    findings: tuple[Finding, ...],
    objections: tuple[Objection, ...],
    told: Testimony,
    settings: JudgeSettings,
) -> tuple[Verdict, str]:
    for verdict in OUTCOMES:
        for objection in objections:
            if objection.verdict is verdict:
                return verdict, objection.reason
    faults = [finding for finding in findings if finding.severity is Severity.FAULT]
    if faults:
        more = len(faults) - 1
        tail = f" (and {more} more finding{'s' if more > 1 else ''})" if more else ""
        return Verdict.FAIL, faults[0].text + tail
    for verdict in LESSER:
        reasons = [objection.reason for objection in objections if objection.verdict is verdict]
        if reasons:
            return verdict, "; ".join(dict.fromkeys(reasons))
    return Verdict.PASS, _claim(told, settings)


def _claim(told: Testimony, settings: JudgeSettings) -> str:
    """Return what a PASS says, and no more."""
    prompts = int(told.metrics.get("power/prompts", 0))
    rate = told.metrics.get("power/visible_fault_rate", 1.0)
    control = "" if settings.control == "between-launches" else ", against one off launch only"
    return (
        f"no fault in {prompts} prompts: at confidence {settings.detect_confidence:.2g} fewer than "
        f"{rate:.2g} of such requests are affected (sensitivity {settings.sensitivity:.2g} "
        f"assumed{control})"
    )


def _voided(finding: Finding) -> Finding:
    if finding.kind not in RELATIVE_KINDS or finding.severity is Severity.NOTICE:
        return finding
    text = f"not counted, the baseline is unsound: {finding.text}"
    return msgspec.structs.replace(finding, severity=Severity.NOTICE, text=text)


def _outputs_failed(findings: tuple[Finding, ...]) -> bool:
    return any(
        one.severity is Severity.FAULT and one.kind not in ACCEPTANCE_KINDS for one in findings
    )


def _void_acceptance(finding: Finding) -> Finding:
    if finding.kind != "acceptance":
        return finding
    text = f"void, since the outputs are at fault: {finding.text}"
    return msgspec.structs.replace(finding, severity=Severity.NOTICE, text=text)


def _expectation(
    cell: Cell, verdict: Verdict, settings: JudgeSettings
) -> tuple[bool, tuple[Finding, ...]]:
    entries = [entry for entry in settings.expect if entry.matches(cell)]
    come = next((entry for entry in entries if entry.verdict is verdict), None)
    if come is not None:
        link = f" ({come.link})" if come.link else ""
        why = Finding(
            kind="expected-verdict",
            severity=Severity.NOTICE,
            text=f"{verdict.value} is expected: {come.reason}{link}",
            numbers={"expected": verdict.value, "link": come.link},
        )
        return True, (why,)
    notices = tuple(
        Finding(
            kind="expected-verdict",
            severity=Severity.NOTICE,
            text=f"{entry.verdict.value} was expected ({entry.reason}) and did not come",
            numbers={"expected": entry.verdict.value, "link": entry.link},
        )
        for entry in entries
    )
    return False, notices
