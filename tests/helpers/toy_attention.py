"""A small model with grouped heads whose attention is fused, or written out, or hidden."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class ToyAttention(nn.Module):
    """Attention with 4 query heads that share 2 heads of keys and values, width 3."""

    heads, groups, width = 4, 2, 3

    def __init__(self, form: str, size: int = 8) -> None:
        super().__init__()
        self.form, self.num_heads = form, self.heads
        self.query = nn.Linear(size, self.heads * self.width)
        self.key = nn.Linear(size, self.groups * self.width)
        self.value = nn.Linear(size, self.groups * self.width)
        self.out = nn.Linear(self.heads * self.width, size)
        self.noise = {}  # leaves that a test adds to scores, keys and values

    def split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.unflatten(-1, (heads, self.width)).transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q = self.split(self.query(x), self.heads)
        k, v = (self.split(m(x), self.groups) for m in (self.key, self.value))
        if self.form == "causal":
            k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7)
        elif self.form == "fused":
            o = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, scale=0.7, enable_gqa=True
            )
        else:
            k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
            k, v = k + self.noise.get("keys", 0.0), v + self.noise.get("values", 0.0)
            z = 0.7 * (q @ k.transpose(-1, -2)) + self.noise.get("scores", 0.0)
            p = torch.where(mask, z, -torch.inf).softmax(dim=-1)
            if self.form == "detached":
                p, v = p.detach(), v.detach()
            o = torch.einsum("bhqk,bhkd->bhqd", p, v) if self.form == "einsum" else p @ v
        return self.out(o.transpose(1, 2).flatten(2))


class ToyModel(nn.Module):
    """Two layers of attention, each with a residual, and logits of 5 classes for each token."""

    def __init__(self, form: str = "fused", classes: int = 5, causal: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layers = nn.ModuleList(ToyAttention(form) for _ in range(2))
        self.head = nn.Linear(8, classes)
        self.causal = causal

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        x = self.embed(input_ids)
        n = x.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool)
        mask = (mask.tril() if self.causal else mask).expand(len(x), 1, n, n)
        if attention_mask is not None:
            mask = mask & (attention_mask[:, None, None, :] > 0)
            mask = mask | torch.eye(n, dtype=torch.bool)
        for layer in self.layers:
            x = x + torch.tanh(layer(x, mask))
        return self.head(x)


def toy(form: str = "fused", **options: object) -> ToyModel:
    """A toy model with the same weights in every form, larger than usual, in float64."""
    torch.manual_seed(0)
    model = ToyModel(form, **options)  # type: ignore[arg-type]
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    return model.double().eval()


def token_ids(samples: int = 2, tokens: int = 6) -> torch.Tensor:
    """Some tokens."""
    return torch.randint(0, 11, (samples, tokens), generator=torch.Generator().manual_seed(1))
