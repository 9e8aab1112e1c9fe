# mypy: ignore-errors
"""vLLM's own detokeniser and tool parser, fed with tokens in steps of several.

    drive_replies.py TARGET CONTROL FAULT...

No engine and no model: what an answer says is given. For each fault (`none` for none), which is
switched on by the control file, prints a line of JSON: the parts of a plain reply and of one with a
tool call, as a client reads them, and both in one piece; and where the plain one ends if it is to
end at the text of its second and third token, which come with a fourth.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from transformers import AutoTokenizer
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import RequestState

TEXT = "The if statement is used for conditional execution, and so is this one."
CALL = '[{"name":"file_note","parameters":{"subject":"a class","certain":true}}]'
TOOL = {"type": "function", "function": {"name": "file_note", "parameters": {"type": "object"}}}
STEPS = (1, 3, 1, 2, 4)


def state_of(tokenizer, ids, kind, stop=()):
    """Return what the front end knows of a request that is answered with these tokens."""
    sampling = SamplingParams(max_tokens=len(ids), output_kind=kind, stop=list(stop))
    request = EngineCoreRequest(
        request_id="r", external_req_id="r", prompt_token_ids=[5], mm_features=None,
        sampling_params=sampling, pooling_params=None, arrival_time=0.0, lora_request=None,
        cache_salt=None, data_parallel_rank=None,
    )  # fmt: skip
    return RequestState.from_new_request(
        tokenizer=tokenizer, request=request, prompt=None, parent_req=None, request_index=0,
        queue=None, log_stats=False, stream_interval=1,
    )  # fmt: skip


def steps(ids):
    """Yield the tokens of each step, and whether they are the last."""
    start, step = 0, 0
    while start < len(ids):
        new = ids[start : start + STEPS[step % len(STEPS)]]
        start, step = start + len(new), step + 1
        yield new, start == len(ids)


def outputs(tokenizer, ids, kind):
    """Yield (token ids, text, whether it is the last) as the front end makes them of steps."""
    state = state_of(tokenizer, ids, kind)
    for new, last in steps(ids):
        state.detokenizer.update(new, False)
        reason = FinishReason.LENGTH if last else None
        made = state.make_request_output(new, None, reason, None)
        if made is not None:
            yield list(made.outputs[0].token_ids), made.outputs[0].text, reason is not None


def stopped(tokenizer, text):
    """Return how many of a text's tokens are kept where its second and third ones end it."""
    ids = tokenizer(text, add_special_tokens=False).input_ids
    read = state_of(tokenizer, ids, RequestOutputKind.FINAL_ONLY).detokenizer
    read.update(ids[:1], False)
    before = len(read.output_text)
    read.update(ids[1:3], False)
    stop = read.output_text[before:]
    read = state_of(tokenizer, ids, RequestOutputKind.FINAL_ONLY, [stop]).detokenizer
    for new, _ in steps(ids):
        if read.update(new, False) is not None:
            break
    return read.num_output_tokens()


def replies(tokenizer, parser_of, request, text):
    """Return a text's reply in one piece, and its parts."""
    ids = tokenizer(text, add_special_tokens=False).input_ids
    (whole,) = outputs(tokenizer, ids, RequestOutputKind.FINAL_ONLY)
    parts, parser = [], None if parser_of is None else parser_of()
    for tokens, piece, last in outputs(tokenizer, ids, RequestOutputKind.DELTA):
        message = {"content": piece}
        if parser is not None:
            made = parser.parse_delta(
                delta_text=piece, delta_token_ids=tokens, request=request,
                prompt_token_ids=[5], finished=last,
            )  # fmt: skip
            message = {} if made is None else made.model_dump(exclude_unset=True)
        parts.append({"delta": message, "token_ids": tokens})
    message = {"content": whole[1]}
    if parser_of is not None:
        _, content, calls = parser_of().parse(whole[1], request, enable_auto_tools=True)
        named = [{"function": {"name": c.name, "arguments": c.arguments}} for c in calls or []]
        message = {"content": content, "tool_calls": named}
    return {"whole": {"message": message, "token_ids": ids}, "parts": parts, "text": text}


def main(target, control, faults):
    """Print a line for each fault."""
    EngineArgs(model=target)  # loads the plugins, as the server's own start does
    tokenizer = AutoTokenizer.from_pretrained(target)
    parsers = ParserManager.get_parser("hermes", None, True, "target", tokenizer=tokenizer)
    said = [{"role": "user", "content": "hello"}]
    request = ChatCompletionRequest(
        model="target", messages=said, tools=[TOOL], tool_choice="required"
    )
    for generation, fault in enumerate(faults, start=1):
        named = None if fault == "none" else fault
        fresh = control.with_suffix(".new")
        fresh.write_text(json.dumps(
            {"generation": generation, "fault": named, "seed": 1, "parameters": {}}
        ))  # fmt: skip
        fresh.replace(control)
        plain = replies(tokenizer, None, request, TEXT)
        called = replies(tokenizer, lambda: parsers(tokenizer, request.tools), request, CALL)
        told = {"fault": fault, "plain": plain, "called": called}
        told["stopped"] = stopped(tokenizer, TEXT)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
