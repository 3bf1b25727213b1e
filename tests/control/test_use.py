"""Constraints as people use them: in the wrong order, on other models, with something forgotten."""

from __future__ import annotations

import copy
import io
import math

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import audit, control  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def gpt2():
    model, inputs = tiny("gpt2")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train(), inputs


def step(model, inputs, optimizer, penalty=0.0):
    (model(**inputs)[0].square().mean() + penalty).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_certificate_ends_with_its_layer():
    model, _ = gpt2()
    (first, *_) = control.swap_attention(model, "cosine")
    assert first.lipschitz(8).kind == "upper"
    with pytest.raises(ValueError, match="taut-cosine already"):
        control.SoftCap(model, limit=5.0)
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="no longer the swapped one"):
        first.lipschitz(8)
    control.SoftCap(model, limit=5.0).start()
    with pytest.raises(ValueError, match="this model has a soft cap"):
        control.swap_attention(model, "cosine")


@pytest.mark.parametrize("kind", ["cosine", "l2", "cap"])
def test_own_attention_can_be_watched_and_audited(kind):
    """The scores are those of the new map, whose softmax is an ordinary one."""
    model, inputs = gpt2()
    ids = inputs["input_ids"]
    if kind == "cap":
        control.SoftCap(model, limit=0.01).start()
    else:
        control.swap_attention(model, kind)
    before = model.eval()(input_ids=ids, use_cache=False)[0]
    record = audit.run(model, [{"input_ids": ids, "use_cache": False}])
    assert len(record.heads) == 2 * model.config.n_head
    assert not record.missed
    if kind == "cap":
        assert max(head["range"] for head in record.heads) <= 0.02
    assert torch.equal(model(input_ids=ids, use_cache=False)[0], before)
    monitor = control.Monitor(model.train(), every=1)
    model(input_ids=ids, use_cache=False)
    monitor.step()
    assert monitor.history


def test_penalties_that_are_attached_do_not_count_twice():
    model, inputs = gpt2()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    constraint = control.Orthogonality(model, "VAR-III", strength=1.0, before_step=True)
    with pytest.raises(ValueError, match="needs the optimiser"):
        constraint.start()
    constraint.start(optimizer)
    model(**inputs)
    assert constraint.penalty().item() == pytest.approx(constraint.values()["AM"])
    assert constraint.has_penalty
    assert not control.Orthogonality(model, ["LA", "LF"], before_step=True).has_penalty


def test_frozen_weights_get_no_gradient():
    model, inputs = gpt2()
    model.transformer.h[0].requires_grad_(False)
    frozen = copy.deepcopy(model.transformer.h[0].state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    control.Orthogonality(model, ["LA", "LF"], strength=1.0, before_step=True).start(optimizer)
    before = model.transformer.h[1].mlp.c_fc.weight.clone()
    step(model, inputs, optimizer)
    assert all(map(torch.equal, frozen.values(), model.transformer.h[0].state_dict().values()))
    assert not torch.equal(before, model.transformer.h[1].mlp.c_fc.weight)


@pytest.mark.parametrize("make", ["penalty", "cap", "clip"])
def test_baking_ends_what_was_attached(make):
    model, inputs = gpt2()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = {
        "penalty": lambda: control.Orthogonality(
            model, ["LA", "LF"], strength=1.0, before_step=True
        ),
        "cap": lambda: control.Projection(model, limit=0.01),
        "clip": lambda: control.QKClip(model, limit=1e-6),
    }[make]()
    made.start(optimizer)
    assert made.bake() is model
    torch.manual_seed(0)
    other = copy.deepcopy(model)
    step(model, inputs, optimizer)
    step(other, inputs, torch.optim.SGD(other.parameters(), lr=0.1))
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))


def test_a_cap_holds_from_the_moment_it_is_attached():
    model, _ = gpt2()
    cap = control.Projection(model, limit=0.01, roles="query")
    cap.start(torch.optim.SGD(model.parameters(), lr=0.1))
    assert all(row.holds for row in cap.verify())
    assert "at most 0.01" in str(cap)
    assert "c_attn" in str(cap)


def test_an_optimiser_of_another_model_is_refused():
    model, other = gpt2()[0], gpt2()[0]
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    penalty = control.Orthogonality(model, "LF", before_step=True)
    for made in (penalty, control.Projection(model, limit=1.0)):
        with pytest.raises(ValueError, match="holds none of the constrained weights"):
            made.start(optimizer)


