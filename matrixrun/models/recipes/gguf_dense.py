# mypy: ignore-errors
"""Build the gguf-dense family: `python gguf_dense.py OUT`.

Writes a small Qwen3 model of random weights as GGUF in several types (all rows are whole K-quant
blocks) and two drafts: the target's own weights with a little noise, and with much. Takes about a
second and needs no torch. A random model says nothing, but it says it by the engine's own kernels.
"""

import sys
from pathlib import Path

import numpy as np
from gguf_file import END_OF_TURN, MAX_LENGTH, VOCAB_SIZE, printable_rows, write_gguf

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 256, 512, 4, 4, 2, 64
# The logits' spread: with 1 the distribution is flat, and every token a near tie.
OUTPUT_SCALE = 4.0
# Of queries and keys: with 1 attention is a mean over the text, and all prompts answer alike.
HEAD_SCALE = 1.25
# Of the end of the turn among them: some answers end by themselves.
END_SCALE = 0.6
QUANTIZATIONS = ("f32", "f16", "bf16", "q8_0", "q4_k_m")
DRAFT_NOISE = {"draft": 0.05, "draft-far": 0.15}
SETTINGS = {
    "context_length": MAX_LENGTH,
    "embedding_length": HIDDEN,
    "feed_forward_length": INNER,
    "block_count": LAYERS,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "attention.key_length": HEAD_DIM,
    "attention.value_length": HEAD_DIM,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 10000.0,
    "vocab_size": VOCAB_SIZE,
}


def matrix(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Return random weights [rows, columns] that keep the size of what they are applied to."""
    return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)


def attention(random: np.random.Generator, prefix: str, queries: int = 1) -> dict[str, np.ndarray]:
    """Return the attention tensors of one layer, `queries` rows of queries for each head's."""
    scale = np.full(HEAD_DIM, HEAD_SCALE, np.float32)
    return {
        f"{prefix}attn_norm.weight": np.ones(HIDDEN, np.float32),
        f"{prefix}attn_q.weight": matrix(random, queries * HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}attn_k.weight": matrix(random, KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}attn_v.weight": matrix(random, KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}attn_output.weight": matrix(random, HIDDEN, HEADS * HEAD_DIM),
        f"{prefix}attn_q_norm.weight": scale,
        f"{prefix}attn_k_norm.weight": scale,
    }


def feed_forward(random: np.random.Generator, prefix: str) -> dict[str, np.ndarray]:
    """Return the feed-forward tensors of one layer."""
    return {
        f"{prefix}ffn_gate.weight": matrix(random, INNER, HIDDEN),
        f"{prefix}ffn_up.weight": matrix(random, INNER, HIDDEN),
        f"{prefix}ffn_down.weight": matrix(random, HIDDEN, INNER),
    }


def ends(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Return embedding, last norm and output."""
    output = matrix(random, VOCAB_SIZE, HIDDEN) * np.float32(OUTPUT_SCALE)
    output[~printable_rows()] = 0.0
    output[END_OF_TURN] *= np.float32(END_SCALE)
    return {
        "token_embd.weight": matrix(random, VOCAB_SIZE, HIDDEN) * np.float32(np.sqrt(HIDDEN)),
        "output_norm.weight": np.ones(HIDDEN, np.float32),
        "output.weight": output,
    }


def dense(seed: int) -> dict[str, np.ndarray]:
    """Return the target's tensors."""
    random = np.random.default_rng(seed)
    tensors = ends(random)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        tensors |= attention(random, prefix)
        tensors[f"{prefix}ffn_norm.weight"] = np.ones(HIDDEN, np.float32)
        tensors |= feed_forward(random, prefix)
    return tensors


def noisy(tensors: dict[str, np.ndarray], share: float, seed: int) -> dict[str, np.ndarray]:
    """Return `tensors` with noise of `share` of their spread on every matrix."""
    random = np.random.default_rng(seed)

    def one(tensor: np.ndarray) -> np.ndarray:
        if tensor.ndim < 2:
            return tensor
        spread = tensor.std(axis=1, keepdims=True) * share
        return (tensor + random.standard_normal(tensor.shape) * spread).astype(np.float32)

    return {name: one(tensor) for name, tensor in tensors.items()}


def main(out: Path) -> None:
    """Build the whole family into `out`."""
    target = dense(seed=1)
    for quantization in QUANTIZATIONS:
        write_gguf(out / f"dense-{quantization}.gguf", "qwen3", SETTINGS, target, quantization)
    for seed, (name, noise) in enumerate(DRAFT_NOISE.items(), start=2):
        draft = noisy(target, noise, seed)
        write_gguf(out / f"{name}.gguf", "qwen3", SETTINGS, draft, "bf16")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
