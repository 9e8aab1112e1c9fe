"""A checkpoint's chat template, rendered in a sandbox.

Templates come with checkpoints and are programs. They run in Jinja's immutable sandbox, with the
extensions and names that the field's templates expect.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from matrixrun.evidence.errors import UserError

# Some templates write today's date into the prompt; every arm and resume must send the same one.
DATE = (2026, 1, 1)


class _Generation(Extension):
    """`{% generation %}`: marks the assistant's part for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    from datetime import datetime

    return datetime(*DATE).strftime(form)


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return environment.from_string(template)


def render(
    template: str, messages: Sequence[Mapping[str, Any]], special: Mapping[str, str], *, name: str
) -> str:
    """Return the prompt that `template` makes of `messages`, ready for the assistant's turn.

    Args:
        template: Jinja source, as in `chat_template.jinja` or `tokenizer_config.json`.
        messages: `{"role": ..., "content": ...}` each.
        special: `bos_token`, `eos_token` and the like, by name.
        name: the checkpoint, for the error.

    Raises:
        UserError: the template is not valid, or refuses these messages.
    """
    try:
        return _compiled(template).render(
            messages=list(messages), add_generation_prompt=True, tools=None, **special
        )
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise UserError(
            f"the chat template of {name} cannot be rendered: {error}",
            remedy="set `workload.chat: false` to send plain texts",
        ) from error
