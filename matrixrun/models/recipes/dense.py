# mypy: ignore-errors
"""The Qwen3 dense transformer in plain torch; parameter names are the checkpoint's keys."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes, named as in `config.json`."""

    vocab_size: int = 1024
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6

    def as_config(self) -> dict[str, object]:
        """Return the keys as they stand in `config.json`."""
        return asdict(self)


ROPE_THETA = 10000.0


class Norm(nn.Module):
    """RMS norm over the last dimension."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a bias-free linear map with unit-variance-preserving weights."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    return layer


def rotate(x: Tensor, first: int = 0) -> Tensor:
    """Return `x` [rows, heads, length, head_dim] with rotary positions from `first` applied."""
    half = x.size(-1) // 2
    frequency = ROPE_THETA ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(first, first + x.size(-2), dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return causal attention, heads joined: [rows, length, heads * head_dim]."""
    shared = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(shared, 1) for x in (key, value))
    out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return out.transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Grouped-query attention; `norm_heads` adds Qwen3's norms of queries and keys."""

    def __init__(self, shape: Shape, inputs: int, norm_heads: bool = True) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        heads, shared = shape.num_attention_heads, shape.num_key_value_heads
        self.q_proj = linear(inputs, heads * shape.head_dim)
        self.k_proj = linear(inputs, shared * shape.head_dim)
        self.v_proj = linear(inputs, shared * shape.head_dim)
        self.o_proj = linear(heads * shape.head_dim, shape.hidden_size)
        self.norm_heads = norm_heads
        if norm_heads:
            self.q_norm = Norm(shape.head_dim, shape.rms_norm_eps)
            self.k_norm = Norm(shape.head_dim, shape.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.norm_heads:
            query, key = self.q_norm(query), self.k_norm(key)
        return self.o_proj(attend(rotate(query), rotate(key), value))


class Mlp(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One decoder layer with pre-norms."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, shape.hidden_size)
        self.mlp = Mlp(shape.hidden_size, shape.intermediate_size)
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """Embedding, layers and last norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)


class Qwen3(nn.Module):
    """The whole model; `forward` maps ids [rows, length] to logits [rows, length, vocab]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self.lm_head = linear(shape.hidden_size, shape.vocab_size)

    def states(self, ids: Tensor) -> list[Tensor]:
        """Return the residual stream before layer 0, 1, ... and after the last one."""
        states = [self.model.embed_tokens(ids)]
        for layer in self.model.layers:
            states.append(layer(states[-1]))
        return states

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(self.model.norm(self.states(ids)[-1]))
