"""The page as one HTML file that needs no network.

Model output and engine logs are untrusted. They enter the page as JSON in inert script elements
and the page's script writes them as text nodes only; what the template writes itself is escaped.
The content security policy lets no other script run and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from matrixrun.record.files import to_plain
from matrixrun.signoff.page import Page

SCRIPTS = ("state.js", "charts.js", "detail.js", "matrix.js", "page.js")
STYLES = ("report.css",)

# What could end a script element or begin a comment in it.
_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_ESCAPES |= {0x2028: "\\u2028", 0x2029: "\\u2029"}


def render(page: Page, *, summary: str = "", decision: Any = None) -> str:
    """Return the report as HTML.

    `summary` is shown where scripts do not run; `decision` is a sign-off to be shown on top (any
    msgspec value, None without one).
    """
    script, style = _joined(SCRIPTS), _joined(STYLES)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    index = to_plain(msgspec.structs.replace(page, details=(), launches={}))
    return environment.from_string(_template("report.html")).render(
        head=page.head,
        summary=summary,
        script=Markup(script),
        style=Markup(style),
        script_hash=_hash(script),
        style_hash=_hash(style),
        index=embed(index | {"decision": to_plain(decision)}),
        launches=embed(page.launches),
        details=[embed(detail) for detail in page.details],
    )


def embed(value: Any) -> Markup:
    """Return a value as JSON that is safe within a script element."""
    text = msgspec.json.encode(to_plain(value)).decode("utf-8", "replace")
    return Markup(text.translate(_ESCAPES))


@cache
def _template(name: str) -> str:
    return files("matrixrun.signoff").joinpath("templates", name).read_text("utf-8")


def _joined(names: tuple[str, ...]) -> str:
    return "\n" + "\n".join(_template(name) for name in names) + "\n"


def _hash(text: str) -> str:
    """The hash by which a content security policy knows an inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()
