"""The row with the largest constant of each head: its keys, words and pictures are the model's."""

from __future__ import annotations

import base64
import math
from itertools import permutations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from taut import audit  # noqa: E402
from taut.audit.statistics.profile import GROUPS, Profile, group_name  # noqa: E402
from taut.audit.statistics.worst_row import BESIDE, HEAVIEST, LIGHTEST, WorstRow, worst_row  # noqa: E402
from taut.audit.thumbnails import checked_pictures, thumbnail  # noqa: E402
from taut.models import Samples, embedded_models  # noqa: E402

transformers = pytest.importorskip("transformers")
TEXTS = [
    "O Romeo, Romeo! wherefore art thou Romeo?",
    "What's in a name? that which we call a rose",
    "By any other name would smell as sweet;",
    "So Romeo would, were he not Romeo call'd.",
]


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def test_a_row_keeps_the_heaviest_keys_and_those_beside_them():
    draw = np.random.default_rng(0)
    scores = draw.normal(size=200) * 3
    scores[120:] = -math.inf  # later keys are masked
    row = worst_row(scores, range(200), 100, text=True)
    weights, first, second = softmax(scores), *np.argsort(-scores)[:2]
    assert row.seen == 120
    assert row.leading == (first, second)
    assert row.scores == (scores[first], scores[second])
    near = {k for c in (first, second, 100) for k in range(c - BESIDE, c + BESIDE + 1)}
    heavy = {int(k) for k in np.argsort(-scores)[:HEAVIEST] if weights[k] >= LIGHTEST}
    assert set(row.keys) == heavy | {k for k in near if 0 <= k < 120}
    plain = worst_row(scores, range(200), 100)
    assert set(plain.keys) == {*np.argsort(-scores)[:HEAVIEST]}
    assert list(row.keys) == sorted(row.keys)
    assert np.allclose(row.weights, weights[list(row.keys)], atol=5e-7)
    count, rest = row.others
    assert count + len(row.keys) == 120
    assert sum(row.weights) + rest == pytest.approx(1)
    assert WorstRow.from_dict(row.to_dict()) == row


def test_of_equal_keys_the_first_leads_and_one_key_alone_has_no_rival():
    row = worst_row(np.array([1.0, 2.0, 2.0]), [0, 1, 2], 2)
    assert (row.leading, row.gap, row.flip) == ((1, 2), 0.0, 0.0)
    alone = worst_row(np.array([1.0, -math.inf]), [0, 1], 0, text=True)
    assert (alone.seen, alone.leading, alone.gap) == (1, (0,), math.inf)
    assert WorstRow.from_dict(alone.to_dict()) == alone


def test_no_smaller_change_of_the_scores_makes_the_leading_keys_equal():
    """The stated change makes a tie; none of many changes that are 1 % shorter does."""
    draw = np.random.default_rng(1)
    for _ in range(50):
        scores = draw.normal(size=6)
        row = worst_row(scores, range(6), 5)
        first, second = row.leading
        moved = scores.copy()
        moved[first] -= row.gap / 2
        moved[second] += row.gap / 2
        assert np.linalg.norm(moved - scores) == pytest.approx(row.flip)
        assert moved[first] == pytest.approx(moved[second])
        assert moved.max() == pytest.approx(moved[first])
        tries = draw.normal(size=(2000, 6))
        tries[:500] = 0
        tries[:500, first], tries[:500, second] = -1, draw.uniform(0, 3, 500)
        tries *= 0.99 * row.flip / np.linalg.norm(tries, axis=1, keepdims=True)
        after = scores + tries
        assert (after[:, first] > np.delete(after, first, axis=1).max(axis=1)).all()


@pytest.mark.parametrize(
    "change",
    [{"seen": 0}, {"keys": [2, 1]}, {"keys": [1]}, {"weights": [0.5, 2.0]}, {"tokens": ["a"]},
     {"leading": [1, 7]}, {"scores": [1.0, 2.0]}, {"scores": [None, 1.0]}, {"place": -2},
     {"tokens": [1, 2]}, {"leading": [1]}],
)  # fmt: skip
def test_nonsense_in_a_file_is_refused(change):
    good = worst_row(np.array([-math.inf, 2.0, 1.0]), [0, 1, 2], 2).to_dict()
    assert WorstRow.from_dict(good).seen == 2
    with pytest.raises(ValueError, match=r"worst row|text|counts"):
        WorstRow.from_dict(good | change)


