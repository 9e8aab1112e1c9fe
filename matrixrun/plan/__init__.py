"""The plan: which servers are started, for which cells, in which order, at what cost. Pure.

types      Plan, PlannedPair, Group
arms       a cell and the matrix to the arms' configurations
sharing    arms to launches: the same configuration is launched once
nodes      Node, Placement, Running: what is there, and what holds it
order      Queue: what may start now, and on which nodes
simulate   a sweep on nodes that are not there
forecast   how long it takes on given nodes, and how good that is
bound      the least time in which any order could run a plan
cost       seconds, roughly
learned    estimates corrected by what earlier sweeps took
power      notes on what the number of requests cannot see
build      build: Matrix and Expansion to a Plan
checks     plan_file: a matrix file to a Plan; what it names must be there
selection  select: a part of a plan (`--only`)
secrets    mask: a command that may be shown
render     render_text, to_json, interaction_lines
"""

from matrixrun.plan.arms import CONVERSATION_TURNS, REPLY_TOKENS, batch_size, replied_forms
from matrixrun.plan.bound import lower_bound
from matrixrun.plan.build import build
from matrixrun.plan.checks import plan_file, require_programs
from matrixrun.plan.cost import EXTRA_ANSWERS, EXTRA_IN_FLIGHT
from matrixrun.plan.forecast import Forecast, forecast, forecast_json, forecast_text
from matrixrun.plan.learned import Costs, Measured, with_costs
from matrixrun.plan.nodes import Node, Placement, Running, holds, share
from matrixrun.plan.order import Queue, unfit
from matrixrun.plan.render import interaction_lines, render_text, to_json
from matrixrun.plan.secrets import mask
from matrixrun.plan.selection import select
from matrixrun.plan.sharing import EXTRAS
from matrixrun.plan.simulate import Schedule, parse_nodes, simulate
from matrixrun.plan.types import Group, Plan, PlannedPair

__all__ = [
    "CONVERSATION_TURNS",
    "EXTRAS",
    "EXTRA_ANSWERS",
    "EXTRA_IN_FLIGHT",
    "REPLY_TOKENS",
    "Costs",
    "Forecast",
    "Group",
    "Measured",
    "Node",
    "Placement",
    "Plan",
    "PlannedPair",
    "Queue",
    "Running",
    "Schedule",
    "batch_size",
    "build",
    "forecast",
    "forecast_json",
    "forecast_text",
    "holds",
    "interaction_lines",
    "lower_bound",
    "mask",
    "parse_nodes",
    "plan_file",
    "render_text",
    "replied_forms",
    "require_programs",
    "select",
    "share",
    "simulate",
    "to_json",
    "unfit",
    "with_costs",
]
