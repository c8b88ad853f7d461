"""Processes are killed during their work: no episode is lost or repeated."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.sim.deaths import Deaths
from tests.sim.evaluation.test_late_plans import Constant, Counting, outcome
from tests.sim.in_process import InProcess
from tests.sim.track import Track, mortal_track

from stringline.datasets.editing.edit import take_over
from stringline.datasets.store.store import EpisodeStore, episode_name
from stringline.datasets.store.transactions import trash_of
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Collection, Recipe
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.worlds.world_versions import world_versions

ROOT = Path(__file__).parents[3]
SEEDS, STEPS = list(range(20, 26)), 20
# No episode succeeds within a second, so these are quick to record.
SHORT = Recipe(
    cameras=("overhead",), image_size=16, frame_hz=5.0, time_limit_s=1.0, keep_failures=True
)

EVALUATE = """
import sys
from functools import partial
from pathlib import Path
from stringline.sim.evaluation.runner import Evaluation
from tests.sim.rollout.test_dispatch import SEEDS, STEPS, Watched
from tests.sim.track import SlowTrack
evaluation = Evaluation(Watched(), partial(SlowTrack, STEPS), execute_steps=3, workers=2)
evaluation.run(SEEDS, Path(sys.argv[1]))
"""
COLLECT = """
import sys
from stringline.sim.collect import collect
from tests.sim.rollout.test_dispatch import SHORT
collect(SHORT, sys.argv[1], 5, workers=2)
"""


class Watched(Constant):
    """Records the requested seeds."""

    def __init__(self) -> None:
        super().__init__(8)
        self.sessions = list[int]()

    def session(self, seed: int) -> Counting:
        self.sessions.append(seed)
        return super().session(seed)


@pytest.fixture(scope="module")
def serial() -> list[EpisodeResult]:
    """The results of an undisturbed evaluation in this process, in a world without physics."""
    return Evaluation(Watched(), partial(Track, STEPS), execute_steps=3, cluster=InProcess()).run(
        SEEDS
    )


def files(path: Path) -> dict[tuple[int, str], bytes]:
    """Every byte of every episode in a store, by seed and file; each seed must occur once."""
    found: dict[tuple[int, str], bytes] = {}
    for episode in EpisodeStore.open(path).episodes():
        for file in (file for file in episode.path.rglob("*") if file.is_file()):
            key = (episode.attributes.seed, str(file.relative_to(episode.path)))
            assert key not in found
            found[key] = file.read_bytes()
    return found


def kill_when(code: str, path: Path, moment: Callable[[], bool], *more: str) -> None:
    """Starts a driver, kills it at a moment, and sees its workers die with it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / ".src"), str(ROOT)])}
    command = [sys.executable, "-c", code, str(path), *more]
    driver = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not moment():
        assert driver.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.002)
    workers = psutil.Process(driver.pid).children()
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert psutil.wait_procs(workers, timeout=5)[1] == []


