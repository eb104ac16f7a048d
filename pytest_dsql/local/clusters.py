"""The clusters of one engine: each its own PostgreSQL, made from the template, found by host name."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final, final

from pytest_dsql.errors import EngineError
from pytest_dsql.local.account import Account
from pytest_dsql.local.cluster import ACCOUNT_ID, Cluster, Principal, new_cluster_id
from pytest_dsql.local.installation import Installation
from pytest_dsql.local.limits import DEFAULT, Limits
from pytest_dsql.local.persistent import DataDirectory, Identity
from pytest_dsql.local.postgres import Postgres
from pytest_dsql.local.principals import new_principal
from pytest_dsql.local.template import catalog_sql, copy_tree, ensure_template, template_key
from pytest_dsql.local.trouble import NO_TROUBLE, Trouble

#: DSQL allows 10,000; a laptop is bounded by memory and processes. Sessions have a connection while they are busy.
MAX_CONNECTIONS: Final = 1_500
#: What the engine itself may need of them.
_OWN_CONNECTIONS: Final = 20

_COMMON: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": str(MAX_CONNECTIONS),
    "superuser_reserved_connections": "10",
    "shared_buffers": "64MB",
    "huge_pages": "off",
    "dynamic_shared_memory_type": "mmap",  # in the data directory, so that nothing stays in /dev/shm after a kill
    "max_locks_per_transaction": "16",
    "max_pred_locks_per_transaction": "10",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "wal_init_zero": "off",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "1h",
    "max_worker_processes": "0",
    "max_parallel_workers_per_gather": "0",
    "max_logical_replication_workers": "0",
    "jit": "off",
    # A dead client's statement is cancelled, but a cancellation that comes before the statement has begun is lost.
    "client_connection_check_interval": "1s",
    # Freshly loaded rows would be vacuumed in the middle of a measured cell; what updates leave behind still is.
    "autovacuum_vacuum_insert_threshold": "-1",
    "update_process_title": "off",
    # 128 MiB of temporary space for a query (AWS user guide, "Cluster quotas and database limits in Aurora DSQL").
    "temp_file_limit": "128MB",
    "default_transaction_isolation": "repeatable read",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_messages": "log",  # a client's errors are the client's; a failing server's words stay
}
#: What was acknowledged outlives a PostgreSQL that restarts because one of its processes was killed (only the machine's
#: end loses it): the kernel has the log's bytes. Without `fsync` that costs too little to be measured.
_THROW_AWAY: Final = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
_DURABLE: Final = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


@final
@dataclass
class _Instance:
    cluster: Cluster
    postgres: Postgres
    directory: Path
    stopping: bool = field(default=False)


@final
class Clusters:
    """Makes, finds and removes the clusters of an engine. Thread-safe; making one takes about a tenth of a second.

    `ended` is called, from a thread, with the reason when a PostgreSQL ends that nobody stopped. `durable`: a commit is
    on disk before it is answered; None: where the data outlives the engine.
    """

    def __init__(
        self,
        directory: Path,
        installation: Installation,
        account: Account,
        *,
        region: str,
        rules: date,
        ended: Callable[[str], None],
        limits: Limits = DEFAULT,
        durable: bool | None = None,
        peers: tuple[str, ...] = (),
        trouble: Trouble = NO_TROUBLE,
        asleep: bool = False,
    ) -> None:
        self._directory = directory
        self._installation = installation
        self._account = account
        self._region = region
        self._rules = rules
        self._ended = ended
        self._limits = limits
        self._durable = durable
        self._peers = peers
        self._trouble = trouble
        self._asleep = asleep
        self._principals = [new_principal(f"arn:aws:iam::{ACCOUNT_ID}:role/pytest-dsql-local")]
        self._lock = threading.Lock()
        self._count = 0
        self._instances: dict[str, _Instance] = {}  #: by the cluster's id
        self._by_host: dict[str, Cluster] = {}
        self._default: Cluster | None = None
        self._store: DataDirectory | None = None

    @property
    def principal(self) -> Principal:
        """The identity that every cluster of this engine accepts; its keys are made anew for each engine."""
        return self._principals[0]

    def add_principal(self, principal: Principal) -> None:
        """Accept a further identity, in every cluster. Raises EngineError when its access key is known already."""
        with self._lock:
            if any(known.access_key_id == principal.access_key_id for known in self._principals):
                raise EngineError(f"the access key {principal.access_key_id} belongs to a principal already")
            self._principals.append(principal)

    def default(self) -> Cluster:
        """The cluster made at start."""
        assert self._default is not None, "the default cluster is made before the gateway listens"
        return self._default

    def by_host(self, sni: str) -> Cluster | None:
        """The cluster of this host name, None when there is none."""
        return self._by_host.get(sni.lower())

    def by_id(self, cluster_id: str) -> Cluster:
        """The cluster with this id. Raises EngineError when there is none."""
        instance = self._instances.get(cluster_id)
        if instance is None:
            raise EngineError(f"this engine has no cluster {cluster_id}")
        return instance.cluster

    def all(self) -> list[Cluster]:
        """The clusters there are, the default one first."""
        return [instance.cluster for instance in list(self._instances.values())]

    def add_default(self, store: DataDirectory | None) -> Cluster:
        """Make the default cluster: with throw-away data, or with data in `store` that outlives the engine."""
        self._default = self.add() if store is None else self._add_persistent(store)
        return self._default

    def add(self) -> Cluster:
        """Make a cluster with throw-away data. Raises EngineError."""
        directory = self._new_directory()
        self._copy(directory / "data")
        cluster = self._start(new_cluster_id(), directory, durable=bool(self._durable))
        cluster.functions = False
        return cluster

    def _add_persistent(self, store: DataDirectory) -> Cluster:
        store.open()
        self._store = store
        version, key = self._installation.version, template_key(self._installation, catalog_sql())
        known = store.identity()
        if known is None:
            store.remove_unfinished()
            self._copy(store.data)
            known = Identity(new_cluster_id(), self._region, key, version)
            store.complete(known)
        elif known.template != key:
            raise EngineError(
                f"{store.data.parent} was made by another version of the engine or of PostgreSQL ({known.postgresql}; "
                f"this one runs {version}): run that version, or name a new directory"
            )
        self._region = known.region
        directory = self._new_directory()
        (directory / "data").symlink_to(store.data, target_is_directory=True)
        return self._start(known.id, directory, durable=self._durable is not False)

    def _copy(self, data: Path) -> None:
        copy_tree(ensure_template(self._installation, self._account), data)
        self._account.own_tree(data)

    def _new_directory(self) -> Path:
        with self._lock:
            self._count += 1
            directory = self._directory / str(self._count)
        directory.mkdir(mode=0o700)
        self._account.own(directory)
        return directory

    def _start(self, cluster_id: str, directory: Path, *, durable: bool) -> Cluster:
        postgres = Postgres(self._installation, self._account, directory / "data", directory, directory / "log")
        durability = _DURABLE if durable else _THROW_AWAY
        postgres.start(_COMMON | durability | {"unix_socket_directories": str(directory)})
        cluster = Cluster(
            id=cluster_id,
            region=self._region,
            socket_path=str(postgres.socket_path),
            principals=self._principals,
            rules=self._rules,
            limits=self._limits,
            backends=MAX_CONNECTIONS - _OWN_CONNECTIONS,
            peers=self._peers,
            trouble=self._trouble,
            asleep=self._asleep,
        )
        instance = _Instance(cluster, postgres, directory)
        try:
            postgres.wait_ready()
        except BaseException:
            postgres.stop()
            raise
        with self._lock:
            self._instances[cluster.id] = instance
            self._by_host |= {endpoint.host: cluster for endpoint in cluster.endpoints}
        threading.Thread(target=self._watch, args=(instance,), name=f"watch {cluster_id}", daemon=True).start()
        return cluster

    def _watch(self, instance: _Instance) -> None:
        instance.postgres.wait()
        if not instance.stopping:
            self._ended(
                f"PostgreSQL of cluster {instance.cluster.id} ended ({instance.postgres.ending()}): "
                f"{instance.postgres.log_tail()}"
            )

    def remove(self, cluster_id: str) -> None:
        """Stop a cluster and remove its data. Raises EngineError when there is none, or when it is the default one."""
        with self._lock:
            cluster = self.by_id(cluster_id)
            if self._default is not None and self._default.id == cluster_id:
                raise EngineError(f"{cluster_id} is the engine's default cluster; it goes with the engine")
            instance = self._instances.pop(cluster_id)
            for endpoint in cluster.endpoints:
                del self._by_host[endpoint.host]
        self._stop(instance)
        shutil.rmtree(instance.directory, ignore_errors=True)

    def close(self) -> None:
        """Stop every PostgreSQL; their directories are the engine's to remove."""
        with self._lock:
            instances = list(self._instances.values())
            self._instances.clear()
            self._by_host.clear()
        threads = [threading.Thread(target=self._stop, args=(instance,)) for instance in instances]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._store is not None:
            self._store.close()

    def _stop(self, instance: _Instance) -> None:
        instance.stopping = True
        instance.postgres.stop()
