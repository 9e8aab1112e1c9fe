"""Probes: what is sent to a launch and what it is for. Pure data in and out.

protocol      Probe, Data, Source, Answered
registry      get, names, resolve: the probes by name, one file each:
  equality    the same requests at every batch size, on every launch
  acceptance  reads the per-step data of equality's passes
  sampling    several samples of each prompt at temperature 1, some with settings that cut it
  processors  greedy answers with one logits processor on
  surface     the same requests streamed and in one piece, at every endpoint users take
  conversation  turns that build on the answers before them
  rollback    planned drafts, right up to a place and wrong there
  pressure    the transitions at which engines break, brought about on purpose
  ledger      an extra launch whose scheduler writes down what it does
  accuracy    a task of lm-evaluation-harness, right or wrong by document
scoring       score_passes: what launch A scores, each different text once; with_prompts
confirmation  confirmation_passes: the judge's wants as passes
"""

from matrixrun.probes.confirmation import confirmation_passes
from matrixrun.probes.protocol import Answered, Data, Passes, Probe, Source
from matrixrun.probes.registry import get, names, resolve
from matrixrun.probes.scoring import (
    TOPS,
    Emitted,
    Scoring,
    prompt_of,
    score_passes,
    with_prompts,
)

__all__ = [
    "TOPS",
    "Answered",
    "Data",
    "Emitted",
    "Passes",
    "Probe",
    "Scoring",
    "Source",
    "confirmation_passes",
    "get",
    "names",
    "prompt_of",
    "resolve",
    "score_passes",
    "with_prompts",
]
