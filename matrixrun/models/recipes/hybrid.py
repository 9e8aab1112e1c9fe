# mypy: ignore-errors
"""Qwen3-Next in plain torch: gated delta net, gated attention, experts, multi-token prediction.

Parameter names are the checkpoint's keys. Sequences are taken in one chunk, so the cost grows with
the square of the length; a recipe's sequences are short.
"""

from dataclasses import asdict, dataclass, field

import torch
from dense import ROPE_THETA, Mlp, attend, linear, rotate
from distil import attend_to_drafts
from torch import Tensor, nn
from torch.nn import functional

LINEAR, FULL = "linear_attention", "full_attention"


@dataclass(frozen=True)
class HybridShape:
    """Sizes, named as in `config.json`."""

    vocab_size: int = 1024
    hidden_size: int = 128
    intermediate_size: int = 256
    num_hidden_layers: int = 4
    layer_types: list[str] = field(default_factory=lambda: [LINEAR, FULL, LINEAR, FULL])
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    partial_rotary_factor: float = 0.25
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 64
    linear_value_head_dim: int = 64
    linear_conv_kernel_dim: int = 4
    num_experts: int = 4
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 64
    shared_expert_intermediate_size: int = 128
    rms_norm_eps: float = 1e-6

    def as_config(self) -> dict[str, object]:
        """Return the keys as they stand in `config.json`."""
        return asdict(self)


class OffsetNorm(nn.Module):
    """RMS norm whose weight is stored less one."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], 1 + self.weight, self.eps)


class GatedNorm(nn.Module):
    """RMS norm, then a gate."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        normed = functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        return normed * functional.silu(gate)


def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor
) -> Tensor:
    """Return what the recurrence reads out, in parallel over one chunk.

    The state S decays by exp(log_decay), takes up beta * (value - key . S) along key and is read
    with query. Writing what step t takes up as u_t, all u follow from one triangular system.

    Args:
        query, key: [rows, heads, length, key_dim]; normalised here.
        value: [rows, heads, length, value_dim].
        log_decay, beta: [rows, heads, length].
    """
    length = query.size(-2)
    query = functional.normalize(query, dim=-1, eps=1e-6) * query.size(-1) ** -0.5
    key = functional.normalize(key, dim=-1, eps=1e-6)
    total = log_decay.cumsum(-1)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    since = total[..., :, None] - total[..., None, :]
    decay = since.masked_fill(future, -torch.inf).exp()
    known = (beta[..., None] * decay * (key @ key.mT)).tril(-1)
    system = known + torch.eye(length)
    taken = torch.linalg.solve_triangular(
        system, beta[..., None] * value, upper=False, unitriangular=True
    )
    return (decay * (query @ key.mT)) @ taken


