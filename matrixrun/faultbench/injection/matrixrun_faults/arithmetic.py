"""Other logits than the target's: properties of an engine, which are no faults and go into both
launches of a pair, and another target in one of them."""

from __future__ import annotations

from typing import Any

import torch

from .base import Fault
from .step import Step


class Noise(Fault):
    """Every evaluation adds Gaussian noise to the logits, new each time."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._generator = torch.Generator().manual_seed(seed)

    def computed_logits(self, step: Step, logits: torch.Tensor) -> torch.Tensor:
        self.struck += 1
        noise = torch.randn(logits.shape, generator=self._generator, dtype=torch.float32)
        return (logits.float() + self.parameters["size"] * noise).to(torch.float32)


class WidthDependent(Fault):
    """Kernels differ with the number of rows computed together: 1, 2 to 4, 5 to 8, more. The same
    rows in the same company give the same logits; the differences depend on the row's content."""

    WIDTHS = (1, 4, 8)

    def computed_logits(self, step: Step, logits: torch.Tensor) -> torch.Tensor:
        self.struck += 1
        width = sum(logits.shape[0] > limit for limit in self.WIDTHS)
        if width == 0:
            return logits
        values = logits.float()
        mixed = torch.sin(values * (1.0e4 * (1 + width)))
        return values + self.parameters["size"] * mixed


class OtherTarget(Fault):
    """The launch serves other weights: every evaluation has the same other logits, prefill too."""

    def computed_logits(self, step: Step, logits: torch.Tensor) -> torch.Tensor:
        self.struck += 1
        generator = torch.Generator().manual_seed(self.seed)
        other = torch.randn(logits.shape[-1], generator=generator, dtype=torch.float32)
        return logits.float() + self.parameters["size"] * other


class Rounded(Fault):
    """Logits are rounded to bfloat16, so that tokens are often tied exactly for the best one; which
    of them is taken is left to chance."""

    LEAST = 1.0e-4  # nats, far below what a rounded logit differs by

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._generator = torch.Generator().manual_seed(seed)

    def computed_logits(self, step: Step, logits: torch.Tensor) -> torch.Tensor:
        values = logits.to(torch.bfloat16).to(torch.float32)
        tied = values == values.amax(dim=-1, keepdim=True)
        self.struck += int((tied.sum(dim=-1) > 1).sum())
        chance = torch.rand(values.shape, generator=self._generator, dtype=torch.float32)
        return values + self.LEAST * chance * tied