def test_episodes_whose_process_dies_are_run_again_and_given_up_in_the_end(
    serial: list[EpisodeResult], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One is killed once, one ends by a segmentation fault every time, the others do not notice."""
    world = partial(mortal_track, Deaths(tmp_path, by_kill={21: 1}, by_fault={23: 99}), STEPS)
    with caplog.at_level(logging.WARNING):
        got = Evaluation(Watched(), world, execute_steps=3, workers=2).run(
            SEEDS, tmp_path / "results.jsonl"
        )
    given_up = got.pop(3)
    assert outcome(got) == outcome(serial[:3] + serial[4:])
    assert (given_up.seed, given_up.success, given_up.stage, given_up.plans) == (23, False, 0, 0)
    assert given_up.error == "A simulation process was ended by SIGSEGV."
    assert json.loads((tmp_path / "results.jsonl").read_text().splitlines()[-1]).keys() >= {
        "seed",
        "error",
    }
    assert [len((tmp_path / f"begun-{seed}").read_text()) for seed in SEEDS] == [1, 2, 1, 3, 1, 1]
    assert (
        "Seed 21: A simulation process was ended by SIGKILL; memory may have run out: use fewer "
        "workers."
    ) in caplog.text
    assert (
        "Seed 23: A simulation process was ended by SIGSEGV. That happened 3 times; the episode "
        "counts as failed."
    ) in caplog.text


@pytest.mark.slow
def test_a_killed_evaluation_continues(serial: list[EpisodeResult], tmp_path: Path) -> None:
    """Killed before the first result and after some results: each result is there once."""
    file, before = tmp_path / "results.jsonl", list[str]()

    def has_lines(count: int) -> bool:
        return file.exists() and len(file.read_text().splitlines()) > count

    for count in (0, 3):
        kill_when(EVALUATE, file, partial(has_lines, count))
        lines = file.read_text().splitlines()
        assert lines[: len(before)] == before
        before = lines
    last = Watched()
    continued = Evaluation(last, partial(Track, STEPS), execute_steps=3, cluster=InProcess()).run(
        SEEDS, file
    )
    assert outcome(continued) == outcome(serial)
    seeds = [json.loads(line)["seed"] for line in file.read_text().splitlines()[1:]]
    assert sorted(seeds) == SEEDS
    assert set(last.sessions).isdisjoint(json.loads(line)["seed"] for line in before[1:])


@pytest.mark.slow
def test_a_killed_collection_continues(tmp_path: Path) -> None:
    """Killed while an episode is being written; then a worker is killed while it writes one."""
    with closing(InProcess()) as here:
        collect(SHORT, tmp_path / "undisturbed", 5, cluster=here)
    path = tmp_path / "disturbed"

    def writing() -> bool:
        return any(path.glob(".open-*"))

    kill_when(COLLECT, path, lambda: writing() and len(EpisodeStore.open(path)) > 0)

    def kill_a_worker() -> None:
        while not writing():
            time.sleep(0.002)
        for child in psutil.Process().children():
            if any(
                "stringline.sim.rollout.workers" in argument for argument in child.cmdline()
            ):  # Not multiprocessing's own helper.
                child.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    collection = collect(SHORT, path, 5, workers=1)
    killer.join()
    assert [outcome.seed for outcome in collection.outcomes] == [0, 1, 2, 3, 4]
    assert (
        collection.outcomes
        == Collection(EpisodeStore.open(tmp_path / "undisturbed"), SHORT).outcomes
    )
    assert files(path) == files(tmp_path / "undisturbed")
    assert [
        entry.name for entry in path.iterdir() if entry.name.startswith((".open-", ".shared-"))
    ] == []


def test_an_episode_that_was_stored_twice_is_moved_to_the_trash(tmp_path: Path) -> None:
    """A lost worker may still store its episode; different episodes of a seed are both kept."""
    path = tmp_path / "store"
    with closing(InProcess()) as here:
        collect(SHORT, path, 2, cluster=here)
    store, before = EpisodeStore.open(path), files(path)
    episode = store.episodes()[0]
    twin = episode_name(SHORT.task, 0)
    take_over(episode, path, twin, episode.attributes)
    take_over(
        episode, path, changed := episode_name(SHORT.task, 0), replace(episode.attributes, extra={})
    )
    assert len(store) == 4
    Collection(store, replace(SHORT, versions=world_versions(SHORT.task, SHORT.options)))
    assert len(store) == 3
    assert changed in store.names()
    assert (
        len([entry for entry in trash_of(path).iterdir() if entry.name in (twin, episode.name)])
        == 1
    )
    assert len(before) > 10


def test_workers_that_cannot_start_end_the_evaluation() -> None:
    with pytest.raises(
        RuntimeError,
        match=r"ended with exit code 9\. So did others; no process could build its world",
    ):
        Evaluation(Watched(), partial(os._exit, 9), execute_steps=3, workers=2).run([1, 2])
