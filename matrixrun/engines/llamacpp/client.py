"""The HTTP half of llama.cpp: sends token ids, reads token ids."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np

from matrixrun.engines.http import Connection, Failed, failed_observation, parsed_part, quote
from matrixrun.engines.llamacpp import answers, reports
from matrixrun.engines.llamacpp.answers import Emission, Garbled, Valuation
from matrixrun.evidence.errors import EngineDied
from matrixrun.evidence.requests import (
    Evaluation,
    Observation,
    Request,
    Sampling,
    Score,
    ScoreRequest,
)

COMPLETION = "/completion"
# The server closes a connection after a stream, now and then under the next request.
LAST_ON_CONNECTION = {"Connection": "close"}
# Rows computed for each position of a prefill score: beyond eight, llama.cpp's kernels on CPU and
# on GPU alike are those of a long prompt.
PREFILL_ROWS = 9
# Added to a token's logit it is emitted whatever the others are; logprobs are those before it.
FORCE = 1.0e6
FALLBACK_TOP = 64  # top logprobs asked for where a token cannot be forced
# What each server's slots hold, by its key: a client lasts one pass, and passes may share a salt.
_HELD: dict[str, str] = {}


class LlamaCppClient:
    """See matrixrun.engines.protocol.Client.

    Slots know no namespaces: when a salt differs from the one before, all slots are erased. That
    holds over clients of one server, since turns of a conversation come in passes of their own.
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
        self._ours, self._erasable = ours, True
        self._request_timeout = request_timeout
        self._name = f"{base_url} {api_key}"
        self._erasing = asyncio.Lock()
        self._whole_text_token: int | None = None
        self._speculating: bool | None = None
        # The server drops an idle connection after 5 s, and a request on it then is lost.
        self._server = Connection(
            base_url,
            api_key,
            request_timeout=request_timeout,
            idle_seconds=2.0,
            transport=transport,
        )

    async def healthy(self) -> bool:
        """See Client.healthy."""
        return await self._server.healthy()

    async def facts(self) -> dict[str, Any]:
        """See Client.facts."""
        paths = ("/props", "/slots", "/v1/models")
        found = reports.facts(*[await self._server.report(path) for path in paths])
        return found if self._erasable else {**found, "slots_erasable": False}

    async def counters(self) -> dict[str, float]:
        """See Client.counters."""
        answer = await self._server.control("GET", "/metrics")
        return reports.counters(answer.text) if answer.is_success else {}

    async def reset_prefix_cache(self) -> None:
        """See Client.reset_prefix_cache; raises EngineDied unless the server says it did."""
        slots = await self._server.report("/slots")
        if not isinstance(slots, list):
            raise EngineDied("the server does not list its slots, so they cannot be erased")
        for number in range(len(slots)):
            answer = await self._server.control("POST", f"/slots/{number}?action=erase", json={})
            if not answer.is_success:
                raise EngineDied(f"slot {number} could not be erased: {quote(answer)}")

    async def aclose(self) -> None:
        """See Client.aclose."""
        await self._server.aclose()

    async def generate(self, request: Request, *, salt: str, logprobs: int) -> Observation:
        """See Client.generate. On a server that speculates every logprob is NaN: it puts 0 in the
        place of those of accepted draft tokens."""
        await self.enter(salt)
        began = time.monotonic()
        try:
            body = _body(request.token_ids, request.sampling, request.max_tokens)
            body |= {"n_probs": logprobs} if logprobs > 0 else {}
            body |= {} if self._erasable else {"cache_prompt": False}
            emission = Emission()
            async with asyncio.timeout(self._request_timeout):
                async for chunk in self._stream(body):
                    emission.add(chunk, time.monotonic() - began)
                seconds = time.monotonic() - began
                if emission.missing():
                    await self._fill(emission, body)
                if emission.sums[0] > 0 or await self._speculates():
                    emission.withhold_logprobs()
            return emission.observation(request, logprobs=logprobs, seconds=seconds)
        except TimeoutError:
            error = f"timeout: no answer within {self._request_timeout:g} s"
        except (Failed, Garbled) as failure:
            error = str(failure)
        return failed_observation(request, seconds=time.monotonic() - began, error=error)

    async def score(self, score: ScoreRequest, *, salt: str) -> Score:
        """See Client.score. The server values no given tokens, so each is forced as the one output
        after the text before it: logprobs are of the raw logits, which the force does not touch.

        What was cached of that text decides how many rows are computed: one with DECODE, what
        the score asks for with EXTEND, `PREFILL_ROWS` (or all there are) with PREFILL. Only the
        last row goes through the output layer. `rows` is the least number that was computed.
        """
        await self.enter(salt)
        values: dict[int, Valuation] = {}
        error = None
        try:
            async with asyncio.timeout(self._request_timeout):
                width = _width(score)
                for first in range(score.start, min(score.start + width, len(score.token_ids))):
                    # What one step leaves in the cache is where the next but `width` goes on.
                    await self._cut(score.token_ids[:first], width)
                    for place in range(first, len(score.token_ids), width):
                        values[place] = await self._value(score.token_ids, place, width)
        except TimeoutError:
            error = f"timeout: not scored within {self._request_timeout:g} s"
        except (Failed, Garbled) as failure:
            error = str(failure)
        valued = [] if error else [value for _, value in sorted(values.items())]
        return _score(score, valued, error)

    async def _value(self, token_ids: tuple[int, ...], place: int, width: int) -> Valuation:
        """Value the token at `place` by one step over the last `width` of the tokens before it; all
        before those are cached."""
        text, token = token_ids[:place], token_ids[place]
        answer = await self._server.complete(
            COMPLETION, _probe(text, token, 1, cached=len(text) > width)
        )
        if not answers.probabilities(answer):
            # The token ends inside a character, and such a one is returned without logprobs.
            await self._cut(text, width)
            body = _probe(text, await self._safe_token(), FALLBACK_TOP, cached=len(text) > width)
            answer = await self._server.complete(COMPLETION, body)
        return answers.valuation(answer, token)

    async def _cut(self, text: tuple[int, ...], width: int) -> None:
        """Leave all but the last `width` tokens of `text` in the slot, and nothing behind them."""
        if len(text) > width:
            await self._server.complete(
                COMPLETION, _probe(text[: len(text) - width], None, 0, cached=True)
            )

    async def _safe_token(self) -> int:
        """A token whose text is whole characters."""
        if self._whole_text_token is None:
            answer = await self._server.complete(
                "/tokenize", {"content": "a", "add_special": False}
            )
            tokens = answer.get("tokens") if isinstance(answer, dict) else None
            if not isinstance(tokens, list) or not tokens or not isinstance(tokens[-1], int):
                raise Garbled(f"no tokens for a text: {str(answer)[:300]}")
            self._whole_text_token = tokens[-1]
        return self._whole_text_token

    async def _speculates(self) -> bool:
        if self._speculating is None:
            self._speculating = bool((await self.facts()).get("speculative"))
        return self._speculating

    async def enter(self, salt: str) -> None:
        """See Client.enter."""
        async with self._erasing:
            if salt == _HELD.get(self._name):
                return
            try:
                await self.reset_prefix_cache()
            except EngineDied:
                if self._ours or not await self.healthy():
                    raise
                self._erasable = False  # each answer is computed anew then
            _HELD[self._name] = salt

    async def _fill(self, emission: Emission, body: dict[str, Any]) -> None:
        """Fetch the ids that a stream leaves out: only an answer in one piece holds them all."""
        again = {**body, "stream": False, "n_probs": 0, "cache_prompt": False}
        answer = await self._server.complete(COMPLETION, again)
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
            raise Garbled("token ids were asked for and none came")
        emission.fill(ids, str(answer.get("content") or ""))

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[Any]:
        """The parsed parts of a streamed answer; raises as Connection.lines does."""
        lines = self._server.lines(COMPLETION, body, headers=LAST_ON_CONNECTION)
        async with contextlib.aclosing(lines):
            async for line in lines:
                if line.startswith(("data:", "error:")):
                    yield _part(line)


