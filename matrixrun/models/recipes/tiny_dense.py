# mypy: ignore-errors
"""Build the tiny-dense family: `python tiny_dense.py OUT`.

Writes OUT/target (Qwen3ForCausalLM, about 1 M parameters, bfloat16), OUT/draft (its first three
layers, taught to say what the target says), OUT/w8a8 and OUT/fp8 (the target, quantized in the
compressed-tensors format). Takes about a minute and a half on two idle cores.
"""

import copy
import sys
from dataclasses import replace
from pathlib import Path

import torch
from checkpoint import to_bfloat16, write_checkpoint
from dense import ROPE_THETA, Qwen3, Shape
from distil import agreement_loss, lessons
from text import documents, encode, train_tokenizer
from torch import Tensor
from torch.nn import functional
from training import Batches, Optimiser, Progress, make_deterministic

SHAPE = Shape()
ROWS, LENGTH = 8, 128
TARGET_STEPS, DRAFT_STEPS, DRAFT_LAYERS = 560, 180, 3
INT8_MAX, FP8_MAX = 127, 448


def train_target(batches: Batches) -> Qwen3:
    """Return the target, trained until it knows most of its text by heart."""
    model = Qwen3(SHAPE)
    optimiser, progress = Optimiser(model, TARGET_STEPS), Progress("target", TARGET_STEPS)
    for step in range(TARGET_STEPS):
        ids = batches.next()
        logits = model(ids[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimiser.step(loss)
        progress.say(step, loss)
    return model


def round_to_bfloat16(model: Qwen3) -> Qwen3:
    """Round the weights as the checkpoint does, so that drafts learn from what is served."""
    model.load_state_dict({k: v.float() for k, v in to_bfloat16(model.state_dict()).items()})
    return model.requires_grad_(False)


def train_draft(target: Qwen3, batches: Batches) -> Qwen3:
    """Return a draft made of the target's first layers, taught to say what the target says."""
    draft = Qwen3(replace(SHAPE, num_hidden_layers=DRAFT_LAYERS))
    draft.load_state_dict(copy.deepcopy(target.state_dict()), strict=False)
    optimiser = Optimiser(draft, DRAFT_STEPS, matrix_rate=0.005, other_rate=0.001)
    progress = Progress("draft", DRAFT_STEPS)
    for step in range(DRAFT_STEPS):
        ids = lessons(batches, ROWS, LENGTH, plain=0)
        loss = agreement_loss(draft(ids), target(ids))
        optimiser.step(loss)
        progress.say(step, loss)
    return draft


def qwen3_config(shape: Shape) -> dict[str, object]:
    """Return `config.json` of a Qwen3 checkpoint."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **shape.as_config(),
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
    }


def quantized(tensors: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Return `tensors` with the projections stored in 8 bits, one scale an output channel."""
    top, dtype = (INT8_MAX, torch.int8) if kind == "int" else (FP8_MAX, torch.float8_e4m3fn)
    result = dict(tensors)
    for name in (n for n in tensors if n.endswith("_proj.weight")):
        weight = tensors[name].float()
        scale = (weight.abs().amax(1, keepdim=True) / top).to(torch.bfloat16)
        scaled = (weight / scale.float()).clamp(-top, top)
        result[name] = (scaled.round() if kind == "int" else scaled).to(dtype)
        result[name.replace(".weight", ".weight_scale")] = scale
    return result


def quantization_config(kind: str) -> dict[str, object]:
    """Return the compressed-tensors description of `quantized`."""
    weights = {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "channel"}
    activations = {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "token"}
    group = {
        "targets": ["Linear"],
        "weights": {**weights, "dynamic": False},
        "input_activations": {**activations, "dynamic": True},
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": f"{kind}-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
        "kv_cache_scheme": None,
    }


def main(out: Path) -> None:
    """Build the whole family into `out`."""
    make_deterministic(seed=1)
    texts = documents()
    tokenizer = train_tokenizer(texts)
    batches = Batches(torch.tensor(encode(tokenizer, texts)), ROWS, LENGTH, seed=2)
    target = round_to_bfloat16(train_target(batches))
    config, tensors = qwen3_config(SHAPE), to_bfloat16(target.state_dict())
    write_checkpoint(out / "target", config, tensors, tokenizer)
    for name, kind in (("w8a8", "int"), ("fp8", "float")):
        extra = {"quantization_config": quantization_config(kind)}
        write_checkpoint(out / name, {**config, **extra}, quantized(tensors, kind), tokenizer)
    draft = train_draft(target, batches)
    write_checkpoint(
        out / "draft", qwen3_config(draft.shape), to_bfloat16(draft.state_dict()), tokenizer
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
