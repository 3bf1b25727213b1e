"""What a hostile tester found in how samples, tokens and features are followed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import taut  # noqa: E402
from taut import audit  # noqa: E402

nn = torch.nn
B, N, D, H = 3, 6, 16, 4


class Base(nn.Module):
    """Attention of four heads after whatever makes tokens of the input."""

    def __init__(self, before=lambda m, x: x):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))
        self.words = nn.Embedding(9, D)
        self.wide, self.narrow, self.short = nn.Linear(10, N * D), nn.Linear(4, D), nn.Linear(8, D)
        self.maps = nn.Parameter(torch.randn(N, D, D) / 4)
        self.up = nn.Parameter(torch.randn(H, D // H, 5))
        self.mix = nn.Conv2d(H, H, 1)
        self.before = before

    def attend(self, x):
        q, k, v = (self.split(m(x)) for m in (self.q, self.k, self.v))
        return torch.softmax(q @ k.mT, dim=-1) @ v

    def split(self, t):
        return t.unflatten(-1, (H, -1)).transpose(1, 2)

    def forward(self, x):
        return self.attend(self.before(self, x))


def rows(model, *batch):
    record = audit.run(model, [batch if len(batch) > 1 else batch[0]])
    assert not record.missed
    return [[row["rows"] for row in record.heads[i : i + H]] for i in
            range(0, len(record.heads), H)]  # fmt: skip


INPUTS = {
    "numbers": (lambda m, x: m.wide(x).view(-1, N, D), (B, 10), B * N),
    "grey patches": (
        lambda m, x: m.narrow(x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4).flatten(1, 3)),
        (B, 1, 4, 6), B * 6),
    "waves": (lambda m, x: m.short(x.unfold(1, 8, 4)), (B, 32), B * 7),
    "channels last": (lambda m, x: m.narrow(x).flatten(1, 2), (B, 2, 3, 4), B * 6),
    "series": (lambda m, x: m.narrow(x.mT.unfold(2, 4, 4).flatten(0, 1)), (B, 16, 3), B * 12),
    "a map for each token": (
        lambda m, x: torch.einsum("bnf,nfd->bnd", x, m.maps), (B, N, D), B * N),
}  # fmt: skip


@pytest.mark.parametrize("name", INPUTS)
def test_tokens_may_be_made_of_anything(name):
    before, shape, count = INPUTS[name]
    assert rows(Base(before), torch.randn(shape)) == [[count] * H]


def test_latent_attention_that_was_absorbed():
    class Latent(Base):
        def forward(self, x):
            q, c = self.q(x).unflatten(-1, (H, -1)), self.k(x)[..., :5]
            scores = torch.einsum("bnhd,hdr,bmr->bhnm", q, self.up, c)
            return torch.softmax(scores, dim=-1) @ self.split(self.v(x))

    assert rows(Latent(), torch.randn(B, N, D)) == [[B * N] * H]


def test_softmax_into_its_own_input():
    class Own(Base):
        def forward(self, x):
            scores = self.split(self.q(x)) @ self.split(self.k(x)).mT * 4
            self.kept = scores.clone()
            torch.softmax(scores, -1, out=scores)
            return scores @ self.split(self.v(x))

    model = Own()
    with torch.no_grad():
        record = audit.run(model, [torch.randn(B, N, D)])
    wanted = taut.local_lipschitz(model.kept, 2).value.mean(dim=(0, 2))
    assert [row["mean"] for row in record.heads] == pytest.approx(wanted.tolist(), rel=1e-5)


def test_heads_mixed_by_convolutions():
    class Talking(Base):
        def forward(self, x):
            scores = self.mix(self.split(self.q(x)) @ self.split(self.k(x)).mT)
            return self.mix(torch.softmax(scores, dim=-1)) @ self.split(self.v(x))

    assert rows(Talking(), torch.randn(B, N, D)) == [[B * N] * H]


def mask(lengths, tokens=N):
    return torch.arange(tokens) < torch.tensor(lengths)[:, None]


IDS = torch.randint(9, (2, N))


@pytest.mark.parametrize("kind", ["whole numbers", "truth", "added"])
@pytest.mark.parametrize("name", ["tokens", "input_ids", "hidden"])
def test_masks_speak_of_what_they_are_given_with(name, kind):
    class Masked(Base):
        def forward(self, tokens=None, input_ids=None, hidden=None, attention_mask=None):
            x = self.words(tokens if input_ids is None else input_ids) if hidden is None else hidden
            return self.attend(x)

    real = mask([6, 5])
    made = {"whole numbers": real.long(), "truth": real, "added": (~real) * -1e9}[kind]
    given = {name: torch.randn(2, N, D) if name == "hidden" else IDS, "attention_mask": made}
    assert rows(Masked(), given) == [[11] * H]


def test_two_towers_have_their_own_masks():
    class Two(Base):
        def forward(self, a, b):
            return [self.attend(self.words(t["input_ids"])).sum() for t in (a, b)]

    one = {"input_ids": IDS, "attention_mask": mask([6, 5])}
    two = {"input_ids": IDS.clone(), "attention_mask": mask([2, 2])}
    with torch.no_grad():
        record = audit.run(Two(), [{"a": one, "b": two}])
    assert [row["rows"] for row in record.heads] == [11] * H + [4] * H


def test_a_causal_mask_is_no_padding():
    class Causal(Base):
        def forward(self, x, attention_mask):
            return self.attend(x)

    inputs = {"x": torch.randn(N, N, D), "attention_mask": torch.ones(N, N).tril()}
    assert rows(Causal(), inputs) == [[N * N] * H]


def test_a_model_that_transposes_has_its_samples_first():
    class Transposes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(D, H, 16)

        def forward(self, x):
            return self.layer(x.transpose(0, 1)).transpose(0, 1)

    record = audit.run(Transposes().eval(), [torch.randn(B, N, D)])
    assert record.samples == B
    assert max(row["sample"] for row in record.heads) < B


def test_a_model_that_calls_itself_on_parts():
    class Parts(Base):
        def forward(self, x):
            if len(x) > 1:
                return torch.cat([self(part) for part in x.split(1)])
            return self.attend(x)

    x = torch.randn(B, N, D)
    x[:2] = 0  # all scores are the same there
    record = audit.run(Parts(), [x])
    assert {row["rows"] for row in record.heads} == {B * N}
    found = [row["sample"] for row in record.heads[-H:]]
    assert found == [2] * H


def test_a_cache_that_is_written_by_numbers():
    class Cache(Base):
        def forward(self, x):
            q, k, v = (self.split(m(x)) for m in (self.q, self.k, self.v))
            cache = k.new_zeros(len(x), H, N, D // H)
            cache[:, :, torch.arange(N)] = k
            return torch.softmax(q @ cache.mT, dim=-1) @ v

    assert rows(Cache(), torch.randn(B, N, D)) == [[B * N] * H]


def test_batches_of_every_kind():
    from transformers import BatchEncoding

    class Nested(Base):
        def forward(self, batch=None, input_ids=None, time=None):
            return self.attend(self.words(batch["ids"] if input_ids is None else input_ids))

    assert rows(Nested(), {"batch": {"ids": IDS}}) == [[2 * N] * H]
    assert rows(Nested(), BatchEncoding({"input_ids": IDS})) == [[2 * N] * H]
    record = audit.run(Nested(), [{"time": torch.zeros(1), "input_ids": IDS}])
    assert record.samples == 2


def masked_exponentials(s, v):
    raised = s.exp() * (s > 0)
    return raised / raised.sum(dim=-1, keepdim=True) @ v


def divided_late(s, v):
    raised = s.exp()
    return (raised @ v) / raised.sum(dim=-1, keepdim=True)


def with_a_little_added(s, v):
    raised = s[..., 0].exp()
    return (raised / (raised.sum(dim=-1, keepdim=True) + 1e-8))[..., None] * v


def one_key_after_the_other(s, v):
    weights, out = torch.softmax(s, dim=-1), 0
    for key in range(N):
        out = out + weights[..., key : key + 1] * v[:, key : key + 1]
    return out


REPORTED = [masked_exponentials, divided_late, with_a_little_added]


@pytest.mark.parametrize("how", REPORTED, ids=lambda how: how.__name__)
def test_what_is_not_seen_is_reported(how):
    class Odd(Base):
        def forward(self, x):
            known = self.attend(x).sum()
            return known + how(self.q(x) @ self.k(x).mT, self.v(x)).sum()

    record = audit.run(Odd(), [torch.randn(B, N, D)])
    assert len(record.layers) == 1
    assert record.missed


def two_exponentials(s, v):
    return s.exp() / s.exp().sum(dim=-1, keepdim=True) @ v


def logarithms_in_place(s, v):
    return torch.log_softmax(s, dim=-1).exp_() @ v


@pytest.mark.parametrize("how", [two_exponentials, logarithms_in_place, one_key_after_the_other])
def test_seen_however_it_is_written(how):
    class Odd(Base):
        def forward(self, x):
            return how(self.q(x) @ self.k(x).mT, self.v(x)).sum()

    record = audit.run(Odd(), [torch.randn(B, N, D)])
    assert ([row["rows"] for row in record.heads], record.missed) == ([B * N], [])


def test_classes_that_weigh_masks_are_no_attention():
    class Segments(Base):
        def forward(self, x):
            classes = torch.softmax(self.q(x)[..., :5], dim=-1)
            return self.attend(x).sum() + torch.einsum("bqc,bqp->bcp", classes, self.v(x)).sum()

    assert rows(Segments(), torch.randn(B, N, D)) == [[B * N] * H]


def test_pooling_after_a_recurrent_network():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.score = nn.GRU(D, D, batch_first=True), nn.Linear(D, 1)

        def forward(self, x):
            hidden = self.net(x)[0]
            return (torch.softmax(self.score(hidden), dim=1) * hidden).sum(dim=1)

    record = audit.run(Recurrent(), [torch.randn(B, N, D)])
    assert record.layers or record.missed
