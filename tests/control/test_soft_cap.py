"""A smooth limit on scores, in models of torch.nn and of transformers."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import control  # noqa: E402
from taut.control import CappedAttention, SoftCap  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn
FAMILIES = ["gpt2", "bert", "llama", "qwen2", "qwen3", "vit", "t5", "marian", "bart", "opt"]


def no_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def loud(name):
    """A tiny model whose scores are far from small."""
    model, inputs = tiny(name)
    model = model.double()
    inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return no_dropout(model).eval(), inputs


def direct(q, k, v, limit, hidden=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = limit * torch.tanh(scores / limit)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(dim=-1) @ v


@pytest.mark.parametrize("name", FAMILIES)
def test_models_of_transformers(name):
    """A limit far away changes nothing; one that is near holds, and weights stay what they are."""
    model, inputs = loud(name)
    model.set_attn_implementation("eager")
    before = model(**inputs)[0].detach()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    far = SoftCap(model, limit=1e6).start()
    assert torch.allclose(
        model(**inputs)[0], before, rtol=1e-4, atol=1e-5
    )  # some in float32 inside
    assert far.bake() is model
    rows = far.measure(**inputs)
    assert rows
    largest = max(row.largest for row in rows)
    assert largest > 0.5  # or the next lines would show nothing
    near = SoftCap(model, limit=largest / 4).start()
    after = model(**inputs)[0]
    assert not torch.allclose(after, before, rtol=1e-3)
    assert not all(row.holds for row in SoftCap(model, limit=largest / 8).verify())
    built = near.verify()
    assert all(row.holds and row.largest == near.limit for row in built)
    names = [f"{row.name}." for row in built]  # some are measured in a module around them
    assert all(any(name.startswith(f"{row.name}.") for name in names) for row in rows)
    found = near.measure(**inputs)
    assert len(found) == len(rows)
    assert all(row.holds and row.largest <= largest / 4 for row in found)
    assert max(row.largest for row in found) > largest / 8
    assert float(near.penalty()) == 0
    assert not near.has_penalty
    now = model.state_dict()
    assert list(now) == list(state)
    assert all(torch.equal(now[key], state[key]) for key in now)


def test_the_formula():
    torch.manual_seed(0)
    layer = CappedAttention(8, 2, batch_first=True, limit=0.7, bias=False, dtype=torch.float64)
    x = 3 * torch.randn(2, 5, 8, dtype=torch.float64)
    wq, wk, wv = layer.in_proj_weight.chunk(3)
    q, k, v = ((x @ w.mT).unflatten(-1, (2, 4)).transpose(1, 2) for w in (wq, wk, wv))
    hidden = torch.ones(5, 5).triu(1).bool()
    for mask in (None, hidden):
        joined = direct(q, k, v, 0.7, mask).transpose(1, 2).flatten(2)
        found, weights = layer(x, x, x, attn_mask=mask)
        torch.testing.assert_close(found, joined @ layer.out_proj.weight.mT)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5, dtype=torch.float64))
    assert torch.autograd.gradcheck(
        lambda u: layer(u, u, u, attn_mask=hidden)[0], x.requires_grad_()
    )


def test_parameters_are_shared_and_the_optimiser_stays():
    """One made before the limit trains the model after it."""
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2
    )
    model.layers[1].self_attn.in_proj_weight.requires_grad_(False)
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cap = SoftCap(model, limit=2.0).start()
    now = dict(model.named_parameters())
    assert list(now) == list(parameters)
    assert all(now[name] is parameters[name] for name in now)
    before = parameters["layers.0.self_attn.in_proj_weight"].clone()
    model(torch.randn(3, 4, 8)).square().mean().backward()
    optimizer.step()
    assert not torch.equal(before, now["layers.0.self_attn.in_proj_weight"])
    model.eval()
    with torch.no_grad():  # nor is torch's own kernel for a whole layer taken
        assert all(row.holds for row in cap.measure(100 * torch.randn(3, 4, 8)))
    SoftCap(model, limit=1.0).start()
    assert {m.limit for m in model.modules() if isinstance(m, CappedAttention)} == {1.0}
    other = copy.deepcopy(model)
    again = SoftCap(other, limit=1.0).start()
    assert all(row.holds for row in again.measure(50 * torch.randn(3, 4, 8)))
    for row in again.verify():
        (proof,) = row.certificates
        assert (proof.upper, proof.quantity, proof.kind) == (1.0, "largest score", "upper")
        assert row.holds
    assert [b.kind for b in control.find_blocks(model)].count("attention") == 2


def test_saved_models_come_back(tmp_path):
    model, inputs = loud("gpt2")
    SoftCap(model, limit=1.5).start().bake().save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, dtype=torch.float64).eval()
    cap = SoftCap(again).start()
    assert cap.limit == 1.5
    assert torch.equal(again(**inputs)[0], model(**inputs)[0])


@pytest.mark.filterwarnings("ignore")  # of compiled models
def test_caches_and_training():
    model, inputs = loud("gpt2")
    SoftCap(model, limit=1.0).start()
    ids = inputs["input_ids"][:, :6]
    whole = model(input_ids=ids)[0]
    first = model(input_ids=ids[:, :4], use_cache=True)
    rest = model(input_ids=ids[:, 4:], past_key_values=first.past_key_values)[0]
    torch.testing.assert_close(rest, whole[:, 4:], rtol=1e-4, atol=1e-5)
    model.train()
    compiled = torch.compile(model, backend="eager")
    loss = compiled(input_ids=ids, labels=ids).loss
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_half_precision_holds():
    layer = CappedAttention(8, 2, batch_first=True, limit=0.3, dtype=torch.float64)
    holder = nn.ModuleDict({"a": layer})
    holder.forward = lambda x: layer(x, x, x)[0]
    layer.bfloat16()
    x = (30 * torch.randn(2, 5, 8)).bfloat16()
    assert all(row.holds for row in SoftCap(holder, limit=0.3).start().measure(x))


def test_a_cap_that_is_not_there_is_noticed():
    model, inputs = loud("gpt2")
    cap = SoftCap(model, limit=0.01)
    assert not any(row.holds for row in [*cap.verify(), *cap.measure(**inputs)])
    cap.start()
    assert all(row.holds for row in [*cap.verify(), *cap.measure(**inputs)])
    model.set_attn_implementation("sdpa")
    assert not any(row.holds for row in [*cap.verify(), *cap.measure(**inputs)])
    cap.start()
    assert all(row.holds for row in [*cap.verify(), *cap.measure(**inputs)])
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight.fill_(float("nan"))
    assert not any(row.holds for row in cap.measure(**inputs))


def test_what_cannot_be_capped():
    with pytest.raises(ValueError, match="no attention to cap"):
        SoftCap(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="limit"):
        SoftCap(nn.Linear(2, 2), limit=-1.0)
    with pytest.raises(TypeError, match="Module"):
        SoftCap("gpt2")
    with pytest.raises(ValueError, match="pass the module that holds it"):
        SoftCap(nn.MultiheadAttention(4, 2)).start()
    with pytest.raises(ValueError, match="by itself"):
        SoftCap(tiny("bloom")[0])
    with pytest.raises(ValueError, match="caps its scores itself"):
        SoftCap(tiny("gemma2")[0])
    assert tiny("gemma2")[0].config._attn_implementation != "taut-soft-cap"


@pytest.mark.parametrize("make", ["cosine", "l2", "capped"])
def test_constraints_find_the_new_layers(make):
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    if make == "capped":
        SoftCap(model, limit=1.0).start()
    else:
        control.swap_attention(model, make)
    roles = [list(b.weights) for b in control.find_blocks(model) if b.kind == "attention"]
    assert roles == [
        ["query", "value", "output"] if make == "l2" else ["query", "key", "value", "output"]
    ]
    constraint = control.Orthogonality(model, "VAR-III", strength=1.0).start()
    model(torch.randn(2, 5, 8))
    assert constraint.values()["AM"] > 0
    constraint.penalty().backward()
    assert model.self_attn.in_proj_weight.grad.abs().sum() > 0
    assert all(row.holds for row in control.Projection(model, limit=0.2).start().verify())
