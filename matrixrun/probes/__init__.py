"""Probes: what is sent to a launch and what it is for. Pure data in and out.

protocol      Probe, Data, Source
registry      get, names, resolve: the probes by name, one file each:
  equality    the same requests at every batch size, on every launch
  acceptance  reads the per-step data of equality's passes
scoring       score_passes: what launch A scores, each different text once
confirmation  confirmation_passes: the judge's wants as passes
"""

from matrixrun.probes.confirmation import confirmation_passes
from matrixrun.probes.protocol import Data, Probe, Source
from matrixrun.probes.registry import get, names, resolve
from matrixrun.probes.scoring import Emitted, Scoring, score_passes

__all__ = [
    "Data",
    "Emitted",
    "Probe",
    "Scoring",
    "Source",
    "confirmation_passes",
    "get",
    "names",
    "resolve",
    "score_passes",
]
