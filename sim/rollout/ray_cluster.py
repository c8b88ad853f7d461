"""Worlds as actors on the machines of a Ray cluster.

The policy stays in the evaluating process. So any policy can be measured, the same processor
computes every plan, and the other machines need nothing but this package. One observation and one
chunk travel per plan: 330 kB for four RGB-D cameras at 128 pixels.

Ray pickles its messages, and every program that reaches its ports can run any code. Use it inside
one trusted cluster only. A cluster that is started here listens on loopback alone. (Ray's own
`_node_ip_address="127.0.0.1"` does not have this effect on Linux: Ray replaces it by the machine's
outer address and listens on all addresses.)
"""

import logging
import math
import os
import pickle
import secrets
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stringline
from stringline.datasets.contract.argument_checks import NOT_NEGATIVE
from stringline.sim.rollout.jobs import Job, run_beside, run_submitted, shared
from stringline.sim.rollout.workers import (
    MOST_FAILED_STARTS,
    Command,
    MakeWorld,
    Message,
    RemoteTracebackError,
    WorkerFailed,
    WorkerLost,
    WorkerReady,
    WorldHost,
)

LOOPBACK = "127.0.0.1"
# Named for another purpose, but 0 makes Ray use loopback as its address, on Linux too.
STAY_ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
LEAST_OBJECT_STORE_MB = 80
WAIT_S = 10.0
CONNECT_S = 5.0


@dataclass(frozen=True)
class RayCluster:
    """An existing Ray cluster, or one of this machine that ends with the command.

    Attributes:
        address: local: starts a cluster on this machine for this run; auto or HOST:PORT joins an
            existing one.
        cpus_per_world: Processors that Ray reserves for each world, above 0.
        object_store_mb: Shared memory of a cluster that is started here, at least 80.
        gpus_per_job: GPUs that Ray reserves for each cell of stringline-experiment.

    Raises:
        ValueError: A number is out of range.
    """

    address: str = "local"
    cpus_per_world: float = 1.0
    object_store_mb: int = 128
    gpus_per_job: float = 0.0

    def __post_init__(self) -> None:
        if not self.cpus_per_world > 0:
            raise ValueError(
                f"cluster.cpus_per_world is {self.cpus_per_world}; it must be above 0."
            )
        if self.object_store_mb < LEAST_OBJECT_STORE_MB:
            least = f"allowed: {LEAST_OBJECT_STORE_MB} and above"
            raise ValueError(f"cluster.object_store_mb is {self.object_store_mb}; {least}.")
        NOT_NEGATIVE.check(gpus_per_job=self.gpus_per_job)

    @contextmanager
    def open(self, make: MakeWorld, workers: int, most: int) -> Iterator["RayWorkers"]:
        """Starts actors; see `Cluster.open`."""
        with self._connected(min(workers or os.cpu_count() or 1, most)) as ray:
            room = int(ray.cluster_resources().get("CPU", 0) / self.cpus_per_world)
            with RayWorkers(ray, make, min(workers or room, most), self.cpus_per_world) as pool:
                yield pool

    def run_jobs(
        self, jobs: Sequence[Job], parallel: int
    ) -> Generator[tuple[Job, str], None, None]:
        """Runs jobs as tasks, each on the processors of a world; see `JobCluster.run_jobs`."""
        jobs[0].folder.mkdir(parents=True, exist_ok=True)
        with self._connected(parallel) as ray, shared(jobs[0].folder) as folder:
            run = ray.remote(run_beside).options(
                num_cpus=self.cpus_per_world, num_gpus=self.gpus_per_job, max_retries=0
            )

            def wait(references: Sequence[Any]) -> list[tuple[Any, str]]:
                ended, _ = ray.wait(list(references))
                return [(reference, _failure(ray, reference)) for reference in ended]

            yield from run_submitted(jobs, parallel, lambda job: run.remote(folder, job), wait)

    @contextmanager
    def _connected(self, worlds: int) -> Iterator[Any]:
        """Yields the library, joined to the cluster."""
        ray = import_ray(
            loopback=self.address.partition(":")[0] in ("local", "localhost", LOOPBACK)
        )
        joined = not ray.is_initialized()
        if joined:
            self._join(ray, worlds)
        try:
            yield ray
        finally:
            if joined:
                ray.shutdown()

    def _join(self, ray: Any, worlds: int) -> None:
        quiet = {"log_to_driver": False, "configure_logging": False, "include_dashboard": False}
        # A checkout need not be installed.
        package = str(Path(stringline.__file__).parents[1])
        job = ray.job_config.JobConfig(code_search_path=[package])
        if self.address == "local":
            # Otherwise Ray reports every cluster to its makers.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            # Otherwise Ray makes a token for this cluster and keeps it in a file.
            if "RAY_AUTH_TOKEN_PATH" not in os.environ:
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            # Otherwise Ray logs that it uses a token.
            logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
            cpus = math.ceil(worlds * self.cpus_per_world)
            memory = self.object_store_mb * 2**20
            ray.init(
                "local",
                job_config=job,
                num_cpus=cpus,
                num_gpus=math.ceil(worlds * self.gpus_per_job),
                object_store_memory=memory,
                **quiet,
            )
            return
        try:
            self._check_listener()
            ray.init(self.address, job_config=job, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"The Ray cluster {self.address!r} cannot be joined: {_first_line(error)}"
            ) from error

    def _check_listener(self) -> None:
        """Connects once, because Ray itself tries for many minutes."""
        host, _, port = self.address.rpartition(":")
        if port.isdecimal():
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()


