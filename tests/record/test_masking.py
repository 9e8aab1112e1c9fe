"""What MLflow gets of a matrix file: all of it but the secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from small_sweeps import make_store

from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.matrix.yaml12 import parse
from matrixrun.record.artifacts import command_line, staged, sweep_artifacts
from matrixrun.record.masking import mask_matrix

MATRIX = """\
name: small  # the token is hf_sesame1
engines:
  vllm:
    kind: vllm
    fallback_index: https://me:pw@host/simple
    args: [--hf-token, hf_sesame1, "--some-api-key=hf_sesame2", --max-num-seqs, "8"]
    env: &common
      HF_TOKEN: &token hf_sesame1  # mine
      X_API_KEY: "$KEY"
      SSL_SECRET: |
        first line
        second line
      EMPTY_TOKEN:
      OMP_NUM_THREADS: "2"
    on:
      args:
        - --draft-token
        - *token
      env: {<<: *common, "PASSWORD": 'short', MORE: hf_sesame1-and-more}
grid:
  speculation: {method: ngram, note: hf_sesame2}
"""


def test_a_masked_matrix_is_the_same_without_the_secrets() -> None:
    masked = mask_matrix(MATRIX)
    for secret in ("sesame1", "sesame2", "short", "first line", "second line", "me:pw"):
        assert secret not in masked
    data = parse(masked, "matrix.yaml").data
    vllm = data["engines"]["vllm"]
    assert vllm["fallback_index"] == "https://***@host/simple"
    assert vllm["args"] == ["--hf-token", "***", "--some-api-key=***", "--max-num-seqs", "8"]
    assert vllm["env"] == {
        "HF_TOKEN": "***",
        "X_API_KEY": "$KEY",
        "SSL_SECRET": "***",
        "EMPTY_TOKEN": None,
        "OMP_NUM_THREADS": "2",
    }
    assert vllm["on"]["args"] == ["--draft-token", "***"]
    assert vllm["on"]["env"] == {**vllm["env"], "PASSWORD": "***", "MORE": "***-and-more"}
    assert data["grid"]["speculation"] == {"method": "ngram", "note": "***"}
    assert "# the token is ***\n" in masked
    assert "# mine\n" in masked


def test_a_matrix_without_secrets_is_left_to_the_byte() -> None:
    ready = sorted(Path(__file__).parents[2].glob("matrices/*.yaml"))
    assert ready
    for path in ready:
        text = path.read_text(encoding="utf-8")
        assert mask_matrix(text) == text


@given(
    value=st.text(min_size=6, max_size=30),
    style=st.sampled_from(["", "'", '"', "|", ">"]),
    flow=st.booleans(),
    after=st.text("abc: #\n'\"", max_size=10),
)
def test_however_a_secret_is_written_the_file_stays_readable(
    value: str, style: str, flow: bool, after: str
) -> None:
    data = {"engines": {"e": {"env": {"HF_TOKEN": value, "OTHER": after}, "args": [after]}}}
    text = yaml.safe_dump(
        data, default_style=style or None, default_flow_style=flow, allow_unicode=True
    )
    engine = yaml.safe_load(mask_matrix(text))["engines"]["e"]
    assert engine["env"]["HF_TOKEN"] == "***"
    assert engine["env"]["OTHER"] == after.replace(value, "***")


def test_mlflow_gets_a_masked_matrix_and_the_folder_keeps_its_own(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", matrix=MATRIX)
    with staged(sweep_artifacts(store)) as folder:
        assert (folder / "matrix.yaml").read_text() == mask_matrix(MATRIX)
    assert store.matrix_text() == MATRIX


def test_a_matrix_that_is_no_yaml_is_not_sent(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", matrix="env: {HF_TOKEN: [")
    with pytest.raises(StoreError, match=r"matrix\.yaml is no YAML"):
        sweep_artifacts(store)


def test_a_command_line_hides_the_values_of_secret_flags() -> None:
    outcome = LaunchOutcome(
        launch="on.x",
        fingerprint="f",
        end=LaunchEnd.SERVED,
        argv=("vllm", "serve", "--hf-token", "hf_abc", "--api-key=hf_abc"),
    )
    assert "hf_abc" not in command_line(outcome)
    assert "--hf-token" in command_line(outcome)
