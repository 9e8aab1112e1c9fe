"""Write a tiny random Qwen3 with clear margins: `python tiny_checkpoint.py FOLDER`, in seconds.

Runs in an engine's environment (torch, transformers). Random weights of the usual size make every
step a near tie; these are scaled so that the best token leads by about half a nat.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 512
END = VOCABULARY - 1


def write(folder: Path) -> None:
    """Weights in bfloat16, a tokenizer of words w0 ... w511."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=1024,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=END,
            pad_token_id=END,
        )
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0 if "lm_head" in name else 25.0 if "embed" in name else 4.0)
    model.to(torch.bfloat16).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=f"w{END}", unk_token="w0"
    ).save_pretrained(folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
