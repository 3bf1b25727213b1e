"""No attention is missed without a word, and nothing else is taken for attention."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import taut  # noqa: E402
from taut import audit  # noqa: E402

nn = torch.nn
B, N, D = 2, 6, 8


class Module(nn.Module):
    """Linear maps, and a function of this module and its input."""

    def __init__(self, inner):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))
        self.score, self.bins, self.out = nn.Linear(D, 1), nn.Linear(D, 5), nn.Linear(N, D)
        self.router = nn.Linear(D, 3)
        self.experts = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.register_buffer("depths", torch.arange(5.0))
        self.inner = inner

    def forward(self, x):
        return self.inner(self, x)

    def scores(self, x):
        return self.q(x) @ self.k(x).mT * 3


def summed(m, x):
    return (torch.softmax(m.scores(x), dim=-1)[..., None] * m.v(x)[:, None]).sum(dim=2)


def pooled(m, x):
    return (torch.softmax(m.score(x), dim=1) * m.v(x)).sum(dim=1)


def pooled_by_einsum(m, x):
    return torch.einsum("bn,bnd->bd", torch.softmax(m.score(x)[..., 0], dim=-1), m.v(x))


def into_a_linear_map(m, x):
    return m.out(torch.softmax(m.scores(x), dim=-1))


def logarithms(m, x):
    logs = torch.log_softmax(m.scores(x), dim=-1)
    return (logs + 0.0 * logs.mean()).exp() @ m.v(x)


def two_logarithms(m, x):
    one, two = (torch.log_softmax(s * m.scores(x), dim=-1) for s in (1.0, -1.0))
    return one.exp() @ m.v(x) + two.exp() @ m.v(x)


def minus_logsumexp(m, x):
    scores = m.scores(x)
    return (scores - torch.logsumexp(scores, dim=-1, keepdim=True)).exp() @ m.v(x)


def exponentials(m, x):
    scores = m.scores(x)
    raised = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return (raised / raised.sum(dim=-1, keepdim=True)) @ m.v(x)


def exponentials_in_place(m, x):
    raised = m.scores(x)
    raised.exp_()
    raised /= raised.sum(dim=-1, keepdim=True)
    return raised @ m.v(x)


SEEN = [
    summed, pooled, pooled_by_einsum, into_a_linear_map, logarithms, two_logarithms,
    minus_logsumexp, exponentials, exponentials_in_place,
]  # fmt: skip


@pytest.mark.parametrize("inner", SEEN, ids=lambda inner: inner.__name__)
def test_seen(inner):
    model, x = Module(inner), torch.randn(B, N, D)
    record = audit.run(model, [x])
    assert not record.missed
    assert len(record.layers) == (2 if inner is two_logarithms else 1)
    scores = model.score(x)[..., 0][:, None] if "pooled" in inner.__name__ else model.scores(x)
    wanted = taut.local_lipschitz(scores.detach(), 2).value
    assert record.heads[0]["rows"] == wanted.numel()
    assert record.heads[0]["largest"] == pytest.approx(float(wanted.max()), rel=1e-5)
    assert record.heads[0]["mean"] == pytest.approx(float(wanted.mean()), rel=1e-5)


def quiet_softmax(m, x):
    raised = m.scores(x).exp()
    return (raised / (1 + raised.sum(dim=-1, keepdim=True))) @ m.v(x)


def sparse(m, x):
    scores = m.scores(x)[0].to_sparse()
    return torch.sparse.mm(torch.sparse.softmax(scores, dim=1), m.v(x)[0])


def sorted_weights(m, x):
    weights = torch.softmax(m.scores(x), dim=-1)
    return torch.cdist(weights, weights)  # an operation that is not followed


@pytest.fixture(scope="module")
def custom():
    @torch.library.custom_op("taut_test::weigh", mutates_args=())
    def weigh(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT, dim=-1) @ v

    return lambda m, x: weigh(m.q(x), m.k(x), m.v(x))


def elsewhere(m, x):
    class Inner(nn.Module):
        def forward(self, y):
            return torch.softmax(m.scores(y), dim=-1) @ m.v(y)

    found = []
    inner = m.part
    thread = threading.Thread(target=lambda: found.append(inner(x)))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("inner", [quiet_softmax, sparse, sorted_weights])
def test_reported_beside_what_is_seen(inner):
    def both(m, x):
        return (torch.softmax(m.scores(x), dim=-1) @ m.v(x)).sum() + inner(m, x).sum()

    record = audit.run(Module(both), [torch.randn(B, N, D)])
    assert len(record.layers) == 1
    assert record.missed


def test_operators_of_others_are_reported(custom):
    record = audit.run(Module(custom), [torch.randn(B, N, D)])
    assert "taut_test" in record.missed[0][1]


def test_other_threads_are_reported():
    class Part(nn.Module):
        def forward(self, x):
            return torch.softmax(x @ x.mT, dim=-1) @ x

    model = Module(elsewhere)
    model.part = Part()
    record = audit.run(model, [torch.randn(B, N, D)])
    assert ("part", "runs in another thread") in record.missed


def matcher(m, x):
    """Which keypoint of one picture is which of another: no values."""
    scores = m.scores(x)
    both = torch.softmax(scores, dim=1) * torch.softmax(scores, dim=2)
    return both.max(dim=2).values


def depth(m, x):
    return torch.softmax(m.bins(x), dim=-1) @ m.depths


def depth_by_einsum(m, x):
    return torch.einsum("bnk,k->bn", torch.softmax(m.bins(x), dim=-1), m.depths)


def router_by_einsum(m, x):
    outputs = torch.stack([expert(x) for expert in m.experts], dim=2)
    return torch.einsum("bne,bned->bnd", torch.softmax(m.router(x), dim=-1), outputs)


def router_by_sum(m, x):
    outputs = torch.stack([expert(x) for expert in m.experts], dim=2)
    return (torch.softmax(m.router(x), dim=-1)[..., None] * outputs).sum(dim=2)


def classifier(m, x):
    return torch.softmax(m.bins(x.mean(dim=1)), dim=-1)


@pytest.mark.parametrize(
    "inner", [matcher, depth, depth_by_einsum, router_by_einsum, router_by_sum, classifier],
    ids=lambda inner: inner.__name__,
)  # fmt: skip
def test_no_false_alarm(inner):
    def both(m, x):
        return (torch.softmax(m.scores(x), dim=-1) @ m.v(x)).sum() + inner(m, x).sum()

    record = audit.run(Module(both), [torch.randn(B, N, D)])
    assert (len(record.layers), record.missed) == (1, [])


def test_scripted_parts_are_refused():
    model = Module(pooled)
    with pytest.warns(DeprecationWarning, match="script"):
        model.part = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="submodule part is scripted"):
        audit.run(model, [torch.randn(B, N, D)])


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_nested_tensors_are_reported():
    class Nested(nn.Module):
        def forward(self, x):
            y = torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged)
            return (
                torch.nn.functional.scaled_dot_product_attention(
                    *(y.unsqueeze(1).transpose(1, 2).transpose(1, 2) for _ in range(3))
                )
                .values()
                .sum()
            )

    record = audit.run(Nested(), [torch.randn(B, N, D)])
    assert record.layers or record.missed


@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
def test_flex_attention_is_reported():
    from torch.nn.attention.flex_attention import flex_attention

    class Flex(nn.Module):
        def forward(self, x):
            return flex_attention(x, x, x)

    record = audit.run(Flex(), [torch.randn(2, 2, 16, 16)])
    assert record.layers or "flex_attention" in record.missed[0][1]


def test_models_that_take_one_dict_of_features():
    """As Sentence Transformers do."""

    class Sentences(nn.Module):
        __module__ = "sentence_transformers.stand_in"

        def __init__(self):
            super().__init__()
            self.words, self.inner = nn.Embedding(9, D), Module(pooled)

        def forward(self, features):
            return {**features, "out": self.inner(self.words(features["input_ids"]))}

    ids = torch.randint(9, (B, N))
    record = audit.run(Sentences(), [{"input_ids": ids, "attention_mask": torch.ones(B, N)}])
    assert [row["rows"] for row in record.heads] == [B]


def test_additive_attention_has_rows_for_every_query():
    class Additive(Module):
        def forward(self, x):
            pairs = torch.tanh(self.q(x)[:, :, None] + self.k(x)[:, None])
            return torch.softmax(self.score(pairs)[..., 0], dim=-1) @ self.v(x)

    record = audit.run(Additive(None), [torch.randn(B, N, D)])
    assert [row["rows"] for row in record.heads] == [B * N]
