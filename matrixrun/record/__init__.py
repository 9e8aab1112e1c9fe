"""Results on disk, and what people see of them.

files         atomic writes, JSON, safe file names
observations  Parquet: encode_ and decode_observations, encode_ and decode_scores
sweep         SweepInfo, new_sweep, find_sweep, list_sweeps
store         Store: one sweep's results folder, the truth (launch_files: its launches' part)
remote        Remote: the same kept at a URL, in an object store (objects: its files; claim:
              by one driver at a time; mirror: sent all the while)
in_use        InUse: what a launch works with, so that gc (cleanup) leaves it
opening       opened, folder_of: the sweep that a user names, wherever it lies
naming, grid  how cells are called and laid out where people read them
summary       summary.json and summary.md
tracking      Tracking: MLflow (runs, artifacts: what is logged; masking: what never is)
display       Display, choose: what a terminal or a job log shows (closing: its end)
"""

from matrixrun.record.display import Display, SweepHead, choose
from matrixrun.record.expectations import read_expectations, with_expectations
from matrixrun.record.in_use import InUse
from matrixrun.record.objects import is_url
from matrixrun.record.observations import (
    decode_observations,
    decode_scores,
    encode_observations,
    encode_scores,
)
from matrixrun.record.opening import folder_of, opened, place_of
from matrixrun.record.remote import Remote
from matrixrun.record.store import Store
from matrixrun.record.summary import summary, summary_markdown
from matrixrun.record.sweep import (
    SweepInfo,
    SweepState,
    find_sweep,
    is_sweep,
    list_sweeps,
    new_sweep,
    utc_now,
)
from matrixrun.record.tracking import Tracking

__all__ = [
    "Display",
    "InUse",
    "Remote",
    "Store",
    "SweepHead",
    "SweepInfo",
    "SweepState",
    "Tracking",
    "choose",
    "decode_observations",
    "decode_scores",
    "encode_observations",
    "encode_scores",
    "find_sweep",
    "folder_of",
    "is_sweep",
    "is_url",
    "list_sweeps",
    "new_sweep",
    "opened",
    "place_of",
    "read_expectations",
    "summary",
    "summary_markdown",
    "utc_now",
    "with_expectations",
]
