"""The plan: which servers are started, for which cells, in which order, at what cost. Pure.

types      Plan, PlannedPair, Group, Capacity
arms       a cell and the matrix to the arms' configurations
sharing    arms to launches: the same configuration is launched once
order      next_launches: what may start now
cost       seconds, roughly
power      notes on what the number of requests cannot see
build      build: Matrix and Expansion to a Plan
checks     plan_file: a matrix file to a Plan; what it names must be there
selection  select: a part of a plan (`--only`)
secrets    mask: a command that may be shown
render     render_text, to_json, interaction_lines
"""

from matrixrun.plan.arms import CONVERSATION_TURNS, batch_size
from matrixrun.plan.build import build
from matrixrun.plan.checks import plan_file
from matrixrun.plan.order import fits, next_launches, unfit
from matrixrun.plan.render import interaction_lines, render_text, to_json
from matrixrun.plan.secrets import mask
from matrixrun.plan.selection import select
from matrixrun.plan.types import Capacity, Group, Plan, PlannedPair

__all__ = [
    "CONVERSATION_TURNS",
    "Capacity",
    "Group",
    "Plan",
    "PlannedPair",
    "batch_size",
    "build",
    "fits",
    "interaction_lines",
    "mask",
    "next_launches",
    "plan_file",
    "render_text",
    "select",
    "to_json",
    "unfit",
]
