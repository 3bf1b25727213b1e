"""Parallel text: what is read from catalogs, files, the Hub and dialogues; that nothing leaks."""

from __future__ import annotations

import gettext
import gzip
import io
import json
import random
import struct
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from taut.reproduce.seq2seq import catalogs as _catalogs
from taut.reproduce.seq2seq import dialogues as _dialogues
from taut.reproduce.seq2seq.aligned_files import local_corpus, ntrex
from taut.reproduce.seq2seq.catalogs import (
    LANGUAGES,
    catalog_corpus,
    catalog_pairs,
    usable,
    without_accelerators,
)
from taut.reproduce.seq2seq.corpus import Corpus, assembled, cleaned, key, split, without_leaks
from taut.reproduce.seq2seq.dialogues import TURN, daily_dialog, dialogue_corpus, persona_chat
from taut.reproduce.seq2seq.hub_data import SETS, hub_corpus
from taut.reproduce.seq2seq.mo import entries
from taut.reproduce.seq2seq.read import read_corpus
from tests.helpers.places import SHARED

DATA = SHARED / "data"
SYSTEM = Path("/usr/share/locale")


def shared(name):
    return pytest.mark.skipif(not (DATA / name).is_dir(), reason=f"no {name} in the shared folder")


def random_pairs(seed, count=300, texts=400):
    """Pairs which share sides often, in other case and with other digits."""
    rng = random.Random(seed)

    def text(side):
        word = "".join("abcdefghij"[int(digit)] for digit in str(rng.randrange(texts)))
        return f"{side}{rng.choice([word, word.upper(), f'_{word} {rng.randrange(9)}!'])}"

    return cleaned((text("s"), text("t")) for _ in range(count))


def assert_no_leaks(*parts):
    for side in (0, 1):
        keys = [{key(pair[side]) for pair in part} for part in parts]
        for at, one in enumerate(keys):
            for two in keys[at + 1 :]:
                assert not one & two


def test_cleaned():
    pairs = [(" a  b\n", "c"), ("a b", "c"), ("", "d"), ("e", " "), ("u\u0308", "f"), ("ü", "f")]
    assert cleaned(pairs) == [("a b", "c"), ("ü", "f")]


def test_key():
    assert key("_Save 2 files…") == key("save files") == "savefiles"
    assert key("Straße") == key("STRASSE")
    assert key("42 %") == "42 %" != key("43 %")
    assert key("đường") != key("duong")


@pytest.mark.parametrize("seed", range(20))
def test_split_has_no_leaks(seed):
    pairs = random_pairs(seed)
    parts = split(pairs, seed=seed, valid=20, test=30)
    assert_no_leaks(*parts)
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    assert 1 <= len(parts[1]) <= 20
    assert 1 <= len(parts[2]) <= 30
    again = split(pairs[::-1], seed=seed, valid=20, test=30)
    assert [sorted(part) for part in again] == [sorted(part) for part in parts]
    assert split(pairs, seed=seed + 1, valid=20, test=30) != parts


def test_split_of_pairs_alone_is_exact():
    pairs = [(f"s{chr(97 + i)}", f"t{chr(97 + i)}") for i in range(26)]
    assert [len(part) for part in split(pairs, seed=0, valid=3, test=5)] == [18, 3, 5]


def test_split_that_cannot_be():
    with pytest.raises(ValueError, match="cannot split 2 pairs"):
        split([("a", "b"), ("c", "d")], seed=0, valid=1, test=1)
    chain = [(f"s{'ab'[i % 2]}", f"t{chr(97 + i // 2)}") for i in range(20)]
    with pytest.raises(ValueError, match="share a side"):
        split(chain, seed=0, valid=2, test=2)


def test_without_leaks():
    train = [("A 1", "x"), ("b", "Y!"), ("c", "z"), ("d", "v")]
    held = [("a", "q"), ("r", "y"), ("c", "z")]
    assert without_leaks(train, held) == [("d", "v")]
    assert without_leaks(train, held, whole=True) == [train[0], train[1], train[3]]


