"""Specimens of the drafter: with a wrong one the output stays right, and speed is lost."""

from __future__ import annotations

from matrixrun.faultbench.specimen import NO_REPORT, Harm, Injection, fault, harmless

SPECIMENS = (
    harmless("ngram-healthy", "the same, drafting by n-gram", "none", method="ngram"),
    fault(
        "drafts-shifted", "every draft position holds the next one's token: output right",
        "sglang#40144", "shifted", harm=Harm.OTHER,
    ),
    fault(
        "drafter-off", "the drafter proposes and nothing is used", NO_REPORT, "drafter-off",
        share=1.0, harm=Harm.OTHER,
    ),
    fault(
        "drafter-off-in-a-third", "in a third of the requests nothing of the draft is used",
        NO_REPORT, "drafter-off", share=1 / 3, harm=Harm.OTHER,
    ),
    fault(
        "ngram-shifted", "every draft position holds the next one's token: output right",
        "sglang#40144", "shifted", method="ngram", harm=Harm.OTHER,
    ),
    fault(
        "ngram-off-in-a-third", "in a third of the requests nothing of the draft is used",
        NO_REPORT, "drafter-off", share=1 / 3, method="ngram", harm=Harm.OTHER,
    ),
    fault(
        "ngram-all-accepted", "every draft is accepted whole", "Pushkinist/rMLX#436",
        "all-accepted", method="ngram",
    ),
    fault(
        "ngram-first-only", "draft positions after the first are always wrong", "llama.cpp#23544",
        "first-only", vocabulary=1024, method="ngram", harm=Harm.OTHER,
    ),
    fault(
        "first-only", "draft positions after the first are always wrong", "llama.cpp#23544",
        "first-only", vocabulary=1024, harm=Harm.OTHER,
    ),
    fault(
        "acceptance-decays", "drafts get worse over 300 steps of the engine",
        "vllm-ascend#10495", "decaying", steps=300, vocabulary=1024, harm=Harm.OTHER,
    ),
    fault(
        "warm-drafts-wrong", "requests that hit the prefix cache get wrong drafts",
        "llama.cpp#26100", "warm-drafts", vocabulary=1024, harm=Harm.OTHER,
    ),
    fault(
        "neighbours", "each request is offered its neighbour's draft", "vllm#55506",
        "neighbours", harm=Harm.OTHER,
    ),
    fault(
        "bonus-lost", "after a whole acceptance the token behind the draft is computed again",
        NO_REPORT, "bonus-lost", harm=Harm.OTHER,
    ),
    fault(
        "drafter-off-when-busy", "with 6 and more requests running drafts are not used", NO_REPORT,
        "off-when-busy", running=6, harm=Harm.OTHER,
    ),
    fault(
        "past-the-block", "a draft that runs over its request's last block goes on with wrong "
        "tokens", "vllm#16370", "past-the-block", block_size=32, vocabulary=1024,
        harm=Harm.ACCEPTANCE,
    ),
    fault(
        "stale-lookup", "drafts are looked up in what a row of the batch kept of its requests "
        "before", "llama.cpp#27852", "stale-lookup", tokens=3, method="ngram", harm=Harm.OTHER,
    ),
    harmless(
        "adaptive-length", "drafts are one token shorter after a rejection, and longer after none",
        "vllm#32374", Injection(name="adaptive-length"),
    ),
    fault(
        "gap-after-all", "after a draft that was accepted whole the next one begins with a wrong "
        "token", "ik_llama.cpp#1979", "gap-after-all", vocabulary=1024, harm=Harm.ACCEPTANCE,
    ),
    harmless(
        "remembering-drafter", "an n-gram drafter remembers what the texts of all requests went on "
        "with, and gets better", "sglang#13553",
        Injection(name="remembering", parameters={"tokens": 3}), method="ngram",
    ),
)  # fmt: skip
