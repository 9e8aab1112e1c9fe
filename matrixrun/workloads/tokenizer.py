"""A checkpoint's own tokenizer and chat template, from a folder or a hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from matrixrun.evidence.errors import UserError
from matrixrun.workloads import chat

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


class Tokenizer:
    """Texts to token ids, as the checkpoint itself does it.

    `prefix` holds the ids that the tokenizer puts before every plain text (a BOS, or nothing).
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        name: str,
        chat_template: str | None = None,
        special: Mapping[str, str] | None = None,
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.name = name
        self.chat_template = chat_template
        self._special = dict(special or {})
        self.vocabulary_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        probe = tokenizer.encode("a", add_special_tokens=True)
        leading = 0
        while leading < len(probe.ids) and probe.special_tokens_mask[leading]:
            leading += 1
        self.prefix: tuple[int, ...] = tuple(probe.ids[:leading])

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of `text` alone, with nothing put before or after it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`, special tokens included."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=False)
        return text

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the prompt text of a conversation; UserError without a chat template."""
        if self.chat_template is None:
            raise UserError(
                f"{self.name} has no chat template",
                remedy="leave `workload.chat` out or set it to false",
            )
        return chat.render(self.chat_template, messages, self._special, name=self.name)


def load_tokenizer(folder_or_hub_id: str, revision: str | None = None) -> Tokenizer:
    """Return the tokenizer of a checkpoint.

    Args:
        folder_or_hub_id: a folder with `tokenizer.json`, or a hub id.
        revision: the hub's commit, branch or tag; None for its default branch.

    Raises:
        UserError: there is no such checkpoint, no access to it, or no `tokenizer.json` in it.
    """
    folder = Path(folder_or_hub_id).expanduser()
    if folder.is_dir():
        files = {name: path for name in _FILES if (path := folder / name).is_file()}
    elif folder.is_absolute() or folder_or_hub_id.startswith((".", "~")):
        raise UserError(
            f"there is no folder {folder_or_hub_id}", remedy="correct the checkpoint's `path`"
        )
    else:
        files = _from_hub(folder_or_hub_id, revision)
    return _read(folder_or_hub_id, files)


_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def _from_hub(name: str, revision: str | None) -> dict[str, Path]:
    """Return the local paths of the files of hub checkpoint `name` that exist."""
    import huggingface_hub
    from huggingface_hub import errors

    def fetch(file: str) -> Path:
        return Path(huggingface_hub.hf_hub_download(name, file, revision=revision))

    files: dict[str, Path] = {}
    for file in _FILES:
        try:
            files[file] = fetch(file)
        except (errors.RemoteEntryNotFoundError, errors.EntryNotFoundError) as error:
            if isinstance(error, errors.LocalEntryNotFoundError):
                raise _hub_error(name, revision, error) from error
        except Exception as error:
            # The hub's client lets its transport's own errors through, whichever that is.
            raise _hub_error(name, revision, error) from error
    return files


def _hub_error(name: str, revision: str | None, error: Exception) -> UserError:
    from huggingface_hub import errors

    at = "" if revision is None else f" at revision {revision}"
    if isinstance(error, errors.GatedRepoError):
        remedy = "accept the checkpoint's terms on the hub and set HF_TOKEN"
    elif isinstance(error, errors.RevisionNotFoundError):
        remedy = "correct the checkpoint's `revision`"
    elif isinstance(error, errors.RepositoryNotFoundError | errors.HFValidationError):
        remedy = "correct the checkpoint's `path`, or set HF_TOKEN if it is private"
    else:
        remedy = "check the network (HF_ENDPOINT, HF_TOKEN), or give a local folder as `path`"
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return UserError(f"the tokenizer of {name}{at} cannot be fetched: {reason}", remedy=remedy)


def _read(name: str, files: Mapping[str, Path]) -> Tokenizer:
    if "tokenizer.json" not in files:
        raise UserError(
            f"{name} has no tokenizer.json",
            remedy="give a checkpoint that holds one (a fast tokenizer's file)",
        )
    try:
        inner = tokenizers.Tokenizer.from_file(str(files["tokenizer.json"]))
    except Exception as error:  # the library raises bare Exception
        raise UserError(f"{files['tokenizer.json']} cannot be read: {error}") from error
    config = _read_config(files.get("tokenizer_config.json"))
    template = _chat_template(config, files.get("chat_template.jinja"))
    special = {key: text for key in SPECIAL_NAMES if (text := _token_text(config.get(key)))}
    return Tokenizer(inner, name=name, chat_template=template, special=special)


def _read_config(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _token_text(token: Any) -> str | None:
    """Return the text of a special token, which is written plainly or as an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _chat_template(config: Mapping[str, Any], path: Path | None) -> str | None:
    """Return the template of its own file, else the config's (one, or the list's `default`)."""
    if path is not None:
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default", next(iter(named.values()), None))
    return template if isinstance(template, str) else None
