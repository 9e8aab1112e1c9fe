"""Engines: how each is started, spoken to and ended.

protocol       Engine (pure half) and Client (HTTP half): the seam
registry       get, kinds: one line an engine
flags          our command line under the user's own flags
environments   prepare: an engine's environment, built once per node
binaries       servers built from source: `binary: builtin:NAME`
containers     images as command prefixes
surroundings   what an engine inherits; mask, mask_argv, mask_log: what may be shown of it
guard          standalone script: a command that ends with its owner
processes      Held: a command under the guard; orphans, end_orphans
server         Server: one running engine
reach          Reach: how a server that is not ours is spoken to
attached       Attached: a server that runs already, in the place of a Server
follower       Follower: a process group on a further node of a launch
harness        evaluate: a task of lm-evaluation-harness put to a server
traffic        run_pass: requests in flight
http           Connection: HTTP to one server, under every client
vllm           kind `vllm`
sglang         kind `sglang`
llamacpp       kind `llamacpp`
"""

from matrixrun.engines.attached import Attached
from matrixrun.engines.environments import Environment, find_overlay, prepare
from matrixrun.engines.follower import Follower
from matrixrun.engines.processes import end_orphans, orphans
from matrixrun.engines.protocol import Client, Engine, Tokenizing
from matrixrun.engines.reach import Reach, headers_of
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
    "Attached",
    "Client",
    "Engine",
    "Environment",
    "Follower",
    "Reach",
    "Server",
    "Tokenizing",
    "end_orphans",
    "engine_environment",
    "find_overlay",
    "free_port",
    "get",
    "headers_of",
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
