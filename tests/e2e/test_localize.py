"""`matrixrun run --localize` on a real engine with a fault that takes two settings at once."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from matrixrun.engines import get, prepare

pytestmark = pytest.mark.engine

MATRIX = """\
name: two-settings
engines:
  llamacpp: {kind: llamacpp, python: PYTHON}
models:
  gguf-dense:
    targets:
      none: {path: "builtin:gguf-dense"}
      q8_0: {path: "builtin:gguf-dense/q8_0"}
    drafts: {draft: {path: "builtin:gguf-dense/draft"}}
grid:
  engine: llamacpp
  model: gguf-dense
  quantization: [none, q8_0]
  prefix_caching: [true, false]
  speculation:
    - {method: draft-simple, draft: draft, num_speculative_tokens: 2}
    - {method: ngram-simple, num_speculative_tokens: 2, spec_ngram_simple_size_n: 2}
strategy: {kind: covering, strength: 2}
workload: {prompts: 30, max_tokens: 32}
detect: {request_fault_rate: 0.1}
control: within-launch
"""
# The fault: with prefix caching and a draft model the server turns its positions too little.
FAULTY_PYTHON = """\
#!/bin/sh
case " $* " in
  *" --cache-prompt "*draft-simple* | *draft-simple*" --cache-prompt "*)
    exec "REAL" "$@" --rope-freq-scale 0.5 ;;
esac
exec "REAL" "$@"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A folder in which the matrix ran with a faulty server, and up to six cells more."""
    made = tmp_path_factory.mktemp("localize")
    recipe = get("llamacpp").default_recipe
    real = prepare(recipe, cache=cache, timeout=600, on_line=print).python
    faulty = made / "python"
    faulty.write_text(FAULTY_PYTHON.replace("REAL", str(real)))
    faulty.chmod(faulty.stat().st_mode | stat.S_IXUSR)
    (made / "m.yaml").write_text(MATRIX.replace("PYTHON", str(faulty)))
    command = ["run", "m.yaml", "--results", "out", "--localize", "6", "--deadline", "9"]
    done = subprocess.run(
        [sys.executable, "-m", "matrixrun", *command, "--no-tracking"],
        cwd=made,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    (made / "said").write_text(done.stdout + done.stderr)
    assert done.returncode == 1, done.stdout + done.stderr
    return made


def test_the_sweep_alone_cannot_tell_and_three_cells_more_can(folder: Path) -> None:
    cells = json.loads((folder / "out" / "summary.json").read_text())["cells"]
    assert sorted(cell["verdict"] for cell in cells) == ["FAIL", "PASS", "PASS", "PASS"]

    told = json.loads((folder / "out" / "localisation.json").read_text())
    (found,) = told["narrowed"]
    needed = {trial["axis"]: trial["value"] for trial in found["needed"]}
    assert needed == {"prefix_caching": "true", "speculation": "draft-simple-k2"}
    assert [trial["axis"] for trial in found["idle"]] == ["quantization"]
    assert told["cells"] == 3


def test_it_is_said_on_the_terminal_and_in_the_report(folder: Path) -> None:
    words = "FAIL needs prefix_caching=true and speculation=draft-simple-k2"
    assert words in (folder / "said").read_text()
    assert words in (folder / "out" / "report.html").read_text()


def test_the_further_cells_are_a_sweep_of_their_own(folder: Path) -> None:
    first = json.loads((folder / "out" / "summary.json").read_text())["cells"]
    further = json.loads((folder / "out-localize-1" / "summary.json").read_text())["cells"]

    assert len(further) == 3
    assert not {cell["id"] for cell in first} & {cell["id"] for cell in further}
