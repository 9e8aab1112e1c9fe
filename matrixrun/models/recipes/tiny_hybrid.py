# mypy: ignore-errors
"""Build the tiny-hybrid family: `python tiny_hybrid.py OUT`.

Writes OUT/target: Qwen3NextForCausalLM (attention and gated delta net in turn, experts, about
1 M parameters, bfloat16) with one multi-token-prediction layer. Takes two to three minutes on two
idle cores.
"""

import sys
from pathlib import Path

import torch
from checkpoint import to_bfloat16, write_checkpoint
from distil import agreement_loss, lessons
from hybrid import HybridShape, MultiTokenPredictor, Qwen3Next, hybrid_config
from text import documents, encode, train_tokenizer
from torch.nn import functional
from training import Batches, Optimiser, Progress, make_deterministic

SHAPE = HybridShape()
ROWS, PLAIN_ROWS, LENGTH = 8, 5, 96
TARGET_STEPS, PREDICTOR_STEPS = 480, 200
DRAFTED = 2  # the layer also learns to go on from its own state


def train_target(batches: Batches) -> Qwen3Next:
    """Return the target, its weights rounded to what the checkpoint holds."""
    model = Qwen3Next(SHAPE)
    optimiser, progress = Optimiser(model, TARGET_STEPS), Progress("target", TARGET_STEPS)
    for step in range(TARGET_STEPS):
        ids = batches.next()
        logits = model(ids[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimiser.step(loss)
        progress.say(step, loss)
    model.load_state_dict({k: v.float() for k, v in to_bfloat16(model.state_dict()).items()})
    return model.requires_grad_(False)


def train_predictor(target: Qwen3Next, batches: Batches) -> MultiTokenPredictor:
    """Return the MTP layer, taught to say what the target says one token later."""
    predictor = MultiTokenPredictor(SHAPE)
    predictor.layers[0].load_state_dict(target.model.layers[-1].state_dict())
    optimiser = Optimiser(predictor, PREDICTOR_STEPS)
    progress = Progress("mtp", PREDICTOR_STEPS)
    for step in range(PREDICTOR_STEPS):
        ids = lessons(batches, ROWS, LENGTH, plain=PLAIN_ROWS)
        state = target.state(ids)
        wanted = target.lm_head(state)
        drafts = predictor(target.model.embed_tokens(ids), state, DRAFTED)
        length = drafts[0].size(1)
        losses = [
            agreement_loss(target.lm_head(draft), wanted[:, 1 + at : 1 + at + length])
            for at, draft in enumerate(drafts)
        ]
        loss = torch.stack(losses).mean()
        optimiser.step(loss)
        progress.say(step, loss)
    return predictor


def main(out: Path) -> None:
    """Build the family into `out`."""
    make_deterministic(seed=5)
    texts = documents()
    tokenizer = train_tokenizer(texts)
    batches = Batches(torch.tensor(encode(tokenizer, texts)), ROWS, LENGTH, seed=6)
    target = train_target(batches)
    predictor = train_predictor(target, batches)
    weights = {f"mtp.{name}": weight for name, weight in predictor.state_dict().items()}
    tensors = to_bfloat16({**target.state_dict(), **weights})
    write_checkpoint(out / "target", hybrid_config(SHAPE), tensors, tokenizer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