def test_the_rows_of_an_audit_are_those_of_the_model():
    """Keys, weights and words against the weights that the model itself gives out."""
    place = str(embedded_models()["embedded-plain"])
    record = audit.run(
        place, Samples("text", TEXTS, "made up"), epsilons=(), batch_size=3, dtype="float32"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        place, attn_implementation="eager", dtype=torch.float32
    )
    for number, layer in enumerate(record.layers):
        for h, row in enumerate(layer.state.worst):
            sample, query = layer.state.places["two"][h]
            ids = tokenizer(TEXTS[sample], return_tensors="pt")
            with torch.no_grad():
                weights = model(**ids, output_attentions=True).attentions[number][0, h, query]
            assert row.place == query
            assert row.seen == query + 1
            assert np.allclose(row.weights, weights[list(row.keys)].numpy(), atol=1e-5)
            assert weights[row.leading[0]] >= weights.max() - 1e-6
            assert row.places == row.keys
            whole = tokenizer.decode(ids["input_ids"][0])
            assert "".join(row.tokens) in whole or len(row.keys) < row.seen
    words = {record.tokens[f"{layer.name}/0"] for layer in record.layers}
    assert any(word.startswith(" ") or word.isalpha() for word in words)
    assert not any("Ġ" in word for word in words)


def test_merging_in_any_order_keeps_the_same_rows_and_profiles():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    batches = [torch.randn(2, 9, 8) for _ in range(4)]
    batches[2] = batches[0].clone()  # rows that are as large: the first sample wins
    whole = audit.run(layer, batches).to_json()
    parts = [audit.run(layer, batches, shard=(i, 4)) for i in (1, 2, 3, 4)]
    assert all(part.layers[0].many.worst[0] is not None for part in parts)
    for order in permutations(parts):
        merged = audit.merge(order)
        merged.data = {}
        merged.identity.pop("reader")
        assert merged.layers[0].to_dict() == audit.merge(parts).layers[0].to_dict()
    assert audit.merge(parts).layers[0].many.worst == audit.run(layer, batches).layers[0].many.worst
    assert '"worst":[{' in whole


def test_profiles_hold_every_row_once():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    mask = torch.nn.Transformer.generate_square_subsequent_mask(20)
    record = audit.run(layer, [{"src": torch.randn(3, 20, 8), "src_mask": mask}])
    (found,) = record.layers
    keys, queries = found.many.profiles["keys"], found.many.profiles["queries"]
    assert keys.counts[0].tolist() == [0] * 4 + [24, 15] + [0] * 14  # 8 to 15, and 16 to 20 keys
    assert (queries.counts == keys.counts).all()  # causal: query 8 sees 8 keys
    assert found.few.profiles["keys"].counts[0].tolist() == [0, 3, 6, 12] + [0] * 16
    for state in (found.many, found.few):
        for profile in state.profiles.values():
            assert np.allclose(profile.sums.sum(axis=1), state.sums["two"], rtol=1e-12)
    assert [group_name(g) for g in (0, 1, 2, 4, GROUPS - 1)] == [
        "0",
        "1",
        "2–3",
        "8–15",
        "262,144…",
    ]
    other = Profile.from_dict(keys.to_dict(), 2)
    assert (other.means[:, 4] == keys.means[:, 4]).all()
    with pytest.raises(ValueError, match="profile"):
        Profile.from_dict(keys.to_dict() | {"counts": [[1]]}, 2)


def test_images_keep_their_patches_and_a_small_picture():
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=16, patch_size=4,
    )  # fmt: skip
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    images = [{"pixel_values": torch.rand(2, 3, 16, 16)} for _ in range(2)]
    record = audit.run(model, images, epsilons=())
    (layer,) = record.layers
    for h, row in enumerate(layer.state.worst):
        sample, query = layer.state.places["two"][h]
        assert row.seen == 17
        assert row.places == tuple(key - 1 for key in row.keys)  # the class token has no place
        assert row.place == query - 1
        assert str(sample) in record.pictures
    assert set(record.pictures) == {str(s) for s, _ in layer.state.places["two"].tolist()}
    assert base64.b64decode(record.pictures[str(sample)]).startswith(b"\x89PNG")
    parts = [audit.run(model, images, epsilons=(), shard=(i, 2)) for i in (1, 2)]
    assert audit.merge(reversed(parts)).pictures == record.pictures


def test_pictures_are_small_and_of_any_shape():
    pillow = pytest.importorskip("PIL.Image")
    import io

    for shape in ((3, 500, 100), (1, 9, 7), (3, 1, 1)):
        image = torch.linspace(-2, 2, math.prod(shape)).reshape(shape)
        read = pillow.open(io.BytesIO(base64.b64decode(thumbnail(image))))
        assert max(read.size) <= 56
        assert read.size[0] / read.size[1] == pytest.approx(shape[2] / shape[1], rel=0.1)
        lightest = max(high for _, high in read.getextrema())
        assert lightest == 255 or math.prod(shape) == 3
    assert thumbnail(torch.full((3, 4, 4), math.nan)) == ""
    assert thumbnail(torch.rand(4, 4, 4)) == ""
    for bad in ({"0": "<script>"}, {"x": ""}, {"0": "A" * 200_000}, {"0": 3}):
        with pytest.raises(ValueError, match=r"picture|text"):
            checked_pictures(bad)
