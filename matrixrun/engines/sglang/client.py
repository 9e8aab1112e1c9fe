"""The HTTP half of SGLang: sends token ids, reads token ids."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import numpy as np

from matrixrun.engines.http import Connection, Failed, failed_observation, parsed_part, quote
from matrixrun.engines.sglang import answers, reports
from matrixrun.engines.sglang.answers import Aborted, Emission, Garbled, Valuation
from matrixrun.evidence.errors import EngineDied
from matrixrun.evidence.requests import (
    Evaluation,
    Observation,
    Request,
    Sampling,
    Score,
    ScoreRequest,
)

GENERATE = "/generate"
FLUSH_SECONDS = 20  # what the server waits for requests that were given up before it flushes
EXTEND_ROWS = 8  # where the score does not say: a verification step of seven draft tokens
MARGIN = 3.0  # nats by which a forced token leads
UNLIMITED = -1  # SGLang's top_k for the whole vocabulary


class SGLangClient:
    """See matrixrun.engines.protocol.Client.

    A salt is a namespace of the prefix cache (`extra_key`). What an n-gram drafter has learned
    knows none, so everything is flushed when a salt differs from the one before; a server that is
    not `ours` may decline that, and then is left as it is.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        request_timeout: float,
        transport: httpx.AsyncBaseTransport | None = None,
        ours: bool = True,
    ) -> None:
        self._ours = ours
        self._request_timeout = request_timeout
        self._salt: str | None = None
        self._entering = asyncio.Lock()
        self._offered: int | None = None
        self._asked = False
        self._numbers = itertools.count()
        # The server drops an idle connection after 5 s: each request has one of its own.
        self._server = Connection(
            base_url, api_key, request_timeout=request_timeout, transport=transport
        )

    async def healthy(self) -> bool:
        """See Client.healthy."""
        return await self._server.healthy()

    async def facts(self) -> dict[str, Any]:
        """See Client.facts."""
        info = await self._server.report("/server_info")
        if info is None:  # its name in older versions
            info = await self._server.report("/get_server_info")
        return reports.facts(info)

    async def counters(self) -> dict[str, float]:
        """See Client.counters."""
        answer = await self._server.control("GET", "/metrics/")
        return reports.counters(answer.text) if answer.is_success else {}

    async def reset_prefix_cache(self) -> None:
        """See Client.reset_prefix_cache; raises EngineDied unless the server says it did."""
        options = {
            "params": {"timeout": FLUSH_SECONDS},
            "timeout": httpx.Timeout(2 * FLUSH_SECONDS),
        }
        answer = await self._server.control("POST", "/flush_cache", **options)
        if not answer.is_success:
            raise EngineDied(f"the prefix cache could not be flushed: {quote(answer)}")

    async def aclose(self) -> None:
        """See Client.aclose."""
        await self._server.aclose()

    async def generate(self, request: Request, *, salt: str, logprobs: int) -> Observation:
        """See Client.generate. The answer is streamed: its parts tell the order of the verification
        steps, of which the engine itself only counts how many accepted how many."""
        await self.enter(salt)
        began = time.monotonic()
        try:
            body = _body(request.token_ids, request.sampling, request.max_tokens, salt)
            body |= {"return_logprob": True, "top_logprobs_num": logprobs} if logprobs > 0 else {}
            emission = Emission()
            async with asyncio.timeout(self._request_timeout):
                async for part in self._stream(body | {"stream": True}):
                    emission.add(part, time.monotonic() - began, logprobs=logprobs)
            return emission.observation(
                request,
                logprobs=logprobs,
                offered=self._offered,
                seconds=time.monotonic() - began,
            )
        except TimeoutError:
            error = f"timeout: no answer within {self._request_timeout:g} s"
        except (Failed, Garbled, Aborted) as failure:
            error = str(failure)
        return failed_observation(request, seconds=time.monotonic() - began, error=error)

    async def score(self, score: ScoreRequest, *, salt: str) -> Score:
        """See Client.score.

        `rows` is how many rows the engine computed in the step that gave the (last) logprob: 1
        with DECODE, what was not cached of the prefix with EXTEND, the whole text with PREFILL.
        """
        await self.enter(salt)
        # What one score leaves in the cache must not shorten the next one's computation.
        own = f"{salt}/{next(self._numbers)}"
        values: list[Valuation] = []
        rows, error = 0, None
        try:
            _check(score)
            if score.evaluation is Evaluation.PREFILL:
                values, rows = await self._prefill(score, own)
            elif score.evaluation is Evaluation.DECODE:
                values, rows = [await self._decode(score, own)], 1
            else:
                values, rows = await self._extend(score, own)
        except (Failed, Garbled, Aborted) as failure:
            error = str(failure)
        return Score(
            request=score.id,
            evaluation=score.evaluation,
            start=score.start,
            token_logprobs=np.asarray([value.token for value in values], np.float32),
            best_logprobs=np.asarray([value.best for value in values], np.float32),
            best_ids=np.asarray([value.best_id for value in values], np.int32),
            rows=rows,
            error=error,
        )

    async def _prefill(self, score: ScoreRequest, salt: str) -> tuple[list[Valuation], int]:
        """All positions in one prefill that emits nothing."""
        body = _body(score.token_ids, Sampling(ignore_eos=True), 0, salt)
        meta = await self._complete(body | {"logprob_start_len": score.start - 1})
        rows = answers.named_rows(meta, "input")[1:]  # the first has no text before it
        given = score.token_ids[score.start :]
        if len(rows) != len(given):
            raise Garbled(f"{len(given)} prompt tokens but logprobs of {len(rows)}")
        values = [answers.valuation(row, token) for row, token in zip(rows, given, strict=True)]
        return values, len(score.token_ids) - (answers.cached_tokens(meta) or 0)

    async def _decode(self, score: ScoreRequest, salt: str) -> Valuation:
        """The last-but-one token is emitted, so that the last is valued by a decoded row.

        Where the target would emit another one there, the wanted one is helped by a bias just large
        enough. SGLang's logprobs are those after the bias, which is then taken out of them again.
        """
        *prefix, forced, token = score.token_ids
        if not prefix:
            raise Failed("a text of two tokens has no decoded row")
        body = _body(prefix, Sampling(ignore_eos=True), 2, salt)
        body["token_ids_logprob"] = sorted({forced, token})
        free = await self._complete(body)
        emitted, rows = _output(free, 2)
        if emitted[0] == forced:
            return answers.valuation(rows[1], token)
        lead = answers.valuation(rows[0], forced)
        bias = lead.best - lead.token + MARGIN
        body["sampling_params"]["logit_bias"] = {str(forced): bias}
        emitted, rows = _output(await self._complete(body), 2)
        if emitted[0] != forced:
            raise Failed(f"token {forced} could not be forced by a bias of {bias:g}")
        return answers.valuation(answers.without_bias(rows[1], forced, bias), token)

    async def _extend(self, score: ScoreRequest, salt: str) -> tuple[list[Valuation], int]:
        """The prefix is cached first, all but the rows that are to be computed."""
        *prefix, token = score.token_ids
        cut = len(prefix) - (score.rows or EXTEND_ROWS)
        if cut < 1:
            raise Failed(f"{len(prefix)} tokens are fewer than the rows to extend by")
        await self._complete(_body(prefix[:cut], Sampling(ignore_eos=True), 1, salt))
        body = _body(prefix, Sampling(ignore_eos=True), 1, salt)
        meta = await self._complete(body | {"token_ids_logprob": [token]})
        cached = answers.cached_tokens(meta) or 0
        if cached == 0:
            raise Failed(f"nothing to extend: none of {len(prefix)} tokens was cached")
        _, rows = _output(meta, 1)
        return [answers.valuation(rows[0], token)], len(prefix) - cached

    async def enter(self, salt: str) -> None:
        """See Client.enter."""
        async with self._entering:
            if not self._asked:
                self._offered, self._asked = reports.offered(await self.facts()), True
            if salt == self._salt:
                return
            try:
                await self.reset_prefix_cache()
            except EngineDied:
                if self._ours or not await self.healthy():
                    raise
            self._salt = salt

    async def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The account of one answer in one piece, logprobs included: of the best two at each
        position, since a bias may have put one of them there."""
        answer = await self._server.complete(
            GENERATE, body | {"return_logprob": True, "top_logprobs_num": 2}
        )
        meta = answers.meta_info(answer)
        return meta | {"output_ids": answers.output_ids(answer)}

    async def _stream(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """The parsed parts of a streamed answer; raises as Connection.lines does."""
        lines = self._server.lines(GENERATE, body)
        async with contextlib.aclosing(lines):
            async for line in lines:
                text = line.partition("data:")[2].strip()
                if text and text != "[DONE]":
                    yield _part(text)


def _body(
    token_ids: tuple[int, ...] | list[int], sampling: Sampling, max_tokens: int, salt: str
) -> dict[str, Any]:
    """A request with every sampling field in it."""
    if sampling.allowed_token_ids:
        raise Failed("allowed_token_ids are not expressible with SGLang")
    if sampling.bad_words:
        raise Failed("bad words of several tokens are not expressible with SGLang")
    params: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "min_new_tokens": sampling.min_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or UNLIMITED,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "sampling_seed": sampling.seed,
        "ignore_eos": sampling.ignore_eos,
        "stop_token_ids": list(sampling.stop_token_ids),
        "stop": list(sampling.stop),
        "n": 1,
    }
    if sampling.grammar is not None:
        params["regex"] = sampling.grammar.regex
    body: dict[str, Any] = {"input_ids": list(token_ids), "sampling_params": params}
    return body | {"extra_key": salt} if salt else body


def _check(score: ScoreRequest) -> None:
    last = len(score.token_ids) - 1
    if not 1 <= score.start <= last:
        raise Failed(f"nothing to score from position {score.start}: the first token has none")
    if score.evaluation is not Evaluation.PREFILL and score.start != last:
        raise Failed(f"{score.evaluation} values the last token only, not from {score.start} on")


def _output(meta: dict[str, Any], emitted: int) -> tuple[list[int], list[answers.Row]]:
    """The tokens of an answer and how each position was valued."""
    rows = answers.named_rows(meta, "output")
    if not len(rows) == len(meta["output_ids"]) == emitted:
        raise Garbled(f"{emitted} tokens were due, {len(rows)} came")
    return meta["output_ids"], rows


def _part(text: str) -> Any:
    """The JSON of one part of a stream; Failed where it is an error."""
    part = parsed_part(text)
    if isinstance(part, dict) and isinstance(part.get("error"), dict):
        raise Failed(f"HTTP {part['error'].get('code')}: {part['error'].get('message')}")
    return part
