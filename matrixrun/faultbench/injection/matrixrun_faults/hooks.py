"""Where vLLM's methods are wrapped (0.32, the V1 runner). Every hook does nothing when no fault is
active, so that one launch serves many faults and healthy passes too."""

from __future__ import annotations

import copy
import functools
import logging
import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Row
from .control import Control
from .step import Step


@functools.cache
def wrap_all(path: str) -> None:
    """Wrap everything in this process. In the server's front end, which computes nothing, only what
    makes replies is wrapped: importing the runner there would cost seconds."""
    control, step = Control(path), Step()
    if multiprocessing.current_process().name == "MainProcess":
        _wrap_replies(control)
        return
    _wrap_runner(control, step)
    _wrap_attention(control, step)
    _wrap_sampler(control, step)
    _wrap_logprobs(control, step)
    _wrap_randomness(control, step)
    _wrap_processors(control, step)
    _wrap_grammars(control)
    _wrap_tables(control, step)
    _wrap_scheduler(control)
    _wrap_cache(control)
    logging.getLogger("vllm").info("matrixrun_faults: installed, control %s", path)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace `owner.name` by `around(original, *args, **kwargs)`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapped)


def _wrap_runner(control: Control, step: Step) -> None:
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    def update_states(original: Any, runner: Any, scheduled: Any) -> Any:
        control.fault.restore(step)
        control.refresh()
        step.runner = runner
        step.resumed = frozenset(scheduled.scheduled_cached_reqs.resumed_req_ids)
        step.dropped = sum(_dropped(runner, one) for one in scheduled.finished_req_ids)
        for request in scheduled.finished_req_ids:
            if request in runner.requests:
                control.fault.ended(step, runner.requests[request])
            for known in (step.rejected, step.cached):
                known.pop(request, None)
        for new in scheduled.scheduled_new_reqs:
            step.cached[new.req_id] = new.num_computed_tokens
            step.order.setdefault(new.req_id, len(step.order))
        return original(runner, scheduled)

    def prepare_inputs(original: Any, runner: Any, scheduled: Any, counts: np.ndarray) -> Any:
        step.runner, step.scheduled = runner, np.asarray(counts)
        step.requests = list(runner.input_batch.req_ids)
        step.named = list(scheduled.num_scheduled_tokens)
        return original(runner, scheduled, counts)

    def propose(original: Any, *args: Any, **kwargs: Any) -> Any:
        return control.fault.drafts(step, original(*args, **kwargs))

    def take(original: Any, runner: Any) -> Any:
        taken = original(runner)
        if taken is not None:
            taken.draft_token_ids = control.fault.offered(step, taken.draft_token_ids)
        return taken

    def load_model(original: Any, runner: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(runner, *args, **kwargs)
        compute = runner.model.compute_logits

        def compute_logits(*inner: Any, **named: Any) -> Any:
            logits = compute(*inner, **named)
            return logits if logits is None else control.fault.computed_logits(step, logits)

        runner.model.compute_logits = compute_logits
        return result

    _wrap(GPUModelRunner, "_update_states", update_states)
    _wrap(GPUModelRunner, "_prepare_inputs", prepare_inputs)
    _wrap(GPUModelRunner, "propose_draft_token_ids", propose)
    _wrap(GPUModelRunner, "take_draft_token_ids", take)
    _wrap(CPUModelRunner, "load_model", load_model)


def _wrap_attention(control: Control, step: Step) -> None:
    from vllm.v1.worker.utils import AttentionGroup

    def build(original: Any, group: Any, common: Any, *args: Any, **kwargs: Any) -> Any:
        if control.fault.attends_ahead(step):
            common = copy.copy(common)
            common.causal = False
        return original(group, common, *args, **kwargs)

    _wrap(AttentionGroup, "build_metadata", build)


def _dropped(runner: Any, request: str) -> bool:
    """Whether a request that is over was called off: no stop token, and below its limit."""
    state = runner.requests.get(request)
    if state is None or state.sampling_params is None:
        return False
    sampling = state.sampling_params
    ends = {*(sampling.stop_token_ids or ()), sampling.eos_token_id}
    whole = len(state.output_token_ids) >= (sampling.max_tokens or 0)
    return not whole and ends.isdisjoint(state.output_token_ids)


def _wrap_sampler(control: Control, step: Step) -> None:
    from vllm.v1.sample import rejection_sampler

    def forward(original: Any, sampler: Any, metadata: Any, *args: Any) -> Any:
        probs, logits, sampling = args
        logits = control.fault.verified_logits(step, metadata.num_draft_tokens, logits)
        return original(sampler, metadata, probs, logits, sampling)

    def sample(original: Any, drafts: Any, counts: list[int], *args: Any, **kwargs: Any) -> Any:
        emitted = original(drafts, counts, *args, **kwargs)
        target_logits, bonus = args[3], args[4]
        rows = _rows(counts, drafts, target_logits, bonus.flatten().tolist())
        control.fault.steps_seen += sum(count > 0 for count in counts)
        emitted = control.fault.emit(step, emitted, rows)
        for row, count in enumerate(counts):
            kept = int((emitted[row] >= 0).sum())
            step.rejected[step.requests[row]] = max(0, count + 1 - kept) if count else 0
        control.report()
        return emitted

    _wrap(rejection_sampler.RejectionSampler, "forward", forward)
    _wrap(rejection_sampler, "rejection_sample", sample)


def _wrap_logprobs(control: Control, step: Step) -> None:
    from vllm.v1.sample.rejection_sampler import RejectionSampler

    def tell(
        original: Any, sampler: Any, most: int, metadata: Any, logits: Any, *others: Any
    ) -> Any:
        of_drafts, of_bonus, emitted = others
        told = logits.float().clone()
        told[metadata.target_logits_indices] = of_drafts.float()
        told[metadata.bonus_logits_indices] = of_bonus.float()
        told = control.fault.told_logits(step, metadata.num_draft_tokens, emitted, told)
        of_drafts = told[metadata.target_logits_indices]
        of_bonus = told[metadata.bonus_logits_indices]
        return original(sampler, most, metadata, logits, of_drafts, of_bonus, emitted)

    _wrap(RejectionSampler, "_get_logprobs_tensors", tell)


def _wrap_randomness(control: Control, step: Step) -> None:
    from vllm.v1.sample import rejection_sampler

    def uniforms(original: Any, count: int, counts: list[int], *args: Any) -> Any:
        return control.fault.uniforms(step, counts, original(count, counts, *args))

    def recover(original: Any, *args: Any, **kwargs: Any) -> Any:
        counts, drafts, law = args[1], args[3], args[5]
        return control.fault.recovered(step, counts, drafts, law, original(*args, **kwargs))

    def expand(original: Any, given: Any, ends: Any, count: int, **replaced: Any) -> Any:
        own = original(given, ends, count, **replaced)
        counts = np.diff(ends.cpu().numpy(), prepend=0)
        old, new = replaced.get("replace_from", 0), replaced.get("replace_to", 0)
        kept = given.masked_fill(given == old, new)
        right = kept.repeat_interleave(ends.new_tensor(counts))
        field = "temperature" if replaced else "top_p" if right.is_floating_point() else "top_k"
        return control.fault.expanded(field, right, own)

    def constrain(original: Any, logits: Any, *args: Any) -> Any:
        # On a CPU 0.32 dies of a step without a draft where a request has top-k and none top-p.
        return original(logits, *args) if logits.shape[0] else logits

    _wrap(rejection_sampler, "apply_sampling_constraints", constrain)
    _wrap(rejection_sampler, "expand_batch_to_tokens", expand)
    _wrap(rejection_sampler, "generate_uniform_probs", uniforms)
    _wrap(rejection_sampler, "sample_recovered_tokens", recover)


def _wrap_processors(control: Control, step: Step) -> None:
    from vllm.v1.sample import rejection_sampler

    sampler, plain = rejection_sampler.RejectionSampler, rejection_sampler.Sampler
    combine = sampler._combine_outputs_with_spec_tokens

    def histories(committed: Any, drafts: Any = None) -> Any:
        made = combine(committed, drafts)
        return made if drafts is None else control.fault.histories(step, committed, drafts, made)

    penalise, penalise_drafts = plain.apply_penalties, sampler.apply_penalties

    def count(logits: Any, sampling: Any, histories: Any) -> Any:
        if not sampling.no_penalties:
            histories = control.fault.counted(step, list(range(len(histories))), histories)
        return penalise(logits, sampling, histories)

    def count_drafts(logits: Any, sampling: Any, drafts: Any, rows: Any, histories: Any) -> Any:
        if not sampling.no_penalties:
            histories = control.fault.counted(step, rows.tolist(), histories)
        return penalise_drafts(logits, sampling, drafts, rows, histories)

    def mask(original: Any, processor: Any, logits: Any, counts: Any) -> Any:
        before = logits.clone()
        return control.fault.least_tokens(step, before, original(processor, logits, counts))

    def ban(original: Any, logits: Any, words: Any, past: Any, counts: list[int]) -> None:
        firsts = [int(one) for one in np.cumsum(counts) - counts]
        firsts = [first for first, count in zip(firsts, counts, strict=True) if count]
        before = logits.clone()
        original(logits, words, control.fault.word_histories(firsts, past), counts)
        logits.copy_(control.fault.bad_words(firsts, before, logits))

    sampler._combine_outputs_with_spec_tokens = staticmethod(histories)
    plain.apply_penalties = staticmethod(count)
    sampler.apply_penalties = staticmethod(count_drafts)
    _wrap(rejection_sampler, "apply_bad_words_with_drafts", ban)
    _wrap(rejection_sampler.MinTokensLogitsProcessor, "apply_with_spec_decode", mask)


def _wrap_grammars(control: Control) -> None:
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar
    from vllm.v1.worker import gpu_model_runner

    def mask(original: Any, scheduled: Any, grammar: Any, batch: Any, logits: Any) -> None:
        before = logits.clone()
        original(scheduled, grammar, batch, logits)
        drafts = scheduled.scheduled_spec_decode_tokens
        rows = [1 + len(drafts.get(request, ())) for request in batch.req_ids]
        firsts = (np.cumsum(rows) - rows).tolist()
        logits.copy_(control.fault.masked(firsts, before, logits))

    def roll_back(original: Any, grammar: Any, tokens: int) -> None:
        original(grammar, control.fault.rolled_back(tokens))

    def accept(original: Any, *args: Any) -> bool:
        return control.fault.fits_grammar(original(*args))

    _wrap(gpu_model_runner, "apply_grammar_bitmask", mask)
    _wrap(XgrammarGrammar, "rollback", roll_back)
    _wrap(StructuredOutputManager, "accept_tokens", accept)


def _rows(counts: list[int], drafts: Any, logits: Any, bonus: list[int]) -> list[Row]:
    best = logits.argmax(dim=-1).tolist() if logits.numel() else []
    own = logits.gather(-1, drafts.long().clamp(min=0).unsqueeze(-1)).squeeze(-1)
    behind = (logits.amax(dim=-1) - own).tolist() if logits.numel() else []
    tokens, rows, start = drafts.tolist(), [], 0
    for index, count in enumerate(counts):
        end = start + count
        right = [*best[start:end], bonus[index]]
        rows.append(Row(index, tokens[start:end], right, behind[start:end]))
        start = end
    return rows


def _wrap_tables(control: Control, step: Step) -> None:
    from vllm.v1.worker.block_table import MultiGroupBlockTable

    def compute(original: Any, tables: Any, rows: int, starts: Any, positions: Any) -> Any:
        if step.runner is None or rows != len(step.requests):
            return original(tables, rows, starts, positions)
        control.fault.before_placing(step, tables.block_tables, positions)
        result = original(tables, rows, starts, positions)
        control.fault.placed(step, [table.slot_mapping.gpu for table in tables.block_tables])
        return result

    _wrap(MultiGroupBlockTable, "compute_slot_mapping", compute)


def _wrap_replies(control: Control) -> None:
    from vllm.parser.abstract_parser import DelegatingParser
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer
    from vllm.v1.engine.output_processor import RequestState

    def read(original: Any, detokeniser: Any, tokens: list[int], ended: bool) -> Any:
        def add(some: list[int], last: bool) -> Any:
            return original(detokeniser, some, last)

        control.refresh()
        return control.fault.read(add, detokeniser, tokens, ended)

    def complete(original: Any, state: Any, tokens: list[int], *args: Any) -> Any:
        control.refresh()
        made = original(state, tokens, *args)
        if state.output_kind is RequestOutputKind.DELTA and tokens:
            made.text = control.fault.piece(tokens, made.text, state.detokenizer.tokenizer.decode)
            last = made.finish_reason is not None
            made.text = control.fault.part(state.request_id, tokens, made.text, last)
            control.report()
        return made

    def parse(
        original: Any,
        parser: Any,
        delta_text: str,
        delta_token_ids: list[int],
        *args: Any,
        **more: Any,
    ) -> Any:
        message = original(parser, delta_text, delta_token_ids, *args, **more)
        message = control.fault.delta(delta_token_ids, delta_text, message)
        control.report()
        return message

    _wrap(BaseIncrementalDetokenizer, "update", read)
    _wrap(RequestState, "_new_completion_output", complete)
    _wrap(DelegatingParser, "parse_delta", parse)


def _wrap_scheduler(control: Control) -> None:
    from vllm.v1.core.sched import scheduler

    def schedule(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        control.refresh()
        control.fault.planning(self)
        made = original(self, *args, **kwargs)
        control.fault.planned(self)
        return made

    def update(original: Any, self: Any, request: Any, tokens: list[int], **kwargs: Any) -> Any:
        def append(some: list[int]) -> Any:
            return original(self, request, some, **kwargs)

        emitted = list(tokens)
        result = control.fault.append(append, request, tokens)
        control.fault.verified(self, request, emitted)
        control.report()
        return result

    _wrap(scheduler.Scheduler, "schedule", schedule)
    _wrap(scheduler.Scheduler, "_update_request_with_output", update)


def _wrap_cache(control: Control) -> None:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    def publish(original: Any, self: Any, request: Any, tokens: int) -> Any:
        return original(self, request, control.fault.published(request, tokens))

    def look_up(original: Any, manager: Any, request: Any) -> Any:
        blocks, tokens, boundary = original(manager, request)
        taken = control.fault.reused(request, tokens) if control.fault.found(request, tokens) else 0
        if taken == tokens:
            return blocks, tokens, boundary
        if taken == 0:
            return manager.empty_kv_cache_blocks, 0, 0
        groups = tuple(list(group)[: len(group) * taken // tokens] for group in blocks.blocks)
        return type(blocks)(groups), taken, 0

    def forget(original: Any, pool: Any, block: Any) -> Any:
        hashes = original(pool, block)
        for one in control.fault.forgotten(hashes):
            pool.cached_block_hash_to_block.insert(one, block)
        return hashes

    _wrap(BlockPool, "_remove_cached_block_hashes", forget)
    _wrap(KVCacheCoordinator, "cache_blocks", publish)
    _wrap(KVCacheManager, "get_computed_blocks", look_up)
