"""Models: checkpoints and what can be known of them without an engine.

catalogue   the `builtin:` names: find, names, is_builtin, checkpoint_folder, recipe_hash
building    build: make a built-in checkpoint once and keep it
identity    checkpoint_identity: which checkpoint was it
interface   check_interface: does a draft fit its target
weights     Weights: checkpoints read ahead and identified while a launch starts
recipes/    scripts that an engine's interpreter runs by path; nothing here imports them
"""

from matrixrun.models.building import build
from matrixrun.models.catalogue import (
    Checkpoint,
    Family,
    checkpoint_folder,
    find,
    is_builtin,
    names,
    recipe_hash,
)
from matrixrun.models.identity import Identity, checkpoint_identity
from matrixrun.models.interface import check_interface
from matrixrun.models.weights import Weights, read_ahead

__all__ = [
    "Checkpoint",
    "Family",
    "Identity",
    "Weights",
    "build",
    "check_interface",
    "checkpoint_folder",
    "checkpoint_identity",
    "find",
    "is_builtin",
    "names",
    "read_ahead",
    "recipe_hash",
]
