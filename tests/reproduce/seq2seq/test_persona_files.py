"""Files of PersonaChat: an excerpt in its format, with either persona, both or none."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from taut.reproduce.seq2seq import read_dialogues
from taut.reproduce.seq2seq.persona_files import persona_replies, read_personas
from taut.reproduce.seq2seq.text_files import TextFile

EXCERPT = """\
1 your persona: i keep bees.
2 your persona: my sister lives abroad.
3 partner's persona: i drive a taxi.
4 good evening !\thello there , long day ?\t\tno .|maybe .|hello there , long day ?
5 very long , i drove all day .\ti was with my bees .\t\twhy ?|i was with my bees .
1 your persona: i paint houses.
2 __SILENCE__\thi , do you like colours ?\t\tno .|hi , do you like colours ?
3 only blue .\tblue is mine too .
1 morning .\tmorning to you .
"""


@pytest.fixture
def excerpt(tmp_path):
    (tmp_path / "train_both_original.txt").write_text(EXCERPT, encoding="utf-8")
    return tmp_path / "train_both_original.txt"


def test_personas_open_the_context_of_your_replies(excerpt):
    first, second, third = read_personas(TextFile(excerpt))
    bees = "i keep bees. <persona> my sister lives abroad. <persona> i drive a taxi. <partner> "
    assert persona_replies(first) == [
        (bees + "good evening !", "hello there , long day ?"),
        (bees + "very long , i drove all day .", "i was with my bees ."),
    ]
    # You open the second dialogue: your first turn answers nothing, and is a part of contexts.
    assert persona_replies(second, turns=2) == [
        ("i paint houses. <persona> hi , do you like colours ? <turn> only blue .",
         "blue is mine too ."),
    ]  # fmt: skip
    assert persona_replies(third) == [("morning .", "morning to you .")]  # without any persona


def dialogue(at):
    letters = f"{chr(97 + at // 26)}{chr(97 + at % 26)}"
    return f"1 your persona: i am {letters}.\n2 who is {letters} ?\tme , {letters} .\tno .|yes .\n"


def test_parts_are_the_files_beside_it_or_split_off(tmp_path):
    train = tmp_path / "train_self_original.txt"
    train.write_text("".join(dialogue(at) for at in range(40)), encoding="utf-8")
    (tmp_path / "valid_self_original.txt").write_text(dialogue(100), encoding="utf-8")
    for place in (train, tmp_path):
        corpus = read_dialogues(str(place))
        assert corpus.name == "persona-chat"
        assert corpus.valid == [("i am dw. <persona> who is dw ?", "me , dw .")]
        assert len(corpus.test) == 4  # a tenth of the dialogues
        assert len(corpus.train) == 36
        assert not set(corpus.train) & set(corpus.test)
    (tmp_path / "train_both_original.txt").write_text(EXCERPT, encoding="utf-8")
    with pytest.raises(ValueError, match="give the file itself"):
        read_dialogues(str(tmp_path))


def test_lines_that_are_wrong_are_named(tmp_path):
    file = tmp_path / "train_self_original.txt"
    for text, told in (
        ("1 your persona: i ski.\nhello you\thi\n", "line 2: 'hello' is not a number"),
        ("1 your persona: i ski.\n2 hello\n", "line 2: there is no reply"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=told):
            read_personas(TextFile(file))
    with pytest.raises(ValueError, match=r"train_self_original\.txt, or persona-chat"):
        read_dialogues(str(tmp_path / "nothing"))
