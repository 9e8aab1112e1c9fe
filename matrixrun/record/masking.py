"""Secrets stay out of messages, ledgers and artifacts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

MASK = "***"

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.I)
_IN_URI = re.compile(r"(?<=://)[^/@\s]+@")
_IN_QUERY = re.compile(r"(?i)\b([\w-]*(?:password|token|secret|key)[\w-]*)=[^&\s'\"]+")


def is_secret(name: str) -> bool:
    """Whether an environment variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def mask(text: str, uri: str = "") -> str:
    """`text` without credentials: those in URIs and queries, the password that `uri` holds, and
    the values of secret environment variables of this process."""
    text = _IN_URI.sub(f"{MASK}@", text)
    text = _IN_QUERY.sub(rf"\1={MASK}", text)
    secrets = [value for name, value in os.environ.items() if is_secret(name) and len(value) > 5]
    password = urlsplit(uri).password if uri else None
    if password:
        secrets += [password, unquote(password)]
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def mask_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with the values of secret ones hidden."""
    return {k: MASK if is_secret(k) else v for k, v in environment.items()}
