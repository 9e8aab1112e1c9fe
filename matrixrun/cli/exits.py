"""How commands end: every mistake becomes one message and a documented exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from matrixrun.evidence.errors import (
    ClusterError,
    MatrixrunError,
    StoreError,
    TrackingError,
    UserError,
)
from matrixrun.evidence.verdicts import EXIT_CODES

EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."

SIGNED = {0: "signed", 1: "not signed"}
SIGNOFF_EPILOG = (
    "Exit codes: "
    + "; ".join(f"{code} {(EXIT_CODES | SIGNED)[code]}" for code in (0, 1, 2, 3, 4))
    + "."
)

# Typer carries a click of its own, whose base of all usage errors has no public name.
CLICK_ERRORS: tuple[Any, ...] = tuple(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def code_of(command: Callable[[], object]) -> int:  # noqa: PLR0911 (one line for each class)
    """Call `command`, tell the user what went wrong, and return the exit code that it ends with."""
    try:
        outcome = command()
    except typer.Exit as error:
        return error.exit_code
    except CLICK_ERRORS as error:
        error.show()
        return 4
    except (typer.Abort, KeyboardInterrupt):
        _say("interrupted")
        return 2
    except UserError as error:
        _say(str(error))
        return 4
    except (ClusterError, StoreError, TrackingError) as error:
        _say(str(error))
        return 2
    except MatrixrunError as error:
        _say(str(error))
        return 1
    except BrokenPipeError:
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            _say(f"output cannot be written: {error}\n  remedy: make room, run the same again")
            return 2
        with contextlib.suppress(OSError):
            traceback.print_exc()
        _say("internal error; please report it with the lines above")
        return 3
    return outcome if isinstance(outcome, int) else 0


def leave(code: int) -> None:
    """End the process with `code`, whatever becomes of output that is not written yet."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the interpreter would try again at its end, and put its own exit code
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _say(text: str) -> None:
    """Tell the user, unless nothing can be written there either."""
    with contextlib.suppress(OSError):
        typer.echo(f"matrixrun: {text}", err=True)
