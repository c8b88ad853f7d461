"""A deployment in real time whose policy server stops for a while, is killed, and starts again."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from numpy.typing import NDArray
from omegaconf import OmegaConf

import stringline
import stringline.configs
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.command.user_errors import explain
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.remote.protocol import RemoteUnavailableError
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.deployment.policy_deployment import PolicyDeployment
from stringline.real_robot.incidents.incident_log import Incident, unpack_chunk
from stringline.real_robot.incidents.incident_records import Kind
from stringline.real_robot.safety.reasons import Mode

PERIOD = 0.01
ACTION_TIMEOUT_S = 0.2

RECONNECT_S = 4.0

# The program of stringline-serve with a policy that stops its own process at its third answer and
# kills it at its sixth.
SERVER = """
import os, signal, subprocess, sys
import numpy as np
sys.path.insert(0, {root!r})
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.remote.server import serve

class Swinging:
    contract = ALOHA.contract([], 50.0)
    plans = 0

    def session(self, seed):
        return self

    def plan(self, observation):
        self.plans += 1
        if self.plans == 3:
            subprocess.Popen(["sh", "-c", f"sleep 0.9; kill -CONT {{os.getpid()}}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.plans == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        due = float(observation["time"]) + 0.02 * np.arange(15)
        way = np.tile(ALOHA.home, (15, 1)).astype(np.float32)
        way[:, 0] = 0.3 * np.sin(2.0 * due)
        return ActionChunk(due, way)

sys.stdin.readline()
serve(Swinging(), port={port}, started=lambda port: print(port, flush=True))
"""


def server_of(port: int) -> "subprocess.Popen[str]":
    """Starts the program; it listens after a line."""
    script = SERVER.format(root=str(Path(stringline.__file__).parents[1]), port=port)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True)


def listening(server: "subprocess.Popen[str]") -> int:
    """Lets a server listen and returns its port."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@pytest.mark.slow
def test_arms_hold_while_the_policy_server_is_away_and_no_record_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server is stopped and killed, starts again 1.5 s later, and is killed at last."""
    with server_of(0) as first, ThreadPoolExecutor(1) as pool:
        port = listening(first)
        address = f"ws://127.0.0.1:{port}"

        def restart() -> None:
            with server_of(port) as second:
                assert first.wait(60) == -signal.SIGKILL
                time.sleep(1.5)
                listening(second)
                assert second.wait(60) == -signal.SIGKILL

        restarted = pool.submit(restart)
        with pytest.raises(RemoteUnavailableError) as failed:
            deploy(address, tmp_path)
        restarted.result()
    check_reports(capsys.readouterr().out, address, failed.value)
    (log,) = (tmp_path / "log").glob("session-*.log")
    check_log(Incident.open(log))
    check_record(EpisodeStore.open(tmp_path / "store"), Incident.open(log))


def check_reports(told: str, address: str, failed: RemoteUnavailableError) -> None:
    hold = f"The arms hold; the policy is asked again for up to {RECONNECT_S:g} s."
    assert told.count(hold) == 2
    assert told.count("The policy has answered.") == 1
    folder = Path(stringline.configs.__path__[0])
    output = explain(
        failed, Configuration(folder, "deploy", "stringline-deploy")
    )  # The report at the end of the command.
    assert output is not None
    assert output.startswith(f"There is no policy server at {address}: ")


def check_log(incident: Incident) -> None:
    """Arms hold whenever the plan has ended, and moved again after the hold of the kill."""
    modes, now, overdue_s, commands = cycles(incident)
    late = overdue_s > ACTION_TIMEOUT_S + 3 * PERIOD
    assert np.count_nonzero(late) > 10
    assert (modes[late] == Mode.HOLD).all()
    resumed = np.flatnonzero(late)[0] + int(np.argmax(modes[np.flatnonzero(late)[0] :] == Mode.RUN))
    assert modes[resumed] == Mode.RUN
    assert np.ptp(commands[:resumed][late[:resumed]], axis=0).max() == 0.0
    assert np.diff(now[modes == Mode.RUN]).max() > 1.9  # Asked twice, with a second between.
    assert modes[-1] == Mode.HOLD
    assert np.array_equal(commands[-1], commands[-2])


def check_record(store: EpisodeStore, incident: Incident) -> None:
    """The episode spans the whole run."""
    modes, now, _, _ = cycles(incident)
    (episode,) = store.episodes()
    assert not episode.damaged()
    assert episode.attributes.extra["ended"] == "by an error or an interruption"
    run = now[modes == Mode.RUN]
    assert float(np.ptp(episode.arrays["time"])) >= run[-1] - run[0] - 2 / 50.0


def deploy(address: str, folder: Path) -> None:
    """Runs the deployment without cameras, and keeps the log of the whole session."""
    kept = [f"record={folder / 'store'}", f"log.folder={folder / 'log'}", "log.everything=true"]
    chosen = [
        f"checkpoint={address}",
        "robot.lock_step=false",
        "task.cameras=[]",
        "execute_steps=10",
        f"reconnect_s={RECONNECT_S}",
        *kept,
    ]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = OmegaConf.to_container(compose("deploy", overrides=chosen), resolve=True)
    assert isinstance(composed, dict)
    settings = DeploymentSettings.of({str(key): value for key, value in composed.items()})
    PolicyDeployment(settings).run()


Cycles = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def cycles(incident: Incident) -> Cycles:
    """Returns mode, time, time since the last due action, and command (T, 14) of each cycle."""
    assert not incident.damage
    assert not incident.missing
    records = {entry.number: record for entry, record in incident.cycles}
    spans, found = list[tuple[float, float]](), list[tuple[int, float, float]]()
    for entry in incident.entries:
        if entry.kind == Kind.CHUNK:
            chunk, _, number = unpack_chunk(entry.payload)
            spans += [(float(chunk.time[0]), float(chunk.time[-1]))] * (number > 0)
        elif entry.number in records:
            record = records[entry.number]
            now = float(record["now"])
            ends = [end for start, end in spans if start <= now]
            found.append((int(record["state"]["mode"]), now, now - ends[-1] if ends else 0.0))
    modes, times, overdue = (np.array(column) for column in zip(*found, strict=True))
    return (
        modes,
        times,
        overdue,
        np.array([record["state"]["command"] for _, record in incident.cycles]),
    )
