"""Every error that matrixrun raises on purpose.

MatrixrunError              shown as one message, never as a traceback
├── UserError               exit 4: something the user wrote or named is wrong
│   └── MatrixError         ... in the matrix file; carries file, line and key
├── BuildError              an engine environment or a small checkpoint could not be made
├── EngineError             an engine process failed; carries the tail of its own log
│   ├── EngineRefused       ... on purpose: it validated its arguments and said no
│   ├── EngineDied          ... by itself, at start or while serving
│   │   └── EngineKilled    ... by SIGKILL from outside, which says nothing about the engine
│   └── EngineHung          ... by making no progress within its bound
├── EvaluationError         an accuracy task could not be put to a server
├── ClusterError            a local Ray did not start; run again resumes
├── StoreError              the results folder cannot be read or written
└── TrackingError           MLflow cannot be reached; results stay in the results folder
"""

from __future__ import annotations


class MatrixrunError(Exception):
    """Base of all; `str(error)` is complete enough to act upon.

    Args:
        message: what is wrong, naming the file, key or process concerned.
        remedy: what the user should do next.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(message if remedy is None else f"{message}\n  remedy: {remedy}")


class UserError(MatrixrunError):
    """Something the user wrote, named or passed is wrong."""


class MatrixError(UserError):
    """A mistake in a matrix file, with its position (`line` is 1-based)."""

    def __init__(
        self, file: str, line: int | None, key: str, message: str, *, remedy: str | None = None
    ) -> None:
        self.file, self.line, self.key = file, line, key
        where = file if line is None else f"{file}:{line}"
        text = f"{where}: {key}: {message}" if key else f"{where}: {message}"
        super().__init__(text, remedy=remedy)


class BuildError(MatrixrunError):
    """An engine environment or a checkpoint could not be built; `log_tail` quotes the builder."""

    def __init__(self, message: str, *, log_tail: str = "", remedy: str | None = None) -> None:
        self.log_tail = log_tail
        super().__init__(f"{message}\n{log_tail}".rstrip(), remedy=remedy)


class EngineError(MatrixrunError):
    """An engine process failed; `log_tail` is the end of its own log, verbatim."""

    def __init__(self, message: str, *, log_tail: str = "", remedy: str | None = None) -> None:
        self.log_tail = log_tail
        super().__init__(message, remedy=remedy)


class EngineRefused(EngineError):
    """The engine ended before it was healthy with a deliberate refusal of its configuration."""


class EngineDied(EngineError):
    """The engine's process ended or its server stopped answering."""


class EngineKilled(EngineDied):
    """The engine, or the guard that was to start it, was killed from outside."""


class EngineHung(EngineError):
    """The engine made no progress within its bound."""


class EvaluationError(MatrixrunError):
    """A task could not be put to a server; `log_tail` is the end of the harness's own log."""

    def __init__(self, message: str, *, log_tail: str = "", remedy: str | None = None) -> None:
        self.log_tail = log_tail
        super().__init__(message, remedy=remedy)


class ClusterError(MatrixrunError):
    """A Ray of our own did not come up on this machine, which is mostly for want of time."""


class StoreError(MatrixrunError):
    """The results folder cannot be read or written."""


class TrackingError(MatrixrunError):
    """The tracking server cannot be reached or refused what was sent."""