def test_assembled_takes_leaks_from_train():
    letters = [(f"s{chr(97 + i)}", f"t{chr(97 + i)}") for i in range(26)]
    parts = {"train": letters, "test": [("SA", "other"), ("new", "TB.")], "valid": letters[2:4]}
    corpus = assembled("letters", "s", "t", parts, seed=0)
    assert corpus.train == letters[4:]
    assert corpus.valid == letters[2:4]
    assert corpus.notes == ("4 pairs of train left out: they occur in a later part",)
    with pytest.raises(ValueError, match="letters has no pairs"):
        assembled("letters", "s", "t", {"test": letters}, seed=0)


def catalog(messages, order="<", charset="utf-8"):
    """A compiled catalog of messages."""
    header = {"": f"Content-Type: text/plain; charset={charset}\n"}
    rows = sorted((a.encode(charset), b.encode(charset)) for a, b in {**header, **messages}.items())
    count = len(rows)
    at = 28 + 16 * count
    tables = [b"", b""]
    texts = b""
    for side in (0, 1):
        for row in rows:
            tables[side] += struct.pack(f"{order}2I", len(row[side]), at + len(texts))
            texts += row[side] + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0)
    return head + tables[0] + tables[1] + texts


MESSAGES = {
    "Dark roast": "Dunkle Röstung",
    "menu\x04_Save": "_Speichern",
    "%d layer\x00%d layers": "%d Ebene\x00%d Ebenen",
}


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
def test_entries_are_those_of_gettext(order, charset):
    data = catalog(MESSAGES, order, charset)
    found = {entry.source[0]: entry for entry in entries(data)}
    known = gettext.GNUTranslations(io.BytesIO(data))
    assert found["Dark roast"].target == [known.gettext("Dark roast")] == ["Dunkle Röstung"]
    assert found["_Save"].target == [known.pgettext("menu", "_Save")]
    assert found["%d layer"].source == ["%d layer", "%d layers"]
    assert found["%d layer"].target == ["%d Ebene", "%d Ebenen"]


@pytest.mark.skipif(not SYSTEM.is_dir(), reason="the system has no catalogs")
def test_entries_of_the_system_are_those_of_gettext():
    for file in sorted(SYSTEM.glob("*/LC_MESSAGES/*.mo"))[::100]:
        known = gettext.GNUTranslations(io.BytesIO(file.read_bytes()))._catalog
        forms: dict[str, list[str]] = {}
        for name, text in known.items():  # plurals are (name, number of the form)
            whole = name[0] if isinstance(name, tuple) else name
            forms.setdefault(whole.split("\x04")[-1], []).append(text)
        found: dict[str, list[str]] = {}
        for entry in entries(file.read_bytes()):
            found.setdefault(entry.source[0], []).extend(entry.target)
        forms.pop("", None)
        assert {name: sorted(texts) for name, texts in found.items()} == {
            name: sorted(texts) for name, texts in forms.items()
        }


@pytest.mark.parametrize("cut", [3, 10, 40, -3])
def test_entries_of_broken_files(cut):
    with pytest.raises(ValueError, match="gettext catalog"):
        list(entries(catalog(MESSAGES)[:cut]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("_Save", "S_peichern"), ("Save", "Speichern")),
        (("~File", "~Datei"), ("File", "Datei")),
        (("Cut & paste", "Kopieren & einfügen"), ("Cut & paste", "Kopieren & einfügen")),
        (("&Open", "Öffnen"), ("&Open", "Öffnen")),
        (("the file_name here", "hier file_name"), ("the file_name here", "hier file_name")),
        (("%(file_name)s saved", "%(file_name)s da"), ("%(file_name)s saved", "%(file_name)s da")),
        (("_Open {a_b}", "{a_b} ö_ffnen"), ("Open {a_b}", "{a_b} öffnen")),
        (("Resolution [_DPI]", "Auflösung [_DPI]"), ("Resolution [DPI]", "Auflösung [DPI]")),
        (("a&nbsp;b", "c&nbsp;d"), ("a&nbsp;b", "c&nbsp;d")),
        (("_Internet", "_Internet"), ("Internet", "Internet")),
    ],
)
def test_accelerators(given, expected):
    assert without_accelerators(*given) == expected


def test_usable():
    assert usable("<b>Dark</b> roast", "Dunkle <b>Röstung</b>")
    assert not usable("Internet", "Internet")
    assert not usable("%", "…")
    assert not usable("12", "zwölf")
    assert usable("a b c", "d")
    assert not usable("a b c e", "d")
    assert usable("a " * 60, "b " * 60)
    assert not usable("a " * 61, "b " * 60)


