"""Certificates after weights have changed in every way there is: never those of the old weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from taut.networks import weight_cache as _cache  # noqa: E402
from taut.networks.weight_norms import spectral  # noqa: E402

SIZE = 16  # a power of two: sums over so many entries hide powers of two


def network(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, 3)
    ).to(dtype)


def scale(factor):
    def change(net):
        net[0].weight.data.mul_(factor)
        net[2].weight.data.mul_(factor)

    return change


def in_inference_mode(net):
    with torch.inference_mode():
        net[0].weight.mul_(4)


def with_no_grad(net):
    with torch.no_grad():
        net[0].weight.mul_(4)


def permute(net):
    net[0].weight.data.copy_(net[0].weight.data.flatten().flip(0).reshape(SIZE, SIZE).clone())


def flip_signs(net):
    net[0].weight.data[::2].neg_()


def one_bit(net):
    net[2].weight.data.view(torch.int64)[3, 5] ^= 1 << 62  # of the exponent


def other_data(net):
    net[2].weight.data = net[2].weight.data * 8


def other_parameter(net):
    net[2].weight = nn.Parameter(net[2].weight.detach() * 8)


def through_a_view(net):
    net[0].weight.data.view(-1)[::3].mul_(16)


def through_numpy(net):
    net[0].weight.detach().numpy()[:] *= 16


def load(net):
    state = {name: 4 * value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(state)


def load_and_assign(net):
    state = {name: 4 * value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(state, assign=True)


def swap(net):
    a, b = net[0].weight, net[2].weight
    a.data, b.data = 3 * b.data, a.data


def tie(net):
    net[2].weight = net[0].weight
    net[0].weight.data.mul_(2)


CHANGES = [
    pytest.param(scale(2), id="twice"), pytest.param(scale(0.5), id="half"),
    pytest.param(scale(-1024), id="-1024"), pytest.param(scale(3), id="three times"),
    in_inference_mode, with_no_grad, permute, flip_signs, one_bit, other_data, other_parameter,
    through_a_view, through_numpy, load, load_and_assign, swap, tie,
]  # fmt: skip


def answers(net):
    x = torch.linspace(-1, 1, 2 * SIZE, dtype=torch.float64).reshape(2, SIZE)
    near = tt.certify(net, taut.At(x, 0.1), measure=False)
    everywhere = tt.certify(net, taut.Everywhere((1, SIZE)), measure=False)
    safe = tt.certified_radius(net, x, steps=4)
    return np.concatenate([near.bound.upper, everywhere.bound.upper, safe.radius]), safe


@pytest.mark.parametrize("change", CHANGES)
def test_answers_after_a_change_are_those_of_a_new_network(change, monkeypatch):
    net = network()
    answers(net)
    change(net)
    found, safe = answers(net)
    assert (safe.attack(steps=10, restarts=1)[safe.radius > 0] > 0).all()
    monkeypatch.setattr(_cache, "_KEPT", {})
    expected, _ = answers(copy.deepcopy(net))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_weights_made_in_inference_mode_are_followed(mode):
    with torch.inference_mode():
        net = network()
    before, _ = answers(net)
    with torch.inference_mode():
        net[0].weight.mul_(2)
    with mode():
        after, _ = answers(net)
    np.testing.assert_allclose(after[2], 2 * before[2], rtol=1e-12)


def test_a_float32_weight_of_a_million_entries_is_followed():
    weight = nn.Parameter(torch.randn(1 << 7, 1 << 14))
    before = spectral(weight)
    weight.data.mul_(4)
    assert spectral(weight) == pytest.approx(4 * before, rel=1e-9)


def test_temporary_weights_in_the_same_memory_are_told_apart():
    """As of parametrised layers, whose weights are made anew at every look."""

    class Grows(nn.Module):
        count = 0

        def forward(self, weight):
            Grows.count += 1
            return weight * 2.0**Grows.count

    for _ in range(5):
        layer = nn.Linear(SIZE, SIZE, bias=False, dtype=torch.float64)
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", Grows())
        Grows.count = 0
        found = [spectral(layer.weight) for _ in range(6)]
        np.testing.assert_allclose(np.diff(np.log2(found)), 1.0, rtol=1e-9)


DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.complex64, torch.complex128, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (64, 64), (2, 3, 4)], ids=str)
def test_every_bit_of_every_dtype_counts(dtype, shape):
    torch.manual_seed(0)
    tensor = (torch.randn(shape) > 0).to(dtype)
    before = _cache.content(tensor)
    assert _cache.content(tensor.clone()) == before
    raw = tensor.view(-1).view(torch.uint8) if shape else tensor.reshape(1).view(torch.uint8)
    bits = 1 if dtype == torch.bool else 8
    for place in {0, len(raw) // 2, len(raw) - 1}:
        for bit in range(bits):
            raw[place] ^= 1 << bit
            assert _cache.content(tensor) != before
            raw[place] ^= 1 << bit
    assert _cache.content(tensor) == before


def test_content_is_what_is_read_not_how_it_lies():
    base = torch.arange(24.0).reshape(4, 6)
    for view in (base.mT, base[:, ::2], base[1:], base[:1].expand(3, 6), base[:, :1], base[2:3].mT):
        assert _cache.content(view) == _cache.content(view.clone())
    assert _cache.content(base.mT) != _cache.content(base)
    z = torch.tensor([1.0 + 2.0j, 3.0 - 1.0j])
    assert _cache.content(z.conj()) == _cache.content(torch.tensor([1.0 - 2.0j, 3.0 + 1.0j]))
    assert _cache.content(z.conj().imag) == _cache.content(torch.tensor([-2.0, 1.0]))
    assert _cache.content(torch.zeros(0, 3)) == _cache.content(torch.zeros(3, 0))


def test_shapes_and_dtypes_are_told_apart():
    ones = torch.ones(4, 9, dtype=torch.float64)
    assert spectral(ones) == pytest.approx(6)
    assert spectral(ones.reshape(2, 18)) == pytest.approx(6)
    assert spectral(torch.zeros(0, 3)) == 0
    assert spectral(ones[:2]) == pytest.approx(18**0.5)
    assert spectral(ones.view(torch.int64)) > 1e18  # the same bytes


def test_what_cannot_be_read_is_not_kept():
    class Doubled(torch.Tensor):
        pass

    weight = torch.eye(3).as_subclass(Doubled)
    kept = len(_cache._KEPT)
    assert _cache.cached("x", (weight,), lambda w: 1.0) == 1.0
    assert _cache.cached("x", (weight,), lambda w: 2.0) == 2.0
    assert _cache.cached("x", (torch.eye(3).to_sparse(),), lambda w: 3.0) == 3.0
    assert len(_cache._KEPT) == kept


def test_a_change_while_it_is_computed_is_not_kept_under_the_old_weights():
    weight = torch.eye(3)

    def compute(own):
        weight.mul_(2)  # as another thread would
        return float(own[0, 0])

    assert _cache.cached("diagonal", (weight,), compute) == 1.0
    weight.div_(2)
    assert _cache.cached("diagonal", (weight,), lambda own: 5.0) == 1.0


def test_only_so_many_are_kept(monkeypatch):
    monkeypatch.setattr(_cache, "LIMIT", 3)
    monkeypatch.setattr(_cache, "_KEPT", {})
    for size in range(1, 9):
        spectral(torch.ones(size, 1))
    assert len(_cache._KEPT) == 3
