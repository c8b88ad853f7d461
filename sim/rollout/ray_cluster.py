"""Worlds as actors on the machines of a Ray cluster.

The policy stays in the process that evaluates. So any policy can be measured, every answer is
computed by the same processor whatever machine simulates, and nothing but the package need be
installed elsewhere. What travels is one observation and one chunk per plan: 330 kB for four RGB-D
cameras at 128 pixels.

Ray pickles what it sends, and whoever reaches its ports can run anything. It belongs inside one
trusted cluster; a cluster that is started here listens on loopback alone. (Ray's own
`_node_ip_address="127.0.0.1"` does not bring that about on Linux: there Ray takes the machine's
outer address for it, and listens on all of them.)
"""

import logging
import math
import os
import pickle
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stringline
from stringline.sim.rollout.messages import (
    Command,
    Failed,
    Lost,
    MakeWorld,
    Message,
    Ready,
    RemoteTracebackError,
)
from stringline.sim.rollout.workers import MOST_STILLBORN
from stringline.sim.rollout.world_host import WorldHost

LOOPBACK = "127.0.0.1"
# Its name is of another purpose, but this is what makes Ray take loopback for its address, on Linux
# too.
STAY_ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
LEAST_OBJECT_STORE_MB = 80
ASK_AGAIN_S = 10.0
CONNECT_S = 5.0


@dataclass(frozen=True)
class RayCluster:
    """A cluster that is there, or one of this machine alone that lives as long as it is needed.

    Attributes:
        address: `local` starts one; `auto` or host:port joins one.
        cpus_per_world: What Ray sets aside for each world.
        object_store_mb: Shared memory of a cluster that is started here.
    """

    address: str = "local"
    cpus_per_world: float = 1.0
    object_store_mb: int = 128

    def __post_init__(self) -> None:
        """Refuses what Ray would refuse later, in its own words."""
        if not self.cpus_per_world > 0:
            raise ValueError(
                f"cluster.cpus_per_world is {self.cpus_per_world}; it must be above 0."
            )
        if self.object_store_mb < LEAST_OBJECT_STORE_MB:
            least = f"allowed: {LEAST_OBJECT_STORE_MB} and above"
            raise ValueError(f"cluster.object_store_mb is {self.object_store_mb}; {least}.")

    @contextmanager
    def open(self, make: MakeWorld, workers: int, most: int) -> Iterator["RayWorkers"]:
        """Starts actors.

        Args:
            make: Builds a world; it is pickled.
            workers: How many; 0 takes one per processor of the cluster.
            most: More than that are of no use.

        Raises:
            ValueError: Ray is not installed, or there is no such cluster.
        """
        ray = import_ray(
            loopback=self.address.partition(":")[0] in ("local", "localhost", LOOPBACK)
        )
        joined = not ray.is_initialized()
        if joined:
            self._join(ray, min(workers or os.cpu_count() or 1, most))
        try:
            room = int(ray.cluster_resources().get("CPU", 0) / self.cpus_per_world)
            with RayWorkers(ray, make, min(workers or room, most), self.cpus_per_world) as pool:
                yield pool
        finally:
            if joined:
                ray.shutdown()

    def _join(self, ray: Any, worlds: int) -> None:
        quiet = {"log_to_driver": False, "configure_logging": False, "include_dashboard": False}
        package = str(Path(stringline.__file__).parents[1])  # For a checkout that is not installed.
        job = ray.job_config.JobConfig(code_search_path=[package])
        if self.address == "local":
            os.environ.setdefault(
                "RAY_USAGE_STATS_ENABLED", "0"
            )  # Else it tells its makers of every cluster.
            if (
                "RAY_AUTH_TOKEN_PATH" not in os.environ
            ):  # Else it makes a token for this cluster and keeps it in a file.
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            logging.getLogger("ray._private.authentication").setLevel(
                logging.ERROR
            )  # It says that it uses one.
            cpus = math.ceil(worlds * self.cpus_per_world)
            memory = self.object_store_mb * 2**20
            ray.init(
                "local",
                job_config=job,
                num_cpus=cpus,
                num_gpus=0,
                object_store_memory=memory,
                **quiet,
            )
            return
        try:
            self._require_listener()
            ray.init(self.address, job_config=job, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"The Ray cluster {self.address!r} cannot be joined: {_first_line(error)}"
            ) from error

    def _require_listener(self) -> None:
        """Ray itself tries for many minutes."""
        host, _, port = self.address.rpartition(":")
        if port.isdecimal():
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()


