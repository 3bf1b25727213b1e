"""Certificates of what taut.control puts into a model: other attention, caps, bounded maps."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from taut.control import (  # noqa: E402
    CappedAttention,
    CosineAttention,
    L2Attention,
    Projection,
    SigmaReparametrisation,
    SoftCap,
    swap_attention,
)
from tests.helpers.architectures import CONTEXT, WIDTH, case, names, reads_context  # noqa: E402
from tests.helpers.propagation_attack import (  # noqa: E402
    check_every_bound,
    directions,
    engine_of,
    worst_steps,
)
from tests.networks.test_certify import call, jacobian, token_norm, worst_pair  # noqa: E402

nn = torch.nn
KINDS = ("cosine", "l2", "cap")
TORCH = ["encoder layer", "encoder layer, norm first", "encoder", "decoder layer", "transformer"]
FAMILIES = names("swap")
SOME = ["encoder layer", "decoder layer", "gpt2", "bert", "vit", "marian"]
BY_DAY = {("encoder layer", "l2"), ("decoder layer", "cap"), ("gpt2", "cosine")}


def controlled(name, kind, *, seed=0, gain=2.0, scale=1.0, batch=1):
    """A model with another attention in float64, inputs, and what its encoder reads."""
    model, x, context = case(name, seed=seed, gain=gain, scale=scale, batch=batch)
    if kind == "cap":
        SoftCap(model, limit=0.5).start()
    else:
        swap_attention(model, kind, **({"epsilon": 0.3} if kind == "cosine" else {}))
    return model, x, context


def cases(families):
    """Names with the kinds of attention that they can have; most of them are tried by night."""
    return [
        pytest.param(name, kind, marks=[] if (name, kind) in BY_DAY else pytest.mark.slow)
        for name in families
        for kind in KINDS
        if not (kind == "l2" and reads_context(name))
    ]


def math_kernel():
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)


@pytest.mark.parametrize(("name", "kind"), cases(TORCH + FAMILIES))
def test_bounds_at_inputs_hold_against_the_written_out_derivative(name, kind):
    model, x, context = controlled(name, kind, seed=1, gain=4.0)
    matrix, found = jacobian(model, x, context)
    exact = float(torch.linalg.matrix_norm(matrix, 2)) * (1 - 1e-5)
    l2 = tt.certify(model, x, context=context, measure=False)
    assert exact <= float(l2.bound.upper[0]) < np.inf
    token = tt.certify(model, x, norm="token", context=context, measure=False)
    assert token_norm(found, x) * (1 - 1e-5) <= float(token.bound.upper[0])


@pytest.mark.parametrize("norm", ["l2", "token"])
@pytest.mark.parametrize(("name", "kind"), cases(SOME))
def test_no_pair_beats_the_bound_of_a_swapped_model(name, kind, norm):
    model, x, context = controlled(name, kind, seed=2)
    for radius in (1e-2, 1.0):
        domain = taut.At(x, radius)
        bound = tt.certify(model, domain, norm=norm, context=context, measure=False).bound
        with math_kernel():
            found = worst_pair(model, domain, norm, context, steps=8)
        assert found * (1 - 1e-4) <= float(bound.upper.max())
    shape = tuple(x.shape[1:])
    inside = None if context is None else taut.Everywhere((CONTEXT, WIDTH))
    bound = tt.certify(
        model, taut.Everywhere(shape), norm=norm, context=inside, measure=False
    ).bound
    if kind != "cap":
        assert bound.upper[0] < np.inf
    with math_kernel():
        found = worst_pair(model, taut.Ball(20.0, shape), norm, context, steps=8)
    assert found * (1 - 1e-4) <= float(bound.upper[0])


LAYERS = {
    "cosine": lambda: CosineAttention(8, 2, batch_first=True, epsilon=0.1),
    "l2": lambda: L2Attention(8, 2, batch_first=True),
    "cap": lambda: CappedAttention(8, 2, batch_first=True, limit=1.5),
}


def layer_of(kind, seed, gain=2.0):
    torch.manual_seed(seed)
    layer = LAYERS[kind]().double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(gain)
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def steepest(layer, shape, norm, seed, steps=40, radius=None):
    """Ascent on the norm of the derivative over the input, by autodiff."""
    torch.manual_seed(seed)
    x = torch.randn(1, *shape, dtype=torch.float64).requires_grad_(True)
    optimizer = torch.optim.Adam([x], lr=0.1)
    best = 0.0
    for _ in range(steps):
        z = x
        if radius is not None:
            z = x * (radius / x.norm(dim=-1, keepdim=True)).clamp(max=1.0)
        found = torch.autograd.functional.jacobian(
            lambda y: layer(y, y, y)[0][0], z, create_graph=True, vectorize=True
        )[:, :, 0]  # tokens, width, tokens, width
        if norm == "l2":
            value = torch.linalg.matrix_norm(found.flatten(2).flatten(0, 1), 2)
        else:  # of one row of blocks at least the norm at the best signs of one direction
            blocks = found.permute(0, 2, 1, 3)
            _, _, v = torch.linalg.svd(blocks.sum(dim=1))
            moved = torch.einsum("ijab,ib->ija", blocks, v[:, 0]).sum(dim=1)
            value = moved.norm(dim=-1).amax()
        best = max(best, float(value.detach()))
        optimizer.zero_grad()
        (-value).backward()
        optimizer.step()
    return best


@pytest.mark.theorem("l2-attention", "holds")
@pytest.mark.theorem("scsa-cov", "holds")
@pytest.mark.parametrize("norm", ["l2", "token"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_ascent_on_the_derivative_stays_below(kind, norm):
    for seed, tokens in ((0, 2), (1, 3)):
        layer = layer_of(kind, seed)
        for radius in (None,) if kind != "cap" else (2.0,):
            shape = (tokens, 8)
            domain = taut.Everywhere(shape) if radius is None else taut.Ball(radius, shape)
            bound = tt.certify(layer, domain, norm=norm, measure=False).bound
            found = steepest(layer, shape, norm, seed, radius=radius, steps=15)
            assert found <= float(bound.upper[0])
            assert found > 0.02 * float(bound.upper[0])  # the bound is not vacuous


@pytest.mark.theorem("l2-attention", "attained")
def test_a_single_token_attains_the_bound_of_l2_attention_in_both_norms():
    layer = L2Attention(4, 1, bias=False, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([2 * torch.eye(4), 3 * torch.eye(4)]))
        layer.out_proj.weight.copy_(torch.eye(4))
    x = torch.randn(1, 1, 4, dtype=torch.float64)
    for norm in ("l2", "token"):
        for domain in (x, taut.Everywhere((1, 4))):
            bound = tt.certify(layer, domain, norm=norm, measure=False).bound
            assert bound.upper[0] == pytest.approx(2 * 3 * 2 / 2, rel=1e-9)


def test_the_token_bound_of_cosine_attention_is_free_of_the_number_of_tokens():
    layer = layer_of("cosine", 0)
    few, many = (
        tt.certify(layer, taut.Everywhere((n, 8)), norm="token", measure=False).bound.upper[0]
        for n in (2, 64)
    )
    assert few == many
    wide = tt.certify(layer, taut.Everywhere((64, 8)), measure=False).bound.upper[0]
    assert wide > 2 * many  # in l2 it grows


def test_certificates_agree_with_those_of_the_layers():
    cosine, l2 = layer_of("cosine", 0), layer_of("l2", 0)
    for n in (1, 5, 32):
        domain = taut.Everywhere((n, 8))
        found = float(tt.certify(cosine, domain, measure=False).bound.upper[0])
        assert found == pytest.approx(float(cosine.lipschitz(n, mask="none").upper), rel=0.1)
        assert tt.certify(l2, domain, measure=False).bound.upper[0] == l2.lipschitz(n).upper


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_those_of_the_layer(kind):
    layer = layer_of(kind, 3)
    x = torch.randn(2, 4, 8, dtype=torch.float64)
    seen = torch.ones(4, 4, dtype=torch.bool).tril()
    certificate = tt.certify(layer, x, mask=seen)
    assert (certificate.measured.lower <= certificate.bound.upper).all()
    hidden = seen.clone()
    hidden[2, 2] = False
    if kind == "l2":  # a token sees itself, whatever a mask says
        found = tt.certify(layer, x, mask=hidden).bound.upper
        assert found == pytest.approx(certificate.bound.upper, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_propagated_bounds_hold_at_every_operation(kind):
    model, x, _ = controlled("encoder layer", kind, seed=4)
    engine, question = engine_of(model, x, 0.05, 2)
    rows = engine.nodes[-1].centre.flatten()[None]
    worst = worst_steps(lambda z: call(model, z, None), x[0], 2, 0.05, rows, steps=6)
    steps = torch.cat((worst, 0.05 * directions(tuple(x.shape[1:]), 2, 9, seed=0)))
    assert 0 < check_every_bound(engine, question, x[0] + steps) <= 1


def test_only_l2_attention_is_propagated_by_its_constant():
    for kind in KINDS:
        model, x, _ = controlled("encoder layer", kind, seed=4)
        found = tt.propagate(model, taut.At(x, 1e-3))
        assert found.constants == (("self_attn",) if kind == "l2" else ())
        assert np.isfinite(found.bound.upper).all()


def test_reparametrised_and_projected_maps_are_certified():
    for name in ("gpt2 base", "encoder layer"):
        model, x, _ = case(name, gain=3.0, batch=1)
        plain = tt.certify(model, x, measure=False).bound.upper[0]
        sigma = SigmaReparametrisation(model).start()
        model.eval()
        divided = tt.certify(model, x, measure=False)
        assert divided.bound.upper[0] == pytest.approx(plain, rel=1e-5)
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if parameter_name.endswith(".gain"):
                    parameter.mul_(0.5)
        assert tt.certify(model, x, measure=False).bound.upper[0] < plain
        Projection(sigma.bake(), limit=0.1).start()
        assert tt.certify(model, x, measure=False).bound.upper[0] < plain


def test_a_reparametrised_model_in_training_mode_is_refused():
    model, x, _ = case("gpt2", batch=1)
    SigmaReparametrisation(model).start()
    with pytest.raises(ValueError, match="eval"):
        tt.certify(model.train(), x)


def test_float32_layers_err_no_more_than_they_say():
    for kind in KINDS:
        layer = layer_of(kind, 5).float()
        x = torch.randn(1, 4, 8)
        error = float(tt.certify(layer, x, measure=False).execution_error[0])
        with torch.no_grad():
            found, exact = layer(x, x, x)[0], layer.double()(*[x.double()] * 3)[0]
        assert 0 < float((found - exact).norm()) <= error < 1


def test_attention_that_draws_at_random_is_refused():
    for make in (CosineAttention, L2Attention, CappedAttention):
        layer = make(8, 2, dropout=0.1, batch_first=True)
        with pytest.raises(ValueError, match=r"module.eval\(\)"):
            tt.certify(layer, torch.randn(1, 3, 8))
