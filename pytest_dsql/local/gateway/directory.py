"""How the gateway learns which clusters there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_dsql.local.cluster import Cluster


class ClusterDirectory(Protocol):
    """The clusters of an engine."""

    def by_host(self, sni: str) -> Cluster | None:
        """Give the cluster whose host name this is."""
        ...

    def all(self) -> Sequence[Cluster]:
        """Give all clusters."""
        ...

    def default(self) -> Cluster:
        """Give the cluster of clients that say `localhost` and nothing more."""
        ...
