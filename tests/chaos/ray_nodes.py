"""A Ray cluster of several nodes on this machine, for as long as a test runs."""

from __future__ import annotations

from typing import Any

from ray.cluster_utils import Cluster

START_ATTEMPTS = 4


class PatientCluster(Cluster):
    """Ray's own, which tries again where a raylet is not up in the 30 s that Ray gives it: on a
    busy machine it may not be."""

    def add_node(self, **settings: Any) -> Any:
        """Start one more node and wait until it is known, see Ray's own."""
        for attempt in range(START_ATTEMPTS):
            try:
                return super().add_node(**settings)
            except Exception as error:  # Ray raises no narrower one
                if attempt == START_ATTEMPTS - 1:
                    raise
                print(f"again: {str(error).splitlines()[0]}", flush=True)
        raise AssertionError("unreachable")
