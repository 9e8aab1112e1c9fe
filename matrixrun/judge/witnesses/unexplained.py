"""unexplained-token: an emitted token that no off evaluation of its prefix accounts for."""

from __future__ import annotations

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.ceiling import Ceiling
from matrixrun.judge.examination import Examination
from matrixrun.judge.suspicions import State, Suspicion
from matrixrun.judge.testimony import Objection, Testimony

KIND = "unexplained-token"


def examine_unexplained(examination: Examination) -> Testimony:
    """Return a fault for every token that prefill, decoding and extending all leave unexplained,
    and a want for those not yet re-scored."""
    found, ceiling = examination.on, examination.ceiling
    confirmed, waiting = found.unexplained, found.waiting
    metrics = {
        "regret/ceiling": ceiling.value,
        "regret/floor": ceiling.floor,
        "unexplained/tokens.on": float(len(confirmed)),
        "unexplained/requests.on": float(len({one.index for one in confirmed})),
        "unexplained/suspicions.on": float(len(found.named) + found.uncounted),
    }
    if ceiling.learned is not None:
        metrics["regret/learned"] = ceiling.learned
    told = Testimony(findings=_findings(examination, confirmed), metrics=metrics, wants=found.wants)
    if waiting or (found.uncounted and not confirmed):
        told += _open(examination, waiting)
    return told


def _findings(examination: Examination, found: tuple[Suspicion, ...]) -> tuple[Finding, ...]:
    """Return the worst as findings of their own, and one that counts all where there are more."""
    found = tuple(sorted(found, key=lambda one: (-one.regret, one.request, one.position)))
    most = examination.settings.top_reasons
    told = tuple(_finding(examination, one) for one in found[:most])
    past_cap = examination.on.uncounted
    if len(found) > most or (past_cap and found):
        requests = len({one.index for one in found})
        told += (
            Finding(
                kind=KIND,
                severity=Severity.FAULT,
                text=f"{len(found)} unexplained tokens in {requests} requests in all; {past_cap} "
                "more lie beyond the ceiling and were not scored again",
                numbers={"tokens": len(found), "requests": requests, "past_cap": past_cap},
            ),
        )
    return told


def _finding(examination: Examination, one: Suspicion) -> Finding:
    case, ceiling = examination.case, examination.ceiling
    answer = case.on.observations[one.index]
    values = ", ".join(f"{name} {value:.3g}" for name, value in one.evaluations.items())
    off = case.off.part(case.off.token_ids, one.index)
    own = int(off[one.position]) if one.position == case.forks[one.index] < off.size else None
    text = (
        f"request {one.request} (prompt {answer.prompt}), token {one.position}: the on arm emitted "
        f"{one.token}" + ("" if own is None else f" where the off arm emitted {own}") + ", "
        f"{one.regret:.3g} nats below the target's best; ceiling {ceiling.value:.3g} ({values})"
    )
    return Finding(kind=KIND, severity=Severity.FAULT, text=text, numbers=_numbers(one, ceiling))


def _numbers(one: Suspicion, ceiling: Ceiling) -> dict[str, object]:
    return {
        "request": one.request,
        "position": one.position,
        "token": one.token,
        "regret": one.regret,
        "evaluations": one.evaluations,
        "ceiling": ceiling.value,
    }


def _open(examination: Examination, waiting: tuple[Suspicion, ...]) -> Testimony:
    """Return the objection that suspicions are left, and a notice that names the worst."""
    ceiling, left = examination.ceiling, len(waiting) + examination.on.uncounted
    asked = sum(one.state is State.ASKED for one in waiting)
    if asked:
        why = f"{asked} wait to be scored again"
    elif not ceiling.trusted:
        why = f"the off arm's own noise could not be bounded ({ceiling.note})"
    elif waiting:
        why = "re-scoring could not settle them"
    else:
        why = "they are more than are scored again, the worst of which were explained"
    reason = f"{left} tokens lie beyond the ceiling of {ceiling.value:.3g} nats and {why}"
    numbers: dict[str, object] = {"open": left, "asked": asked}
    if waiting:
        worst = max(waiting, key=lambda one: (one.regret, one.request))
        numbers |= _numbers(worst, ceiling)
        reason += f" (worst: request {worst.request}, token {worst.position}, {worst.regret:.3g})"
    finding = Finding(kind=KIND, severity=Severity.NOTICE, text=reason, numbers=numbers)
    return Testimony((finding,), objections=(Objection(Verdict.INCONCLUSIVE, reason),))
