# mypy: ignore-errors
"""Training that fits in a minute on two cores: batches, optimiser, schedule.

Everything is seeded and runs on one thread, so that two builds on one machine give
the same bytes.
"""

import math
import time

import torch
from torch import Tensor, nn

# One, not all: two training threads wait for one another as soon as something else runs, which
# costs far more than the second one brings; and the bytes do not depend on the machine's cores.
THREADS = 1
SHORTEST_PERIOD = 4  # tokens


def make_deterministic(seed: int) -> None:
    """Fix seeds, thread count and algorithms of this process."""
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)


class Batches:
    """Endless batches of token ids, of which a share teaches to continue what is repeated.

    Args:
        stream: ids of the whole text, shape [tokens].
        rows: sequences a batch.
        length: tokens a sequence.
        repeated_share: share of rows that repeat one piece until the row is full.
        seed: of the choice of pieces.
    """

    def __init__(
        self, stream: Tensor, rows: int, length: int, seed: int, repeated_share: float = 0.25
    ) -> None:
        self.stream, self.rows, self.length = stream, rows, length
        self.repeated = round(rows * repeated_share)
        self.random = torch.Generator().manual_seed(seed)

    def below(self, limit: int) -> int:
        """Return a random number from 0 to `limit` - 1."""
        return int(torch.randint(limit, (1,), generator=self.random))

    def piece(self, size: int) -> Tensor:
        """Return `size` consecutive ids from a random place of the text."""
        start = self.below(len(self.stream) - size)
        return self.stream[start : start + size]

    def _repeated_row(self) -> Tensor:
        period = SHORTEST_PERIOD + self.below(self.length // 2 - SHORTEST_PERIOD)
        piece = self.piece(period)
        if self.below(2):  # shuffled, it can only be continued by looking back
            piece = piece[torch.randperm(period, generator=self.random)]
        return piece.repeat(self.length // period + 1)[: self.length]

    def next(self) -> Tensor:
        """Return ids, shape [rows, length]."""
        rows = [self._repeated_row() for _ in range(self.repeated)]
        rows += [self.piece(self.length) for _ in range(self.rows - self.repeated)]
        return torch.stack(rows)


def _orthogonal(matrices: Tensor) -> Tensor:
    """Return the nearest semi-orthogonal matrices (Newton-Schulz, five steps), same shape."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    flip = x.size(-2) > x.size(-1)
    x = x.mT if flip else x
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if flip else x


class Optimiser:
    """Muon for matrices inside the layers, Adam for the rest.

    Muon learns in a tenth of Adam's steps at this size, and steps are what two cores lack.
    """

    def __init__(
        self, module: nn.Module, steps: int, matrix_rate: float = 0.02, other_rate: float = 0.004
    ) -> None:
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        inner = [p for n, p in named if p.dim() == 2 and "embed" not in n and "lm_head" not in n]
        chosen = {id(p) for p in inner}
        self.groups = [
            [p for p in inner if p.shape == shape] for shape in sorted({p.shape for p in inner})
        ]
        self.momenta = [torch.zeros(len(g), *g[0].shape) for g in self.groups]
        self.others = torch.optim.Adam(
            [p for _, p in named if id(p) not in chosen], lr=other_rate, betas=(0.9, 0.95)
        )
        self.parameters = [p for _, p in named]
        self.matrix_rate, self.other_rate = matrix_rate, other_rate
        self.steps, self.done = steps, 0

    def _factor(self) -> float:
        """Return the schedule's factor: linear warm-up over 5 %, then cosine to 2 %."""
        warm = max(1, self.steps // 20)
        if self.done < warm:
            return (self.done + 1) / warm
        progress = (self.done - warm) / max(1, self.steps - warm)
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress))

    @torch.no_grad()
    def step(self, loss: Tensor) -> None:
        """Descend once along the gradient of `loss`."""
        for parameter in self.parameters:
            parameter.grad = None
        with torch.enable_grad():
            loss.backward()
        factor = self._factor()
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            gradient = torch.stack([p.grad for p in group])
            momentum.mul_(0.95).add_(gradient)
            update = _orthogonal(gradient.add(momentum, alpha=0.95))
            rate = self.matrix_rate * factor * max(1.0, update.size(-2) / update.size(-1)) ** 0.5
            for parameter, change in zip(group, update, strict=True):
                parameter.add_(change, alpha=-rate)
        self.others.param_groups[0]["lr"] = self.other_rate * factor
        self.others.step()
        self.done += 1


class Progress:
    """Prints a line now and then, so that whoever waits sees that something moves."""

    def __init__(self, what: str, steps: int) -> None:
        self.what, self.steps, self.start = what, steps, time.monotonic()

    def say(self, step: int, loss: Tensor) -> None:
        """Report `step` (0-based) if it is a tenth of the way or the last."""
        if (step + 1) % max(1, self.steps // 10) == 0 or step + 1 == self.steps:
            seconds = time.monotonic() - self.start
            print(
                f"{self.what}: step {step + 1}/{self.steps}, loss {loss.item():.2f}, "
                f"{seconds:.0f} s",
                flush=True,
            )
