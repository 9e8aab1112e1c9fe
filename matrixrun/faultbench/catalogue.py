"""The faults of the bench, each named after what went wrong in public, with the report."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from matrixrun.evidence.errors import UserError


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """What is switched on in an engine's process: a name of the injection package's registry."""

    name: str
    parameters: dict[str, Any] = {}


STATE_PROBES = ("conversation", "pressure", "rollback", "ledger")


class Load(StrEnum):
    """What is sent: prompts that run to the output limit or the model's own end, or the same
    prompts with a stop token that many answers contain."""

    PLAIN = "plain"
    STOPS = "stops"


class Harm(StrEnum):
    """What a fault damages: tokens or logprobs, whose size can be compared with the floor, or
    something else (speed, an answer's end), which has no floor."""

    OUTPUT = "output"
    OTHER = "other"


class Specimen(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of speculation, or something harmless that must not be accused.

    `injection` goes into the on launch; with `in_both` into both, as a property of the engine.
    `report` is the public report it is modelled on, `harm` what it damages. `off_as_on` puts the
    off launch's own answers where the on arm's belong. `corrupting` ones may leave the engine's
    state damaged and run last. `held_out` ones had not been run when the judge was last changed.
    `method` names the on launch that it goes into, `probe` the further probe that shows it: the
    probes of state have launches of their own, with a small cache.
    """

    name: str
    what: str
    report: str
    injection: Injection | None = None
    harmless: bool = False
    in_both: bool = False
    off_as_on: bool = False
    corrupting: bool = False
    load: Load = Load.PLAIN
    harm: Harm = Harm.OUTPUT
    held_out: bool = False
    method: str = "draft_model"
    probe: str | None = None

    @property
    def of_state(self) -> bool:
        """Whether it is shown on the launches for the probes of state."""
        return self.probe in STATE_PROBES


def _fault(name: str, what: str, report: str, injected: str, **others: Any) -> Specimen:
    fields = ("load", "corrupting", "harm", "held_out", "method", "probe")
    named = {key: others.pop(key) for key in fields if key in others}
    injection = Injection(name=injected, parameters=others)
    return Specimen(name=name, what=what, report=report, injection=injection, **named)


def _harmless(
    name: str, what: str, report: str, injection: Injection | None = None, **others: Any
) -> Specimen:
    return Specimen(
        name=name, what=what, report=report, injection=injection, harmless=True,
        in_both=injection is not None, **others,
    )  # fmt: skip


NO_REPORT = "no report of its own"

SPECIMENS = (
    _harmless("healthy", "the patched launch with nothing switched on", "none"),
    _harmless("ngram-healthy", "the same, drafting by n-gram", "none", method="ngram"),
    _harmless(
        "off-as-on", "another pass of the off launch in the on arm's place", "vllm#35204",
        off_as_on=True,
    ),
    _harmless(
        "another-off", "another off launch in the on arm's place", "vllm#35204",
        method="another-off",
    ),
    _harmless(
        "tp2-off", "an off launch of tensor parallel 2 in the on arm's place, judged against 1",
        "vllm#35204", method="tp2-off",
    ),
    _fault(
        "let-through-50", "a rejected draft token is accepted in 1 of 50 verification steps",
        "antirez/ds4#797", "let-through", share=1 / 50,
    ),
    _fault(
        "let-through-500", "a rejected draft token is accepted in 1 of 500 verification steps",
        "antirez/ds4#797", "let-through", share=1 / 500,
    ),
    _fault(
        "all-accepted", "every draft is accepted whole", "Pushkinist/rMLX#436", "all-accepted",
    ),
    _fault(
        "wrong-row", "after a rejection the token comes from the row before, 1 step in 20",
        "vllm#53051", "wrong-row", share=1 / 20,
    ),
    _fault(
        "dropped-token", "an accepted token is lost in 1 of 50 steps", "vllm#51571",
        "dropped-token", share=1 / 50,
    ),
    _fault(
        "exchanged", "two requests get each other's tokens in 1 of 50 steps", "vllm#46088",
        "exchanged", share=1 / 50, running=3,
    ),
    _fault(
        "constant-loop", "half of the requests that hit the prefix cache loop on one token, with 4 "
        "and more running", "wtdcode/vllm-backport#63",
        "constant-loop", share=0.5, running=4, token=1000, after=4,
    ),
    _fault(
        "nan-in-one", "logits are NaN in one request of 32", "vllm#45060", "not-a-number", every=32,
    ),
    _fault(
        "drift-small", "logits 2 % too large: no token flips", "rMLX: a missing norm",
        "scaled", factor=1.02,
    ),
    _fault(
        "drift-large", "logits 50 % too large: no token flips", "sparkinfer#719",
        "scaled", factor=1.5,
    ),
    _fault(
        "other-target", "the on arm serves other weights, by 2 nats a logit", NO_REPORT,
        "other-target", size=2.0,
    ),
    _fault(
        "drafts-shifted", "every draft position holds the next one's token: output right",
        "sglang#40144", "shifted", harm=Harm.OTHER,
    ),
    _fault(
        "drafter-off", "the drafter proposes and nothing is used", NO_REPORT, "drafter-off",
        share=1.0, harm=Harm.OTHER,
    ),
    _fault(
        "drafter-off-in-a-third", "in a third of the requests nothing of the draft is used",
        NO_REPORT, "drafter-off", share=1 / 3, harm=Harm.OTHER,
    ),
    _fault(
        "ngram-shifted", "every draft position holds the next one's token: output right",
        "sglang#40144", "shifted", method="ngram", harm=Harm.OTHER,
    ),
    _fault(
        "ngram-off-in-a-third", "in a third of the requests nothing of the draft is used",
        NO_REPORT, "drafter-off", share=1 / 3, method="ngram", harm=Harm.OTHER,
    ),
    _fault(
        "ngram-all-accepted", "every draft is accepted whole", "Pushkinist/rMLX#436",
        "all-accepted", method="ngram",
    ),
    _fault(
        "ngram-first-only", "draft positions after the first are always wrong", "llama.cpp#23544",
        "first-only", vocabulary=1024, method="ngram", harm=Harm.OTHER,
    ),
    _harmless(
        "healthy-samples", "samples at temperature 1 with nothing switched on", "none",
        probe="sampling",
    ),
    _fault(
        "unset-temperature", "temperatures of draft positions are uninitialised: the engine itself",
        "vLLM 0.32 on a CPU, found by this probe", "unset-temperature", harm=Harm.OTHER,
        probe="sampling",
    ),
    _fault(
        "temperature-unreached", "drafts are verified at temperature 1, whatever is asked",
        "vllm#42744", "setting-unreached", neutral={"temperature": 1.0}, harm=Harm.OTHER,
        probe="sampling",
    ),
    _fault(
        "top-k-unreached", "top-k does not reach draft positions", "vllm#42744",
        "setting-unreached", neutral={"top_k": 1024}, harm=Harm.OTHER, probe="sampling",
    ),
    _fault(
        "top-p-unreached", "top-p does not reach draft positions", "vllm#42744",
        "setting-unreached", neutral={"top_p": 1.0}, harm=Harm.OTHER, probe="sampling",
    ),
    _fault(
        "unreduced-residual", "after a rejection the draft's share is not taken off the law",
        "transformers#32867", "unreduced-residual", harm=Harm.OTHER, probe="sampling",
    ),
    _fault(
        "greedy-residual", "after half of the rejections the best token left is taken",
        "vllm#42744", "greedy-residual", share=0.5, harm=Harm.OTHER, probe="sampling",
    ),
    _fault(
        "eager-acceptance", "drafts are accepted with p / 0.8 instead of p", "vllm#40149",
        "eager-acceptance", factor=0.8, harm=Harm.OTHER, probe="sampling",
    ),
    _fault(
        "shared-noise", "all requests of a step get the same random numbers", NO_REPORT,
        "shared-noise", harm=Harm.OTHER, probe="sampling",
    ),
    _harmless(
        "healthy-processors", "logits processors with nothing switched on", "none",
        probe="processors",
    ),
    _harmless(
        "noisy-processors", "logits processors and noise of 0.1 on every logit, both arms",
        "pegainfer#833", Injection(name="noise", parameters={"size": 0.1}), probe="processors",
    ),
    _fault(
        "draftless-history", "draft positions are missing from the penalties' history",
        NO_REPORT, "draftless-history", probe="processors",
    ),
    _fault(
        "penalties-skipped", "presence and frequency penalties do not reach draft positions",
        "vllm#10198", "penalties-skipped", probe="processors",
    ),
    _fault(
        "min-tokens-ignored", "stop tokens are not masked at draft positions", "vllm#42744",
        "min-tokens-ignored", harm=Harm.OTHER, probe="processors",
    ),
    _fault(
        "grammar-skipped-in-drafts", "behind draft tokens a grammar is not asked", "vllm#36138",
        "grammar-skipped", forgiving=True, harm=Harm.OTHER, probe="processors",
    ),
    _fault(
        "grammar-fails-in-drafts", "the same, and what the grammar does not take ends the request",
        "vllm#44006", "grammar-skipped", forgiving=False, harm=Harm.OTHER, probe="processors",
    ),
    _fault(
        "grammar-ahead", "a grammar's state counts a draft token twice, 1 step in 20",
        "vllm#48197", "grammar-ahead", share=1 / 20, probe="processors",
    ),
    _fault(
        "grammar-strict-in-drafts", "a grammar forbids in a draft token's place what it forbids "
        "after it: every text is valid", NO_REPORT, "grammar-strict", probe="processors",
    ),
    _harmless(
        "healthy-surface", "replies streamed and in one piece, with nothing switched on", "none",
        method="ngram", probe="surface",
    ),
    _fault(
        "piece-lost", "a part of a stream with several tokens lacks the last one's text",
        NO_REPORT, "piece-lost", harm=Harm.OTHER, method="ngram", probe="surface",
    ),
    _fault(
        "tool-arguments-torn", "a part of a stream with several tokens of a tool call's arguments "
        "loses a character", "vllm#56077", "arguments-torn", harm=Harm.OTHER, method="ngram",
        probe="surface",
    ),
    _fault(
        "tool-markup-leaked", "a part of a stream with several tokens of a tool call is content "
        "as well", "vllm#47194", "markup-leaked", harm=Harm.OTHER, method="ngram", probe="surface",
    ),
    _fault(
        "bad-words-skipped-in-drafts", "bad words are banned in the first token of a step alone",
        NO_REPORT, "bad-words-skipped", harm=Harm.OTHER, probe="processors",
    ),
    _fault(
        "bad-words-without-drafts", "a bad word's beginning inside a draft is not seen",
        NO_REPORT, "draftless-bad-words", probe="processors",
    ),
    _harmless(
        "healthy-accuracy", "a task with nothing switched on", "none", probe="accuracy",
    ),
    _fault(
        "let-through-unlogged", "the first rejected draft token of every verification step is "
        "accepted in requests that ask for no logprobs", NO_REPORT, "let-through-unlogged",
        share=1, probe="accuracy",
    ),
    _fault(
        "acceptance-decays", "drafts get worse over 300 steps of the engine",
        "vllm-ascend#10495", "decaying", steps=300, vocabulary=1024, harm=Harm.OTHER,
    ),
    _fault(
        "warm-drafts-wrong", "requests that hit the prefix cache get wrong drafts",
        "llama.cpp#26100", "warm-drafts", vocabulary=1024, harm=Harm.OTHER,
    ),
    _fault(
        "past-the-end", "a stop token inside an accepted draft is noticed at the step's end",
        "llama.cpp#28049", "past-the-end", load=Load.STOPS,
        harm=Harm.OTHER,
    ),
    _fault(
        "stop-ignored", "a stop token inside an accepted draft is never noticed",
        "llama.cpp#28049", "stop-ignored", load=Load.STOPS,
        harm=Harm.OTHER,
    ),
    _fault(
        "cut-short", "some answers end up to 3 tokens before their limit", NO_REPORT,
        "cut-short", share=0.1, tokens=3, harm=Harm.OTHER,
    ),
    _harmless(
        "noise-0.001", "Gaussian noise of 0.001 on every logit, both arms", "pegainfer#833",
        Injection(name="noise", parameters={"size": 0.001}),
    ),
    _harmless(
        "noise-0.01", "Gaussian noise of 0.01 on every logit, both arms", "pegainfer#833",
        Injection(name="noise", parameters={"size": 0.01}),
    ),
    _harmless(
        "noise-0.1", "Gaussian noise of 0.1 on every logit, both arms", "pegainfer#833",
        Injection(name="noise", parameters={"size": 0.1}),
    ),
    _harmless(
        "width-dependent", "kernels that depend on the number of rows, both arms",
        "llama.cpp#25618", Injection(name="width-dependent", parameters={"size": 0.2}),
    ),
    _fault(
        "kept-rejected", "the KV of a rejected token is kept (one short), 1 rejection in 5",
        "rMLX: SWA ring kept its rejected tail", "kept-rejected", share=0.2, corrupting=True,
    ),
    _fault(
        "rolled-too-far", "the KV of an accepted token is lost (one long), 1 rejection in 5",
        "llama.cpp#28060", "rolled-too-far", share=0.2, corrupting=True,
    ),
    _fault(
        "lost-at-border", "KV is lost when a rejection falls on a block's border", "vllm#57605",
        "lost-at-border", block_size=32, corrupting=True,
    ),
    _fault(
        "stale-row", "a moved request is computed with another's block table, more than 2 running",
        "vllm#55951", "stale-row", running=3, corrupting=True,
    ),
    # From here on held out: none of these had been run when the judge was last changed.
    _fault(
        "warm-hole", "requests that hit the prefix cache get a wrong first block", "vllm#43559",
        "warm-hole", corrupting=True, held_out=True,
    ),
    _fault(
        "one-too-many", "one stale position is attended to after half of the whole acceptances",
        "vllm#51571", "one-too-many", share=0.5, corrupting=True, held_out=True,
    ),
    _fault(
        "doubled", "a token is emitted twice in 1 of 50 steps", "vllm#39273",
        "doubled", share=1 / 50, held_out=True,
    ),
    _fault(
        "noisy-verification", "noise of 0.2 on the logits that drafts are verified against",
        "sparkinfer#719", "noisy-verification", size=0.2, held_out=True,
    ),
    _fault(
        "neighbours", "each request is offered its neighbour's draft", "vllm#55506",
        "neighbours", harm=Harm.OTHER, held_out=True,
    ),
    _fault(
        "first-only", "draft positions after the first are always wrong", "llama.cpp#23544",
        "first-only", vocabulary=1024, harm=Harm.OTHER,
    ),
    _fault(
        "leaked-drafts", "1 draft token of 20 is accepted whatever the target says",
        "DeepSpec#31", "leaked-drafts", share=1 / 20, harm=Harm.OTHER, probe="sampling",
    ),
    _fault(
        "sticky-noise", "drafts are accepted by the same random numbers in every step",
        NO_REPORT, "sticky-noise", harm=Harm.OTHER, probe="sampling", held_out=True,
    ),
    _fault(
        "one-number-a-draft", "all tokens of a draft are accepted by one random number",
        NO_REPORT, "one-number-a-draft", harm=Harm.OTHER, probe="sampling", held_out=True,
    ),
    _fault(
        "flatter-acceptance", "drafts are accepted by the law at twice the temperature",
        NO_REPORT, "flatter-acceptance", harm=Harm.OTHER, probe="sampling", held_out=True,
    ),
    _fault(
        "stops-at-once", "one answer in 20 stops with its first token", "vllm#45060",
        "stops-at-once", share=1 / 20, harm=Harm.OTHER, held_out=True,
    ),
    *(
        _harmless(f"healthy-{probe}", f"`{probe}` with nothing switched on", "none", probe=probe)
        for probe in STATE_PROBES
    ),
    _fault(
        "damaged-on-resume", "a request that goes on after a preemption reads a wrong block",
        "vllm#51571", "damaged-on-resume", probe="pressure",
    ),
    _fault(
        "damaged-bystander", "when a request is dropped another one loses its first block",
        "sglang#23392", "damaged-bystander", probe="pressure",
    ),
    _fault(
        "damaged-at-border", "KV is lost when a planned rejection falls on a block's border",
        "vllm#57605", "lost-at-border", block_size=32, probe="rollback",
    ),
    _fault(
        "kept-after-preemption",
        "a rejected token's KV is kept at planned rejections, of requests that were preempted",
        "vllm#49620", "kept-after-preemption", probe="rollback",
    ),
    _fault(
        "answers-uncached", "the next turn computes the whole answer again", "llama.cpp#28049",
        "answers-uncached", harm=Harm.OTHER, probe="conversation",
    ),
    _fault(
        "kept-past-the-end", "tokens behind a stop token are kept, and not sent",
        "llama.cpp#28049", "kept-past-the-end", harm=Harm.OTHER, probe="ledger",
    ),
    _fault(
        "late-rollback", "lengths are put right one step after a rejection", NO_REPORT,
        "late-rollback", harm=Harm.OTHER, probe="ledger",
    ),
    _fault(
        "leaked-step", "a block is lost at 1 rejection in 20: the step at which", NO_REPORT,
        "leaked-block", share=1 / 20, most=4, harm=Harm.OTHER, probe="ledger", corrupting=True,
    ),
    _fault(
        "leaked-block", "a block of the cache is lost at 1 rejection in 20", NO_REPORT,
        "leaked-block", share=1 / 20, most=4, harm=Harm.OTHER, probe="pressure", corrupting=True,
    ),
    # Held out as well. What they damage is found under the trial's own cache namespace alone.
    _fault(
        "wiped-end", "an answer that ends inside an accepted draft leaves a wrong block behind",
        "jundot/omlx#3724", "wiped-end", block_size=32, probe="conversation", held_out=True,
    ),
    _fault(
        "found-after-eviction", "an evicted prefix is still found, and holds another request's KV",
        "sglang#38031", "found-after-eviction", probe="pressure", held_out=True,
    ),
)  # fmt: skip


def select(names: tuple[str, ...]) -> tuple[Specimen, ...]:
    """Return the specimens of these names, or all; those that damage the engine's state last.

    Raises:
        UserError: there is none of that name.
    """
    known = {one.name for one in SPECIMENS}
    unknown = sorted(set(names) - known)
    if unknown:
        raise UserError(
            f"faultbench: there is no fault {unknown[0]!r}",
            remedy=f"one of: {', '.join(sorted(known))}",
        )
    wanted = [one for one in SPECIMENS if not names or one.name in names]
    return tuple(sorted(wanted, key=lambda one: one.corrupting))
