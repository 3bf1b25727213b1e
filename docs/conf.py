"""Sphinx configuration."""

import taut

project = "taut"
author = "The taut developers"
copyright = "2026, the taut developers"
release = taut.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "taut"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
autodoc_type_aliases = {"Array": "Array"}
