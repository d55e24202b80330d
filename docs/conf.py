"""Sphinx settings."""

import os
import re
from importlib.metadata import version as installed_version

# Left uncompiled, kernels are plain functions, with the signature and docstring that autodoc looks for.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

project = "bothworlds"
author = "the bothworlds authors"
copyright = "2026, the bothworlds authors"
release = installed_version("bothworlds")
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "bothworlds"

# NDArray[float64] reaches autodoc spelled out in full; say it as it was written.
_SPELLED_OUT = re.compile(r"~?(?:numpy\.)?ndarray\[tuple\[[^\]]*\], ~?(?:numpy\.)?dtype\[([^\]]*)\]\]")


def _shorten(app, what, name, obj, options, signature, returns):
    return tuple(text and _SPELLED_OUT.sub(r"NDArray[\1]", text) for text in (signature, returns))


def _drop_field_numbers(app, what, name, obj, options, lines):
    lines[:] = [line for line in lines if not line.startswith("Alias for field number")]


def setup(app):
    app.connect("autodoc-process-signature", _shorten)
    app.connect("autodoc-process-docstring", _drop_field_numbers)
