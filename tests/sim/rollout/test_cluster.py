"""A real Ray cluster of two nodes: the same results as one process, also when nodes die."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.sim.deaths import Deaths
from tests.sim.evaluation.test_runner import WORLD, Wander, outcome
from tests.sim.in_process import InProcess
from tests.sim.rollout.test_dispatch import SHORT, files, kill_when
from tests.sim.worlds import mortal_world, world_after_meeting

from stringline import ActionChunk, Contract, Evaluation, RayCluster, Session
from stringline.datasets.contract.contract import Observation
from stringline.sim.collect import collect, open_world_beside
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.rollout.cluster import import_ray
from stringline.sim.rollout.jobs import Job, shared
from stringline.sim.rollout.workers import MakeWorld

ROOT = Path(__file__).parents[3]
SEEDS = list(range(40, 46))
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two machines, as far as Ray can tell."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tempfile.mkdtemp(prefix="ray-")  # Paths of sockets must be short.
        # Ray notes the address of such a cluster in a folder that it does not make.
        (Path(folder) / "ray").mkdir()
        for name, value in {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_TMPDIR": folder,
        }.items():
            patch.setenv(name, value)
        import_ray(loopback=True)
        from ray.cluster_utils import Cluster

        cluster = Cluster(
            head_node_args=NODE | {"_system_config": QUICK_TO_NOTICE, "temp_dir": folder},
            initialize_head=True,
        )
        cluster.add_node(**NODE)
        yield cluster
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


class Remembering(Wander):
    """Keeps every chunk, of the last attempt at each seed."""

    def __init__(
        self, contract: Contract, before: Callable[[int], None] = lambda seed: None
    ) -> None:
        super().__init__(contract)
        self.before, self.chunks = before, dict[int, list[ActionChunk]]()

    def session(self, seed: int) -> Session:
        self.chunks[seed] = []
        return RememberingSession(self, seed, super().session(seed))


class RememberingSession:
    """One episode of the policy."""

    def __init__(self, policy: Remembering, seed: int, session: Session) -> None:
        self.policy, self.seed, self.plan_of = policy, seed, session.plan

    def plan(self, observation: Observation) -> ActionChunk:
        self.policy.before(self.seed)
        assert observation["rgb/overhead"].flags.writeable, "what comes by a pipe is"
        self.policy.chunks[self.seed].append(chunk := self.plan_of(observation))
        return chunk


@pytest.fixture(scope="module")
def serial() -> tuple[Remembering, list[EpisodeResult]]:
    """An evaluation in this process."""
    world = WORLD()
    world.close()
    policy = Remembering(world.contract)
    with closing(InProcess()) as here:
        return policy, Evaluation(policy, WORLD, execute_steps=10, cluster=here).run(SEEDS)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], bytes]:
    """The collection of this process."""
    path = tmp_path_factory.mktemp("one") / "store"
    with closing(InProcess()) as here:
        collect(SHORT, path, 3, cluster=here)
    return files(path)


def evaluate(policy: Remembering, make: MakeWorld, nodes: Any) -> list[EpisodeResult]:
    """An evaluation by two actors."""
    return Evaluation(
        policy, make, execute_steps=10, workers=2, cluster=RayCluster(nodes.address)
    ).run(SEEDS)


def assert_equal(got: Remembering, expected: Remembering) -> None:
    """All actions are the same; they depend on joints and images."""
    assert got.chunks.keys() == expected.chunks.keys()
    for seed, chunks in expected.chunks.items():
        assert len(got.chunks[seed]) == len(chunks)
        for one, other in zip(got.chunks[seed], chunks, strict=True):
            np.testing.assert_array_equal(one.action, other.action)


@pytest.mark.slow
def test_actors_that_die_are_replaced_and_outcomes_are_those_of_one_process(
    serial: tuple[Remembering, list[EpisodeResult]], nodes: Any, tmp_path: Path
) -> None:
    expected, results = serial
    policy = Remembering(expected.contract)
    got = evaluate(
        policy, partial(mortal_world, Deaths(tmp_path, by_kill={42: 1}, by_fault={})), nodes
    )
    assert outcome(got) == outcome(results)
    assert_equal(policy, expected)
    assert len((tmp_path / "begun-42").read_text()) == 2


@pytest.mark.slow
def test_collection_stores_the_same_bytes_on_any_cluster(
    stored: dict[tuple[int, str], bytes], nodes: Any, tmp_path: Path
) -> None:
    collect(SHORT, tmp_path / "two", 3, workers=2)
    collect(SHORT, tmp_path / "ray", 3, workers=0, cluster=RayCluster(nodes.address))
    assert len(stored) > 30
    assert files(tmp_path / "two") == stored
    assert files(tmp_path / "ray") == stored


@pytest.mark.slow
def test_jobs_are_tasks_and_failures_have_their_reason(nodes: Any, tmp_path: Path) -> None:
    jobs = [
        Job(name, (("stringline-collect", option),), tmp_path / name, tmp_path)
        for name, option in (("good", "--help"), ("bad", "episodez=2"))
    ]
    ended = RayCluster(nodes.address).run_jobs(jobs, 2)
    reasons = {job.name: reason for job, reason in ended}
    assert reasons["good"] == ""
    assert reasons["bad"].startswith("stringline-collect: There is no option 'episodez'")
    assert jobs[0].finished


@pytest.mark.slow
def test_a_store_that_another_machine_does_not_see_is_refused(nodes: Any, tmp_path: Path) -> None:
    """A path through an open folder of this process, which other processes cannot use."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with shared(Path(f"/proc/self/fd/{descriptor}"), patience_s=0.2) as folder:
        folder.check()
        with (
            RayCluster(nodes.address).open(partial(open_world_beside, folder, SHORT), 1, 1) as pool,
            pytest.raises(
                ValueError,
                match=(
                    r"does not see the folder /proc/self/fd/\d+ of .* folder that all machines "
                    r"share"
                ),
            ),
        ):
            next(pool.messages())
    assert list(tmp_path.iterdir()) == []
    os.close(descriptor)


