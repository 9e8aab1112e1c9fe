"""What a `builtin:` name means."""

from pathlib import Path

import pytest

from matrixrun.evidence.errors import UserError
from matrixrun.models import catalogue


def test_every_name_is_found_and_has_its_own_folder(tmp_path: Path) -> None:
    folders = {catalogue.checkpoint_folder(name, tmp_path) for name in catalogue.names()}
    assert len(folders) == len(catalogue.names())


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r"did you mean builtin:tiny-dense/draft\?"):
        catalogue.find("builtin:tiny-dense/darft")


def test_a_name_like_no_other_is_answered_with_all_of_them() -> None:
    with pytest.raises(UserError, match="known names: builtin:tiny-dense, "):
        catalogue.find("builtin:zzzzzzzzzzzzzzzzzz")


def test_a_path_is_not_taken_for_a_builtin() -> None:
    assert not catalogue.is_builtin("/some/tiny-dense")


def test_each_recipe_names_all_the_modules_that_it_imports() -> None:
    """A module left out would let a changed recipe keep its old cache key."""
    own = {path.stem for path in catalogue.RECIPES.glob("*.py")}
    for checkpoint in map(catalogue.find, catalogue.names()):
        family = checkpoint.family
        for name in (family.script, *family.modules):
            lines = (catalogue.RECIPES / name).read_text().splitlines()
            imported = {line.split()[1] for line in lines if line.startswith(("from ", "import "))}
            assert {f"{module}.py" for module in imported & own} <= set(family.modules)


def test_a_changed_recipe_changes_the_cache_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = catalogue.find("builtin:tiny-dense").family
    before = catalogue.recipe_hash(family)
    for path in catalogue.RECIPES.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(catalogue, "RECIPES", tmp_path)
    catalogue.recipe_hash.cache_clear()
    try:
        assert catalogue.recipe_hash(family) == before
        catalogue.recipe_hash.cache_clear()
        with (tmp_path / "training.py").open("a") as file:
            file.write("# a change\n")
        assert catalogue.recipe_hash(family) != before
    finally:
        catalogue.recipe_hash.cache_clear()
