"""Synonyms from files and nearest words: read as written, one token each, clear errors."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("typer")
import taut.networks as tt  # noqa: E402
from tests.helpers.architectures import small  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "ran", "hound",
         "play", "##ing", "."]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    small("bert classifier").save_pretrained(place)
    (place / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(str(place / "vocab.txt")).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def parts(folder):
    from taut.models import load, tokenizer_of

    return load(str(folder)).double(), tokenizer_of(str(folder))


def test_both_formats_say_the_same(tmp_path):
    (tmp_path / "s.txt").write_text("# words\n\ncat: dog , hound, dog\nsat: ran\n")
    (tmp_path / "s.json").write_text(json.dumps({"cat": ["dog", "hound"], "sat": ["ran"]}))
    found = tt.read_synonyms(tmp_path / "s.txt")
    assert found == tt.read_synonyms(tmp_path / "s.json")
    assert found == {"cat": ("dog", "hound"), "sat": ("ran",)}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("s.txt", "cat dog\n", r"line 1: expected 'word: replacement, replacement'"),
        (
            "s.txt",
            "\ncat: dog,\n",
            "line 2: 'cat' needs at least one other word",
        ),
        ("s.txt", "cat: cat\n", "at least one other"),
        ("s.txt", "cat: dog\ncat: hound\n", "line 2: the word 'cat' has synonyms already"),
        ("s.txt", "# nothing\n", "has no words"),
        ("s.json", "{", "not valid JSON"),
        ("s.json", '{"cat": "dog"}', "lists of words"),
    ],
)
def test_files_that_are_wrong(name, text, words, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        tt.read_synonyms(tmp_path / name)


def test_synonyms_of_a_text(parts):
    model, tokenizer = parts
    found = tt.synonym_replacements(
        model, tokenizer, "The cat sat.", {"cat": ["dog", "hound"], "the": ["ran"], "x": ["y"]}
    )
    assert found.words == {1: ("ran",), 2: ("dog", "hound")}  # after the token that begins a text
    table = model.get_input_embeddings().weight
    assert torch.equal(found.vectors[2], table[[WORDS.index("dog"), WORDS.index("hound")]])
    assert found.x.shape == (1, 6, table.shape[1])
    assert found.replaced({2: 1, 1: 0}) == "ran hound sat."
    verdict = tt.word_changes(model, found.x, found.vectors)
    assert verdict.combinations == 6
    logits = [
        model(**tokenizer(found.replaced(e), return_tensors="pt")).logits.argmax()
        for e in ({}, {1: 0}, {2: 0}, {2: 1}, {1: 0, 2: 0}, {1: 0, 2: 1})
    ]
    same = all(int(label) == verdict.predicted for label in logits)
    assert verdict.verdict != ("refuted" if same else "proved")


@pytest.mark.parametrize(
    ("text", "synonyms", "words"),
    [
        ("the playing", {"playing": ["cat"]}, "'playing' is 2 tokens"),
        ("the cat", {"cat": ["playing"]}, "'playing' of 'cat' is not one token"),
        ("the cat", {"cat": ["dog ran"]}, "'dog ran' of 'cat' is not one token"),
        ("the cat", {"cat": ["zebra"]}, "'zebra' of 'cat' is not in the vocabulary"),
        ("the cat", {"dog": ["cat"]}, "no word of 'the cat' has synonyms"),
    ],
)
def test_words_that_are_not_one_token(parts, text, synonyms, words):
    with pytest.raises(ValueError, match=words):
        tt.synonym_replacements(*parts, text, synonyms)


def test_nearest_words_are_never_special(parts):
    model, tokenizer = parts
    found = tt.nearest_replacements(model, tokenizer, "the cat", 3)
    assert list(found.words) == [1, 2]
    assert all(len(words) == 3 for words in found.words.values())
    assert not any("[" in word for words in found.words.values() for word in words)
    table = model.get_input_embeddings().weight.detach()
    apart = (table - table[WORDS.index("the")]).norm(dim=1)
    apart[[WORDS.index("the"), *range(5)]] = torch.inf
    chosen = (found.vectors[1] - table[WORDS.index("the")]).norm(dim=1)
    torch.testing.assert_close(chosen, apart.topk(3, largest=False).values)


def test_on_the_command_line(folder, tmp_path):
    (tmp_path / "s.txt").write_text("cat: dog, hound\n")
    given = ("certify", folder, "--inputs", "the cat sat", "--local", "no")
    done = taut(*given, "--synonyms", "s.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "of 'the cat sat': proved, none of 3 texts" in done.stdout
    record = json.loads(taut(*given, "--nearest-words", 1, "--json", cwd=tmp_path).stdout)
    assert record["words"][0]["combinations"] == 8
    for more, words in (
        (("--synonyms", "none.txt"), "none.txt"),
        (("--synonyms", "s.txt", "--nearest-words", 2), "either synonyms or nearest_words"),
        (("--nearest-words", 0), "nearest_words"),
    ):
        done = taut(*given, *more, cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr


def test_tables_count_replacements_and_not_widths():
    """What is kept of the input is a number for each replacement, however wide a token is."""
    from taut.networks.propagation.replacement_set import ReplacementSet
    from taut.networks.propagation.rows import Rows

    x = torch.randn(4, 3, dtype=torch.float64)
    chosen = {1: torch.randn(50, 3, dtype=torch.float64), 2: torch.randn(7, 3, dtype=torch.float64)}
    inputs = ReplacementSet(x, chosen)
    kept = inputs.entries(Rows(torch.randn(6, 4, 3, dtype=torch.float64)))
    assert inputs.columns == kept.values.shape[1] == 2 * 51
