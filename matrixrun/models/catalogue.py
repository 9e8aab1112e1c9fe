"""The small checkpoints that this project can make or fetch: what `builtin:` names mean.

A family is what one recipe script writes in one go; a name is one checkpoint folder in it. The
recipe's hash covers every byte that the result depends on, so a changed recipe is a new cache key.
"""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from matrixrun.evidence.errors import UserError

PREFIX = "builtin:"
RECIPES = Path(__file__).parent / "recipes"
HASH_LENGTH = 12  # hex digits: short enough to read aloud, long enough never to collide here


@dataclass(frozen=True)
class Family:
    """One recipe and what it needs.

    Attributes:
        name: as it stands in the cache folder.
        script: file name under `recipes/`; run as `python SCRIPT OUT [FOLDER_OF_NEEDED_FAMILY]`.
        modules: the other files under `recipes/` that the script imports.
        needs: the family whose folder the script takes as its second argument, if any.
    """

    name: str
    script: str
    modules: tuple[str, ...]
    needs: str | None = None

    @property
    def recipe(self) -> Path:
        """The script's path."""
        return RECIPES / self.script


@dataclass(frozen=True)
class Checkpoint:
    """One `builtin:` name.

    Attributes:
        name: without the prefix, such as `tiny-dense/draft`.
        family: who makes it.
        folder: relative to the family's folder; one file where a checkpoint is one (GGUF).
        role: `target`, `draft` or `head`.
    """

    name: str
    family: Family
    folder: str
    role: str


_SHARED = ("checkpoint.py", "dense.py", "distil.py", "text.py", "training.py")
_DENSE = Family("tiny-dense", "tiny_dense.py", _SHARED)
_EAGLE3 = Family("tiny-dense-eagle3", "tiny_dense_eagle3.py", _SHARED, needs="tiny-dense")
_HYBRID = Family("tiny-hybrid", "tiny_hybrid.py", (*_SHARED, "hybrid.py"))
_GGUF_DENSE = Family("gguf-dense", "gguf_dense.py", ("gguf_file.py",))
_GGUF_HYBRID = Family("gguf-hybrid", "gguf_hybrid.py", ("gguf_dense.py", "gguf_file.py"))
_SMOLLM2 = Family("smollm2", "smollm2.py", ())
_FAMILIES = {
    family.name: family
    for family in (_DENSE, _EAGLE3, _HYBRID, _GGUF_DENSE, _GGUF_HYBRID, _SMOLLM2)
}

_CHECKPOINTS = {
    checkpoint.name: checkpoint
    for checkpoint in (
        Checkpoint("tiny-dense", _DENSE, "target", "target"),
        Checkpoint("tiny-dense/draft", _DENSE, "draft", "draft"),
        Checkpoint("tiny-dense/eagle3", _EAGLE3, "eagle3", "head"),
        Checkpoint("tiny-dense/w8a8", _DENSE, "w8a8", "target"),
        Checkpoint("tiny-dense/fp8", _DENSE, "fp8", "target"),
        Checkpoint("tiny-hybrid", _HYBRID, "target", "target"),
        Checkpoint("gguf-dense/f32", _GGUF_DENSE, "dense-f32.gguf", "target"),
        Checkpoint("gguf-dense/f16", _GGUF_DENSE, "dense-f16.gguf", "target"),
        Checkpoint("gguf-dense", _GGUF_DENSE, "dense-bf16.gguf", "target"),
        Checkpoint("gguf-dense/q8_0", _GGUF_DENSE, "dense-q8_0.gguf", "target"),
        Checkpoint("gguf-dense/q4_k_m", _GGUF_DENSE, "dense-q4_k_m.gguf", "target"),
        Checkpoint("gguf-dense/draft", _GGUF_DENSE, "draft.gguf", "draft"),
        Checkpoint("gguf-dense/draft-far", _GGUF_DENSE, "draft-far.gguf", "draft"),
        Checkpoint("gguf-hybrid", _GGUF_HYBRID, "hybrid-bf16.gguf", "target"),
        Checkpoint("gguf-hybrid/q8_0", _GGUF_HYBRID, "hybrid-q8_0.gguf", "target"),
        Checkpoint("gguf-hybrid/draft", _GGUF_HYBRID, "draft.gguf", "draft"),
        Checkpoint("smollm2-135m/q4_1", _SMOLLM2, "smollm2-135m-q4_1.gguf", "target"),
    )
}


def names() -> tuple[str, ...]:
    """Return every `builtin:` name, in a fixed order."""
    return tuple(PREFIX + name for name in _CHECKPOINTS)


def is_builtin(name: str) -> bool:
    """Return whether `name` claims to be one of ours (it may still be unknown)."""
    return name.startswith(PREFIX)


def find(name: str) -> Checkpoint:
    """Return the checkpoint that `name` means.

    Raises:
        UserError: `name` is unknown.
    """
    found = _CHECKPOINTS.get(name.removeprefix(PREFIX)) if is_builtin(name) else None
    if found is None:
        close = difflib.get_close_matches(name, names(), n=1)
        remedy = f"did you mean {close[0]}?" if close else f"known names: {', '.join(names())}"
        raise UserError(f"no built-in checkpoint is called {name!r}", remedy=remedy)
    return found


def needed_family(family: Family) -> Family | None:
    """Return the family that must be built before `family`, if any."""
    return None if family.needs is None else _FAMILIES[family.needs]


@cache
def recipe_hash(family: Family) -> str:
    """Return the hash of all recipe files that the family's bytes depend on."""
    digest = hashlib.sha256()
    for name in sorted((family.script, *family.modules)):
        content = (RECIPES / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    needed = needed_family(family)
    if needed is not None:
        digest.update(recipe_hash(needed).encode())
    return digest.hexdigest()[:HASH_LENGTH]


def family_folder(family: Family, cache_folder: Path) -> Path:
    """Return where the family is kept: `<cache>/models/<family>-<hash>`."""
    return cache_folder / "models" / f"{family.name}-{recipe_hash(family)}"


def checkpoint_folder(name: str, cache_folder: Path) -> Path:
    """Return where the checkpoint is once built; nothing is made.

    Raises:
        UserError: `name` is unknown.
    """
    checkpoint = find(name)
    return family_folder(checkpoint.family, cache_folder) / checkpoint.folder
