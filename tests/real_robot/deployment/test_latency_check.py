"""The mode `check` measures this machine, says which period it bears, and moves nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import stringline
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.deployment.latency_check import FILE, LatencyCheck, describe
from stringline.real_robot.deployment.policy_deployment import PolicyDeployment
from stringline.real_robot.device.scheduling import Lateness


def settings(*overrides: str) -> DeploymentSettings:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        chosen = compose("deploy", overrides=["mode=check", *overrides])
    composed = OmegaConf.to_container(chosen, resolve=True)
    assert isinstance(composed, dict)
    return DeploymentSettings.of({str(key): value for key, value in composed.items()})


def test_the_report_and_its_file_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For real arms, although neither their ports nor a limits file exist."""
    check = LatencyCheck(
        settings("robot=kuka", "task=kuka_pick", "check_seconds=1", f"output={tmp_path / 'out'}")
    )
    borne = check.run()
    output = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / FILE).read_text())
    assert found["cycles"] == sum(found["histogram"]["counts"]) == 1000
    assert f"largest {found['largest_ms']:.3f} ms" in output
    assert f"kuka has cycles of 10 ms: this machine {'bears' if borne else 'does not'}" in output
    shortest = found["shortest_period_ms"]
    assert ("bears none of the periods" in output) == (shortest is None)
    assert borne == (shortest is not None and shortest <= 10.0)
    assert ("with real-time priority" in output) == found["real_time_priority"]


@pytest.mark.slow
@pytest.mark.parametrize(("device_hz", "code"), [(1.0, 0), (1e6, 3)])
def test_the_exit_code_says_whether_this_machine_bears_the_period(
    device_hz: float, code: int, tmp_path: Path
) -> None:
    """A period of 1 s is borne by every machine, and one of a microsecond by none."""
    line = ["mode=check", "robot=kuka_emulated", "task=kuka_pick", "check_seconds=1"]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from stringline.real_robot.deploy import main; main()",
            *line,
            f"robot.device_hz={device_hz}",
            f"output={tmp_path / 'out'}",
        ],
        env={**os.environ, "PYTHONPATH": str(Path(stringline.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    verb = "bears" if code == 0 else "does not bear"
    assert f"cycles of {1e3 / device_hz:g} ms: this machine {verb} them" in done.stdout
    assert (tmp_path / "out" / FILE).is_file()


def test_without_priority_the_report_has_the_command_that_grants_it() -> None:
    lines = describe(Lateness(np.full(100, 2e-5), "Operation not permitted"))
    assert lines[0].startswith("Lateness without real-time priority: median 0.020, 99 % 0.020")
    assert any("sudo tee /etc/security/limits.d/stringline.conf" in line for line in lines)
    assert lines[-1].startswith("The shortest period that this machine bears: 10 ms (at most 0.1%")


def test_single_late_cycles_are_seen_in_the_histogram() -> None:
    rows = describe(Lateness(np.array([1e-5] * 59_999 + [0.03]), ""))
    (late,) = [row for row in rows if "up to 50 ms" in row]
    assert late.split() == ["up", "to", "50", "ms", "1", "###"]


def test_wrong_durations_and_a_policy_are_refused() -> None:
    with pytest.raises(ValueError, match=r"check_seconds must be a number above 0 \(got 0\.0\)"):
        settings("check_seconds=0.0")
    with pytest.raises(ValueError, match="mode=check has no policy; see LatencyCheck"):
        PolicyDeployment(settings())