class RayWorker:
    """One actor."""

    def __init__(self, pool: "RayWorkers", actor: Any) -> None:
        """Lets it build its world; its first message is `Ready`."""
        self._pool = pool
        self.actor = actor
        self.is_ready = False
        pool.expect(self, actor.open.remote())

    def send(self, command: Command) -> None:
        """Hands it a job, an errand or an answer."""
        self._pool.expect(self, self.actor.take.remote(command))


class RayWorkers:
    """A fixed number of actors; leaving the `with` block ends them all."""

    def __init__(self, ray: Any, make: MakeWorld, count: int, cpus: float) -> None:
        """Starts them.

        Args:
            ray: The library.
            make: Builds a world.
            count: At least 1.
            cpus: For each.
        """
        self._ray = ray
        self._make = make
        self._cpus = cpus
        self._stillborn = 0
        options = {
            "num_cpus": cpus,
            "scheduling_strategy": "SPREAD",
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        self._host = ray.remote(RayHost).options(**options)
        self._expected: dict[Any, RayWorker] = {}
        self._require_room()
        self._workers = [self._start() for _ in range(count)]

    def expect(self, worker: RayWorker, reference: Any) -> None:
        """Remembers that a worker will say something."""
        self._expected[reference] = worker

    def messages(self) -> Iterator[tuple[RayWorker, Message]]:
        """Yields what the workers say, as it comes; after `Lost` comes the `Ready` of another worker.

        Raises:
            RuntimeError: Workers die before they are ready, or the cluster has no processors left.
            Exception: What a worker met, with the trace of it as its cause.
        """
        while True:
            said, _ = self._ray.wait(list(self._expected), timeout=ASK_AGAIN_S)
            if not said:
                self._require_room()
            for reference in said:
                worker = self._expected.pop(reference)
                message = self._receive(reference)
                if isinstance(message, Failed):
                    raise message.error from RemoteTracebackError(message.trace)
                if isinstance(message, Ready):
                    worker.is_ready = True
                    self._stillborn = 0
                if isinstance(message, Lost):
                    self._replace(worker, message.reason)
                yield worker, message

    def __enter__(self) -> "RayWorkers":
        """Returns the workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the actors."""
        for worker in self._workers:
            self._ray.kill(worker.actor)

    def _start(self) -> RayWorker:
        return RayWorker(self, self._host.remote(self._make))

    def _receive(self, reference: Any) -> Message:
        try:
            message: Message = pickle.loads(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            return Lost(f"An actor was lost: {_first_line(error)}")
        return message

    def _replace(self, worker: RayWorker, reason: str) -> None:
        self._stillborn += not worker.is_ready
        if self._stillborn == MOST_STILLBORN:
            raise RuntimeError(f"{reason} So were others; none could build its world.")
        self._workers.remove(worker)
        self._ray.kill(worker.actor)  # It may live on where it cannot be reached.
        self._workers.append(self._start())

    def _require_room(self) -> None:
        largest = max(
            (node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]),
            default=0,
        )
        if largest < self._cpus:
            room = (
                f"no machine with {self._cpus:g} processors for a world; the largest one has "
                f"{largest:g}"
            )
            raise RuntimeError(
                f"The Ray cluster has {room}. Add one, and run the same command to continue."
            )


class RayHost:
    """A `WorldHost` as an actor.

    What it returns is pickled here and unpickled by the receiver: arrays that Ray itself hands over
    lie in memory that must not be written to, and a policy should not have to know.
    """

    def __init__(self, make: MakeWorld) -> None:
        """Builds nothing yet."""
        self._host = WorldHost(make)

    def open(self) -> bytes:
        """Builds the world."""
        return pickle.dumps(self._host.open(), protocol=5)

    def take(self, command: Command) -> bytes:
        """Carries on; see `WorldHost`."""
        return pickle.dumps(self._host.take(command), protocol=5)


def import_ray(*, loopback: bool) -> Any:
    """Returns the library.

    Args:
        loopback: Whether a cluster that it starts or joins is on loopback; the first import
            decides.

    Raises:
        ValueError: It is not installed, or was imported before without this.
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
            f"Ray would listen on all networks, for it was imported too early. Set "
            f"{STAY_ON_LOOPBACK}=0 before."
        )
    return ray


def _first_line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0]
    return line if line.endswith(".") else f"{line}."
