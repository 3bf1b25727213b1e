"""Commands of the documentation where a telephone breaks them."""

from __future__ import annotations

import re
import sys

import pytest

from tests.helpers.places import DOCS, needs_repository

pytestmark = needs_repository
sys.path.insert(0, str(DOCS / "_sphinx"))
commands_apart = pytest.importorskip("shell_commands").commands_apart
CODE = """taut<span class="w"> </span>--output<span class="w"> </span>a-b.json
<span class="nb">echo</span><span class="w"> </span><span class="s2">"two</span>
<span class="s2">lines"</span>
"""


def text(page: str) -> str:
    return re.sub("<[^>]*>", "", page)


def block(code: str, language: str = "sh") -> str:
    return (
        f'<p>--a</p><div class="highlight-{language} notranslate"><div class="highlight">'
        f"<pre><span></span>{code}</pre></div></div>"
    )


def test_commands_and_options_are_told_apart():
    page = commands_apart(block(CODE))
    assert page.count('<span class="command">') == 3
    assert re.findall('<span class="option">(.*?)</span>', page) == ["--output"]  # of a-b no part
    assert text(page) == text(block(CODE))
    assert page.count("<span") == page.count("</span")


def test_what_is_no_single_command_is_left_alone():
    open_string = '<span class="s2">"two\nlines"</span>\n'
    assert commands_apart(block(open_string)) == block(open_string)
    assert commands_apart(block(CODE, "python")) == block(CODE, "python")
