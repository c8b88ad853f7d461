"""Where simulated worlds run, on this machine, on Ray or Slurm, and the dispatch of episodes.

The dispatcher distributes episodes to workers and repeats the episodes of workers that died, and of
worlds that failed.

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
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import stringline
from stringline.datasets.contract.argument_checks import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    WHOLE,
    unknown_name,
)
from stringline.sim.rollout.jobs import Job, run_beside, run_locally, run_submitted, shared
from stringline.sim.rollout.rollout import Answer
from stringline.sim.rollout.workers import (
    MOST_FAILED_STARTS,
    Command,
    EpisodeEnd,
    EpisodeJob,
    EpisodeLost,
    MakeWorld,
    Message,
    PlannedTask,
    PlanRequest,
    RemoteTracebackError,
    TaskResult,
    WorkerFailed,
    WorkerLost,
    WorkerReady,
    Workers,
    WorldHost,
    WorldTask,
)


class WorkerHandle(Protocol):
    """The connection to a worker, which holds one world."""

    def send(self, command: Command) -> None:
        """Sends a job, a task or a plan; the worker answers with a message."""
        ...


class WorkerPool(Protocol):
    """The workers of a cluster."""

    def messages(self) -> Iterator[tuple[WorkerHandle, Message]]:
        """Yields the messages of all workers; raises the error of a worker.

        The first message of a worker is `WorkerReady`. After `WorkerLost` another worker starts.
        """
        ...


class Cluster(Protocol):
    """A source of workers."""

    def open(self, make: MakeWorld, workers: int, most: int) -> AbstractContextManager[WorkerPool]:
        """Starts up to `most` workers; the end of the `with` block ends them.

        `make` builds a world and is pickled. 0 workers: one per processor.
        """
        ...


@dataclass(frozen=True)
class LocalCluster:
    """Processes of this machine."""

    def open(self, make: MakeWorld, workers: int, most: int) -> AbstractContextManager[WorkerPool]:
        """Starts processes; see `Workers`."""
        return Workers(make, min(workers or os.cpu_count() or 1, most))

    def run_jobs(
        self, jobs: Sequence[Job], parallel: int
    ) -> Generator[tuple[Job, str], None, None]:
        """Runs jobs in processes; see `JobCluster.run_jobs`."""
        return run_locally(jobs, parallel)


logger = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
ResultT = TypeVar("ResultT", covariant=True)


class Episodes(Protocol[ResultT]):
    """Episodes to run, one for each seed."""

    def waiting(self, running: Collection[int]) -> Sequence[int]:
        """Returns the seeds that neither run nor have a result; if empty, the dispatcher ends."""
        ...

    def on_ready(self, message: WorkerReady) -> None:
        """Checks the world of a worker."""
        ...

    def start(self, seed: int) -> EpisodeJob | WorldTask | PlannedTask:
        """Returns the command that starts an episode."""
        ...

    @property
    def plan_batch(self) -> int:
        """Number of observations that are answered at once, if as many episodes run."""
        ...

    def plans(self, requests: Mapping[int, PlanRequest]) -> Mapping[int, Answer]:
        """Returns the plans for the observations of episodes, by their seeds."""
        ...

    def finish(self, seed: int, message: EpisodeEnd | TaskResult) -> ResultT:
        """Returns the result of an episode that ended."""
        ...

    def recover(self, seed: int) -> ResultT | None:
        """Returns the result of an episode whose worker died after it had stored the episode."""
        ...

    def give_up(self, seed: int, reason: str) -> ResultT:
        """Returns the result of an episode whose workers died in every attempt."""
        ...


def dispatch(pool: WorkerPool, episodes: Episodes[ResultT]) -> Iterator[ResultT]:
    """Runs episodes on the workers of a pool and yields each result when its episode ends."""
    running = dict[WorkerHandle, int]()
    idle = set[WorkerHandle]()
    asked = dict[WorkerHandle, PlanRequest]()
    losses = Counter[int]()
    for worker, message in pool.messages():
        if isinstance(message, PlanRequest):
            asked[worker] = message
        else:
            asked.pop(worker, None)
            (idle.discard if isinstance(message, WorkerLost) else idle.add)(worker)
            if isinstance(message, WorkerReady):
                episodes.on_ready(message)
            elif worker in running:
                result = _result(episodes, running.pop(worker), message, losses)
                if result is not None:
                    yield result
            waiting = list(episodes.waiting(running.values()))
            # Any idle worker may take over the episode of a lost worker.
            while waiting and idle:
                free = idle.pop()
                running[free] = waiting.pop(0)
                free.send(episodes.start(running[free]))
            if not waiting and not running:
                return
        if asked and len(asked) >= min(episodes.plan_batch, len(running)):
            _answer(episodes, {running[each]: (each, asked[each]) for each in asked})
            asked.clear()


def _answer(
    episodes: Episodes[ResultT], asked: Mapping[int, tuple[WorkerHandle, PlanRequest]]
) -> None:
    """Sends the plans for the requests of episodes, by their seeds."""
    requests = {seed: asked[seed][1] for seed in sorted(asked)}
    for seed, answer in episodes.plans(requests).items():
        asked[seed][0].send(answer)


def _result(
    episodes: Episodes[ResultT], seed: int, message: Message, losses: Counter[int]
) -> ResultT | None:
    """Returns the result of an episode; None if it has to run again. Counts losses by seed."""
    if isinstance(message, (EpisodeEnd, TaskResult)):
        return episodes.finish(seed, message)
    assert isinstance(message, (EpisodeLost, WorkerLost))
    stored = episodes.recover(seed)
    if stored is not None:
        return stored
    losses[seed] += 1
    if losses[seed] < MOST_ATTEMPTS:
        logger.warning("Seed %d: %s The episode is run again.", seed, message.reason)
        return None
    logger.error(
        "Seed %d: %s That happened %d times; the episode counts as failed.",
        seed,
        message.reason,
        MOST_ATTEMPTS,
    )
    return episodes.give_up(seed, message.reason)


PLACES = ("slurm", "local")
_POLL_S = 0.5  # submitit itself asks Slurm less often.


@dataclass(frozen=True)
class SlurmCluster:
    """A Slurm cluster that this machine can submit jobs to; all machines share the folders.

    Attributes:
        partition: Partition of the jobs; if None, the default of the cluster.
        cpus_per_job: Processors of each job, at least 1.
        gpus_per_job: GPUs of each job, at least 0.
        memory_gb: Memory of a job, GB, above 0.
        hours: Time limit of a job, above 0; an ended one continues with the same command.
        submit: `slurm`; or `local`: processes of this machine in place of sbatch, for tests.

    Raises:
        ValueError: A value is out of range.
    """

    partition: str | None = None
    cpus_per_job: int = 8
    gpus_per_job: int = 0
    memory_gb: float = 16.0
    hours: float = 12.0
    submit: str = "slurm"

    def __post_init__(self) -> None:
        COUNT.check(cpus_per_job=self.cpus_per_job)
        WHOLE.check(gpus_per_job=self.gpus_per_job)
        POSITIVE.check(memory_gb=self.memory_gb, hours=self.hours)
        if self.submit not in PLACES:
            raise unknown_name("value of cluster.submit", self.submit, PLACES)

    def open(self, make: MakeWorld, workers: int, most: int) -> AbstractContextManager[WorkerPool]:
        """Raises a ValueError: single episodes are too short for jobs."""
        raise ValueError(
            "cluster=slurm is for stringline-experiment. For this command use --multirun "
            "hydra/launcher=submitit_slurm (docs/clusters.md)."
        )

    def run_jobs(
        self, jobs: Sequence[Job], parallel: int
    ) -> Generator[tuple[Job, str], None, None]:
        """Submits jobs; see `JobCluster.run_jobs`."""
        library = import_submitit()
        submitted: list[Any] = []

        def submit(job: Job) -> Any:
            submitted.append(self._executor(library, job.folder).submit(job.run))
            return submitted[-1]

        def wait(running: Sequence[Any]) -> list[tuple[Any, str]]:
            while not (ended := [job for job in running if job.done()]):
                time.sleep(_POLL_S)
            return [(job, _slurm_failure(job)) for job in ended]

        try:
            yield from run_submitted(jobs, parallel, submit, wait)
        finally:
            for job in submitted:
                if not job.done():
                    job.cancel()

    def _executor(self, library: Any, folder: Path) -> Any:
        executor = library.AutoExecutor(folder=folder / "submitit", cluster=self.submit)
        executor.update_parameters(
            name="stringline",
            cpus_per_task=self.cpus_per_job,
            gpus_per_node=self.gpus_per_job,
            mem_gb=self.memory_gb,
            timeout_min=max(1, round(self.hours * 60)),
            slurm_partition=self.partition,
        )
        return executor


def import_submitit() -> Any:
    """Returns the library.

    Raises:
        ValueError: It is not installed.
    """
    try:
        import submitit
    except ModuleNotFoundError as error:
        raise ValueError(
            "cluster=slurm needs submitit, which is not installed. Run: pip install "
            '"stringline[slurm]"'
        ) from error
    return submitit


def _slurm_failure(job: Any) -> str:
    error = job.exception()
    if error is None:
        return str(job.result())
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"Job {job.job_id} failed: {lines[-1].strip()}"


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
                return [(reference, _ray_failure(ray, reference)) for reference in ended]

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


def _ray_failure(ray: Any, reference: Any) -> str:
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        return f"A job was lost: {_first_line(getattr(error, 'cause', None) or error)}"


def _first_line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0]
    return line if line.endswith(".") else f"{line}."
