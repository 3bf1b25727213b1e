"""The affinity bound of audits: attacked by moving the queries of real forward passes."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import taut  # noqa: E402
from taut import audit  # noqa: E402
from tests.helpers.architectures import names, tiny  # noqa: E402

nn = torch.nn
UNKNOWN = ("deberta-v2", "xlnet", "longformer")  # the query is in several terms of their scores
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


class Moved(TorchDispatchMode):
    """Move the left factor of chosen products, by number."""

    def __init__(self, which=-1, step=None):
        super().__init__()
        self.which, self.step, self.seen, self.shapes = which, step, 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        if function.overloadpacket in (torch.ops.aten.bmm, torch.ops.aten.baddbmm, fused):
            at = 1 if function.overloadpacket is torch.ops.aten.baddbmm else 0
            if self.seen == self.which:
                args = (*args[:at], args[at] + self.step, *args[at + 1 :])
            self.shapes.append(args[at].shape)
            self.seen += 1
        return function(*args, **(kwargs or {}))


def weights_of(model, inputs, mode):
    found = []
    with torch.no_grad(), audit.capture(model, found.append), mode:
        model(**inputs)
    return found


@pytest.mark.parametrize("name", [name for name in names("capture") if name not in UNKNOWN])
def test_no_move_of_the_queries_exceeds_it(name):
    """In the first layer, where nothing else moves: products are found by trying each."""
    model, inputs = tiny(name)
    sizes = (1e-3, 1.0)
    if name in ("mixtral", "gpt-oss"):  # their experts run in single precision only
        sizes = (1.0,)
    else:
        model = model.double()
        inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    before_scale = 8**0.5 if name == "opt" else 1.0  # its queries are scaled before the product
    record = audit.run(model, [inputs], norms=[])
    state = record.layers[0].state
    assert np.isfinite(state.affinity).all()
    mode = Moved()
    (before, *_) = weights_of(model, inputs, mode)
    generator = torch.Generator().manual_seed(0)
    moved = 0
    for number, shape in enumerate(mode.shapes[:6]):
        for size in sizes:
            step = torch.randn(shape, generator=generator, dtype=before.scores.dtype)
            step *= size / step.norm(dim=-1, keepdim=True)
            (after, *_) = weights_of(model, inputs, Moved(number, step))
            change = (after.weights - before.weights).norm(dim=-1)
            if not float(change.max()) or shape[:-1].numel() != change.numel():
                continue
            if shape[-1] == before.weights.shape[-1] and number:
                continue  # the weights themselves
            heads = change.reshape(-1, state.heads, change.shape[-1]).amax(dim=(0, 2)).numpy()
            moved += 1
            assert (heads <= state.affinity * before_scale * size * (1 + 1e-5)).all()
    assert moved, "no product was found"


@pytest.mark.parametrize("name", UNKNOWN)
def test_nothing_is_claimed_where_the_query_is_in_several_terms(name):
    model, inputs = tiny(name)
    record = audit.run(model, [inputs], norms=[])
    assert np.isinf([row["affinity_upper"] for row in record.heads]).all()
    assert record.layers[0].to_dict()["affinity"] == [None] * 4


class Scores(nn.Module):
    """Attention whose scores are made by a function of the products."""

    def __init__(self, make, heads=2):
        super().__init__()
        self.make, self.num_heads = make, heads

    def forward(self, q, k):
        q, k = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (q, k))
        return self.make(q, k).softmax(dim=-1) @ k


def of(make, q, k):
    return audit.run(Scores(make), [(q, k)], norms=[]).layers[0].state.affinity


def expected(k, scale, extra=None):
    found = []
    for head in range(2):
        part = k[:, :, 4 * head : 4 * head + 4]
        most = 0.0
        for sample in part:
            keys = sample if extra is None else torch.cat((sample, extra))
            most = max(most, taut.attention.affinity(keys.numpy(), scale=scale).upper)
        found.append(most)
    return np.array(found)


def test_it_is_the_bound_of_the_theorem():
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 5, 8, dtype=torch.float64).unbind(0)
    zero = torch.zeros(1, 4, dtype=torch.float64)
    mask = torch.full((5, 5), -math.inf, dtype=torch.float64).triu(1)
    cases = {
        "plain": (lambda q, k: q @ k.mT, 1.0, None),
        "scaled after": (lambda q, k: (q @ k.mT) * 0.3, 0.3, None),
        "scaled before": (lambda q, k: (q * 0.3) @ k.mT / 2, 0.15, None),
        "scaled in place": (lambda q, k: (q @ k.mT).mul_(0.3).add_(mask), 0.3, None),
        "negative": (lambda q, k: -0.5 * (q @ k.mT), 0.5, None),
        "mask": (lambda q, k: (q @ k.mT).masked_fill(mask < 0, -math.inf), 1.0, None),
        "bias": (lambda q, k: mask + (q @ k.mT), 1.0, None),
        "cap": (lambda q, k: 9 * torch.tanh((q @ k.mT) / 9), 1.0, zero),
        "a number a row": (lambda q, k: (s := q @ k.mT) - s.amax(-1, keepdim=True), 1.0, None),
    }
    for name, (make, scale, extra) in cases.items():
        found, exact = of(make, q, k), expected(k, scale, extra)
        assert (found >= exact * (1 - 1e-12)).all(), name
        assert found == pytest.approx(exact, rel=1e-4), name


def test_what_is_not_followed_is_not_claimed():
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 5, 8).unbind(0)
    table = torch.randn(4, 5)
    cases = {
        "two products": lambda q, k: q @ k.mT + q @ table,
        "a product of products": lambda q, k: (q @ k.mT) * (q @ table),
        "squared": lambda q, k: (q @ k.mT) ** 2,
        "steep": lambda q, k: torch.exp(q @ k.mT),
        "scaled by a tensor": lambda q, k: (q @ k.mT) * q[..., :1],
        "written into a part": lambda q, k: _written(q @ k.mT, q),
        "gathered": lambda q, k: q @ k.mT + (q @ table).gather(-1, torch.ones(3, 2, 5, 5).long()),
    }
    for name, make in cases.items():
        assert np.isinf(of(make, q, k)).all(), name


def _written(scores, q):
    scores[..., :2] += q[..., :2] * 100
    return scores


@pytest.mark.parametrize("count", [2, 5, 33, 100])
def test_the_diameter_is_never_too_small(count):
    from taut.audit.statistics.affinity import diameter

    generator = torch.Generator().manual_seed(count)
    keys = torch.randn(12, count, 6, generator=generator, dtype=torch.float64)
    keys[:3] *= torch.logspace(-3, 3, count, dtype=torch.float64)[:, None]
    exact = torch.cdist(keys, keys).amax(dim=(-2, -1))
    found = diameter(keys)
    assert (found >= exact * (1 - 1e-9)).all()
    assert (found <= 2 * exact).all()
    if count <= 32:
        assert torch.allclose(found, exact)
