"""`surface`: the same greedy requests streamed and in one piece, by every endpoint that users take.

Other probes send token ids and read token ids. What a user's program reads passes through a
detokeniser, a chat template and parsers of tool calls and reasoning, and with speculation they are
handed several tokens at a time. Each arm's replies are held against each other; nothing is scored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.replies import Ask, Form, Tool
from matrixrun.evidence.requests import Pass
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import REPLY_TOKENS, PlannedPair, batch_size, replied_forms
from matrixrun.probes.protocol import Data, Passes, Source, main_pass, salt
from matrixrun.workloads import Prompt, Workload, message

KIND = "surface"
PROMPTS, TOOL_PROMPTS = 12, 6
MESSAGE_WORDS = 24
# A call of the tool below takes 30 to 90 tokens, whichever markup stands around it.
MOST_TOOL_TOKENS = 112
# Few values, so that a small model that writes whatever the grammar lets it comes to an end.
TOOL = Tool(
    name="file_note",
    description="File a note about a text.",
    parameters=json.dumps({
        "type": "object",
        "properties": {
            "subject": {"type": "string", "enum": ["an expression", "a statement", "a class"]},
            "language": {"type": "string", "enum": ["english prose", "python source"]},
            "certain": {"type": "boolean"},
        },
        "required": ["subject", "language", "certain"],
        "additionalProperties": False,
    }),
)  # fmt: skip


class Surface:
    """The probe; stateless."""

    kind = KIND
    rides_on: str | None = None
    compared = False
    needs: frozenset[Data] = frozenset()

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield one pass for each batch size; nothing where texts may not be stored, since they
        are what is judged, or where the engine has no endpoint for it."""
        asks = asks_of(replied_forms(matrix, launch.config), workload, matrix.seed)
        for size in sorted({batch_size(cell) for cell in cells}) if asks else ():
            name = main_pass(KIND, size)
            namespace = salt(Source(launch.id, name))
            yield Pass(id=name, asks=asks, concurrency=size, salt=namespace)

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the passes that hold the cell's replies. A is not asked twice: each arm is held
        against itself."""
        main = main_pass(KIND, batch_size(cell))
        arms = {"on": pair.on, "off": pair.off, "null": pair.null}
        return {arm: (Source(name, main),) for arm, name in arms.items() if name is not None}


def asks_of(forms: Sequence[Form], workload: Workload, seed: int) -> tuple[Ask, ...]:
    """Return each form of each request in one piece and streamed, one behind the other:
    `surface.<form>.<prompt>`, and `.stream` behind that."""
    return tuple(
        _ask(form, place, prompt, seed, streamed=streamed)
        for place, prompt in enumerate(workload.prompts[:PROMPTS])
        for form in forms
        if place < TOOL_PROMPTS or not form.has_tools
        for streamed in (False, True)
    )


def _ask(form: Form, place: int, prompt: Prompt, seed: int, *, streamed: bool) -> Ask:
    completion = form is Form.COMPLETION
    name = prompt.id if completion else f"message-{place:02d}"
    return Ask(
        id=f"{KIND}.{form}.{name}{'.stream' if streamed else ''}",
        prompt=name,
        form=form,
        streamed=streamed,
        max_tokens=MOST_TOOL_TOKENS if form.has_tools else REPLY_TOKENS,
        token_ids=prompt.token_ids if completion else (),
        message="" if completion else message((seed, KIND, place), MESSAGE_WORDS),
        tool=TOOL if form.has_tools else None,
        seed=seed,
    )
