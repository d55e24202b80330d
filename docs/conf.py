"""Sphinx settings."""

import dataclasses
import html
import inspect
import os
import re
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

# Without compilation, kernels are plain functions with the signature and docstring that autodoc reads.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

from bothworlds import policies as _policies
from bothworlds import worlds as _worlds

project = "bothworlds"
author = "the bothworlds authors"
copyright = "2026, the bothworlds authors"
release = installed_version("bothworlds")
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
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
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["figures.css", "math.css"]

# autodoc gets NDArray[float64] and ArrayLike expanded; write them as in the source.
_EXPANDED_TYPES = {
    re.compile(r"~?(?:numpy\.)?ndarray\[tuple\[[^\]]*\], ~?(?:numpy\.)?dtype\[([^\]]*)\]\]"): r"NDArray[\1]",
    re.compile(r"[~\w.]*Buffer \|[^,]*?_NestedSequence\[[\w| ]*\]"): "ArrayLike",
}


def _shorten_types(app, what, name, obj, options, signature, returns):
    for pattern, short in _EXPANDED_TYPES.items():
        signature, returns = (text and pattern.sub(short, text) for text in (signature, returns))
    return signature, returns


def _drop_field_numbers(app, what, name, obj, options, lines):
    lines[:] = [line for line in lines if not line.startswith("Alias for field number")]


# What every policy says of itself, each on a line of its own.
_HEADINGS = re.compile(r"^(Requires|Guarantee|Known failure): ?(.*)$")


def _start_paragraphs_at_headings(app, what, name, obj, options, lines):
    result = []
    for line in lines:
        heading = _HEADINGS.match(line)
        result += ["", f"**{heading[1]}:** {heading[2]}"] if heading else [line]
    lines[:] = result


def _append_shared_settings(app, what, name, obj, options, lines):
    """Append the settings of a policy that a base class documents, before numpy style is converted."""
    if what != "class" or not issubclass(obj, _policies.Policy) or not dataclasses.is_dataclass(obj):
        return
    known = _settings_of(lines)
    shared = {}
    for base in reversed(obj.__mro__[1:]):
        shared |= _settings_of(inspect.cleandoc(vars(base).get("__doc__") or "").splitlines())
    fields = [field.name for field in dataclasses.fields(obj)]
    missing = [line for field in fields if field in shared and field not in known for line in shared[field]]
    if not missing:
        return
    heading = [] if known else ["Parameters", "-" * len("Parameters")]
    sections = [
        at - 1 for at, line in enumerate(lines) if line and set(line) == {"-"} and lines[at - 1] != "Parameters"
    ]
    at = min(sections, default=len(lines))
    while at > 0 and not lines[at - 1]:
        at -= 1
    lines[at:at] = [*([""] if heading else []), *heading, *missing]


def _settings_of(lines):
    """Return the lines of every setting in the section on parameters of a docstring."""
    found, names = {}, []
    if "Parameters" not in lines:
        return found
    for line in lines[lines.index("Parameters") + 2 :]:
        if line and set(line) == {"-"}:
            break
        if line and not line.startswith(" "):
            names = line.split(", ")
        elif line:
            for setting in names:
                found.setdefault(setting, [setting]).append(line)
    return found


# Formulas are converted to MathML by docutils while building, so that pages need no script and no network. An empty
# group separates an accent from its index, which would otherwise be set below the accent.
_ACCENT = re.compile(r"(\\(?:hat|tilde|bar)\s*(?:\\[A-Za-z]+|\{[^{}]*\}|\w))(?=\s*[_^])")


def _mathml(node, as_block):
    tex = _ACCENT.sub(r"\1{}", node.astext().strip())
    if r"\\" in tex and r"\begin" not in tex:
        tex = rf"\begin{{aligned}} {tex} \end{{aligned}}"
    try:
        return tex2mathml(tex, as_block=as_block)
    except MathError as error:
        logging.getLogger(__name__).warning("%s in %r", error, tex, location=node)
        return f"<code>{html.escape(tex)}</code>"


def _inline_math(self, node):
    self.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _block_math(self, node):
    self.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _write_policy_pages(app):
    """Write a page with the docstring of every registered policy."""
    folder = Path(app.srcdir) / "policies"
    folder.mkdir(exist_ok=True)
    pages = {f"{name}.md": _policy_page(name) for name in _policies.names()}
    for page in folder.glob("*.md"):
        if page.name not in pages:
            page.unlink()
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def _policy_page(name):
    policy_class = type(_policies.policy(name))
    described = _policies.describe(name)
    path = policy_class.__module__.replace(".", "/")
    directive = f".. autoclass:: {policy_class.__module__}.{policy_class.__qualname__}\n   :no-members:"
    needs = ", ".join(described.needs) or "nothing"
    return f"# {name}\n\n*Requires:* {needs}. *Source:* `src/{path}.py`\n\n```{{eval-rst}}\n{directive}\n```\n"


def _fill_tables(app, docname, source):
    """List the registered policies and worlds on their pages."""
    if docname == "policies":
        source[0] = source[0].replace("<!-- policies -->", "\n".join(map(_policy_row, _policies.names())))
    elif docname == "worlds":
        source[0] = source[0].replace("<!-- worlds -->", "\n".join(map(_world_row, _worlds.names())))


def _policy_row(name):
    described = _policies.describe(name)
    return f"| [{name}](policies/{name}.md) | {described.sentence.replace('``', '`')} | {', '.join(described.needs)} |"


def _world_row(name):
    sentence, settings = _worlds.describe(name)
    defaults = ", ".join(f"`{key}={value!r}`" for key, value in settings.items())
    return f"| `{name}` | {sentence.replace('``', '`')} | {defaults} |"


def setup(app):
    app.add_html_math_renderer("mathml", inline_renderers=(_inline_math, None), block_renderers=(_block_math, None))
    app.connect("autodoc-process-signature", _shorten_types)
    app.connect("autodoc-process-docstring", _append_shared_settings, priority=400)
    app.connect("autodoc-process-docstring", _drop_field_numbers)
    app.connect("autodoc-process-docstring", _start_paragraphs_at_headings)
    app.connect("builder-inited", _write_policy_pages)
    app.connect("source-read", _fill_tables)
