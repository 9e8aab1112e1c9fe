# mypy: ignore-errors
"""Build the gguf-hybrid family: `python gguf_hybrid.py OUT`.

Writes a small Qwen3.5 model of random weights as GGUF: layers of gated delta nets, whose state can
not be taken back token by token, in turn with layers of attention, and one MTP block behind them.
Beside it a draft: the same weights with a little noise, without the block. Takes about a second.
"""

import sys
from pathlib import Path

import numpy as np
from gguf_dense import (
    END_SCALE,
    HEAD_DIM,
    HIDDEN,
    SETTINGS,
    attention,
    ends,
    feed_forward,
    matrix,
    noisy,
)
from gguf_file import END_OF_TURN, write_gguf

LAYERS, RECURRENT_EVERY = 4, 2
STATE, GROUPS, CONVOLUTION = 64, 2, 4
# What layers add to the embedding: with 1 nothing of it is left for the MTP block to go by.
BRANCH_SCALE = 0.25
# The states' decay is exp(-softplus(x) DECAY) a token: half of it is gone after some seven.
DECAY = 0.15
# As in the dense model, but most answers end by themselves: it is for conversations.
HYBRID_END_SCALE = 1.5
DRAFT_NOISE = 0.05
QUANTIZATIONS = ("bf16", "q8_0")
HYBRID = {
    "full_attention_interval": RECURRENT_EVERY,
    "ssm.conv_kernel": CONVOLUTION,
    "ssm.inner_size": GROUPS * STATE,
    "ssm.state_size": STATE,
    "ssm.time_step_rank": GROUPS,
    "ssm.group_count": GROUPS,
    "rope.dimension_count": HEAD_DIM,
    "rope.dimension_sections": [HEAD_DIM // 8, HEAD_DIM // 8, HEAD_DIM // 4, 0],
}
WRITES_BACK = ("attn_output.weight", "ffn_down.weight", "ssm_out.weight")


def delta_net(random: np.random.Generator, prefix: str) -> dict[str, np.ndarray]:
    """Return the tensors of one gated delta net."""
    inner = GROUPS * STATE
    return {
        f"{prefix}attn_norm.weight": np.ones(HIDDEN, np.float32),
        f"{prefix}attn_qkv.weight": matrix(random, 3 * inner, HIDDEN),
        f"{prefix}attn_gate.weight": matrix(random, inner, HIDDEN),
        f"{prefix}ssm_conv1d.weight": matrix(random, 3 * inner, CONVOLUTION),
        f"{prefix}ssm_dt.bias": np.zeros(GROUPS, np.float32),
        f"{prefix}ssm_a": np.full(GROUPS, -DECAY, np.float32),
        f"{prefix}ssm_beta.weight": matrix(random, GROUPS, HIDDEN),
        f"{prefix}ssm_alpha.weight": matrix(random, GROUPS, HIDDEN),
        f"{prefix}ssm_norm.weight": np.ones(STATE, np.float32),
        f"{prefix}ssm_out.weight": matrix(random, HIDDEN, inner),
    }


def mtp(random: np.random.Generator, prefix: str) -> dict[str, np.ndarray]:
    """Return an MTP block's own tensors: it goes by the newest token's embedding alone."""
    projection = np.concatenate([np.eye(HIDDEN), np.zeros((HIDDEN, HIDDEN))], axis=1)
    tensors = attention(random, prefix, queries=2)
    tensors[f"{prefix}nextn.eh_proj.weight"] = projection.astype(np.float32)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        tensors[f"{prefix}nextn.{name}.weight"] = np.ones(HIDDEN, np.float32)
    return tensors


def hybrid(seed: int) -> dict[str, np.ndarray]:
    """Return the target's tensors, the MTP block's last."""
    random = np.random.default_rng(seed)
    tensors = ends(random)
    tensors["output.weight"][END_OF_TURN] *= np.float32(HYBRID_END_SCALE / END_SCALE)
    for layer in range(LAYERS + 1):
        prefix = f"blk.{layer}."
        if layer == LAYERS:
            tensors |= mtp(random, prefix)
        elif (layer + 1) % RECURRENT_EVERY == 0:
            tensors |= attention(random, prefix, queries=2)  # the second half gates the first
        else:
            tensors |= delta_net(random, prefix)
        tensors[f"{prefix}post_attention_norm.weight"] = np.ones(HIDDEN, np.float32)
        tensors |= feed_forward(random, prefix)
    for name in tensors:
        if name.endswith(WRITES_BACK):
            tensors[name] *= np.float32(BRANCH_SCALE)
    return tensors


def main(out: Path) -> None:
    """Build the whole family into `out`."""
    target = hybrid(seed=7)
    settings = {**SETTINGS, **HYBRID}
    with_block = {**settings, "block_count": LAYERS + 1, "nextn_predict_layers": 1}
    for quantization in QUANTIZATIONS:
        write_gguf(out / f"hybrid-{quantization}.gguf", "qwen35", with_block, target, quantization)
    trunk = {name: one for name, one in target.items() if not name.startswith(f"blk.{LAYERS}.")}
    draft = noisy(trunk, DRAFT_NOISE, seed=2)
    write_gguf(out / "draft.gguf", "qwen35", {**settings, "block_count": LAYERS}, draft, "bf16")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