@pytest.mark.slow
def test_no_port_is_open_to_other_machines(nodes: Any) -> None:
    listening: list[tuple[str, str]] = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Ray's idle workers come and go.
            found = [
                connection
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            ]
            listening += [(process.name(), connection.laddr.ip) for connection in found]
    assert {name for name, _ in listening} >= {"gcs_server", "raylet"}
    assert {address for _, address in listening} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


EVALUATE = """
import sys
from pathlib import Path
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.rollout.cluster import RayCluster
from tests.sim.evaluation.test_runner import WORLD, Wander
from tests.sim.rollout.test_cluster import SEEDS
world, file, address = WORLD(), Path(sys.argv[1]), sys.argv[2]
cluster = RayCluster(address)
evaluation = Evaluation(
    Wander(world.contract), WORLD, execute_steps=10, workers=2, cluster=cluster
)
evaluation.run(SEEDS, file)
"""


@pytest.mark.slow
def test_a_lost_driver_leaves_its_results_and_its_processors(
    serial: tuple[Remembering, list[EpisodeResult]], nodes: Any, tmp_path: Path
) -> None:
    file = tmp_path / "results.jsonl"
    kill_when(
        EVALUATE,
        file,
        lambda: file.exists() and len(file.read_text().splitlines()) > 2,
        nodes.address,
    )
    before = file.read_text().splitlines()
    policy = Remembering(serial[0].contract)
    cluster = RayCluster(nodes.address)
    continued = Evaluation(policy, WORLD, execute_steps=10, workers=2, cluster=cluster).run(
        SEEDS, file
    )
    assert outcome(continued) == outcome(serial[1])
    assert file.read_text().splitlines()[: len(before)] == before
    assert set(policy.chunks).isdisjoint(json.loads(line)["seed"] for line in before[1:])