def test_parametrised_weights_are_refused_or_left_out():
    model, _ = gpt2()
    control.SigmaReparametrisation(model, only="transformer.h.0*").start()
    with pytest.raises(ValueError, match="parametrised"):
        control.Orthogonality(model, "LF")
    assert len(control.find_blocks(model, "transformer.h.1*")) == 2


def test_several_patterns_and_compiled_models():
    model, _ = gpt2()
    assert len(control.find_blocks(model, ["*.h.0.attn", "*.h.1.mlp"])) == 2
    compiled = torch.compile(model, backend="eager")
    assert len(control.find_blocks(compiled, "transformer.h.0*")) == 2
    with pytest.raises(ValueError, match="none was found in what only="):
        control.Orthogonality(model, "VAR-III", only="*.attn")


def test_heads_that_share_their_keys_in_one_matrix():
    config = transformers.GPTBigCodeConfig(
        vocab_size=50, n_positions=16, n_embd=32, n_layer=1, n_head=4, multi_query=True
    )
    torch.manual_seed(0)
    model = transformers.GPTBigCodeForCausalLM(config)
    (block,) = (b for b in control.find_blocks(model) if b.kind == "attention")
    assert list(block.weights) == ["query-key-value", "output"]
    assert block.weights["query-key-value"].matrix().shape == (48, 32)


@pytest.mark.parametrize(
    ("inner", "out"), [("qkv_proj", "o_proj"), ("Wqkv", "Wo"), ("qkv", "proj")]
)
def test_other_names_of_fused_maps(inner, out):
    module = nn.Module()
    setattr(module, inner, nn.Linear(4, 12))
    setattr(module, out, nn.Linear(4, 4))
    (block,) = control.find_blocks(nn.ModuleDict({"attn": module}))
    assert list(block.weights) == ["query-key-value", "output"]


def test_a_clip_that_saw_nothing_says_so():
    model, inputs = gpt2()
    clip = control.QKClip(model, limit=1e-3).start()
    with pytest.raises(RuntimeError, match="no attention was seen"):
        clip.verify()
    model(**inputs)
    assert not all(row.holds for row in clip.verify())
    assert "0.001" in str(clip)
    clip.after_step()
    with pytest.raises(RuntimeError, match="no attention was seen"):
        clip.verify()


def test_a_test_pass_in_between_changes_nothing():
    model, inputs = gpt2()
    constraint = control.Orthogonality(model, "AM", strength=1.0).start()
    assert math.isnan(constraint.values()["AM"])
    model(**inputs)
    found = constraint.penalty().item()
    with torch.no_grad():
        model(input_ids=inputs["input_ids"][:, :2])
    assert constraint.penalty().item() == found


def test_copies_and_files_of_a_constrained_model():
    """An average of the weights that is run beside must not disturb the penalty of the model."""
    model, inputs = gpt2()
    constraint = control.Orthogonality(model, "AM", strength=1.0).start()
    model(**inputs)
    found = constraint.penalty().item()
    other = copy.deepcopy(model)
    other(**inputs)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    torch.load(file, weights_only=False)(**inputs)
    assert constraint.penalty().item() == found


def test_blocks_by_hand_are_checked():
    model, _ = gpt2()
    mlp = model.transformer.h[0].mlp
    weight = control.Weight("transformer.h.0.mlp.c_fc.weight", mlp.c_fc.weight, transposed=True)
    block = control.Block("transformer.h.0.mlp", "feed-forward", {"first": weight})
    foreign = weight._replace(parameter=nn.Parameter(torch.ones(2, 2)))
    constraint = control.Orthogonality(model, "LF", blocks=[block]).start()
    assert constraint.blocks == [block]
    for wrong, match in (
        (block._replace(path="nope"), "no module 'nope'"),
        (block._replace(kind="other"), "kind must be"),
        (block._replace(weights={"Q": weight}), "roles are some of"),
        (block._replace(weights={"first": mlp.c_fc.weight}), "taut.control.Weight"),
        (block._replace(weights={"first": weight._replace(rows=(0, 9999))}), "rows"),
        (block._replace(weights={"first": foreign}), "not a parameter of this model"),
    ):
        with pytest.raises((ValueError, TypeError), match=match):
            control.Orthogonality(model, "LF", blocks=[wrong])
    with pytest.raises(ValueError, match="not both"):
        control.Orthogonality(model, "LF", blocks=[block], only="*")
