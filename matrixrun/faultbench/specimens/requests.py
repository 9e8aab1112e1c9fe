"""Specimens that show in some requests only: samples, processors, users' endpoints, a task."""

from __future__ import annotations

from matrixrun.faultbench.specimen import NO_REPORT, Harm, Injection, fault, harmless

SPECIMENS = (
    harmless(
        "healthy-samples", "samples above temperature 0 with nothing switched on", "none",
        probe="sampling",
    ),
    fault(
        "unset-temperature", "temperatures of draft positions are uninitialised: the engine itself",
        "vLLM 0.32 on a CPU, found by this probe", "unset-temperature", harm=Harm.OTHER,
        probe="sampling",
    ),
    fault(
        "temperature-unreached", "drafts are verified at temperature 1, whatever is asked",
        "vllm#42744", "setting-unreached", neutral={"temperature": 1.0}, harm=Harm.OTHER,
        probe="sampling",
    ),
    fault(
        "top-k-unreached", "top-k does not reach draft positions", "vllm#42744",
        "setting-unreached", neutral={"top_k": 1024}, harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "top-p-unreached", "top-p does not reach draft positions", "vllm#42744",
        "setting-unreached", neutral={"top_p": 1.0}, harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "unreduced-residual", "after a rejection the draft's share is not taken off the law",
        "transformers#32867", "unreduced-residual", harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "greedy-residual", "after half of the rejections the best token left is taken",
        "vllm#42744", "greedy-residual", share=0.5, harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "eager-acceptance", "drafts are accepted with p / 0.8 instead of p", "vllm#40149",
        "eager-acceptance", factor=0.8, harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "shared-noise", "all requests of a step get the same random numbers", "TensorRT-LLM#19487",
        "shared-noise", harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "leaked-drafts", "1 draft token of 20 is accepted whatever the target says",
        "DeepSpec#31", "leaked-drafts", share=1 / 20, harm=Harm.OTHER, probe="sampling",
    ),
    harmless(
        "healthy-processors", "logits processors with nothing switched on", "none",
        probe="processors",
    ),
    harmless(
        "noisy-processors", "logits processors and noise of 0.1 on every logit, both arms",
        "pegainfer#833", Injection(name="noise", parameters={"size": 0.1}), probe="processors",
    ),
    fault(
        "draftless-history", "draft positions are missing from the penalties' history",
        "sglang#40244", "draftless-history", probe="processors",
    ),
    fault(
        "penalties-skipped", "presence and frequency penalties do not reach draft positions",
        "vllm#10198", "penalties-skipped", probe="processors",
    ),
    fault(
        "min-tokens-ignored", "stop tokens are not masked at draft positions", "vllm#42744",
        "min-tokens-ignored", harm=Harm.OTHER, probe="processors",
    ),
    fault(
        "grammar-skipped-in-drafts", "behind draft tokens a grammar is not asked", "vllm#36138",
        "grammar-skipped", forgiving=True, harm=Harm.OTHER, probe="processors",
    ),
    fault(
        "grammar-fails-in-drafts", "the same, and what the grammar does not take ends the request",
        "vllm#44006", "grammar-skipped", forgiving=False, harm=Harm.OTHER, probe="processors",
    ),
    fault(
        "grammar-ahead", "a grammar's state counts a draft token twice, 1 step in 20",
        "vllm#48197", "grammar-ahead", share=1 / 20, probe="processors",
    ),
    fault(
        "grammar-strict-in-drafts", "a grammar forbids in a draft token's place what it forbids "
        "after it: every text is valid", NO_REPORT, "grammar-strict", probe="processors",
    ),
    fault(
        "bad-words-skipped-in-drafts", "bad words are banned in the first token of a step alone",
        NO_REPORT, "bad-words-skipped", harm=Harm.OTHER, probe="processors",
    ),
    fault(
        "bad-words-without-drafts", "a bad word's beginning inside a draft is not seen",
        NO_REPORT, "draftless-bad-words", probe="processors",
    ),
    harmless(
        "healthy-surface", "replies streamed and in one piece, with nothing switched on", "none",
        method="ngram", probe="surface",
    ),
    fault(
        "piece-lost", "a part of a stream with several tokens lacks the last one's text",
        NO_REPORT, "piece-lost", harm=Harm.OTHER, method="ngram", probe="surface",
    ),
    fault(
        "tool-arguments-torn", "a part of a stream with several tokens of a tool call's arguments "
        "loses a character", "vllm#56077", "arguments-torn", harm=Harm.OTHER, method="ngram",
        probe="surface",
    ),
    fault(
        "tool-markup-leaked", "a part of a stream with several tokens of a tool call is content "
        "as well", "vllm#47194", "markup-leaked", harm=Harm.OTHER, method="ngram", probe="surface",
    ),
    harmless(
        "healthy-accuracy", "a task with nothing switched on", "none", probe="accuracy",
    ),
    fault(
        "let-through-unlogged", "the first rejected draft token of every verification step is "
        "accepted in requests that ask for no logprobs", "ohdearquant/lattice#243",
        "let-through-unlogged", share=1, probe="accuracy",
    ),
    fault(
        "sticky-noise", "drafts are accepted by the same random numbers in every step",
        NO_REPORT, "sticky-noise", harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "one-number-a-draft", "all tokens of a draft are accepted by one random number",
        NO_REPORT, "one-number-a-draft", harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "flatter-acceptance", "drafts are accepted by the law at twice the temperature",
        NO_REPORT, "flatter-acceptance", harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "greedy-bonus", "the token behind a whole draft is the best one, at any temperature",
        "ardanlabs/kronk#788", "greedy-bonus", harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "zero-recovered", "after 1 rejection in 40 token 0 is drawn", "vllm#41834",
        "zero-recovered", share=1 / 40, harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "seed-ignored", "drafts are verified without regard to a request's seed", "vllm#6038",
        "seed-ignored", harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "one-count-a-step", "of the tokens of a step penalties count the last one alone",
        "sglang#33643", "one-count-a-step", probe="processors",
    ),
    fault(
        "rejected-counted", "penalties count rejected draft tokens too",
        "osaurus-ai/vmlx-swift#357", "rejected-counted", probe="processors",
    ),
    fault(
        "residual-cut", "after a rejection none of the vocabulary's last quarter is ever drawn",
        NO_REPORT, "residual-cut", tail=256, harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "settings-of-the-first", "all drafts of a step are verified with the temperature, top-k "
        "and top-p of the batch's first request", "Blaizzy/mlx-vlm#1647", "settings-of-the-first",
        harm=Harm.OTHER, probe="sampling",
    ),
    fault(
        "coupled-number", "after a rejection the token is drawn with the random number that "
        "rejected the draft's", "vllm-ascend#16370", "coupled-number", harm=Harm.OTHER,
        probe="sampling",
    ),
    fault(
        "prompt-counted-in-drafts", "in steps with a draft presence and frequency penalties count "
        "the prompt's last 20 tokens", "osaurus-ai/vmlx-swift#295", "prompt-counted", window=20,
        probe="processors",
    ),
    fault(
        "tail-lost", "a stream of which some part had several tokens lacks its last part's text",
        "osaurus-ai/vmlx-swift#148", "tail-lost", harm=Harm.OTHER, method="ngram", probe="surface",
    ),
)  # fmt: skip
