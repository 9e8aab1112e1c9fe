"""Engines: how each is started, spoken to and ended.

protocol       Engine (pure half) and Client (HTTP half): the seam
registry       get, kinds: one line an engine
flags          our command line under the user's own flags
environments   prepare: an engine's environment, built once per node
containers     images as command prefixes
surroundings   what an engine inherits; mask, mask_argv, mask_log: what may be shown of it
guard          standalone script: a command that ends with its owner
processes      Held: a command under the guard; orphans, end_orphans
server         Server: one running engine
follower       Follower: a process group on a further node of a launch
traffic        run_pass: requests in flight
vllm           kind `vllm`
"""

from matrixrun.engines.environments import Environment, prepare
from matrixrun.engines.follower import Follower
from matrixrun.engines.processes import end_orphans, orphans
from matrixrun.engines.protocol import Client, Engine
from matrixrun.engines.registry import get, kinds
from matrixrun.engines.server import Server, free_port
from matrixrun.engines.surroundings import (
    MASK,
    engine_environment,
    is_surely_secret,
    mask,
    mask_argv,
    mask_log,
    mask_text,
    mask_values,
    secret_values,
)
from matrixrun.engines.traffic import run_pass

__all__ = [
    "MASK",
    "Client",
    "Engine",
    "Environment",
    "Follower",
    "Server",
    "end_orphans",
    "engine_environment",
    "free_port",
    "get",
    "is_surely_secret",
    "kinds",
    "mask",
    "mask_argv",
    "mask_log",
    "mask_text",
    "mask_values",
    "orphans",
    "prepare",
    "run_pass",
    "secret_values",
]
