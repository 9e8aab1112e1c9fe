"""Runs vLLM's own scheduler with a ledger, without a model: tokens and drafts are drawn at random.

The engine's interpreter runs it: `drive_scheduler.py TARGET SEED ahead|after [CONTROL]`. `ahead` is
the scheduler that plans a step while the one before it is computed. CONTROL is a control file of
the fault bench, whose fault is put into the scheduler.
"""

from __future__ import annotations

import os
import random
import sys
from collections import deque

import torch
from matrixrun_ledger import scheduler as traced
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

BLOCK, BLOCKS, DRAFT, VOCABULARY, STOP = 32, 22, 3, 40, 7
REQUESTS = 24


def main(target: str, seed: int, ahead: bool, control: str | None) -> None:
    """Serve requests that outgrow the cache together, some of which are called off."""
    if control is not None:
        from matrixrun_faults.control import Control
        from matrixrun_faults.hooks import _wrap_scheduler

        _wrap_scheduler(Control(control))
    config = EngineArgs(
        model=target,
        max_model_len=416,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        block_size=BLOCK,
        enable_prefix_caching=True,
        kv_cache_memory_bytes=1 << 20,
        enforce_eager=True,
        speculative_config={"method": "ngram", "num_speculative_tokens": DRAFT,
                            "prompt_lookup_max": 2, "prompt_lookup_min": 1},
    ).create_engine_config()  # fmt: skip
    config.cache_config.num_gpu_blocks = BLOCKS
    config.scheduler_config.async_scheduling = ahead
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
    scheduler = traced(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=BLOCKS,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=True,
    )
    drawn = random.Random(seed)
    for request in requests(drawn):
        scheduler.add_request(request)
    in_flight = deque()
    while scheduler.has_unfinished_requests() or in_flight:
        in_flight.append(planned(scheduler, drawn))
        while len(in_flight) > ahead or not scheduler.has_unfinished_requests():
            if not in_flight:
                break
            scheduler.update_from_output(*in_flight.popleft())
        if not ahead:
            draft(scheduler, drawn)
        if drawn.random() < 0.03 and scheduler.running:
            dropped = drawn.choice(scheduler.running).request_id
            scheduler.finish_requests(dropped, RequestStatus.FINISHED_ABORTED)
    # Too late, as a front end that is short of time does; nobody knows the second.
    scheduler.finish_requests(iter(["request-0", "never-sent"]), RequestStatus.FINISHED_ABORTED)


def requests(drawn: random.Random) -> list[Request]:
    """Return requests of which half share a prefix."""
    hashing = get_hash_fn_by_name("sha256")
    init_none_hash(hashing)
    shared = [drawn.randrange(VOCABULARY) for _ in range(2 * BLOCK)]
    found = []
    for number in range(REQUESTS):
        prefix = shared if number % 2 else []
        prompt = [*prefix, *(drawn.randrange(VOCABULARY) for _ in range(10 + number))]
        sampling = SamplingParams(
            temperature=0.0, max_tokens=drawn.randint(20, 200), ignore_eos=True,
            stop_token_ids=[STOP] if number % 3 == 0 else [],
        )  # fmt: skip
        sampling.update_from_generation_config({}, None)
        found.append(
            Request(
                request_id=f"request-{number}",
                prompt_token_ids=prompt,
                sampling_params=sampling,
                pooling_params=None,
                block_hasher=get_request_block_hasher(BLOCK, hashing),
            )
        )
    return found


def planned(scheduler: object, drawn: random.Random) -> tuple[object, ModelRunnerOutput]:
    """Plan a step; returns it with what a model would answer: each draft is right up to a place
    drawn at random."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    sampled = []
    for name in names:
        request = scheduler.requests[name]
        drafts = output.scheduled_spec_decode_tokens.get(name, [])
        if request.is_prefill_chunk:
            sampled.append([])  # a part of its prompt, or of what it had before a preemption
            continue
        taken = drawn.randint(0, len(drafts))
        fresh = [drawn.randrange(VOCABULARY) for _ in range(taken + 1)]
        # Planned ahead, drafts are not known to the scheduler.
        sampled.append(
            [a if a >= 0 else b for a, b in zip([*drafts[:taken], -1], fresh, strict=True)]
        )
    places = {name: place for place, name in enumerate(names)}
    return output, ModelRunnerOutput(
        req_ids=names, req_id_to_index=places, sampled_token_ids=sampled
    )


def draft(scheduler: object, drawn: random.Random) -> None:
    """Draft anew for every running request."""
    names = [request.request_id for request in scheduler.running]
    drafts = [[drawn.randrange(VOCABULARY) for _ in range(DRAFT)] for _ in names]
    scheduler.update_draft_token_ids(DraftTokenIds(req_ids=names, draft_token_ids=drafts))


if __name__ == "__main__":
    place, seed, order, *control = sys.argv[1:]
    main(place, int(seed), order == "ahead", control[0] if control else None)
    sys.stdout.flush()
    os._exit(0)  # nothing of the engine was started that would have to be ended
