"""Standalone script: llama.cpp's server, inside a Python that has the package `xllamacpp`.

    python in_process.py [arguments of llama-server]

The package holds the server's own code and the parser of `llama-server`'s command line, but offers
Python no way to call the latter. It is called here through ctypes, on the very parameters that the
server is then made of: every flag, its checks and its messages are llama.cpp's own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
SERVER_EXAMPLE = 12  # LLAMA_EXAMPLE_SERVER
HEADER = 16  # bytes of a Python object before the C++ structure that it wraps


def parse(xllamacpp: Any, arguments: list[str]) -> Any:
    """Return the server's parameters; ends the process as `llama-server` does on a bad argument."""
    library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    try:
        function = library[PARSE]
    except AttributeError:
        raise SystemExit("in_process.py: this build of xllamacpp has no parser to call") from None
    function.restype = ctypes.c_bool
    function.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
    ]  # fmt: skip
    parameters = xllamacpp.CommonParams()
    where = _address(xllamacpp, parameters)
    words = [b"llama-server", *(word.encode() for word in arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    if not function(len(words), ctypes.cast(argv, ctypes.c_void_p), where, SERVER_EXAMPLE, None):
        sys.stdout.flush()
        raise SystemExit(1)
    return parameters


def _address(xllamacpp: Any, parameters: Any) -> int:
    """Return where the C++ parameters lie; ends the process if this build lays them out otherwise.

    Checked both ways before anything is written there: a number that Python sets must be found in
    that memory, and must follow a change made in that memory.
    """
    where = id(parameters) + HEADER
    size = (xllamacpp.CommonParams.__basicsize__ - HEADER) // ctypes.sizeof(ctypes.c_int32)
    words = (ctypes.c_int32 * size).from_address(where)
    kept, marks = parameters.n_ctx, (0x5A17C0DE, 0x3B96E1F2)
    parameters.n_ctx = marks[0]
    places = [place for place, word in enumerate(words) if word == marks[0]]
    if len(places) == 1:
        words[places[0]] = marks[1]
    moved = parameters.n_ctx == marks[1]
    parameters.n_ctx = kept
    if not moved:
        raise SystemExit("in_process.py: this build of xllamacpp lays its parameters out otherwise")
    return where


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM or SIGINT."""
    import xllamacpp  # type: ignore[import-not-found]  # the engine's, not ours

    parameters = parse(xllamacpp, arguments)
    print(f"in_process.py: xllamacpp {xllamacpp.__version__}", flush=True)
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        server = xllamacpp.Server(parameters)
    except RuntimeError as error:
        raise SystemExit(f"in_process.py: {error}") from None
    print(f"in_process.py: listening on {server.listening_address}", flush=True)
    signal.sigwait(signals)
    sys.stdout.flush()
    os._exit(0)  # the server's threads know no other end


if __name__ == "__main__":
    main(sys.argv[1:])
