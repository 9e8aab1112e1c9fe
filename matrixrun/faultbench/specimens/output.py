"""Specimens of what is emitted: tokens, logprobs, ends of answers, and the KV behind them."""

from __future__ import annotations

from matrixrun.faultbench.specimen import NO_REPORT, Harm, Injection, Load, fault, harmless

SPECIMENS = (
    harmless("healthy", "the patched launch with nothing switched on", "none"),
    harmless(
        "off-as-on", "another pass of the off launch in the on arm's place", "vllm#35204",
        off_as_on=True,
    ),
    harmless(
        "another-off", "another off launch in the on arm's place", "vllm#35204",
        method="another-off",
    ),
    harmless(
        "tp2-off", "an off launch of tensor parallel 2 in the on arm's place, judged against 1",
        "vllm#35204", method="tp2-off",
    ),
    fault(
        "let-through-50", "a rejected draft token is accepted in 1 of 50 verification steps",
        "antirez/ds4#797", "let-through", share=1 / 50,
    ),
    fault(
        "let-through-500", "a rejected draft token is accepted in 1 of 500 verification steps",
        "antirez/ds4#797", "let-through", share=1 / 500,
    ),
    fault(
        "all-accepted", "every draft is accepted whole", "Pushkinist/rMLX#436", "all-accepted",
    ),
    fault(
        "wrong-row", "after a rejection the token comes from the row before, 1 step in 20",
        "vllm#53051", "wrong-row", share=1 / 20,
    ),
    fault(
        "dropped-token", "an accepted token is lost in 1 of 50 steps", "vllm#51571",
        "dropped-token", share=1 / 50,
    ),
    fault(
        "exchanged", "two requests get each other's tokens in 1 of 50 steps", "vllm#46088",
        "exchanged", share=1 / 50, running=3,
    ),
    fault(
        "constant-loop", "half of the requests that hit the prefix cache loop on one token, with 4 "
        "and more running", "wtdcode/vllm-backport#63",
        "constant-loop", share=0.5, running=4, token=1000, after=4,
    ),
    fault(
        "nan-in-one", "logits are NaN in one request of 32", "vllm#45060", "not-a-number", every=32,
    ),
    fault(
        "drift-small", "logits 2 % too large: no token flips", "rMLX: a missing norm",
        "scaled", factor=1.02,
    ),
    fault(
        "drift-large", "logits 50 % too large: no token flips", "sparkinfer#719",
        "scaled", factor=1.5,
    ),
    fault(
        "other-target", "the on arm serves other weights, by 2 nats a logit", NO_REPORT,
        "other-target", size=2.0,
    ),
    fault(
        "past-the-end", "a stop token inside an accepted draft is noticed at the step's end",
        "llama.cpp#28049", "past-the-end", load=Load.STOPS,
        harm=Harm.OTHER,
    ),
    fault(
        "stop-ignored", "a stop token inside an accepted draft is never noticed",
        "llama.cpp#28049", "stop-ignored", load=Load.STOPS,
        harm=Harm.OTHER,
    ),
    fault(
        "cut-short", "some answers end up to 3 tokens before their limit", "ik_llama.cpp#2358",
        "cut-short", share=0.1, tokens=3, harm=Harm.OTHER,
    ),
    harmless(
        "noise-0.001", "Gaussian noise of 0.001 on every logit, both arms", "pegainfer#833",
        Injection(name="noise", parameters={"size": 0.001}),
    ),
    harmless(
        "noise-0.01", "Gaussian noise of 0.01 on every logit, both arms", "pegainfer#833",
        Injection(name="noise", parameters={"size": 0.01}),
    ),
    harmless(
        "noise-0.1", "Gaussian noise of 0.1 on every logit, both arms", "pegainfer#833",
        Injection(name="noise", parameters={"size": 0.1}),
    ),
    harmless(
        "width-dependent", "kernels that depend on the number of rows, both arms",
        "llama.cpp#25618", Injection(name="width-dependent", parameters={"size": 0.2}),
    ),
    fault(
        "kept-rejected", "the KV of a rejected token is kept (one short), 1 rejection in 5",
        "rMLX: SWA ring kept its rejected tail", "kept-rejected", share=0.2, corrupting=True,
    ),
    fault(
        "rolled-too-far", "the KV of an accepted token is lost (one long), 1 rejection in 5",
        "llama.cpp#28060", "rolled-too-far", share=0.2, corrupting=True,
    ),
    fault(
        "lost-at-border", "KV is lost when a rejection falls on a block's border", "vllm#57605",
        "lost-at-border", block_size=32, corrupting=True,
    ),
    fault(
        "stale-row", "a moved request is computed with another's block table, more than 2 running",
        "vllm#55951", "stale-row", running=3, corrupting=True,
    ),
    fault(
        "warm-hole", "requests that hit the prefix cache get a wrong first block", "vllm#43559",
        "warm-hole", corrupting=True,
    ),
    fault(
        "one-too-many", "one stale position is attended to after half of the whole acceptances",
        "vllm#51571", "one-too-many", share=0.5, corrupting=True,
    ),
    fault(
        "doubled", "a token is emitted twice in 1 of 50 steps", "vllm#39273",
        "doubled", share=1 / 50,
    ),
    fault(
        "noisy-verification", "noise of 0.2 on the logits that drafts are verified against",
        "sparkinfer#719", "noisy-verification", size=0.2,
    ),
    fault(
        "stops-at-once", "one answer in 20 stops with its first token", "vllm#45060",
        "stops-at-once", share=1 / 20, harm=Harm.OTHER,
    ),
    fault(
        "lenient-acceptance", "a draft token is accepted up to 0.7 nats behind the best",
        NO_REPORT, "lenient-acceptance", nats=0.7,
    ),
    fault(
        "logprobs-shifted", "in steps of several tokens logprobs are those of the next row",
        NO_REPORT, "logprobs-shifted",
    ),
    fault(
        "periodic-loop", "one request in 12 repeats its last 5 tokens for ever, after 16",
        "vllm-ascend#14686", "periodic-loop", every=12, after=16, period=5,
    ),
    fault(
        "over-the-limit", "the output limit is looked at when a step's tokens are all appended",
        NO_REPORT, "over-the-limit", harm=Harm.OTHER,
    ),
    fault(
        "stalled", "one request in 16 never goes on after 20 tokens", "llama.cpp#28060",
        "stalled", every=16, after=20, harm=Harm.OTHER,
    ),
    fault(
        "other-order", "logits are dealt out to requests in the scheduler's order, not the batch's",
        "vllm#14645", "other-order",
    ),
    fault(
        "late-positions", "after 1 rejection in 25 the next tokens are rotated as if the rejected "
        "ones were kept", "transformers#30042", "late-positions", share=1 / 25, corrupting=True,
    ),
    fault(
        "looks-ahead", "with at most 2 requests verified there is no causal mask: tokens see the "
        "drafts behind them", "sglang#39287", "looks-ahead", running=2, corrupting=True,
    ),
    harmless(
        "restless-scheduler", "steps of any size, waiting requests in any order and late steps, "
        "both arms", "none", Injection(name="restless-scheduler"),
    ),
    fault(
        "bonus-of-last-layout", "the token behind a whole draft is read where the batch's last "
        "verification had it: wrong in the first draft of a request beside others",
        "TensorRT-LLM#17110", "bonus-of-last-layout",
    ),
    fault(
        "last-draft-unverified", "the last token of a draft is not verified where the batch's next "
        "request has no draft", "vllm#29274", "last-unverified",
    ),
    fault(
        "ordinal-slots", "a draft that runs over its block's end is written to the block that "
        "comes next in memory", "text-generation-inference#2711", "ordinal-slots", block_size=32,
        corrupting=True,
    ),
    fault(
        "drafted-stop", "a stop token that the drafter proposed ends the answer unverified",
        "ohdearquant/lattice#237", "drafted-stop", load=Load.STOPS, harm=Harm.OTHER,
    ),
    harmless(
        "rounded-logits", "logits rounded to bfloat16, of exact ties any wins, both arms",
        "vllm-omni#7114", Injection(name="rounded"),
    ),
    harmless(
        "preempts-at-will", "in 1 step of 10 a running request is preempted and goes on, both arms",
        "none", Injection(name="preempts-at-will", parameters={"share": 0.1}),
    ),
)  # fmt: skip