def _body(token_ids: tuple[int, ...], sampling: Sampling, max_tokens: int) -> dict[str, Any]:
    """A request with every sampling field in it: what is left out, the server's defaults fill (a
    top-k of 40 and more)."""
    if sampling.stop_token_ids or sampling.allowed_token_ids or sampling.min_tokens:
        raise Failed(
            "stop_token_ids, allowed_token_ids and min_tokens are not expressible with llama.cpp"
        )
    if sampling.bad_words:
        raise Failed("bad words of several tokens are not expressible with llama.cpp")
    if sampling.stop:
        raise Failed("stop strings are not sent to llama.cpp: where its tokens end is not known")
    grammar = {} if sampling.grammar is None else {"grammar": sampling.grammar.gbnf}
    return grammar | {
        "prompt": list(token_ids),
        "n_predict": max_tokens,
        "stream": True,
        "timings_per_token": True,
        "return_tokens": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "typical_p": 1.0,
        "xtc_probability": 0.0,
        "dry_multiplier": 0.0,
        "mirostat": 0,
        "dynatemp_range": 0.0,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_penalty": sampling.repetition_penalty,
        # Penalties elsewhere look at the whole text; here at the last 64 tokens unless told so.
        "repeat_last_n": len(token_ids) + max_tokens,
        "seed": -1 if sampling.seed is None else sampling.seed,
        "ignore_eos": sampling.ignore_eos,
        "stop": [],
        "n_keep": 0,
    }


