"""The soak benchmark ends by itself or by Ctrl-C, and prints its results."""

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from stringline.real_robot.recording.deployment_recorder import Recorded

ROOT = Path(__file__).parents[2]
PROCESSES = [
    "device process",
    "incident recorder",
    "episode recorder",
    "supervisor, policy",
    "emulator",
]


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "benchmarks/soak.py", "--swing", "--every", "0.5", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


@pytest.mark.stress
def test_it_prints_its_results_after_ctrl_c() -> None:
    stopped = start("--minutes", "5", "seconds=0.5")
    assert stopped.stdout is not None
    first = stopped.stdout.readline()
    stopped.send_signal(signal.SIGINT)
    printed, errors = stopped.communicate(timeout=60)
    assert stopped.returncode == 130, errors
    assert "0 outside limits" in first
    assert "FAILED: stopped after" in printed
    assert all(name in printed for name in PROCESSES)


def test_a_failed_recording_is_a_failure() -> None:
    soak = import_module("soak").Soak({}, 1.0, 1.0)
    soak.recorded = Recorded("an episode", 10)
    assert soak.verdict() == []
    soak.recorded = Recorded(problem="the recorder died")
    assert soak.verdict() == ["nothing was recorded: the recorder died"]


KUKA = ("robot=kuka_emulated", "robot.arms=two", "task=kuka_hand_over")
KUKA_OVER_LCM = ("robot=kuka_lcm_emulated", *KUKA[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "patience"),
    [
        ((), "0.05"),
        *(pytest.param(kuka, "0.1", marks=pytest.mark.stress) for kuka in (KUKA, KUKA_OVER_LCM)),
    ],
    ids=["aloha", "kuka", "kuka_over_lcm"],
)
def test_it_ends_and_prints_its_results(
    tmp_path: Path, robot: tuple[str, ...], patience: str
) -> None:
    whole = start(
        "--minutes", patience, "--json", str(tmp_path / "soak.json"), "seconds=0.5", *robot
    )
    printed, errors = whole.communicate(timeout=60)
    assert whole.returncode == 0, printed + errors
    assert printed.endswith("Passed.\n")
    assert "(short)" in printed  # For growth that is not judged.
    found = json.loads((tmp_path / "soak.json").read_text())
    assert list(found["processes"]) == PROCESSES
    for process in found["processes"].values():
        sizes = process["samples"]
        assert len(sizes["s"]) >= 3
        for rss, pss, private in zip(sizes["rss"], sizes["pss"], sizes["private"], strict=True):
            assert rss >= pss >= private > 0
        assert set(process["mib_per_10_minutes"]) == {"rss", "pss", "private"}
    assert found["verdict"] == []
    assert found["episodes"] >= 1
    assert found["plans"]["plans"] >= 1
    for arm in ("left", "right"):
        assert found["wire"][arm]["violations"] == 0
        assert found["wire"][arm]["goals"] > 100
        # Some joints swing beyond their speed limit.
        assert 0.5 < found["wire"][arm]["velocity"] <= 1.0 + 1e-9
    assert found["loop"]["cycle"]["count"] > 100
    assert found["loop"]["command_age"]["q50_ms"] > 0
    assert found["loop"]["lost"] == 0