class RayWorker:
    """An actor; its first message is `WorkerReady`."""

    def __init__(self, pool: "RayWorkers", actor: Any) -> None:
        self._pool = pool
        self.actor = actor
        self.is_ready = False
        pool.expect(self, actor.open.remote())

    def send(self, command: Command) -> None:
        """Sends a job, a task or a plan."""
        self._pool.expect(self, self.actor.handle.remote(command))


class RayWorkers:
    """A fixed number of actors of `cpus` processors; the end of the `with` block ends them."""

    def __init__(self, ray: Any, make: MakeWorld, count: int, cpus: float) -> None:
        self._ray = ray
        self._make = make
        self._cpus = cpus
        self._failed_starts = 0
        self._host = ray.remote(RayHost).options(
            num_cpus=cpus, scheduling_strategy="SPREAD", max_restarts=0, max_task_retries=0
        )
        self._expected: dict[Any, RayWorker] = {}
        self._check_room()
        self._workers = [self._start() for _ in range(count)]

    def expect(self, worker: RayWorker, reference: Any) -> None:
        """Registers the reference to the next message of a worker."""
        self._expected[reference] = worker

    def messages(self) -> Iterator[tuple[RayWorker, Message]]:
        """Yields the messages of all workers; see `WorkerPool`."""
        while True:
            arrived, _ = self._ray.wait(list(self._expected), timeout=WAIT_S)
            if not arrived:
                self._check_room()
            for reference in arrived:
                worker = self._expected.pop(reference)
                message = self._receive(reference)
                if isinstance(message, WorkerFailed):
                    raise message.error from RemoteTracebackError(message.trace)
                if isinstance(message, WorkerReady):
                    worker.is_ready = True
                    self._failed_starts = 0
                if isinstance(message, WorkerLost):
                    self._replace(worker, message.reason)
                yield worker, message

    def __enter__(self) -> "RayWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            self._ray.kill(worker.actor)

    def _start(self) -> RayWorker:
        return RayWorker(self, self._host.remote(self._make))

    def _receive(self, reference: Any) -> Message:
        try:
            message: Message = pickle.loads(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            return WorkerLost(f"An actor was lost: {_first_line(error)}")
        return message

    def _replace(self, worker: RayWorker, reason: str) -> None:
        self._failed_starts += not worker.is_ready
        if self._failed_starts == MOST_FAILED_STARTS:
            raise RuntimeError(f"{reason} So were others; no actor could build its world.")
        self._workers.remove(worker)
        self._ray.kill(worker.actor)  # It may still run on an unreachable machine.
        self._workers.append(self._start())

    def _check_room(self) -> None:
        largest = max(
            (node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]),
            default=0,
        )
        if largest < self._cpus:
            raise RuntimeError(
                f"The Ray cluster has no machine with {self._cpus:g} processors for a world; the "
                f"largest one has {largest:g}. Add one, and run the same command to continue."
            )


class RayHost:
    """A `WorldHost` as an actor.

    It pickles its messages, and the receiver unpickles them: arrays that Ray itself transfers lie
    in read-only memory, which a policy does not expect.
    """

    def __init__(self, make: MakeWorld) -> None:
        self._host = WorldHost(make)

    def open(self) -> bytes:
        """Builds the world."""
        return pickle.dumps(self._host.open(), protocol=5)

    def handle(self, command: Command) -> bytes:
        """Handles a command; see `WorldHost`."""
        return pickle.dumps(self._host.handle(command), protocol=5)


def import_ray(*, loopback: bool) -> Any:
    """Returns the library; the first import decides whether its cluster is on loopback.

    Raises:
        ValueError: Ray is not installed, or was imported before without `loopback`.
    """
    if loopback:
        os.environ[STAY_ON_LOOPBACK] = "0"
    try:
        import ray
        import ray.job_config
        from ray._private.ray_constants import ENABLE_RAY_CLUSTER
    except ModuleNotFoundError as error:
        raise ValueError(
            'cluster=ray needs ray, which is not installed. Run: pip install "stringline[ray]"'
        ) from error
    if loopback and ENABLE_RAY_CLUSTER:
        raise ValueError(
            f"Ray was imported too early and would listen on all networks. Set "
            f"{STAY_ON_LOOPBACK}=0 before the import."
        )
    return ray


def _failure(ray: Any, reference: Any) -> str:
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        return f"A job was lost: {_first_line(getattr(error, 'cause', None) or error)}"


def _first_line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0]
    return line if line.endswith(".") else f"{line}."
