# SPDX-License-Identifier: Apache-2.0
"""The network of tessera/nn/llama_network.h in PyTorch, for comparisons. Its parameters have the same names."""
from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    """Like LlamaShape. The defaults are those of the model in models/."""
    vocabulary: int = 2048
    layers: int = 5
    width: int = 192
    heads: int = 6
    key_heads: int = 2
    hidden: int = 512
    dropout: float = 0.0
    norm_epsilon: float = 1e-5
    rotary_base: float = 10000.0
    context: int = 256

    @property
    def head_size(self) -> int:
        return self.width // self.heads


class Block(nn.Module):
    """One layer: grouped-query attention with rotary embedding of adjacent pairs, followed by SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = s = shape
        self.attention_norm = nn.RMSNorm(s.width, eps=s.norm_epsilon)
        self.qkv = nn.Linear(s.width, (s.heads + 2 * s.key_heads) * s.head_size, bias=False)
        self.out = nn.Linear(s.heads * s.head_size, s.width, bias=False)
        self.inner_norm = nn.RMSNorm(s.width, eps=s.norm_epsilon)
        self.gate_up = nn.Linear(s.width, 2 * s.hidden, bias=False)
        self.down = nn.Linear(s.hidden, s.width, bias=False)
        self.dropout = nn.Dropout(s.dropout)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        s = self.shape
        batch, length, _ = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, length, -1, s.head_size).transpose(1, 2)
        q, k, v = heads.split([s.heads, s.key_heads, s.key_heads], dim=1)

        def rotate(t: torch.Tensor) -> torch.Tensor:
            even, odd = t[..., 0::2], t[..., 1::2]
            return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(v.dtype)

        group = s.heads // s.key_heads
        mixed = F.scaled_dot_product_attention(rotate(q), rotate(k).repeat_interleave(group, 1),
                                               v.repeat_interleave(group, 1), is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, -1)))
        gate, up = self.gate_up(self.inner_norm(x)).chunk(2, -1)
        return x + self.dropout(self.down(F.silu(gate) * up))


class Model(nn.Module):
    """The Llama architecture with tied embeddings. Parameters except the embedding have PyTorch's
    initial values. load_state_dict replaces them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        exponents = torch.arange(0, shape.head_size, 2, dtype=torch.float64) / shape.head_size
        angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), shape.rotary_base ** -exponents)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the logits for every position of `ids` [batch, length]."""
        length = ids.shape[1]
        x = self.dropout(self.embedding(ids))
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        return F.linear(self.norm(x), self.embedding.weight)

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the mean negative log-likelihood of ids[:, 1:]."""
        logits = self(ids[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def groups(model: nn.Module) -> list[dict]:
    """Returns the parameter groups for AdamW. Matrices have weight decay, norms have none."""
    return [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