def _probe(text: tuple[int, ...], forced: int | None, top: int, *, cached: bool) -> dict[str, Any]:
    """One output token after `text`, in the first slot; `forced` if given. What the slot holds of
    `text` is used when `cached`."""
    body = _body(text, Sampling(ignore_eos=False), 1)
    body |= {"stream": False, "timings_per_token": False, "id_slot": 0, "cache_prompt": cached}
    if top:
        body["n_probs"] = top
    if forced is not None:
        body["logit_bias"] = [[forced, FORCE]]
    return body


def _width(score: ScoreRequest) -> int:
    """The rows of the steps that value a score's tokens."""
    if not 1 <= score.start < len(score.token_ids):
        raise Failed(f"nothing to score from position {score.start}: the first token has none")
    if score.evaluation is Evaluation.PREFILL:
        return PREFILL_ROWS
    if score.start != len(score.token_ids) - 1:
        raise Failed(f"{score.evaluation} values the last token only, not from {score.start} on")
    if score.evaluation is Evaluation.DECODE:
        return 1
    return score.rows or PREFILL_ROWS


def _score(score: ScoreRequest, values: list[Valuation], error: str | None) -> Score:
    return Score(
        request=score.id,
        evaluation=score.evaluation,
        start=score.start,
        token_logprobs=np.asarray([value.token for value in values], np.float32),
        best_logprobs=np.asarray([value.best for value in values], np.float32),
        best_ids=np.asarray([value.best_id for value in values], np.int32),
        rows=min((value.rows for value in values), default=0),
        bounded=any(value.bounded for value in values),
        error=error,
    )


def _part(line: str) -> Any:
    """The JSON of one line of a stream; Failed where it is an error."""
    text = line.partition(":")[2].strip()
    if text == "[DONE]":
        raise Failed("a stream of another protocol than llama.cpp's")
    part = parsed_part(text)
    if isinstance(part, dict) and isinstance(part.get("error"), dict):
        raise Failed(f"{part['error'].get('code')}: {part['error'].get('message')}")
    return part
