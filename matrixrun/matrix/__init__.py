"""From a YAML file to cells. Engine-neutral; knows neither Ray nor HTTP.

loader          load: a matrix file, read, checked, paths resolved
yaml12          YAML 1.2 with the line of every key
schema          Matrix and its sections
validation      pydantic's errors in the words of a matrix file
checks          what must agree across sections
problems        collecting mistakes, and the messages they become
axes            the axis registry, `matches`;  axis_types: what values an axis takes
grid            grid, rules and includes as typed values
constraints     the small expression form, without eval
tasks           read_task: the task of the probe `accuracy`, with its data
checkpoints     target_of: which checkpoint a cell uses
expansion       expand: product, exclude, constraints, include, strategy
covering        cover: a covering array of the allowed cells
cell_identity   ids and fingerprints of cells;  fingerprint: the hash itself
editor_schema   json_schema: for editors
"""

from matrixrun.matrix.axes import AXES, CLIENT_AXES, matches
from matrixrun.matrix.checkpoints import Target, target_of
from matrixrun.matrix.covering import Combination, Interactions
from matrixrun.matrix.editor_schema import json_schema
from matrixrun.matrix.expansion import Expansion, expand
from matrixrun.matrix.fingerprint import fingerprint
from matrixrun.matrix.loader import load
from matrixrun.matrix.problems import error_at
from matrixrun.matrix.schema import Matrix

__all__ = [
    "AXES",
    "CLIENT_AXES",
    "Combination",
    "Expansion",
    "Interactions",
    "Matrix",
    "Target",
    "error_at",
    "expand",
    "fingerprint",
    "json_schema",
    "load",
    "matches",
    "target_of",
]
