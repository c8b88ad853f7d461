"""`stringline-train` from its command line: files, stops, and several processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.sim.points import fill

from stringline.datasets.store.store import EpisodeStore
from stringline.sim.evaluation.suites import suite_of_training

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from stringline.sim.train import main; main()"]
SMALL = (
    "policy.chunk=4",
    "policy.dim=32",
    "policy.depth=1",
    "policy.observation_encoder.dim=32",
    "policy.observation_encoder.depth=1",
    "trainer.batch_size=4",
    "trainer.precision=no",
)
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / ".src"), "GLOO_SOCKET_IFNAME": "lo"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    store = EpisodeStore.create(tmp_path_factory.mktemp("points") / "store")
    fill(store, range(15))
    return store


@pytest.mark.slow
def test_an_ended_job_keeps_its_state_and_prints_how_to_continue(
    store: EpisodeStore, tmp_path: Path
) -> None:
    """A cluster sends SIGTERM before it takes a machine away."""
    output = tmp_path / "run"
    arguments = [
        f"dataset.path={store.path}",
        f"output={output}",
        *SMALL,
        "trainer.steps=100000",
        "trainer.probe_every=10",
    ]
    with subprocess.Popen(
        [*COMMAND, *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 60
        while not (output / "best").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        printed = process.communicate(timeout=60)[1]
    assert process.returncode == 143, printed
    rows = [json.loads(line) for line in (output / "history.jsonl").read_text().splitlines()]
    done = 1 + max(row["step"] for row in rows)
    assert (
        f"Stopped by SIGTERM after step {done}; the state is saved in {output}. Run the same "
        f"command to continue."
    ) in printed
    assert [path.name for path in (output / "state").iterdir()] == [f"step_{done:08d}"]
    record = yaml.safe_load((output / "latest" / "checkpoint.yaml").read_text())["training"]
    assert record["steps"] == done
    assert record["stores"] == [{"episodes": 15, "digest": store.digest()}]
    assert record["recipe"]["options"] == [*SMALL, *arguments[-2:]]
    assert record["recipe"]["choices"]["encoder"] == "cayley_per_head"
    assert record["execution"] == {"name": "receding_horizon", "delay_s": 0.0, "execute_steps": 24}
    assert not (output / "checkpoint").exists()
    assert len(list((output / "tensorboard").iterdir())) == 1
    assert "samples/s" in printed
    assert "waiting for data" in printed


@pytest.mark.stress
def test_two_processes_train_a_policy_together(store: EpisodeStore, tmp_path: Path) -> None:
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--no-python",
    ]
    arguments = [
        f"dataset.path={store.path}",
        f"output={tmp_path / 'run'}",
        *SMALL,
        "trainer.steps=6",
        "trainer.accumulate=2",
    ]
    printed = subprocess.run(
        [*launch, *COMMAND, *arguments],
        env=ENVIRONMENT,
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
    ).stderr
    run = tmp_path / "run"
    following = (
        f"Next: stringline-eval checkpoint={run / 'checkpoint'} dataset={store.path} "
        f"output={run / 'offline'}"
    )
    assert printed.count(following) == printed.count("Next: ") == 1
    own = [
        [
            json.loads(line)["loss"]
            for line in (tmp_path / "run" / name).read_text().splitlines()
            if "loss" in line
        ]
        for name in ("history.jsonl", "history_1.jsonl")
    ]
    assert len(own[0]) == len(own[1]) == 6
    assert own[0] != own[1], "each has its own windows"
    assert (tmp_path / "run" / "checkpoint" / "weights.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("gpu", "trainer.device is 'cuda', but there is no GPU"),
        ("multi_gpu", "trainer.device is 'cuda', but there is no GPU"),
    ],
)
def test_a_preset_for_gpus_ends_in_one_line_before_the_data_are_opened(
    tmp_path: Path, preset: str, message: str
) -> None:
    done = subprocess.run(
        [*COMMAND, "dataset.path=/nowhere", f"trainer={preset}", f"output={tmp_path / 'run'}"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line]
    assert message in line
    assert line.endswith("trainer=laptop is the preset for CPUs.")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("chosen", "seeds"),
    [
        ([], (10, [7, 5])),
        (["evaluation.seeds=1"], (1, [7])),
        (["evaluation.seeds=1", "evaluation.first_seed=3"], None),
    ],
    ids=str,
)
def test_a_suite_keeps_its_lists_of_seeds(
    chosen: list[str], seeds: tuple[int, list[int]] | None, tmp_path: Path
) -> None:
    """The numbers of the configuration are for entries that give a number of seeds."""
    mine = tmp_path / "mine.yaml"
    entries = [{"task": "fmb_1", "seeds": 4}, {"task": "fmb_2", "seeds": [7, 5]}]
    mine.write_text(yaml.dump({"entries": entries}))
    with initialize_config_module("stringline.configs", version_base="1.3"):
        config = compose("train", [f"suite_file={mine}", *chosen])
    plain = {"suite_file": str(mine), "evaluation": OmegaConf.to_container(config.evaluation)}
    if seeds is None:
        with pytest.raises(ValueError, match=r"list of 2 seeds; allowed: at most seeds=2"):
            suite_of_training(plain, chosen)
        return
    suite = suite_of_training(plain, chosen)
    assert suite is not None
    counted, listed = suite.entries
    assert (len(counted.seeds), list(listed.seeds)) == seeds


def test_a_training_without_evaluation_does_not_load_the_simulation() -> None:
    program = "import sys; import stringline.sim.train; print('dm_control' in sys.modules)"
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
