"""The whole chain, small: it writes a report and a summary, and a second call finds all done."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.real_robot.chains import SMALL, chain, settings

from stringline.datasets.store.store import EpisodeStore
from stringline.real_robot.showcase.budget import Stopwatch
from stringline.real_robot.showcase.demo_chain import DemoChain, commands

ROOT = Path(__file__).parents[2]


def start(output: Path, *changes: str) -> subprocess.Popen[str]:
    code = "from stringline.real_robot.demo import main; main()"
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    return subprocess.Popen(
        [sys.executable, "-c", code, f"output={output}", *SMALL, *changes],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=output.parent,
    )


@pytest.mark.slow
def test_an_interrupted_chain_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "demo"
    first = start(output)
    deadline = time.monotonic() + 120
    while not (output / "demonstrations").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 130
    assert errors.endswith("Stopped. Run the same command to continue.\n")

    second = start(output, "rendering=pretty")
    printed, errors = second.communicate(timeout=240)
    assert second.returncode == 0, errors
    assert "Traceback" not in errors
    assert "data:image/jpeg" in (output / "report.html").read_text()
    assert [path.suffix for path in (output / "videos" / "films").iterdir()] == [".mp4"]
    summary = json.loads((output / "summary.json").read_text())
    assert list(summary["seconds"]) == [
        "check",
        "expert",
        "demonstrations",
        "training",
        "direct",
        "emulated",
        "report",
    ]
    assert summary["demonstrations"] == 2
    for acted in ("expert", "direct", "emulated"):
        assert set(summary[acted]) == {"successes", "trials", "low", "high"}
        assert summary[acted]["trials"] == 1
    assert summary["versions"]["mujoco"].startswith("3.17")
    assert not set(summary["seeds"]["direct"]) & set(summary["seeds"]["demonstrations"])
    assert summary["seeds"]["emulated"] == summary["seeds"]["direct"][:1]
    assert "policy through the real protocol" in (output / "report.html").read_text()
    assert f"{(output / 'report.html').as_uri()}" in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo"]

    kept = {
        name: (output / name).read_bytes()
        for name in ("direct.jsonl", "emulated.jsonl", "training/checkpoint/weights.safetensors")
    }
    # The test above runs the command; another process would cost seconds to start.
    chain(output).run()
    assert capsys.readouterr().out.endswith(f"{(output / 'report.html').as_uri()}\n")
    assert {name: (output / name).read_bytes() for name in kept} == kept
    again = json.loads((output / "summary.json").read_text())
    assert [again[acted] for acted in ("expert", "direct", "emulated")] == [
        summary[acted] for acted in ("expert", "direct", "emulated")
    ]

    with pytest.raises(
        ValueError, match=r"with other settings \(trainer.weight_decay\). Choose another output"
    ):
        chain(output, "trainer.weight_decay=0.5").run()
    with pytest.raises(
        ValueError, match=r"holds results of another evaluation \(.*execution: None there, "
    ):
        chain(output, "execution=stop_and_go").run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "execution.delay_s=measured",
            "In lock-step the world waits for the policy, so a delay cannot be measured",
        ),
        ("robot.model=menagery", "There is no robot.model 'menagery'. Did you mean 'menagerie'"),
        ("workers=0", r"workers must be an integer of at least 1 \(got 0\)"),
        ("emulated_trials=2", r"emulated_trials must be an integer from 1 to 1 \(got 2\)"),
        ("noise_rad=1", r"noise_rad must be a number from 0 to 0.2 \(got 1\)"),
        (
            "dataset.oversample_first_s=-1",
            r"oversample_first_s must be a number of at least 0 \(got -1\)",
        ),
        ("lost_grasps=2", r"lost_grasps must be a number from 0 to 1 \(got 2\)"),
    ],
)
def test_settings_that_a_later_phase_would_refuse_are_refused_at_once(
    tmp_path: Path, change: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        chain(tmp_path / "demo", change)
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_a_policy_that_does_not_suit_the_task_ends_the_chain_at_once(tmp_path: Path) -> None:
    """The task of one arm has no camera of that name."""
    cameras = "policy.observation_encoder.cameras=[wrist_left]"
    unsuitable = chain(tmp_path / "demo", "task=kuka_pick", cameras, "episodes=50")
    with pytest.raises(ValueError, match="wrist_left"):
        unsuitable.run()
    assert len(EpisodeStore.open(tmp_path / "demo" / "demonstrations")) == 1
    assert not (tmp_path / "demo" / "expert").exists()


def test_arms_with_meshes_are_recorded_and_named_in_commands(tmp_path: Path) -> None:
    """The same model in the recipe of the demonstrations and in the commands that repeat them."""
    both = [settings(tmp_path / "demo"), settings(tmp_path / "demo", "robot.model=menagerie")]
    recipes = [DemoChain(one).recipe() for one in both]
    assert [recipe.robot_model for recipe in recipes] == ["primitives", "menagerie"]
    lines = [commands(one) for one in both]
    assert [all("robot.model=menagerie" in line for line in each) for each in lines] == [
        False,
        True,
    ]


def test_seconds_add_up_over_interruptions(tmp_path: Path) -> None:
    journal = Stopwatch(tmp_path / "seconds.json", ("one", "two"))

    def interrupted() -> None:
        with journal.phase("one"):
            time.sleep(0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    again = Stopwatch(tmp_path / "seconds.json", ("one", "two"))
    with again.phase("one"):
        time.sleep(0.05)
    assert again.seconds["one"] >= 0.1
    assert "two" not in again.seconds