def put(folder, language, data, name="app.mo"):
    place = folder / "app" / "locale" / language / "LC_MESSAGES"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(data)


def test_catalogs(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    put(site, "de", catalog(MESSAGES))
    put(site, "de_AT", catalog({"Dark roast": "Schwarzer Kaffee"}))
    put(site, "de_DE", catalog({"Other words": "Andere Wörter"}), "other.mo")
    put(site, "den", catalog({"Not": "diese"}))
    expected = [
        ("%d layer", "%d Ebene"),
        ("%d layers", "%d Ebenen"),
        ("Dark roast", "Dunkle Röstung"),
        ("Save", "Speichern"),
        ("Other words", "Andere Wörter"),
    ]
    assert sorted(catalog_pairs("de", [tmp_path])) == sorted(expected)
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path)])
    monkeypatch.setattr(_catalogs, "SYSTEM", tmp_path / "usr")
    put(tmp_path / "usr", "de", catalog({"of the system": "des Systems"}))
    assert set(catalog_pairs("de")) == {*expected, ("of the system", "des Systems")}
    with pytest.raises(ValueError, match=r"into 'vi': there are de, den; .*pip install django"):
        catalog_pairs("vi", [tmp_path])
    with pytest.raises(ValueError, match="none at all"):
        catalog_pairs("vi", [tmp_path / "nowhere"])


def test_broken_catalogs_are_skipped(tmp_path):
    put(tmp_path, "de", catalog(MESSAGES))
    put(tmp_path, "de", catalog(MESSAGES)[:-20], "broken.mo")
    with pytest.warns(UserWarning, match=r"1 of 2 catalogs .*broken\.mo"):
        assert len(catalog_pairs("de", [tmp_path])) == 4


def test_catalog_corpus_goes_both_ways(tmp_path):
    messages = {f"word {chr(97 + i)}": f"Wort {chr(97 + i)}" for i in range(26)}
    put(tmp_path, "de", catalog(messages))
    forth = catalog_corpus("en", "de", folders=[tmp_path])
    back = catalog_corpus("de", "en", folders=[tmp_path])
    assert (forth.source, forth.target) == ("en", "de")
    assert len(forth.test) == len(back.test) == len(back.valid) == 2
    assert all(source.startswith("Wort") for source, _ in back.train)
    assert_no_leaks(back.train, back.valid, back.test)
    with pytest.raises(ValueError, match="one of 'de', 'fr' is 'en'"):
        catalog_corpus("de", "fr", folders=[tmp_path])


@pytest.mark.skipif(not SYSTEM.is_dir(), reason="the system has no catalogs")
def test_catalogs_of_the_system():
    try:
        corpus = catalog_corpus("mk", "en", folders=[SYSTEM])
    except ValueError as error:
        pytest.skip(str(error))
    assert_no_leaks(corpus.train, corpus.valid, corpus.test)
    assert all(usable(*pair) for pair in corpus.train)


def lines(language, count=40):
    return "".join(f"{language} {chr(97 + i // 26)}{chr(97 + i % 26)}\n" for i in range(count))


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        data = text if isinstance(text, bytes) else text.encode()
        name = name.replace("__", ".")
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def test_local_files_and_their_names(tmp_path):
    plain = write(tmp_path / "plain", train__de=lines("de"), train__en=lines("en"))
    corpus = local_corpus(plain, "de", "en")
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [32, 4, 4]
    assert_no_leaks(corpus.train, corpus.valid, corpus.test)
    assert all(a.removeprefix("de") == b.removeprefix("en") for a, b in corpus.train)
    packed = write(tmp_path / "packed", train__de__gz=lines("de"), train__en__txt__gz=lines("en"))
    assert local_corpus(packed, "de", "en").train == corpus.train
    archive = tmp_path / "zip" / "all.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("data/train.de", lines("de"))
        stream.writestr("data/train.en.gz", gzip.compress(lines("en").encode()))
        stream.writestr("__MACOSX/data/._train.de", b"\xff")
    assert local_corpus(archive.parent, "de", "en").train == corpus.train


