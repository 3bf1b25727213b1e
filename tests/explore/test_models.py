"""The language models of the page against PyTorch, in a real browser."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

import taut
from taut.models import capture, embedded_data, embedded_models, load

TEXTS = [
    "Good night, good night! parting is such sweet",
    "a",
    " ",
    "\n\n\n",
    "don't we'll I'm 's THEY'RE it's",
    "  two  spaces   and\ttabs\r\n 123 4567 x2y",
    "naïve café — “quotes” … 日本語 🙂 ¡ñ! \u00ad \u200b",
    "<script>alert(1)</script> <|endoftext|> & <b>",
    "ROMEO:\nO, she doth teach the torches to burn bright!",
]
LONGEST = 48


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(embedded_models()["embedded-plain"])


def test_the_two_models_share_their_tokens():
    files = [folder / "tokenizer.json" for folder in embedded_models().values()]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_tokens(page, tokenizer):
    texts = TEXTS + list(embedded_data(100).items)
    found = page.run(f"({json.dumps(texts)}).map((text) => taut.encode(text))")
    for text, tokens in zip(texts, found, strict=True):
        assert tokens == tokenizer(text).input_ids, text


def test_weights_are_bit_for_bit_those_of_the_files(page):
    from safetensors.numpy import load_file

    for name, folder in embedded_models().items():
        tensors = load_file(folder / "model.safetensors")
        code = """(name) => Object.entries(taut.weights(name)).map(([key, values]) =>
          [key, [values.length, values.reduce((sum, v, i) => sum + v * (1 + i % 7), 0)]])"""
        sums = dict(page.run(f"({code})({name.removeprefix('embedded-')!r})"))
        assert set(sums) == set(tensors)
        for key, values in tensors.items():
            flat = values.astype(np.float64).ravel()
            weighed = np.sum(flat * (1 + np.arange(flat.size) % 7))
            assert sums[key][0] == flat.size
            assert abs(sums[key][1] - weighed) < 1e-9 * max(1, np.abs(flat).sum())


def compare_attention(page, name, model, tokens):
    """All scores and weights of a text."""
    heads = page.run(f"taut.runModel('{name}', {tokens}).heads")
    scores: list[torch.Tensor] = []
    with torch.no_grad(), capture(model, lambda seen: scores.append(seen.scores.clone())):
        model(torch.tensor([tokens]))
    for mine, theirs in zip(heads, scores, strict=True):
        for head, rows in zip(mine, theirs[0].numpy(), strict=True):
            for query, row in enumerate(rows):
                assert np.abs(np.array(head["scores"][query]) - row[: query + 1]).max() < 1e-4
                weights = taut.softmax(row[: query + 1])
                assert np.abs(np.array(head["weights"][query]) - weights).max() < 1e-5


@pytest.mark.parametrize("name", ["plain", "constrained"])
def test_logits_and_attention(page, tokenizer, name):
    """The 512 logits after each of 24 texts, and all scores and weights of some."""
    model = load(str(embedded_models()[f"embedded-{name}"]), dtype="float32")
    texts = TEXTS + [text[:120] for text in embedded_data(15).items]
    worst = 0.0
    for i, text in enumerate(texts):
        tokens = tokenizer(text).input_ids[:LONGEST]
        with torch.no_grad():
            expected = model(torch.tensor([tokens])).logits[0, -1].numpy()
        logits = page.run(f"taut.runModel('{name}', {tokens}).logits")
        worst = max(worst, float(np.abs(np.array(logits) - expected).max()))
        if i % 8 == 0:
            compare_attention(page, name, model, tokens)
    assert worst < 1e-4


def interfered(layer, head, temperature, query, key, amount):
    """Attention of transformers with one head heated and one score pushed."""

    def attention(module, q, k, v, mask, scaling=None, dropout=0.0, **_):
        scores = q @ k.transpose(2, 3) * (scaling or q.shape[-1] ** -0.5)
        n = scores.shape[-1]
        if module.layer_idx == layer:
            scores[:, head, query, key] += amount
            scores[:, head] /= temperature
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        weights = scores.softmax(-1)
        return (weights @ v).transpose(1, 2).contiguous(), weights

    return attention


@pytest.mark.parametrize(
    ("layer", "head", "temperature", "amount"),
    [(0, 3, 1.0, 4.0), (2, 1, 0.3, 0.0), (4, 0, 5.0, -3.0)],
)
def test_interference(page, tokenizer, layer, head, temperature, amount):
    """Heat and pushes do what they do in PyTorch, also when earlier layers are reused."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    tokens = tokenizer(TEXTS[0]).input_ids
    query, key = len(tokens) - 1, 3
    model = load(str(embedded_models()["embedded-plain"]), dtype="float32")
    ALL_ATTENTION_FUNCTIONS.register(
        "interfered", interfered(layer, head, temperature, query, key, amount)
    )
    model.set_attn_implementation("interfered")
    with torch.no_grad():
        expected = model(torch.tensor([tokens])).logits[0, -1].numpy()
    push = json.dumps({"layer": layer, "head": head, "query": query, "key": key, "amount": amount})
    heat = f"(l, h) => (l === {layer} && h === {head} ? {temperature} : 1)"
    change = f"{{temperature: {heat}, pushes: [{push}]}}"
    logits = page.run(f"taut.runModel('plain', {tokens}, {change}).logits")
    assert np.abs(np.array(logits) - expected).max() < 1e-4
    reused = page.run(f"""(() => {{
      const run = taut.runModel('plain', {tokens});
      return taut.runModel('plain', {tokens}, {change}, {{run, first: {layer}}}).logits; }})()""")
    assert reused == logits
