"""Does a draft fit its target: read from `config.json` alone, before an engine is started.

An engine finds the same mistakes a minute later and names a tensor; here they name a file and a
key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")
EAGLE_METHODS = frozenset({"eagle", "eagle3"})
MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
NESTED = ("text_config", "transformer_layer_config")


@dataclass(frozen=True)
class _Config:
    """A `config.json`; parts that some formats nest count as if they stood on top."""

    path: Path
    values: dict[str, Any]

    def get(self, key: str) -> Any:
        for part in NESTED:
            nested = self.values.get(part)
            if isinstance(nested, dict) and key in nested:
                return nested[key]
        return self.values.get(key)


def check_interface(target_folder: Path, draft_folder: Path | None, method: str) -> list[str]:
    """Return what would keep `method` from working; empty if nothing is known to.

    Args:
        target_folder: the target's checkpoint.
        draft_folder: the draft's checkpoint; None where the method has none.
        method: the speculation's method, as the engine spells it.
    """
    problems: list[str] = []
    target = _read(target_folder, problems)
    if method == "mtp" and target is not None and draft_folder is None:
        problems += _mtp_problems(target)
    if method == "draft_model" or method in EAGLE_METHODS:
        problems += _draft_problems(target, draft_folder, method)
    return problems


def _read(folder: Path, problems: list[str]) -> _Config | None:
    """Return the folder's config; add what is missing to `problems`."""
    path = folder / "config.json"
    if folder.is_file():
        return None  # one weights file carries its own description
    if not folder.is_dir():
        problems.append(f"{folder} is not a folder; name a checkpoint folder")
        return None
    if not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
        problems.append(f"{folder} holds no weights ({', '.join(WEIGHTS)}); fetch them completely")
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        problems.append(f"{path} is missing; name a folder that holds a whole checkpoint")
        return None
    except (OSError, ValueError) as error:
        problems.append(f"{path} cannot be read as JSON ({error}); fetch it again")
        return None
    if not isinstance(values, dict):
        problems.append(f"{path} holds no JSON object; fetch it again")
        return None
    return _Config(path, values)


def _mtp_problems(target: _Config) -> list[str]:
    if any(target.get(key) for key in MTP_KEYS):
        return []
    return [
        f"{target.path}: num_nextn_predict_layers: missing or 0, so the checkpoint has no "
        "multi-token-prediction head; use a target that ships one, or another method"
    ]


def _draft_problems(target: _Config | None, draft_folder: Path | None, method: str) -> list[str]:
    if draft_folder is None:
        return [f"method {method} needs a draft checkpoint; set the speculation's model"]
    problems: list[str] = []
    draft = _read(draft_folder, problems)
    if target is None or draft is None:
        return problems
    if method == "draft_model":
        problems += _differing(target, draft, "vocab_size", "use a draft of the same family")
    else:
        problems += _eagle_problems(target, draft, method)
    return problems


def _eagle_problems(target: _Config, draft: _Config, method: str) -> list[str]:
    """Return how a head fails to fit; a head may name the size it expects of its target."""
    remedy = "use the head that was trained for this target"
    problems = _differing(target, draft, "vocab_size", remedy)
    expected = draft.get("target_hidden_size")
    if expected is not None and expected != target.get("hidden_size"):
        problems.append(
            f"{draft.path}: target_hidden_size: {expected}, but {target.path} has hidden_size "
            f"{target.get('hidden_size')}; {remedy}"
        )
    elif expected is None:
        problems += _differing(target, draft, "hidden_size", remedy)
    named = str(draft.get("architectures"))
    if method == "eagle" and "eagle3" in named.lower():
        problems.append(
            f"{draft.path}: architectures: {named} is an EAGLE-3 head; set the method to eagle3"
        )
    return problems


def _differing(target: _Config, draft: _Config, key: str, remedy: str) -> list[str]:
    """Return a problem if both configs have `key` and differ in it."""
    ours, theirs = target.get(key), draft.get(key)
    if ours is None or theirs is None or ours == theirs:
        return []
    return [f"{draft.path}: {key}: {theirs}, but {target.path} has {ours}; {remedy}"]