def test_test_sets_are_scored_as_they_were_published(tmp_path):
    """Each line as often as it occurs; what is empty, or made out of train, is said."""
    held = {"dev__de": "x de\n", "dev__en": "x en\n"}
    folder = write(tmp_path, train__de=lines("de"), train__en=lines("en"), **held)
    corpus = read_corpus(str(folder), "de", "en")
    assert corpus.notes == (
        f"{len(corpus.test)} pairs of train became test: there was no such part",
    )
    write(folder, test__de="y de\nz de\ny de\n", test__en="y en\nz en\ny en\n")
    corpus = read_corpus(str(folder), "de", "en")
    assert corpus.test == [("y de", "y en"), ("z de", "z en"), ("y de", "y en")]
    assert corpus.notes == ()
    write(folder, test_2__de="y de\n", test_2__en="y en\n")
    assert len(read_corpus(str(folder), "de", "en", test="test_2").test) == 1
    write(folder, test__de="", test__en="")
    with pytest.raises(ValueError, match="no pairs of test: its texts are empty"):
        read_corpus(str(folder), "de", "en")


def test_a_folder_is_named_as_it_is(tmp_path, monkeypatch):
    folder = write(tmp_path / "mine", train__de=lines("de"), train__en=lines("en"))
    monkeypatch.chdir(folder)
    corpus = read_corpus(".", "de", "en")
    assert corpus.name == "mine"
    assert len(repr(corpus)) < 300


def test_local_parts(tmp_path):
    held = {"dev__de": "x de\n", "dev__en": "x en\n", "test_1__de": "y de\n", "test_1__en": "y en"}
    folder = write(tmp_path, train__de=lines("de"), train__en=lines("en"), **held)
    corpus = local_corpus(folder, "de", "en")
    assert corpus.valid == [("x de", "x en")]
    assert corpus.test == [("y de", "y en")]
    write(folder, test_2__de="z de", test_2__en="z en")
    with pytest.raises(ValueError, match=r"several files of test \(test_1, test_2\): name one"):
        local_corpus(folder, "de", "en")
    assert local_corpus(folder, "de", "en", test="test_2").test == [("z de", "z en")]
    with pytest.raises(ValueError, match="has no test_3: it has dev, test_1"):
        local_corpus(folder, "de", "en", test="test_3")
    (folder / "dev.en").unlink()
    with pytest.raises(ValueError, match=r"no dev\.en in .*goes with .*dev\.de"):
        local_corpus(folder, "de", "en", test="test_2")


def test_local_folders_without_data(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        local_corpus(tmp_path / "nowhere", "de", "en")
    with pytest.raises(ValueError, match=r"needs train\.de and train\.en .*nothing of the kind"):
        local_corpus(tmp_path, "de", "en")


def test_misaligned_files(tmp_path):
    english = lines("en").split("\n")
    write(tmp_path, train__de=lines("de"), train__en="\n".join(english[:9] + english[10:]))
    said = r"train\.de has 40 lines and .*train\.en has 39: .* line 40$"
    with pytest.raises(ValueError, match=said):
        local_corpus(tmp_path, "de", "en")
    write(tmp_path, train__en="\n".join([*english[:9], "", *english[9:-1], "more"]))
    with pytest.raises(ValueError, match=r"has 42: .* line 10$"):
        local_corpus(tmp_path, "de", "en")


def test_empty_lines(tmp_path):
    english = lines("en").split("\n")
    english[6] = english[20] = " "
    write(tmp_path, train__de=lines("de"), train__en="\n".join(english))
    with pytest.warns(UserWarning, match=r"^2 lines are empty .* first is line 7:"):
        corpus = local_corpus(tmp_path, "de", "en")
    assert len(corpus.train + corpus.valid + corpus.test) == 38


def test_breaks_of_unicode_are_no_lines(tmp_path):
    german = lines("de").replace("de ab", "de\u2028ab\x85").replace("\n", "\r\n")
    write(tmp_path, train__de="\ufeff" + german, train__en=lines("en"))
    corpus = local_corpus(tmp_path, "de", "en")
    assert ("de ab", "en ab") in corpus.train + corpus.valid + corpus.test
    assert ("de aa", "en aa") in corpus.train + corpus.valid + corpus.test


def test_damaged_files(tmp_path):
    whole = gzip.compress(lines("de").encode())
    write(tmp_path, train__en=lines("en"))
    file = tmp_path / "train.de.gz"
    file.write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"train\.de\.gz is cut short: download it again"):
        local_corpus(tmp_path, "de", "en")
    file.write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match=r"train\.de\.gz is damaged"):
        local_corpus(tmp_path, "de", "en")
    file.unlink()
    write(tmp_path, train__de=lines("de").replace("de ac", "dé ac").encode("latin-1"))
    with pytest.raises(ValueError, match=r"train\.de, line 3: not UTF-8 \(byte 0xe9\)"):
        local_corpus(tmp_path, "de", "en")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(ValueError, match=r"a\.zip is cut short"):
        local_corpus(tmp_path, "de", "en")


