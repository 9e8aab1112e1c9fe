"""A plugin of SGLang's that makes it use the stand-in kernels on any CPU.

SGLang has one attention backend for CPUs that can verify drafts, and takes it only where the
processor has AMX; elsewhere it silently takes one that cannot.
"""

from __future__ import annotations

import contextlib

_claims = contextlib.ExitStack()


def install() -> None:
    """Claim AMX for the rest of this process. SGLang calls it in each of its processes."""
    import sgl_kernel  # noqa: F401 - registers the attention ops
    from sglang.srt import runtime_context

    _claims.enter_context(runtime_context.override_platform(has_amx=True))
