"""Sphinx configuration."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_sphinx"))

import taut

project = "taut"
author = "The taut developers"
copyright = "2026, the taut developers"
release = taut.__version__
extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design", "typeset",
    "notebook_pages", "reference_pages", "narrow_screens", "shell_commands",
]  # fmt: skip
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_sphinx"]
html_static_path = ["_static"]
html_css_files = ["taut.css"]
html_extra_path = ["../src/taut/explore/explore.html"]  # the interactive page, beside the home
html_theme = "furo"
html_title = "taut"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
autodoc_type_aliases = {"Array": "Array"}


def setup(app):
    app.connect("autodoc-process-docstring", describe_data_on_the_page)


def describe_data_on_the_page(app, what, name, obj, options, lines):
    """Drop what Python says about every dict or tuple; the reference describes the data itself."""
    if what == "data":
        lines.clear()
