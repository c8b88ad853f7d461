"""The command that measures a checkpoint, from its command line to its report."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline.datasets.contract import Camera
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.statistics import Statistics, statistics_of
from stringline.policies.load import build_policy, save_policy
from stringline.sim.evaluate import evaluate_checkpoint

ROOT = Path(__file__).parents[2]
SMALL = ["policy.dim=32", "policy.depth=1", "policy.memory.dim=32", "policy.memory.depth=1", "policy.chunk=8", "policy.draws=1"]
QUICK = ["seeds=2", "task.time_limit_s=0.4", "execute_steps=8", "workers=1"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy that looks at small pictures."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        chosen = ["+policy=diffusion", "+encoder=cayley", "+coordinates=metric", "+depth=colours"]
        chosen += ["policy.memory.cameras=[overhead]"]
        model = OmegaConf.to_container(compose(overrides=[*chosen, *SMALL]).policy, resolve=True)
    assert isinstance(model, dict)
    torch.manual_seed(0)
    contract = ALOHA.contract([Camera("overhead", 32, 32, "simulated")], 50.0)
    near_home = np.stack([ALOHA.home - 0.1, ALOHA.home + 0.1])
    statistics = Statistics({key: statistics_of(lambda: iter([near_home])) for key in ("action", "joints/position")})
    plain = {str(key): value for key, value in model.items()}
    path = tmp_path_factory.mktemp("run") / "checkpoint"
    policy = build_policy(plain, contract, statistics)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.05 * torch.randn_like(weight))  # A new policy says the same to everything.
    save_policy(path, policy, plain, {"steps": 0})
    return path


def settings(checkpoint: Path, task: dict[str, object], output: Path) -> dict[str, Any]:
    """The settings of a quick evaluation."""
    quick = {"execute_steps": 8, "workers": 1, "seeds": 1, "first_seed": 5, "films": False}
    return {"checkpoint": str(checkpoint), "task": task, "output": str(output), **quick}


def command(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs `stringline-eval`."""
    code = "from stringline.sim.evaluate import main; main()"
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_from_the_command_line(checkpoint: Path, tmp_path: Path) -> None:
    """It measures, films, reports, says the rate with its interval, and does nothing twice."""
    arguments = [f"checkpoint={checkpoint}", "output=out", *QUICK]
    first = command(*arguments, folder=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "Success 0/2 = 0 % [0, 66]" in first.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    names = ["films", "report.html", "results.jsonl", "summary.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    assert len(list((tmp_path / "out" / "films").glob("*.mp4"))) == 2
    lines = (tmp_path / "out" / "results.jsonl").read_text()
    assert [json.loads(line).get("seed") for line in lines.splitlines()] == [None, 1_000_000, 1_000_001]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["summary"]["rate"]["trials"] == 2
    report = (tmp_path / "out" / "report.html").read_text()
    assert f"stringline-eval checkpoint={checkpoint} seeds=2" in report
    task: dict[str, object] = {"name": "hand_over_banana", "time_limit_s": 0.4, "frame_hz": 12.5, "options": {}}
    again = evaluate_checkpoint(settings(checkpoint, task, tmp_path / "out") | {"seeds": 2, "first_seed": 1_000_000})
    assert [json.loads(line) for line in lines.splitlines()[1:]] == [asdict(result) for result in again]
    assert (tmp_path / "out" / "results.jsonl").read_text() == lines


def test_options_change_the_world(checkpoint: Path, tmp_path: Path) -> None:
    """A raised table is seen by the policy, so it acts otherwise; options that the task does not know are refused."""
    task: dict[str, object] = {"name": "hand_over_banana", "time_limit_s": 0.4, "frame_hz": 12.5, "options": {}}
    plain = evaluate_checkpoint(settings(checkpoint, task, tmp_path / "plain"))
    raised = evaluate_checkpoint(settings(checkpoint, task | {"options": {"table_height": 0.05}}, tmp_path / "raised"))
    assert plain[0].seed == raised[0].seed == 5
    assert plain[0].acceleration != raised[0].acceleration
    with pytest.raises(ValueError, match=r"There is no task option 'table_hight'\. Did you mean 'table_height'"):
        evaluate_checkpoint(settings(checkpoint, task | {"options": {"table_hight": 0.05}}, tmp_path / "wrong"))
    with pytest.raises(ValueError, match="nowhere"):
        evaluate_checkpoint(settings(Path("nowhere"), task, tmp_path / "wrong"))
