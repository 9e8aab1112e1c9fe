# mypy: ignore-errors
"""Writing checkpoint folders: `config.json`, tokenizer, `model.safetensors`."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from text import END_OF_TEXT_ID, MAX_LENGTH, PADDING_ID, save_tokenizer
from tokenizers import Tokenizer
from torch import Tensor

COMMON = {
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "hidden_act": "silu",
    "bos_token_id": None,
    "eos_token_id": END_OF_TEXT_ID,
    "pad_token_id": PADDING_ID,
    "max_position_embeddings": MAX_LENGTH,
}


def to_bfloat16(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy with floating tensors in bfloat16."""
    return {
        name: (t.detach().to(torch.bfloat16) if t.is_floating_point() else t).contiguous()
        for name, t in tensors.items()
    }


def write_checkpoint(
    folder: Path, config: dict[str, object], tensors: dict[str, Tensor], tokenizer: Tokenizer
) -> None:
    """Write one checkpoint; `tensors` are stored in the types they have."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**COMMON, **config}, indent=1) + "\n")
    generation = {k: COMMON[k] for k in ("eos_token_id", "pad_token_id")}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")
    save_file(
        dict(sorted(tensors.items())), folder / "model.safetensors", metadata={"format": "pt"}
    )
    save_tokenizer(tokenizer, folder)
    print(f"wrote {folder.name}", flush=True)
