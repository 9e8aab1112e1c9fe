"""The HTTP half of vLLM: sends token ids, reads token ids."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from typing import Any

import httpx
import numpy as np

from matrixrun.engines import replies
from matrixrun.engines.http import Connection, Failed, Refused, failed_observation, quote
from matrixrun.engines.vllm import answers, reports
from matrixrun.engines.vllm.answers import Garbled, Valuation
from matrixrun.engines.vllm.command import MODEL_NAME
from matrixrun.evidence.errors import EngineDied
from matrixrun.evidence.replies import Ask, Form
from matrixrun.evidence.requests import (
    Evaluation,
    Observation,
    Request,
    Sampling,
    Score,
    ScoreRequest,
)

TOP_LOGPROBS = 20  # vLLM's own default for --max-logprobs
COMPLETIONS = "/v1/completions"


class VLLMClient:
    """See matrixrun.engines.protocol.Client."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        request_timeout: float,
        transport: httpx.AsyncBaseTransport | None = None,
        model: str = MODEL_NAME,
    ) -> None:
        self._model = model
        self._block_size: int | None = None
        # The server drops an idle connection after 5 s: each request has one of its own.
        self._server = Connection(
            base_url, api_key, request_timeout=request_timeout, transport=transport
        )

    async def healthy(self) -> bool:
        """See Client.healthy."""
        return await self._server.healthy()

    async def facts(self) -> dict[str, Any]:
        """See Client.facts."""
        version = _parsed(await self._server.control("GET", "/version"))
        options = {"config_format": "json"}
        info = _parsed(await self._server.control("GET", "/server_info", params=options))
        if info is not None:
            return reports.facts(version or {}, info)
        metrics = await self._server.control("GET", "/metrics")
        return reports.facts(version or {}, None, metrics.text if metrics.is_success else "")

    async def counters(self) -> dict[str, float]:
        """See Client.counters."""
        answer = await self._server.control("GET", "/metrics")
        return reports.counters(answer.text) if answer.is_success else {}

    async def enter(self, salt: str) -> None:
        """See Client.enter: nothing to do, every request names its namespace."""

    async def reset_prefix_cache(self) -> None:
        """See Client.reset_prefix_cache; raises EngineDied unless the server says it did."""
        answer = await self._server.control("POST", "/reset_prefix_cache")
        if not answer.is_success or answer.json().get("success") is not True:
            raise EngineDied(f"the prefix cache could not be reset: {quote(answer)}")

    async def aclose(self) -> None:
        """See Client.aclose."""
        await self._server.aclose()

    async def generate(self, request: Request, *, salt: str, logprobs: int) -> Observation:
        """See Client.generate. `first_token` is the engine's own account of it."""
        body = _body(request.token_ids, request.sampling, request.max_tokens, salt)
        if logprobs > 0:
            body |= {"logprobs": logprobs}
        began = time.monotonic()
        try:
            answer = await self._complete(body)
            seconds = time.monotonic() - began
            return answers.observation(answer, request, logprobs=logprobs, seconds=seconds)
        except (Failed, Garbled) as error:
            seconds = time.monotonic() - began
            return failed_observation(request, seconds=seconds, error=str(error))

    async def reply(self, ask: Ask, *, salt: str) -> Observation:
        """See Client.reply. `/detokenize` leaves special tokens in, so that replies without tools,
        whose texts are held against what it says, are asked for with them."""
        parts, began = replies.Parts(ask), time.monotonic()
        try:
            await self._put(ask, parts, salt)
            seconds = time.monotonic() - began
            decoded = None if ask.form.has_tools else await self._decoded(parts.emitted)
        except Failed as error:
            seconds = time.monotonic() - began
            return replies.failed(ask, seconds=seconds, error=str(error))
        return parts.observation(seconds=seconds, decoded=decoded)

    async def _put(self, ask: Ask, parts: replies.Parts, salt: str) -> None:
        greedy = _body((), Sampling(seed=ask.seed), ask.max_tokens, salt)
        body = {"model": self._model, **greedy, **replies.question(ask)}
        if ask.form is not Form.COMPLETION:
            del body["prompt"]
        if not ask.form.has_tools:
            body["skip_special_tokens"] = False
        path = replies.path_of(ask.form)
        if ask.streamed:
            await self._server.stream(path, body, parts.line)
        else:
            parts.add(await self._server.complete(path, body))
        if not parts.token_ids:
            raise Failed("token ids were asked for and none came")

    async def _decoded(self, token_ids: list[int]) -> str | None:
        """What the server's detokeniser makes of token ids; None where a gateway has none."""
        body = {"model": self._model, "tokens": token_ids}
        try:
            answer = await self._server.complete("/detokenize", body)
        except Refused as refused:
            if refused.status == httpx.codes.NOT_FOUND:
                return None
            raise Failed(f"/detokenize: {refused}") from refused  # the form itself was taken
        text = answer.get("prompt") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise Failed(f"/detokenize gives no text: {json.dumps(answer)[:300]}")
        return text

    async def score(self, score: ScoreRequest, *, salt: str) -> Score:
        """See Client.score.

        `rows` is how many rows the engine computed in the step that gave the (last) logprob: 1
        with DECODE, the uncached part of the prefix with EXTEND, the whole text with PREFILL.
        """
        try:
            if score.evaluation is Evaluation.PREFILL:
                return await self._prefill(score, salt)
            _check_single(score)
            if score.evaluation is Evaluation.DECODE:
                return await self._decode(score, salt)
            return await self._extend(score, salt)
        except (Failed, Garbled) as error:
            nothing = np.zeros(0, np.float32)
            return Score(
                request=score.id,
                evaluation=score.evaluation,
                start=score.start,
                token_logprobs=nothing,
                best_logprobs=nothing,
                best_ids=np.zeros(0, np.int32),
                error=str(error),
            )

    async def _prefill(self, score: ScoreRequest, salt: str) -> Score:
        """All positions in one prefill. vLLM does not read the prefix cache for such a request."""
        body = _body(score.token_ids, Sampling(ignore_eos=True), 1, salt)
        top = min(max(1, score.top), TOP_LOGPROBS)
        answer = await self._complete(body | {"prompt_logprobs": top})
        rows = answers.prompt_rows(answers.only_choice(answer))
        if len(rows) != len(score.token_ids):
            raise Garbled(f"{len(score.token_ids)} prompt tokens but logprobs of {len(rows)}")
        if not 1 <= score.start < len(rows):
            raise Failed(f"nothing to score from position {score.start}: the first token has none")
        scored = rows[score.start :]
        values = [
            answers.valuation(row, token)
            for row, token in zip(scored, score.token_ids[score.start :], strict=True)
        ]
        told = _score(score, values, rows=len(rows) - (answers.cached_tokens(answer) or 0))
        if top == 1:
            return told
        top_ids, top_logprobs = answers.tops(scored, top)
        return dataclasses.replace(told, top_ids=top_ids, top_logprobs=top_logprobs)

    async def _decode(self, score: ScoreRequest, salt: str) -> Score:
        """The last-but-one token is forced as output, so that the last is valued by a decoded row.

        vLLM's logprobs are those of the raw logits, before the mask that forces the token.
        """
        *prefix, forced, token = score.token_ids
        if not prefix:
            raise Failed("a text of two tokens has no decoded row")
        sampling = Sampling(ignore_eos=True, allowed_token_ids=(forced,))
        value = await self._value(_body(prefix, sampling, 2, salt), token, emitted=2)
        return _score(score, [value[0]], rows=1)

    async def _extend(self, score: ScoreRequest, salt: str) -> Score:
        """The prefix is cached first, so that only what follows its last full block is computed."""
        *prefix, token = score.token_ids
        body = _body(prefix, Sampling(ignore_eos=True), 1, salt)
        await self._complete(body)
        value, cached = await self._value(body, token, emitted=1)
        rows = len(prefix) - cached
        if rows > await self._cache_block():
            raise Failed(f"nothing to extend: {rows} of {len(prefix)} tokens were not cached")
        return _score(score, [value], rows=rows)

    async def _value(
        self, body: dict[str, Any], token: int, *, emitted: int
    ) -> tuple[Valuation, int]:
        """The valuation of a token in the last emitted row, and the prompt tokens from cache.

        A token outside the best 20 gets a bound. `logprob_token_ids` would name it exactly, but in
        vLLM 0.32 it replaces the logprobs of every other request in the same step.
        """
        answer = await self._complete(body | {"logprobs": TOP_LOGPROBS})
        rows = answers.output_rows(answers.only_choice(answer))
        if len(rows) != emitted:
            raise Garbled(f"{emitted} tokens were due, {len(rows)} came")
        value = answers.valuation(_without_forced(rows[-1], body, token), token)
        return value, answers.cached_tokens(answer) or 0

    async def _cache_block(self) -> int:
        if self._block_size is None:
            facts = await self.facts()
            self._block_size = int(facts.get("block_size") or 0)
        return self._block_size

    async def _complete(self, body: dict[str, Any]) -> Any:
        return await self._server.complete(COMPLETIONS, {"model": self._model, **body})


