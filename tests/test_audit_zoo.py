"""Every configuration that transformers can build: each head equals what the model gives out.

Each is equal, is listed here because it gives out something else, has no softmax attention, or is
reported as missed. Anything else is a fault of the capture.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from audit_models import attentions  # noqa: E402
from zoo import built, kinds  # noqa: E402

import taut.audit._origins  # noqa: E402
from taut import audit  # noqa: E402
from taut.audit._layout import arranged, heads_of  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300) if False else pytest.mark.slow,
]

# What a model gives out is not the weights of its heads as (sample, head, query, key).
OTHER = {}
NO_ATTENTION = {}


def rows_of(model, inputs):
    """The weights of all softmaxes, arranged, and what was missed."""
    modules, found, missed = dict(model.named_modules()), [], []

    def visit(seen):
        try:
            rows = arranged(seen, watch.sources, heads_of(modules.get(seen.path)))
            found.append(torch.nan_to_num(rows.weights.float()).clone())
        except ValueError as error:
            missed.append((seen.path, str(error)))

    with torch.no_grad(), audit.capture(model, visit) as watch:
        model(**inputs)
    return found, missed + [tuple(each) for each in watch.missed]


def given_out(model, inputs):
    """The weights that a model gives out, if it does."""
    try:
        with torch.no_grad():
            return attentions(model(**inputs, output_attentions=True))
    except Exception:  # it has no such option
        return []


def alike(mine, theirs):
    """Equal on every head, up to the column of a sink."""
    keys = theirs.shape[-1]
    if mine.shape[:-1] != theirs.shape[:-1] or mine.shape[-1] not in (keys, keys + 1):
        return False
    return torch.allclose(mine[..., :keys], torch.nan_to_num(theirs.float()), atol=1e-5)


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_configuration(kind, monkeypatch):
    monkeypatch.setattr(taut.audit._origins, "STRICT", True)
    try:
        model, inputs = built(kind)
    except ValueError as error:
        pytest.skip(f"{kind} cannot be built small: {error}")
    torch.manual_seed(1)
    found, missed = rows_of(model, inputs)
    torch.manual_seed(1)
    wanted = given_out(model, inputs)
    if kind in NO_ATTENTION:
        assert not found and not missed
    elif kind not in OTHER:
        for weights in wanted:
            match = [i for i, rows in enumerate(found) if alike(rows, weights)]
            assert match or missed, tuple(weights.shape)
            if match:
                found.pop(match[0])
        assert wanted or found or missed, "nothing was seen"
