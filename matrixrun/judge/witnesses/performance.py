"""performance: speed and reuse of both arms, as figures; nothing here decides a verdict."""

from __future__ import annotations

import numpy as np

from matrixrun.evidence.requests import Observation
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Testimony


def examine_performance(examination: Examination) -> Testimony:
    """Return tokens a second, time to the first token and cached tokens of both arms."""
    case = examination.case
    arms = {"on": case.on.observations, "off": case.off.observations}
    metrics: dict[str, float] = {}
    for arm, answers in arms.items():
        metrics |= {f"{name}.{arm}": value for name, value in _figures(answers).items()}
    on, off = (metrics.get(f"speed/tokens_per_second.{arm}") for arm in ("on", "off"))
    if on and off:
        metrics["speed/speedup"] = on / off
    return Testimony(metrics=metrics)


def _figures(answers: tuple[Observation, ...]) -> dict[str, float]:
    if not answers:
        return {}
    figures = {}
    seconds = max(one.finished for one in answers) - min(one.started for one in answers)
    tokens = sum(one.token_ids.size for one in answers)
    if seconds > 0:
        figures["speed/tokens_per_second"] = tokens / seconds
    waits = np.array([one.first_token - one.started for one in answers])
    waits = waits[np.isfinite(waits)]
    if waits.size:
        figures["speed/first_token_seconds"] = float(np.median(waits))
    cached = [one.cached_tokens for one in answers if one.cached_tokens is not None]
    if cached:
        figures["reuse/cached_tokens"] = float(sum(cached))
        figures["reuse/prompt_tokens"] = float(sum(one.prompt_tokens for one in answers))
    return figures
