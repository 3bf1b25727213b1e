"""What the files of architectures say is true of the models themselves."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch import nn  # noqa: E402

from taut import models  # noqa: E402
from taut.models.architectures import usual_names  # noqa: E402
from taut.models.architectures.found_maps import attention_maps, feed_forward_maps  # noqa: E402
from tests.helpers.architectures import names, small, tiny  # noqa: E402


def described(family):
    return [*family.attention, *family.feed_forward, *family.layers, *family.rms_norms]


def test_every_class_that_is_described_exists():
    for family in models.ARCHITECTURES:
        for description in described(family):
            for name in description.classes:
                module, _, kind = name.rpartition(".")
                assert issubclass(getattr(importlib.import_module(module), kind), nn.Module), name


def test_every_description_is_that_of_some_tested_model():
    tested = set()
    for name in names("certify"):
        for module in small(name).modules():
            tested |= {f"{kind.__module__}.{kind.__qualname__}" for kind in type(module).__mro__}
    for family in models.ARCHITECTURES:
        for description in described(family):
            if getattr(description, "always_cross", False):
                continue  # BERT as a decoder has no rule
            assert tested & set(description.classes), description


@pytest.mark.parametrize("name", names("certify"))
def test_every_name_in_a_description_leads_somewhere(name):
    model = small(name)
    modules = dict(model.named_modules())
    seen = 0
    for path, module in modules.items():
        description = models.described_attention(module)
        if description is None or "Attention" not in type(module).__name__:
            continue
        seen += 1
        found = models.find_attention(module, modules.get(path.rpartition(".")[0]))
        assert {"query", "key", "value", "output"} == set(found.maps)
        assert found.heads == models.number_of_heads(module)
        assert found.maps["key"].weight.shape[0] % found.key_heads == 0
        assert found.scale > 0
        for dropout in description.dropouts:
            assert isinstance(models.at_path(module, dropout), float), dropout
    assert seen


@pytest.mark.parametrize("name", ["gpt2", "bert", "roberta", "vit", "dinov2", "bart"])
def test_maps_heads_and_scale_give_the_scores_of_the_model(name):
    """Nothing rotates queries and keys here, and nothing but masks is added to their products."""
    model, inputs = tiny(name)
    modules = dict(model.named_modules())
    hidden, compared = {}, []

    def note(path):
        return lambda module, args, kwargs: hidden.update({path: (*args, *kwargs.values())[0]})

    def visit(seen):
        module = modules[seen.path]
        if models.is_cross_attention(module, seen.path):
            return
        found = models.find_attention(module, modules[seen.path.rpartition(".")[0]])
        query, key = (
            nn.functional.linear(hidden[seen.path], found.maps[role].weight, found.maps[role].bias)
            .unflatten(-1, (found.heads, -1))
            .transpose(1, 2)
            for role in ("query", "key")
        )
        visible = seen.scores > models.HIDDEN
        scores = found.scale * query @ key.mT
        assert torch.allclose(scores[visible], seen.scores[visible], atol=1e-5)
        compared.append(seen.path)

    for path, module in modules.items():
        if models.described_attention(module) is not None:
            module.register_forward_pre_hook(note(path), with_kwargs=True)
    with torch.no_grad(), models.capture(model, visit):
        model(**inputs)
    assert len(compared) in (2, 4)


@pytest.mark.parametrize("name", names("certify"))
def test_usual_names_find_what_descriptions_say(name):
    """A model of classes that nobody describes is found all the same, if it has their names."""
    model = small(name)
    modules = dict(model.named_modules())

    def same(first, second):
        assert set(first.maps) == set(second.maps)
        for role, mine in first.maps.items():
            theirs = second.maps[role]
            assert mine.kept_weight is theirs.kept_weight
            assert (mine.rows, mine.transposed) == (theirs.rows, theirs.transposed)

    for path, module in modules.items():
        parent = modules.get(path.rpartition(".")[0])
        mine = models.find_attention(module, parent)
        theirs = [attention_maps(each, module, parent) for each in usual_names.ATTENTION]
        usual = next((each for each in theirs if each is not None), None)
        assert (mine is None) == (usual is None)
        if mine is not None:
            same(mine, usual)
        mine = models.find_feed_forward(module)
        theirs = [feed_forward_maps(each, module) for each in usual_names.FEED_FORWARD]
        usual = next((each for each in theirs if each is not None), None)
        assert (mine is None) == (usual is None)
        if mine is not None:
            same(mine, usual)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_fused_map_of_unknown_order_is_one():
    """DeBERTa's queries, keys and values are interleaved by heads, BLOOM's too."""
    model, _ = tiny("bloom")
    blocks = [b for b in models.find_blocks(model) if b.kind == "attention"]
    assert all(set(block.weights) == {"query-key-value", "output"} for block in blocks)
    model, _ = tiny("deberta")
    sigma = models.projection_norms(dict(model.named_modules()), "encoder.layer.0.attention.self")
    whole = model.get_submodule("encoder.layer.0.attention.self.in_proj").weight.detach()
    assert sigma["in_proj"] == pytest.approx(float(torch.linalg.matrix_norm(whole, 2)), rel=1e-5)
    assert not {"query", "key", "value"} & set(sigma)


def test_what_has_other_names_is_not_taken_for_attention():
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.asks, self.answers = nn.Linear(4, 4), nn.Linear(4, 4)

    assert models.find_attention(Other()) is None
    with pytest.raises(TypeError, match="Other has no known maps"):
        models.find_projections(Other())
