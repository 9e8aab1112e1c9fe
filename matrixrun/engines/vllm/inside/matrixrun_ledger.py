"""A scheduler for vLLM that does what vLLM's own does, and writes down what that is.

It stands alone: vLLM's own process imports it by name (`--scheduler-cls`), so it needs nothing but
the standard library and vLLM. It is the scheduler that the engine would have chosen, as a subclass;
the block pool's methods are watched in this one instance. Each event is a line of JSON in the file
that MATRIXRUN_LEDGER names (see `matrixrun.evidence.ledger`), written when its step closes. At
LARGEST bytes, or at any mistake of its own, it writes `full` and leaves the engine alone from there
on; where the file cannot be written it goes, for without its end it would look whole. Written for
vLLM 0.32.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

VARIABLE = "MATRIXRUN_LEDGER"
LARGEST = int(os.environ.get("MATRIXRUN_LEDGER_LARGEST", "16000000"))
HASH_DIGITS = 8


def scheduler(*args: Any, **kwargs: Any) -> Scheduler:
    """Make the scheduler: the one that the engine's own configuration asks for, with a ledger."""
    config: Any = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    kind = _AsyncTraced if config.scheduler_config.async_scheduling else _Traced
    return kind(*args, **kwargs)


class Journal:
    """The file; `step` is the number of the step that is being scheduled or was last. What the
    file system refuses raises nothing."""

    def __init__(self, path: str) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._path = Path(path)
        self._file: Any = None
        self.step = 0
        try:
            self._file = self._path.open("w", encoding="utf-8")
        except OSError as error:
            self._give_up(error)

    @property
    def open(self) -> bool:
        """Whether events are still taken."""
        return self._file is not None

    def write(self, event: str, **fields: Any) -> None:
        """Take an event."""
        if self._file is None:
            return
        line = json.dumps({"event": event, **fields}, separators=(",", ":"))
        self._size += len(line) + 1
        if self._size > LARGEST:
            self.close("")
            return
        self._lines.append(line)

    def flush(self) -> None:
        """Write what was taken since the last time."""
        if self._file is None or not self._lines:
            return
        try:
            self._file.write("\n".join(self._lines) + "\n")
            self._file.flush()
        except OSError as error:
            self._give_up(error)
        self._lines = []

    def close(self, why: str) -> None:
        """Take no more events."""
        if self._file is None:
            return
        self._lines.append(json.dumps({"event": "full", "step": self.step, "why": why}))
        self.flush()
        self._drop()

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _give_up(self, error: OSError) -> None:
        """Leave no file: one without its end would look whole."""
        logging.getLogger(__name__).warning("no ledger is kept: %s", error)
        self._drop()
        with contextlib.suppress(OSError):
            self._path.unlink()


