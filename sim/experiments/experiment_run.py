"""Runs the jobs of an experiment: first the demonstrations, then all cells."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from stringline.sim.experiments.experiment_plan import ExperimentPlan
from stringline.sim.rollout.jobs import LOG, Job, JobCluster

logger = logging.getLogger(__name__)


def run_experiment(plan: ExperimentPlan, cluster: JobCluster, parallel: int) -> dict[str, str]:
    """Runs everything that has not ended yet; a failed job does not stop the others.

    Returns:
        The reasons of failures by the name of the cell.
    """
    lost = collect_demonstrations(plan, cluster, parallel)
    failures: dict[str, str] = {}
    jobs: list[Job] = []
    recipes = {recipe.name: recipe for recipe in plan.recipes}
    for cell in plan.cells():
        needed = plan.collected(recipes[cell.recipe]).values()
        missing = [lost[folder] for folder in needed if folder in lost]
        if missing:
            failures[cell.name] = missing[0]
        else:
            jobs.append(plan.job(cell))
    failures |= {job.name: reason for job, reason in _run(jobs, cluster, parallel) if reason}
    return failures


def collect_demonstrations(
    plan: ExperimentPlan, cluster: JobCluster, parallel: int
) -> dict[Path, str]:
    """Records the demonstrations that are missing; returns reasons of failures by folder."""
    jobs = plan.collections()
    return {job.folder: reason for job, reason in _run(jobs, cluster, parallel) if reason}


def _run(jobs: Sequence[Job], cluster: JobCluster, parallel: int) -> Iterator[tuple[Job, str]]:
    """Runs the jobs that have not ended; yields each when it ends, with the reason of a failure."""
    waiting = [job for job in jobs if not job.finished]
    if len(waiting) < len(jobs):
        logger.info("%d of %d had ended before.", len(jobs) - len(waiting), len(jobs))
    if not waiting:
        return
    for job in waiting:
        logger.info("%s; its output is in %s.", job.name, _shown(job.folder / LOG))
    with closing(cluster.run_jobs(waiting, parallel)) as ended:
        for number, (job, reason) in enumerate(ended, 1):
            state = f"FAILED: {reason}" if reason else "has ended."
            log = logger.error if reason else logger.info
            log("%s %s (%d of %d)", job.name, state, number, len(waiting))
            yield job, reason


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
