"""lm-evaluation-harness with what its command line cannot say: how a server that is not ours is
reached. It stands alone: the interpreter of the harness's own environment runs it by its path.

- Requests in flight together go through the proxies of the environment too. The harness sends
  them by aiohttp, which by itself takes no notice of those.
- Further headers: $MATRIXRUN_HEADERS is a JSON object of their names and of the variables that
  hold their values, so that no value is on a command line.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
from typing import Any


def main() -> None:
    """Run `python -m lm_eval` with this program's own arguments."""
    from lm_eval.models import api_models

    api_models.ClientSession = functools.partial(api_models.ClientSession, trust_env=True)
    named = json.loads(os.environ["MATRIXRUN_HEADERS"])
    further = {header: os.environ[variable] for header, variable in named.items()}
    plain: Any = api_models.TemplateAPI.header
    api_models.TemplateAPI.header = property(lambda model: plain.func(model) | further)
    runpy.run_module("lm_eval", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