class GatedDeltaNet(nn.Module):
    """The recurrent layer."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.shape = shape
        keys = shape.linear_num_key_heads * shape.linear_key_head_dim
        values = shape.linear_num_value_heads * shape.linear_value_head_dim
        self.split = (keys, keys, values)
        self.in_proj_qkvz = linear(shape.hidden_size, 2 * keys + 2 * values)
        self.in_proj_ba = linear(shape.hidden_size, 2 * shape.linear_num_value_heads)
        channels = 2 * keys + values
        self.conv1d = nn.Conv1d(
            channels, channels, shape.linear_conv_kernel_dim, groups=channels, bias=False
        )
        # Half-lives from a few tokens to some hundred, one a head.
        self.A_log = nn.Parameter(torch.zeros(shape.linear_num_value_heads))
        self.dt_bias = nn.Parameter(torch.linspace(-5.0, -1.5, shape.linear_num_value_heads))
        self.norm = GatedNorm(shape.linear_value_head_dim, shape.rms_norm_eps)
        self.out_proj = linear(values, shape.hidden_size)

    def _grouped(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return query, key, value, output gate and the two small inputs; a group is a key head."""
        shape = self.shape
        groups = shape.linear_num_key_heads
        each = shape.linear_num_value_heads // groups
        sizes = [shape.linear_key_head_dim] * 2 + [each * shape.linear_value_head_dim] * 2
        wide = self.in_proj_qkvz(x).unflatten(-1, (groups, -1)).split(sizes, -1)
        small = self.in_proj_ba(x).unflatten(-1, (groups, -1)).split([each, each], -1)
        return tuple(part.flatten(2) for part in (*wide, *small))

    def forward(self, x: Tensor) -> Tensor:
        shape = self.shape
        query, key, value, gate, write, forget = self._grouped(x)
        mixed = torch.cat([query, key, value], -1).mT
        mixed = self.conv1d(functional.pad(mixed, (shape.linear_conv_kernel_dim - 1, 0)))
        query, key, value = functional.silu(mixed).mT.split(self.split, -1)
        query, key = (
            part.unflatten(-1, (-1, shape.linear_key_head_dim))
            .repeat_interleave(shape.linear_num_value_heads // shape.linear_num_key_heads, 2)
            .transpose(1, 2)
            for part in (query, key)
        )
        value, gate = (
            part.unflatten(-1, (-1, shape.linear_value_head_dim)) for part in (value, gate)
        )
        log_decay = -self.A_log.exp() * functional.softplus(forget + self.dt_bias)
        read = gated_delta_rule(query, key, value.transpose(1, 2), log_decay.mT, write.sigmoid().mT)
        return self.out_proj(self.norm(read.transpose(1, 2), gate).flatten(2))


class GatedAttention(nn.Module):
    """Grouped-query attention with an output gate and rotary positions on a part of each head."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        heads, dim = shape.num_attention_heads, shape.head_dim
        self.head_dim, self.rotary = dim, int(dim * shape.partial_rotary_factor)
        self.q_proj = linear(shape.hidden_size, 2 * heads * dim)
        self.k_proj = linear(shape.hidden_size, shape.num_key_value_heads * dim)
        self.v_proj = linear(shape.hidden_size, shape.num_key_value_heads * dim)
        self.o_proj = linear(heads * dim, shape.hidden_size)
        self.q_norm = OffsetNorm(dim, shape.rms_norm_eps)
        self.k_norm = OffsetNorm(dim, shape.rms_norm_eps)

    def _positioned(self, x: Tensor, first: int) -> Tensor:
        turned = rotate(x[..., : self.rotary], first)
        return torch.cat([turned, x[..., self.rotary :]], -1)

    def project(self, x: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return query, key, value [rows, heads, length, head_dim] and gate [rows, length, -1]."""
        query, gate = self.q_proj(x).unflatten(-1, (-1, 2 * self.head_dim)).chunk(2, -1)
        key, value = (
            proj(x).unflatten(-1, (-1, self.head_dim)) for proj in (self.k_proj, self.v_proj)
        )
        query = self._positioned(self.q_norm(query).transpose(1, 2), first)
        key = self._positioned(self.k_norm(key).transpose(1, 2), first)
        return query, key, value.transpose(1, 2), gate.flatten(2)

    def close(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """Return the layer's output from joined heads and gate."""
        return self.o_proj(mixed * gate.sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        query, key, value, gate = self.project(x)
        return self.close(attend(query, key, value), gate)


class Experts(nn.Module):
    """Routed experts and a shared one; all experts are computed, which is cheap at this size."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        hidden, self.chosen = shape.hidden_size, shape.num_experts_per_tok
        self.gate = linear(hidden, shape.num_experts)
        self.experts = nn.ModuleList(
            Mlp(hidden, shape.moe_intermediate_size) for _ in range(shape.num_experts)
        )
        self.shared_expert = Mlp(hidden, shape.shared_expert_intermediate_size)
        self.shared_expert_gate = linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        share = self.gate(x).softmax(-1)
        least = share.topk(self.chosen, -1).values[..., -1:]
        share = share * (share >= least)
        share = share / share.sum(-1, keepdim=True)
        out = self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)
        for index, expert in enumerate(self.experts):
            out = out + share[..., index : index + 1] * expert(x)
        return out


class HybridLayer(nn.Module):
    """One decoder layer of either kind."""

    def __init__(self, shape: HybridShape, kind: str) -> None:
        super().__init__()
        if kind == LINEAR:
            self.linear_attn = GatedDeltaNet(shape)
        else:
            self.self_attn = GatedAttention(shape)
        self.mlp = Experts(shape)
        self.input_layernorm = OffsetNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = OffsetNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        mixer = self.linear_attn if hasattr(self, "linear_attn") else self.self_attn
        x = x + mixer(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class HybridBody(nn.Module):
    """Embedding, layers and last norm."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(HybridLayer(shape, kind) for kind in shape.layer_types)
        self.norm = OffsetNorm(shape.hidden_size, shape.rms_norm_eps)


class Qwen3Next(nn.Module):
    """The whole model; `forward` maps ids [rows, length] to logits [rows, length, vocab]."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.model = HybridBody(shape)
        self.lm_head = linear(shape.hidden_size, shape.vocab_size)

    def state(self, ids: Tensor) -> Tensor:
        """Return the normed last state, which is also what the MTP layer starts from."""
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return self.model.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(self.state(ids))


class MultiTokenPredictor(nn.Module):
    """One layer that drafts from the target's last state; shares embedding and output map."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        hidden, eps = shape.hidden_size, shape.rms_norm_eps
        self.pre_fc_norm_embedding = OffsetNorm(hidden, eps)
        self.pre_fc_norm_hidden = OffsetNorm(hidden, eps)
        self.fc = linear(2 * hidden, hidden)
        self.layers = nn.ModuleList([HybridLayer(shape, FULL)])
        self.norm = OffsetNorm(hidden, eps)

    def forward(self, tokens: Tensor, hidden: Tensor, drafted: int) -> list[Tensor]:
        """Return the state after draft 1, 2, ... `drafted`, each [rows, length - drafted, hidden].

        Args:
            tokens: embeddings, [rows, length, hidden_size].
            hidden: the target's last states, same shape.
            drafted: how many tokens to draft at every position.
        """
        length = tokens.size(1) - drafted
        state, states, keys, values = hidden[:, :length], [], [], []
        for step in range(drafted):
            token = self.pre_fc_norm_embedding(tokens[:, step + 1 : step + 1 + length])
            x = self.fc(torch.cat([token, self.pre_fc_norm_hidden(state)], -1))
            state = self.norm(self._layer(x, step, keys, values))
            states.append(state)
        return states

    def _layer(self, x: Tensor, step: int, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        layer = self.layers[0]
        query, key, value, gate = layer.self_attn.project(layer.input_layernorm(x), step)
        shared = query.size(1) // key.size(1)
        keys.append(key.repeat_interleave(shared, 1))
        values.append(value.repeat_interleave(shared, 1))
        x = x + layer.self_attn.close(attend_to_drafts(query, keys, values), gate)
        return x + layer.mlp(layer.post_attention_layernorm(x))


def hybrid_config(shape: HybridShape) -> dict[str, object]:
    """Return `config.json` of a Qwen3-Next checkpoint with one MTP layer."""
    rope = {
        "rope_type": "default",
        "rope_theta": ROPE_THETA,
        "partial_rotary_factor": shape.partial_rotary_factor,
    }
    return {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        **shape.as_config(),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 1,
        "rope_theta": ROPE_THETA,
        "rope_parameters": rope,
    }
