"""Feed-forward networks that are written as nn.Sequential."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from taut import control  # noqa: E402

nn = torch.nn


class Own(nn.Module):
    """A transformer block as people write it."""

    def __init__(self, middle, wrapped=False):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.ModuleDict({"net": middle}) if wrapped else middle


def feed_forward(drop=0.0, out=8, activation=None):
    middle = activation or nn.GELU()
    return nn.Sequential(nn.Linear(8, 16), middle, nn.Dropout(drop), nn.Linear(16, out))


def found(model, **options):
    return [b for b in control.find_blocks(model, **options) if b.kind == "feed-forward"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_sequence_beside_attention_is_found(wrapped):
    model = nn.ModuleDict(
        {"layers": nn.ModuleList([Own(feed_forward(), wrapped) for _ in range(2)]),
         "head": feed_forward()}
    )  # fmt: skip
    place = "mlp.net" if wrapped else "mlp"
    blocks = found(model)
    assert [b.path for b in blocks] == [f"layers.{i}.{place}" for i in range(2)]  # not the head
    assert [w.name for w in blocks[0].weights.values()] == [
        f"layers.0.{place}.0.weight", f"layers.0.{place}.3.weight",
    ]  # fmt: skip
    assert list(blocks[0].weights) == ["first", "second"]
    assert len(found(model, only="layers.1*")) == 1


def test_constraints_reach_it():
    torch.manual_seed(0)
    model = Own(feed_forward())
    control.Projection(model, limit=0.1).start()
    for index in (0, 3):
        assert torch.linalg.matrix_norm(model.mlp[index].weight, 2) <= 0.1


@pytest.mark.parametrize(
    "other",
    [
        feed_forward(out=4),
        feed_forward(activation=nn.LayerNorm(16)),
        nn.Sequential(nn.Linear(8, 8), nn.ReLU()),
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)),
    ],
    ids=["another width", "no activation", "one map", "three maps"],
)
def test_other_sequences_are_left_alone(other):
    assert found(Own(other)) == []