class _Ledger:
    """What is put over a scheduler. Its own mistakes end the ledger, never the engine."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._journal = Journal(os.environ[VARIABLE])
        self._numbers: dict[str, int] = {}
        self._known: dict[int, list[int]] = {}
        self._open_steps: dict[int, int] = {}
        self._giving_back: int | None = None
        self._safely(self._begin)

    def _safely(self, note: Callable[..., None], *args: Any) -> None:
        if not self._journal.open:
            return
        try:
            note(*args)
        except Exception as error:
            self._journal.close(f"{type(error).__name__}: {error}"[:500])

    def _begin(self) -> None:
        manager: Any = self.kv_cache_manager  # type: ignore[attr-defined]
        self._pool = pool = manager.block_pool
        self._written = _written_groups(self.kv_cache_config)  # type: ignore[attr-defined]
        self._journal.write(
            "start",
            blocks=pool.num_gpu_blocks - 1,
            block_size=max((size for _, size in self._written), default=0),
            draft_tokens=int(self.num_spec_tokens),  # type: ignore[attr-defined]
            scheduler=type(self).__mro__[2].__name__,
        )
        self._journal.flush()
        self._watch(pool, "get_new_blocks", None, self._taken)
        self._watch(pool, "free_blocks", self._freed, None)
        self._watch(pool, "cache_full_blocks", None, self._published)
        self._watch(pool, "reset_prefix_cache", None, self._reset)
        self._watch(manager, "free", self._giving, self._given)

    def _watch(
        self,
        owner: Any,
        name: str,
        before: Callable[..., None] | None,
        after: Callable[..., None] | None,
    ) -> None:
        """Call `before` with what `owner.name` is given, and `after` with that and its answer."""
        original = getattr(owner, name)
        signature = inspect.signature(original)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            if "ordered_blocks" in given:  # an iterable that may be read once only
                given["ordered_blocks"] = list(given["ordered_blocks"])
            if before is not None:
                self._safely(before, given)
            answer = original(**given)
            if after is not None:
                self._safely(after, given, answer)
            return answer

        setattr(owner, name, watched)

    # -- the block pool ----------------------------------------------------------------------------

    def _taken(self, _: Any, answer: Any) -> None:
        blocks = [block.block_id for block in answer]
        if blocks:
            self._journal.write("taken", step=self._journal.step, blocks=blocks)

    def _freed(self, given: Any) -> None:
        blocks = [block for block in given["ordered_blocks"] if not block.is_null]
        if blocks:
            self._journal.write(
                "freed",
                step=self._journal.step,
                request=self._giving_back,
                blocks=[block.block_id for block in blocks],
                holders=[block.ref_cnt for block in blocks],
            )

    def _published(self, given: Any, _: Any) -> None:
        first, end, size = (
            given[name] for name in ("num_cached_blocks", "num_full_blocks", "block_size")
        )
        blocks = [one for one in given["blocks"][first:end] if one.block_hash is not None]
        if blocks:
            self._journal.write(
                "published",
                step=self._journal.step,
                request=self._number(given["request"].request_id),
                blocks=[one.block_id for one in blocks],
                end=end * size,
                committed=given["request"].num_tokens,
                hashes=[bytes(one.block_hash).hex()[:HASH_DIGITS] for one in blocks],
            )

    def _reset(self, _: Any, done: Any) -> None:
        if done:
            self._journal.write("reset", step=self._journal.step)

    def _giving(self, given: Any) -> None:
        self._giving_back = self._number(given["request"].request_id)

    def _given(self, given: Any, _: Any) -> None:
        self._known.pop(self._number(given["request"].request_id), None)
        self._giving_back = None

    # -- the scheduler -----------------------------------------------------------------------------

    def add_request(self, request: Any) -> None:
        """Note the request, then take it as ever."""
        self._safely(self._arrived, request)
        super().add_request(request)  # type: ignore[misc]

    def _arrived(self, request: Any) -> None:
        sampling = request.sampling_params
        if sampling is None or request.request_id in self._numbers:
            return
        ends = set(sampling.stop_token_ids or ())
        if sampling.eos_token_id is not None:
            ends.add(sampling.eos_token_id)
        self._journal.write(
            "arrived",
            request=self._number(request.request_id),
            prompt=request.num_prompt_tokens,
            limit=request.max_tokens,
            stop=sorted(ends),
            stop_strings=bool(sampling.stop),
        )

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule as ever, then note the step."""
        self._journal.step += 1
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        self._open_steps[id(output)] = self._journal.step
        self._safely(self._scheduled, output)
        return output

    def _scheduled(self, output: Any) -> None:
        drafts = output.scheduled_spec_decode_tokens
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.requests[name]  # type: ignore[attr-defined]
            number, start = self._number(name), request.num_computed_tokens - tokens
            groups = self.kv_cache_manager.get_block_ids(name)  # type: ignore[attr-defined]
            now = [block for group in groups for block in group if block != 0]
            before = self._known.get(number, [])
            added = now[: len(before)] == before
            self._known[number] = now
            self._journal.write(
                "scheduled",
                step=self._journal.step,
                request=number,
                start=start,
                tokens=tokens,
                proposed=list(drafts.get(name, ())),
                owned=len(now),
                more=now[len(before) :] if added else [],
                whole=None if added else now,
                wrote=self._wrote(groups, start, tokens),
            )

    def _wrote(self, groups: Any, start: int, tokens: int) -> list[int]:
        """The blocks that hold the places from `start` on."""
        return [
            block
            for group, size in self._written
            for block in groups[group][start // size : -(-(start + tokens) // size)]
            if block != 0
        ]

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Close the step as ever, and note what came of it."""
        step = self._open_steps.pop(id(scheduler_output), self._journal.step)
        before: dict[str, Any] = {}
        self._safely(self._before_closing, scheduler_output, model_runner_output, before)
        answer = super().update_from_output(  # type: ignore[misc]
            scheduler_output, model_runner_output
        )
        self._safely(self._closed, step, before)
        self._journal.flush()
        return answer

    def _before_closing(self, scheduled: Any, model: Any, found: dict[str, Any]) -> None:
        for name in scheduled.num_scheduled_tokens:
            request = self.requests.get(name)  # type: ignore[attr-defined]
            if request is None or request.is_finished():
                continue
            sampled = model.sampled_token_ids
            emitted = list(sampled[model.req_id_to_index[name]]) if sampled else []
            proposed = len(scheduled.scheduled_spec_decode_tokens.get(name, ()))
            found[name] = request, emitted, proposed, request.num_output_tokens

    def _closed(self, step: int, before: dict[str, Any]) -> None:
        for name, (request, emitted, proposed, outputs) in before.items():
            in_flight = getattr(request, "num_in_flight_tokens", 0)
            self._journal.write(
                "verified",
                step=step,
                request=self._number(name),
                proposed=proposed if emitted else 0,
                accepted=max(0, len(emitted) - 1),
                token=emitted[-1] if emitted else None,
                kept=list(request.output_token_ids[outputs:]),
                committed=request.num_tokens,
                computed=max(0, request.num_computed_tokens - in_flight),
                ended=request.status.name if request.is_finished() else None,
            )
        self._usage(step)

    def _usage(self, step: int) -> None:
        pool, waiting = self._pool, getattr(self, "deferred_frees", ())
        self._journal.write(
            "closed",
            step=step,
            in_use=pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
            deferred=sum(len(blocks) for _, blocks in waiting),
            requests=len(self.requests),  # type: ignore[attr-defined]
            seconds=round(time.monotonic(), 6),
        )

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._safely(self._preempted, request)
        return super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]

    def _preempted(self, request: Any) -> None:
        number = self._number(request.request_id)
        self._journal.write("preempted", step=self._journal.step, request=number)

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._safely(self._ended, request)
        answer = super()._free_request(request, *args, **kwargs)  # type: ignore[misc]
        if not self.requests:  # type: ignore[attr-defined]
            self._safely(self._usage, self._journal.step)
        self._journal.flush()
        return answer

    def finish_requests(self, request_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Note who is called off too late, then go on as ever."""
        if request_ids is not None:  # an iterable that may be read once only
            request_ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
            self._safely(self._called_off, request_ids)
        return super().finish_requests(request_ids, *args, **kwargs)  # type: ignore[misc]

    def _called_off(self, names: list[str]) -> None:
        for name in names:
            request = self.requests.get(name)  # type: ignore[attr-defined]
            if name in self._numbers and (request is None or request.is_finished()):
                number = self._number(name)
                self._journal.write("calledoff", step=self._journal.step, request=number)
        self._journal.flush()

    def _ended(self, request: Any) -> None:
        self._journal.write(
            "ended",
            step=self._journal.step,
            request=self._number(request.request_id),
            how=request.status.name,
            committed=request.num_tokens,
            seconds=round(time.monotonic(), 6),
        )


def _written_groups(config: Any) -> list[tuple[int, int]]:
    """The groups of layers whose blocks hold one token after the other, with their block sizes."""
    from vllm.v1.kv_cache_interface import AttentionSpec

    return [
        (number, group.kv_cache_spec.block_size)
        for number, group in enumerate(config.kv_cache_groups)
        if isinstance(group.kv_cache_spec, AttentionSpec)
    ]


class _Traced(_Ledger, Scheduler):  # type: ignore[misc]
    """vLLM's scheduler with a ledger."""


class _AsyncTraced(_Ledger, AsyncScheduler):  # type: ignore[misc]
    """vLLM's scheduler that plans ahead, with a ledger."""