@pytest.mark.slow
def test_a_lost_node_is_replaced_by_the_others(
    serial: tuple[Remembering, list[EpisodeResult]], nodes: Any, tmp_path: Path
) -> None:
    """The second machine is lost during episodes of both; the first one completes the work."""
    expected, results = serial
    asking: list[int] = []

    def remove(seed: int) -> None:
        asking.append(seed)
        if (
            nodes.worker_nodes
            and len([seed for seed in SEEDS if 0 < asking.count(seed) < results[0].plans]) == 2
        ):
            nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        elif nodes.worker_nodes:
            time.sleep(0.2)  # The other one may not have begun yet.

    policy = Remembering(expected.contract, remove)
    got = evaluate(policy, partial(world_after_meeting, tmp_path, 2), nodes)
    assert outcome(got) == outcome(results)
    assert_equal(policy, expected)
    assert not nodes.worker_nodes, "the second machine never went"
    assert len(asking) >= sum(result.plans for result in results)


@pytest.mark.slow
def test_errors_name_the_wrong_value(
    nodes: Any, serial: tuple[Remembering, list[EpisodeResult]]
) -> None:
    with pytest.raises(ValueError, match=r"There is no task 'hand_over_bannana'\. Did you mean"):
        evaluate(Remembering(serial[0].contract), partial(WORLD.func, "hand_over_bannana"), nodes)
    with pytest.raises(ValueError, match=r"'127.0.0.1:1' cannot be joined: .*Connection refused"):
        evaluate(Remembering(serial[0].contract), WORLD, RayCluster("127.0.0.1:1"))
    hungry = Evaluation(
        Wander(serial[0].contract), WORLD, execute_steps=10, cluster=RayCluster(nodes.address, 2.0)
    )
    with pytest.raises(
        RuntimeError,
        match=r"no machine with 2 processors for a world; the largest one has 1\. Add one",
    ):
        hungry.run([1])
    with pytest.raises(ValueError, match="cpus_per_world is 0"):
        RayCluster(cpus_per_world=0.0)
    with pytest.raises(ValueError, match="object_store_mb is 1; allowed: 80 and above"):
        RayCluster(object_store_mb=1)


def in_a_fresh_process(
    code: str, folder: Path, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Runs Python without variables of Ray in its environment."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"PYTHONPATH": str(ROOT / ".src"), "HOME": str(folder)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "answer"),
    [
        (
            "import sys; sys.modules['ray'] = None",
            'needs ray, which is not installed. Run: pip install "stringline[ray]"',
        ),
        ("import ray", "Ray was imported too early and would listen on all networks."),
    ],
)
def test_errors_name_the_requirements_of_ray(before: str, answer: str, tmp_path: Path) -> None:
    code = "from stringline.sim.rollout.cluster import import_ray; import_ray(loopback=True)"
    done = in_a_fresh_process(f"{before}; {code}", tmp_path)
    assert done.returncode == 1
    assert answer in done.stderr


@pytest.mark.slow
def test_from_the_command_line(stored: dict[tuple[int, str], bytes], tmp_path: Path) -> None:
    """`cluster=ray` starts and ends a cluster and leaves no token in the home folder."""
    arguments = [
        "output=store",
        "episodes=3",
        "cluster=ray",
        "workers=1",
        "keep_failures=true",
        "first_seed=0",
    ]
    arguments += [
        f"task.{key}"
        for key in ("time_limit_s=1.0", "cameras=[overhead]", "image_size=16", "frame_hz=5.0")
    ]
    done = in_a_fresh_process(
        "from stringline.sim.collect import main; main()", tmp_path, *arguments
    )
    assert done.returncode == 0, done.stderr
    assert files(tmp_path / "store") == stored
    assert [path.name for path in tmp_path.iterdir() if path.name == ".ray"] == []
    assert "oken" not in done.stderr
