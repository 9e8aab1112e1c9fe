# mypy: ignore-errors
"""Build tiny-dense's EAGLE-3 head: `python tiny_dense_eagle3.py OUT TINY_DENSE`.

Reads TINY_DENSE/target, writes OUT/eagle3 (LlamaForCausalLMEagle3, one layer over the target's
hidden states). Takes about a minute.
"""

import sys
from pathlib import Path

import torch
from checkpoint import to_bfloat16, write_checkpoint
from dense import ROPE_THETA, Attention, Mlp, Norm, Qwen3, Shape, linear, rotate
from distil import agreement_loss, attend_to_drafts, lessons
from safetensors.torch import load_file
from text import documents, encode
from tokenizers import Tokenizer
from torch import Tensor, nn
from training import Batches, Optimiser, Progress, make_deterministic

STEPS, ROWS, PLAIN_ROWS, LENGTH = 300, 8, 5, 96
AUXILIARY_STATES = (1, 2, 3)  # the residual stream after that many layers
DRAFTED = 3  # tokens a head learns to draft from its own states


class HeadLayer(nn.Module):
    """The head's only layer: attention over embedding and state side by side."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        hidden, eps = shape.hidden_size, shape.rms_norm_eps
        self.self_attn = Attention(shape, 2 * hidden, norm_heads=False)
        self.mlp = Mlp(hidden, shape.intermediate_size)
        self.hidden_norm = Norm(hidden, eps)
        self.input_layernorm = Norm(hidden, eps)
        self.post_attention_layernorm = Norm(hidden, eps)


class Head(nn.Module):
    """EAGLE-3 in the checkpoint's names; `forward` drafts `DRAFTED` tokens at every position."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.fc = linear(len(AUXILIARY_STATES) * shape.hidden_size, shape.hidden_size)
        self.midlayer = HeadLayer(shape)
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = linear(shape.hidden_size, shape.vocab_size)

    def forward(self, ids: Tensor, states: list[Tensor]) -> list[Tensor]:
        """Return logits of draft 1, 2, ...; draft d at position t predicts ids[t + 1 + d].

        Args:
            ids: [rows, length].
            states: the target's states for `ids`.
        """
        length = ids.size(1) - DRAFTED
        combined = torch.cat([states[i] for i in AUXILIARY_STATES], -1)
        hidden = self.fc(combined[:, :length])
        drafts, keys, values = [], [], []
        for step in range(DRAFTED):
            token = self.embed_tokens(ids[:, step + 1 : step + 1 + length])
            hidden = self._layer(token, hidden, step, keys, values)
            drafts.append(self.lm_head(self.norm(hidden)))
        return drafts

    def _layer(
        self, token: Tensor, hidden: Tensor, step: int, keys: list[Tensor], values: list[Tensor]
    ) -> Tensor:
        """Return the state after draft `step`; appends to `keys` and `values`."""
        layer = self.midlayer
        both = torch.cat([layer.input_layernorm(token), layer.hidden_norm(hidden)], -1)
        query, key, value = (
            proj(both).unflatten(-1, (-1, layer.self_attn.head_dim)).transpose(1, 2)
            for proj in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
        )
        shared = query.size(1) // key.size(1)
        keys.append(rotate(key, step).repeat_interleave(shared, 1))
        values.append(value.repeat_interleave(shared, 1))
        mixed = attend_to_drafts(rotate(query, step), keys, values)
        hidden = hidden + layer.self_attn.o_proj(mixed)
        return hidden + layer.mlp(layer.post_attention_layernorm(hidden))


def load_target(folder: Path) -> Qwen3:
    """Return the target that `tiny_dense.py` wrote."""
    target = Qwen3(Shape())
    weights = load_file(folder / "model.safetensors")
    target.load_state_dict({name: weight.float() for name, weight in weights.items()})
    return target.requires_grad_(False)


def train_head(target: Qwen3, batches: Batches) -> Head:
    """Return a head that begins with the target's embedding, last layer and output map."""
    head = Head(target.shape)
    head.embed_tokens.weight.data.copy_(target.model.embed_tokens.weight)
    head.embed_tokens.requires_grad_(False)  # so an engine may share the target's
    head.lm_head.weight.data.copy_(target.lm_head.weight)
    head.midlayer.mlp.load_state_dict(target.model.layers[-1].mlp.state_dict())
    head.norm.load_state_dict(target.model.norm.state_dict())
    optimiser, progress = Optimiser(head, STEPS), Progress("eagle3", STEPS)
    for step in range(STEPS):
        ids = lessons(batches, ROWS, LENGTH, plain=PLAIN_ROWS)
        states = target.states(ids)
        wanted = target.lm_head(target.model.norm(states[-1]))
        drafts = head(ids, states)
        length = drafts[0].size(1)
        losses = [
            agreement_loss(draft, wanted[:, 1 + at : 1 + at + length])
            for at, draft in enumerate(drafts)
        ]
        loss = torch.stack(losses).mean()
        optimiser.step(loss)
        progress.say(step, loss)
    return head


def eagle3_config(shape: Shape) -> dict[str, object]:
    """Return `config.json` of the head."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **shape.as_config(),
        "num_hidden_layers": 1,
        "mlp_bias": False,
        "draft_vocab_size": shape.vocab_size,
        "eagle_aux_hidden_state_layer_ids": list(AUXILIARY_STATES),  # as vLLM counts
        # SGLang looks here, and names each state by the layer that it comes out of.
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [count - 1 for count in AUXILIARY_STATES],
        },
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
    }


def main(out: Path, tiny_dense: Path) -> None:
    """Build the head into `out`."""
    make_deterministic(seed=3)
    tokenizer = Tokenizer.from_file(str(tiny_dense / "target" / "tokenizer.json"))
    stream = torch.tensor(encode(tokenizer, documents()))
    target = load_target(tiny_dense / "target")
    head = train_head(target, Batches(stream, ROWS, LENGTH, seed=4))
    tensors = to_bfloat16(head.state_dict())
    write_checkpoint(out / "eagle3", eagle3_config(target.shape), tensors, tokenizer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