def _body(
    token_ids: tuple[int, ...] | list[int], sampling: Sampling, max_tokens: int, salt: str
) -> dict[str, Any]:
    """A request with every sampling field in it: what is left out, vLLM may take elsewhere."""
    body: dict[str, Any] = {
        "prompt": list(token_ids),
        "max_tokens": max_tokens,
        "n": 1,
        "stream": False,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "min_tokens": sampling.min_tokens,
        "seed": sampling.seed,
        "ignore_eos": sampling.ignore_eos,
        "stop_token_ids": list(sampling.stop_token_ids),
        "stop": list(sampling.stop),
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    if sampling.allowed_token_ids:
        body["allowed_token_ids"] = list(sampling.allowed_token_ids)
    if sampling.grammar is not None:
        body["structured_outputs"] = {"regex": sampling.grammar.regex}
    if sampling.bad_words:
        body["bad_words"] = [word.text for word in sampling.bad_words]
    if salt:
        body["cache_salt"] = salt
    return body


def _without_forced(row: answers.Row, body: dict[str, Any], token: int) -> answers.Row:
    """A forced output is listed besides the best 20 and would be taken for the last of them."""
    forced = body.get("allowed_token_ids", ())
    if len(row) <= TOP_LOGPROBS:
        return row
    return {key: value for key, value in row.items() if key == token or key not in forced}


def _check_single(score: ScoreRequest) -> None:
    if score.start != len(score.token_ids) - 1 or score.start < 1:
        raise Failed(f"{score.evaluation} values the last token only, not from {score.start} on")


def _score(score: ScoreRequest, values: list[Valuation], *, rows: int) -> Score:
    return Score(
        request=score.id,
        evaluation=score.evaluation,
        start=score.start,
        token_logprobs=np.asarray([value.token for value in values], np.float32),
        best_logprobs=np.asarray([value.best for value in values], np.float32),
        best_ids=np.asarray([value.best_id for value in values], np.int32),
        rows=rows,
        bounded=any(value.bounded for value in values),
    )


def _parsed(answer: httpx.Response) -> Any:
    """What a server says of itself; None where it says nothing there, or a gateway answers."""
    with contextlib.suppress(ValueError):
        return answer.json() if answer.is_success else None
    return None
