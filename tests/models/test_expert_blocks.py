"""Experts of mixtures: every one of them is a block."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import control  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn
WIDTH, INNER, EXPERTS = 8, 12, 3
COMMON = {
    "vocab_size": 20, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "num_experts_per_tok": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
INSIDE = {"num_experts": EXPERTS, "moe_intermediate_size": INNER}
MIXTURES = {
    "Mixtral": {"num_local_experts": EXPERTS},
    "Olmoe": {"num_experts": EXPERTS},
    "Qwen2Moe": {**INSIDE, "shared_expert_intermediate_size": 20},
    "Qwen3Moe": INSIDE,
}
TEXT = torch.tensor([[3, 4, 5, 6, 7]])


def mixture(name, seed=0):
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**COMMON, **MIXTURES[name])
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def found(model, **options):
    return [b for b in control.find_blocks(model, **options) if ".experts." in b.path]


@pytest.mark.parametrize("name", MIXTURES)
def test_the_maps_of_an_expert_are_what_it_computes(name):
    model = mixture(name)
    blocks = found(model)
    assert [b.path for b in blocks] == [
        f"model.layers.{layer}.mlp.experts.{i}" for layer in range(2) for i in range(EXPERTS)
    ]
    x = torch.randn(5, WIDTH)
    for block in blocks:
        place, _, index = block.path.rpartition(".")
        maps = {role: weight.matrix() for role, weight in block.weights.items()}
        assert {role: tuple(m.shape) for role, m in maps.items()} == {
            "gate": (INNER, WIDTH), "first": (INNER, WIDTH), "second": (WIDTH, INNER),
        }  # fmt: skip
        inner = nn.functional.silu(x @ maps["gate"].mT) * (x @ maps["first"].mT)
        chosen = torch.full((5, 1), int(index))
        computed = model.get_submodule(place)(x, chosen, torch.ones(5, 1))
        assert torch.allclose(inner @ maps["second"].mT, computed, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", MIXTURES)
def test_only_experts_and_plain_maps_are_found(name):
    model = mixture(name)
    blocks = control.find_blocks(model)
    parameters = {weight.name for block in blocks for weight in block.weights.values()}
    routers = ("mlp.gate.weight", "shared_expert_gate.weight")
    assert not [each for each in parameters if each.endswith(routers)]
    shared = [block for block in blocks if block.path.endswith("shared_expert")]
    assert len(shared) == (2 if name == "Qwen2Moe" else 0)


@torch.no_grad()
def test_an_expert_is_replaced_alone_and_the_model_notices():
    model = mixture("Mixtral")
    block = found(model)[1]
    whole = block.weights["gate"].parameter
    for role, rows in (("gate", slice(0, INNER)), ("first", slice(INNER, None))):
        kept, before = whole.clone(), model(TEXT).logits
        block.weights[role].replace(torch.randn(INNER, WIDTH))
        changed = whole != kept
        assert changed[1, rows].all()
        assert int(changed.sum()) == INNER * WIDTH
        assert not torch.equal(before, model(TEXT).logits)


@pytest.mark.parametrize(
    ("name", "seed"), [*((name, 0) for name in MIXTURES), ("Mixtral", 1), ("Mixtral", 2)]
)
def test_a_limit_holds_for_every_expert_after_a_step(name, seed):
    model = mixture(name, seed).train()
    with torch.no_grad():
        for block in found(model):
            for weight in block.weights.values():
                weight.replace(weight.matrix() * 20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    projection = control.Projection(model, limit=0.3).start(optimizer)
    model(TEXT, labels=TEXT).loss.backward()
    optimizer.step()
    assert projection.values()["changed"] > 0
    rows = projection.verify()
    assert all(row.holds for row in rows)
    assert sum("experts" in row.name for row in rows) == 2 * EXPERTS * 3
    for layer in model.model.layers:  # read without taut
        stacks = (*layer.mlp.experts.gate_up_proj.chunk(2, dim=1), layer.mlp.experts.down_proj)
        assert all((torch.linalg.matrix_norm(s.double(), 2) <= 0.3).all() for s in stacks)
    with torch.no_grad():
        model.model.layers[1].mlp.experts.down_proj[2] *= 5
    broken = [row.name for row in projection.verify() if not row.holds]
    assert broken == ["model.layers.1.mlp.experts.down_proj[2]"]


def test_orthogonality_reaches_experts_by_the_loss_and_before_a_step():
    gradients = []
    for before_step in (False, True):
        model = mixture("Mixtral")
        constraint = control.Orthogonality(model, "LF", strength=0.1, before_step=before_step)
        if before_step:
            constraint.add_gradients()
        else:
            constraint.start().penalty().backward()
        gradients.append(model.model.layers[0].mlp.experts.gate_up_proj.grad)
    stack = model.model.layers[0].mlp.experts.gate_up_proj.detach().requires_grad_()
    maps = torch.cat(stack.chunk(2, dim=1))
    (0.1 * (maps.mT @ maps - torch.eye(WIDTH)).square().sum()).backward()
    for gradient in gradients:
        assert torch.allclose(gradient, stack.grad, rtol=1e-4, atol=1e-7)


def test_patterns_choose_experts_and_blocks_come_back():
    model = mixture("Qwen2Moe")
    assert len(control.find_blocks(model, only="*.experts.*")) == 2 * EXPERTS
    blocks = control.find_blocks(model, only="model.layers.1.mlp.experts.2")
    assert str(blocks[0].weights["first"]) == "model.layers.1.mlp.experts.gate_up_proj[2, 12:24]"
    projection = control.Projection(model, limit=0.01, blocks=blocks).start()
    assert [row.holds for row in projection.verify()] == [True] * 3


def test_gains_leave_experts_alone():
    model = mixture("Mixtral")
    sigma = control.SigmaReparametrisation(model).start()
    assert sigma.gains()
    assert not [name for name in sigma.gains() if "experts" in name]
    with pytest.raises(ValueError, match="stacks of experts"):
        control.SigmaReparametrisation(mixture("Mixtral"), only="*.experts.*")


def test_experts_in_another_order_are_left_alone():
    """GPT-OSS keeps its maps transposed, with the rows of gate and first map in turns."""
    model, _ = tiny("gpt-oss")
    assert found(model) == []


@pytest.mark.parametrize(
    ("index", "message"), [(None, "pass expert="), (EXPERTS, "no matrix of a stack"), (-1, "stack")]
)
def test_a_weight_that_is_no_matrix_is_refused(index, message):
    model = mixture("Mixtral")
    place = "model.layers.0.mlp.experts"
    weight = control.Weight("down", model.get_submodule(place).down_proj, expert=index)
    path = place if index is None else f"{place}.0"
    block = control.Block(path, "feed-forward", {"second": weight})
    with pytest.raises(ValueError, match=message):
        control.Projection(model, limit=1, blocks=[block])