@shared("multi30k")
def test_multi30k():
    corpus = local_corpus(DATA / "multi30k", "de", "en")
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [28995, 1014, 1000]
    assert_no_leaks(corpus.train, corpus.valid, corpus.test)


@shared("ntrex")
def test_ntrex():
    for language in ("de", "ro", "vi", "id", "et", "mk", "fr"):
        assert len(ntrex(DATA / "ntrex", language, "en")) == 1997
    english, german = ntrex(DATA / "ntrex", "en", "de")[0]
    assert english.startswith("Welsh AMs")
    assert german.endswith("mit den Muppets")
    with pytest.raises(ValueError, match=r"no ref\.xx\.txt for 'xx'"):
        ntrex(DATA / "ntrex", "xx", "en")


def table(folder, part, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def translated(count=30):
    sides = (lines(language, count).splitlines() for language in ("de", "en"))
    return list(zip(*sides, strict=True))


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    module = pytest.importorskip("datasets")
    monkeypatch.setattr(module.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    module.disable_progress_bars()
    return module


FORMATS = {
    "translation": lambda de, en: {"translation": {"de": de, "en": en}},
    "columns": lambda de, en: {"id": 1, "de": de, "en": en},
    "translations": lambda de, en: {
        "translations": {"language": ["fr", "en", "de"], "translation": ["non", en, de]}
    },
}


@pytest.mark.parametrize("limit", [None, 30])
@pytest.mark.parametrize("kind", list(FORMATS))
def test_rows_of_the_hub(tmp_path, datasets, kind, limit):
    pairs = translated()
    table(tmp_path / "set", "train", [FORMATS[kind](*pair) for pair in pairs])
    table(tmp_path / "set", "test", [FORMATS[kind]("de test", "en test")])
    corpus = hub_corpus(f"hf:{tmp_path / 'set'}", "en", "de", limit=limit)
    assert corpus.test == [("en test", "de test")]
    assert len(corpus.valid) == 3
    assert sorted(corpus.train + corpus.valid) == sorted((en, de) for de, en in pairs)


def test_rows_without_the_languages(tmp_path, datasets):
    rows = [FORMATS["translation"]("a", "b")]
    table(tmp_path / "set", "train", rows)
    with pytest.raises(ValueError, match="no texts in 'ro' and 'en': it has de, en"):
        hub_corpus(f"hf:{tmp_path / 'set'}", "ro", "en", limit=3)
    table(tmp_path / "other", "train", [{"text": "a"}])
    with pytest.raises(ValueError, match="it has text"):
        hub_corpus(f"hf:{tmp_path / 'other'}", "ro", "en", limit=3)


def test_sets_with_a_script_are_read_from_the_copy_in_parquet(tmp_path, datasets, monkeypatch):
    pairs = translated()
    for part, rows in (("train", pairs), ("validation", [("va", "vb")]), ("test", [("ta", "tb")])):
        folder = tmp_path / "export" / "de-en" / part
        folder.mkdir(parents=True)
        found = [FORMATS["translation"](*pair) for pair in rows]
        datasets.Dataset.from_list(found).to_parquet(folder / "0000.parquet")
    load = datasets.load_dataset

    def stub(place, configuration=None, *, revision=None, **options):
        assert place == "bbaaaa/iwslt14-de-en-preprocess"
        if revision is None:
            assert configuration == "de-en"
            raise RuntimeError("Dataset scripts are no longer supported, but found iwslt.py")
        assert revision == "refs/convert/parquet"
        return load(str(tmp_path / "export"), **options)

    monkeypatch.setattr(datasets, "load_dataset", stub)
    corpus = hub_corpus("iwslt14-de-en", "de", "en", limit=100)
    assert sorted(corpus.train) == sorted(pairs)
    assert (corpus.valid, corpus.test) == ([("va", "vb")], [("ta", "tb")])


def test_names_of_the_hub():
    with pytest.raises(ValueError, match=r"there are iwslt14-de-en, .* and hf:owner/name"):
        hub_corpus("iwslt", "de", "en")
    with pytest.raises(ValueError, match="setimes-en-mk is of en and mk, not of de and en"):
        hub_corpus("setimes-en-mk", "de", "en")
    with pytest.raises(ValueError, match="write a data set as hf:owner/name:configuration"):
        hub_corpus("hf:a/b:c:d", "de", "en")
    languages = {language for known in SETS.values() for language in known.languages}
    assert languages == {"en", *LANGUAGES}


def test_the_hub_out_of_reach(datasets, monkeypatch):
    def stub(*_, **__):
        raise ConnectionError("Couldn't reach 'wmt/wmt16' on the Hub\nand more")

    monkeypatch.setattr(datasets, "load_dataset", stub)
    with pytest.raises(ValueError, match=r"reach 'wmt/wmt16' on the Hub; .* as files$"):
        hub_corpus("wmt16-en-de", "en", "de")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install .*\[data\]"):
        hub_corpus("wmt16-en-de", "en", "de")


def pairs_keys(pairs):
    return {(key(a), key(b)) for a, b in pairs}


def assert_no_pair_leaks(corpus: Corpus):
    train, valid, test = map(pairs_keys, (corpus.train, corpus.valid, corpus.test))
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_dialogues():
    parts = {
        "train": [["Hi.", "Hello!", "How are you?"], ["Bye", "See you"]],
        "valid": [["So", "what", "now"]],
        "test": [["hi", "hello", "and then"]],
    }
    corpus = dialogue_corpus("talk", parts)
    assert corpus.train == [("Hello!", "How are you?"), ("Bye", "See you")]
    assert corpus.valid == [("So", "what"), ("what", "now")]
    assert corpus.notes == ("1 of 3 pairs of train left out: they occur in a later part",)
    longer = dialogue_corpus("talk", parts, turns=2)
    assert longer.valid == [("So", "what"), (f"So{TURN}what", "now")]
    with pytest.raises(ValueError, match="at least one turn"):
        dialogue_corpus("talk", parts, turns=0)
    with pytest.raises(ValueError, match="talk has too few dialogues"):
        dialogue_corpus("talk", {"train": [["alone"]]})


WORDS = ("hi", "hello", "who", "me", "oh", "bye")


def persona(at, silent):
    """A dialogue as one of its sides has it; to the one who begins it has a turn less."""
    turns = [f"{word} {chr(97 + at // 26)}{chr(97 + at % 26)}" for word in WORDS]
    history, reply = (["__ SILENCE __", *turns[:4]], turns[4]) if silent else (turns[:5], turns[5])
    shorter = {"history": history[:1], "candidates": ["no", "no no"]}
    return {"utterances": [shorter, {"history": history, "candidates": ["wrong", reply]}]}


def test_persona_chat_keeps_the_two_sides_of_a_dialogue_together(monkeypatch):
    rows = [persona(at, silent) for at in range(60) for silent in (False, True)]
    asked = []

    def stub(place, configuration, *, limit):
        asked.append(place)
        return {"train": rows, "valid": [persona(100, False)]}

    monkeypatch.setattr(_dialogues, "hub_rows", stub)
    corpus = persona_chat()
    assert asked == ["AlekseyKorshuk/persona-chat"]
    assert corpus.valid == [(f"{one} dw", f"{two} dw") for one, two in pairwise(WORDS)]
    assert len(corpus.test) == 5 * 6  # 12 of 120 dialogues, which are 6 twice
    assert len(corpus.train) == 5 * 54
    assert corpus.notes == ()  # nothing had to be taken out
    assert_no_pair_leaks(corpus)


@shared("dailydialog")
def test_daily_dialog():
    corpus = daily_dialog(DATA / "dailydialog")
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [66131, 6930, 6740]
    assert corpus.notes[0].startswith("3168 of 69299 pairs of train left out")
    train, valid, test = (
        {f"{a}\t{b}".casefold() for a, b in part}
        for part in (corpus.train, corpus.valid, corpus.test)
    )
    assert not train & (valid | test)
    assert not valid & test
    assert not any("__eou__" in text for pair in corpus.train for text in pair)


def test_daily_dialog_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"no train\.zip with dialogues_train\.txt"):
        daily_dialog(tmp_path)
