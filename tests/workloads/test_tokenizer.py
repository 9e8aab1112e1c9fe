"""A checkpoint's own tokenizer and chat template."""

import json

import pytest
from toy_tokenizers import CHAT, inner, toy

from matrixrun.evidence.errors import UserError
from matrixrun.workloads import load_tokenizer
from matrixrun.workloads.chat import render

USER = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def folder(tmp_path):
    """Return a checkpoint's folder whose tokenizer puts a BOS before texts."""
    inner(bos=True).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def configure(folder, **config) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_a_folder_needs_no_more_than_tokenizer_json(folder):
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.prefix == (0,)
    assert tokenizer.chat_template is None
    assert tokenizer.decode(tokenizer.encode("for x in y")) == "for x in y"
    assert tokenizer.vocabulary_size == 1024


def test_encoding_adds_nothing_and_cuts_nothing(folder):
    text = "word " * 3000
    made = inner()
    made.enable_truncation(8)
    made.save(str(folder / "tokenizer.json"))
    assert len(load_tokenizer(str(folder)).encode(text)) > 3000


def test_the_templates_own_file_counts_before_the_config(folder):
    configure(folder, chat_template="from the config")
    assert load_tokenizer(str(folder)).render(USER) == "from the config"
    (folder / "chat_template.jinja").write_text("from the file")
    assert load_tokenizer(str(folder)).render(USER) == "from the file"


def test_of_several_templates_the_default_is_used(folder):
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    configure(folder, chat_template=named)
    assert load_tokenizer(str(folder)).render(USER) == "plain"


def test_special_tokens_written_as_objects_reach_the_template(folder):
    configure(
        folder,
        bos_token={"content": "<s>", "special": True},
        eos_token="</s>",
        chat_template="{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
    )
    assert load_tokenizer(str(folder)).render(USER) == "<s>Hello</s>"


def test_a_checkpoint_without_tokenizer_json_is_named(tmp_path):
    with pytest.raises(UserError, match=r"has no tokenizer\.json"):
        load_tokenizer(str(tmp_path))


def test_a_missing_folder_is_not_asked_for_at_the_hub(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        load_tokenizer(str(tmp_path / "gone"))
    with pytest.raises(UserError, match="there is no folder"):
        load_tokenizer("./gone")


def test_a_broken_tokenizer_file_is_named(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(str(folder))


def test_a_hub_id_is_fetched_at_its_revision_and_missing_files_are_left_out(folder, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    asked = []

    def download(name, file, revision=None):
        asked.append((name, file, revision))
        if file != "tokenizer.json":
            raise EntryNotFoundError("no such file")
        return str(folder / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert load_tokenizer("org/model", "abc123").chat_template is None
    assert ("org/model", "tokenizer.json", "abc123") in asked


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("GatedRepoError", "HF_TOKEN"),
        ("RepositoryNotFoundError", "path"),
        ("RevisionNotFoundError", "revision"),
        ("LocalEntryNotFoundError", "local folder"),
        (None, "check the network"),
    ],
)
def test_what_the_hub_refuses_becomes_a_remedy(monkeypatch, error, remedy):
    import huggingface_hub
    from huggingface_hub import errors

    def download(*_, **__):
        if error is None:
            raise OSError("connection reset")
        kind = getattr(errors, error)
        raise kind.__new__(kind)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(UserError, match=rf"org/model at revision abc(?s:.*){remedy}"):
        load_tokenizer("org/model", "abc")


def test_a_template_cannot_reach_python():
    escape = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(UserError, match="the chat template of evil cannot be rendered"):
        render(escape, USER, {}, name="evil")


def test_a_template_may_refuse_and_its_words_are_shown():
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(UserError, match=r"roles must alternate(?s:.*)chat: false"):
        render(template, USER, {}, name="strict")


def test_templates_find_what_the_field_gives_them():
    template = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}"
    )
    assert render(template, [*USER, *USER], {}, name="x") == json.dumps(USER[0])


def test_todays_date_never_enters_a_prompt():
    assert render("{{ strftime_now('%Y-%m-%d') }}", USER, {}, name="x") == "2026-01-01"


def test_the_prompt_ends_where_the_assistant_begins():
    assert toy(chat=CHAT).render(USER) == "<s>user\nHello\n<s>assistant\n"
