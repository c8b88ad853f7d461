"""Jobs of a Slurm cluster, submitted by the library submitit."""

import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import COUNT, POSITIVE, WHOLE, unknown_name
from stringline.sim.rollout.cluster import WorkerPool
from stringline.sim.rollout.jobs import Job, run_submitted
from stringline.sim.rollout.workers import MakeWorld

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
            return [(job, _failure(job)) for job in ended]

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


def _failure(job: Any) -> str:
    error = job.exception()
    if error is None:
        return str(job.result())
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"Job {job.job_id} failed: {lines[-1].strip()}"
