"""A policy behind a server plans as locally."""

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import yaml
from tests.policies.remote.served import CONTRACT, Drift, Keeps, Running, observation

from stringline.datasets.contract.contract import Array
from stringline.policies.chunks.chunk import ActionPrefix
from stringline.policies.execution.execution import ChunkExecutor, Execution
from stringline.policies.remote.client import RemotePolicy
from stringline.policies.remote.protocol import RemoteError


def test_plans_of_a_server_are_those_of_the_policy(running: Callable[..., Running]) -> None:
    remote = RemotePolicy(running(Drift()).address)
    assert (remote.contract, remote.digest) == (CONTRACT, "d1")
    for seed in (0, 1):
        near, far = Drift().session(seed), remote.session(seed)
        for step in range(3):
            seen = observation(step, 7.0 + step)
            expected, found = near.plan(seen), far.plan(seen)
            np.testing.assert_array_equal(found.action, expected.action)
            np.testing.assert_array_equal(found.time, expected.time)
        far.close()


def test_prefixes_are_sent_to_the_server_and_returned_unchanged(
    running: Callable[..., Running],
) -> None:
    """Also an empty prefix, which shows the support; real-time chunking works as locally."""
    remote = RemotePolicy(running(Keeps()).address)
    near, far = Keeps().session(0), remote.session(0)
    assert far.accepts_prefix
    fixed = ActionPrefix(
        7.0 + np.arange(3) / 50, np.full((3, 14), 0.1, np.float32), np.array([1.0, 1.0, 0.5])
    )
    for prefix in (ActionPrefix.empty(14), fixed):
        seen = observation(1, 7.0)
        expected, found = near.plan(seen, prefix), far.plan(seen, prefix)
        np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.action[:2], fixed.action[:2])
    execution = Execution("real_time_chunking", delay_s=0.04)
    here, there = (
        ChunkExecutor(policy, 3, execution, execute_steps=2) for policy in (Keeps(), remote)
    )
    for step in range(3):
        seen = observation(step, 7.0 + step / 25)
        np.testing.assert_array_equal(here.plan(seen).action, there.plan(seen).action)


def test_no_prefix_is_sent_to_a_policy_without_support(
    running: Callable[..., Running],
) -> None:
    address = running(Drift()).address
    with RemotePolicy(address).session(0) as session:
        assert not session.accepts_prefix
        with pytest.raises(ValueError, match="RemoteSession supports no action prefix"):
            session.plan(observation(0, 1.0), ActionPrefix.empty(14))
        session.accepts_prefix = True  # The server rejects it as well.
        with pytest.raises(RemoteError, match="DriftSession supports no action prefix"):
            session.plan(observation(0, 1.0), ActionPrefix.empty(14))
        assert len(session.plan(observation(0, 1.0)).time) == 5


def test_episodes_at_the_same_time_do_not_mix(running: Callable[..., Running]) -> None:
    remote = RemotePolicy(running(Drift()).address)

    def episode(seed: int) -> list[Array]:
        with remote.session(seed) as session:
            return [session.plan(observation(step, step)).action for step in range(10)]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(episode, range(4)))
    for seed, actions in enumerate(together):
        np.testing.assert_array_equal(np.stack(actions), np.stack(episode(seed)))


def test_images_that_the_policy_does_not_read_are_not_sent(
    running: Callable[..., Running],
) -> None:
    remote = RemotePolicy(running(Drift()).address)
    assert sorted(remote.needed(observation(0, 0.0))) == ["joints/position", "rgb/overhead", "time"]


def test_a_missing_and_a_foreign_server_are_reported(running: Callable[..., Running]) -> None:
    with pytest.raises(RemoteError, match=r"no policy server at ws://127\.0\.0\.1:9"):
        RemotePolicy("ws://127.0.0.1:9", timeout_s=2)
    with pytest.raises(RemoteError, match="no policy server at http://x"):
        RemotePolicy("http://x", timeout_s=2)


def test_a_silent_server_is_reported_after_the_timeout(
    running: Callable[..., Running],
) -> None:
    gate = threading.Event()
    remote = RemotePolicy(running(Drift(wait=lambda: gate.wait(10))).address, timeout_s=0.5)
    with pytest.raises(RemoteError, match=r"did not answer within 0\.5 s"):
        remote.session(0).plan(observation(0, 1.0))
    gate.set()


def test_another_policy_behind_the_same_address_is_reported(
    running: Callable[..., Running],
) -> None:
    remote = RemotePolicy(running(Drift()).address)
    remote.contract = replace(remote.contract, control_hz=20.0)
    with pytest.raises(RemoteError, match="serves another policy than at the first connection"):
        remote.session(0)


def test_the_client_imports_without_torch() -> None:
    code = (
        "import sys, stringline.policies.remote.client, stringline.policies.remote.client; "
        "print('torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "False"
    )


def first_address(output: IO[str], lines: list[str]) -> str:
    """Returns the first address in the output of a server, and adds the lines before it."""
    while text := output.readline():
        if found := re.search(r"ws://127\.0\.0\.1:\d+", text):
            return found.group()
        lines.append(text)
    raise AssertionError(lines)


@pytest.mark.slow
def test_the_command_serves_a_checkpoint(tmp_path: Path) -> None:
    """In a separate process, with a real policy and an execution, until Ctrl-C."""
    from stringline.policies.checkpoints.load import SHIPPED, checkpoint_digest, load_policy
    from stringline.sim.environment.environment import make_environment

    served = shutil.copytree(SHIPPED / "hand_over_banana", tmp_path / "served")
    description = yaml.safe_load((served / "checkpoint.yaml").read_text())
    training = {
        "tasks": {"hand_over_banana": "hand over the banana"},
        "execution": {"name": "stop_and_go", "delay_s": 0.0, "execute_steps": 12},
    }
    description["training"] |= training
    (served / "checkpoint.yaml").write_text(yaml.safe_dump(description))
    code = "from stringline.policies.serve import main; main()"
    line = ["port=0", "checkpoint=served", "execution=temporal_ensembling"]
    server = subprocess.Popen(
        [sys.executable, "-c", code, *line], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert server.stderr is not None
    lines: list[str] = []
    try:
        address = first_address(server.stderr, lines)
        (warning,) = [line for line in lines if "recorded execution" in line]
        assert "recorded execution=stop_and_go; this command has execution=temp" in warning
        assert server.stderr.readline().endswith(
            f"Next: stringline-eval checkpoint={address} output=runs/eval_remote\n"
        )
        remote, policy = RemotePolicy(address), load_policy("hand_over_banana")
        assert remote.digest == (
            f"{checkpoint_digest(served)} execution=temporal_ensembling execution.delay_s=0.0 "
            f"execution.decay=0.01"
        )
        # The server combines the plans, so its clients do not.
        execution = {"name": "receding_horizon", "delay_s": 0.0, "execute_steps": 12}
        assert remote.training == training | {"execution": execution}
        assert json.dumps(remote.contract.to_dict()) == json.dumps(policy.contract.to_dict())
        world = make_environment("hand_over_banana")
        world.begin(1_000_000)
        seen = world.observe()
        world.close()
        with remote.session(5) as session:
            found = session.plan(seen)
        expected = policy.session(5).plan(seen)
        np.testing.assert_allclose(found.action, expected.action, atol=1e-5)
        np.testing.assert_array_equal(found.time, expected.time)
    finally:
        server.send_signal(2)
        assert server.wait(20) == 130
        server.stderr.close()


def test_the_custom_policy_of_the_page_is_served() -> None:
    page = (Path(__file__).parents[3] / "docs" / "remote.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    shown = code.replace("port=8765", "port=0, started=lambda port: print(port, flush=True)")
    server = subprocess.Popen([sys.executable, "-c", shown], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        remote = RemotePolicy(f"ws://127.0.0.1:{int(server.stdout.readline())}")
        seen = observation(0, 3.0)
        with remote.session(0) as session:
            chunk = session.plan(seen)
        np.testing.assert_array_equal(chunk.action, np.tile(seen["joints/position"], (50, 1)))
        np.testing.assert_allclose(chunk.time, 3.0 + np.arange(50) / 50)
    finally:
        server.terminate()
        server.wait(10)
        server.stdout.close()


def own_client(address: str) -> str:
    """Returns the client of the page, for the server at an address."""
    page = (Path(__file__).parents[3] / "docs" / "remote.md").read_text()
    code = page.split('```python title="my_client.py"\n')[1].split("```")[0]
    assert len(code.splitlines()) <= 30
    return code.replace("ws://127.0.0.1:8765", address)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "wrong", "code"),
    [
        ("", "", 0),
        ("        print(chunk", "        raise KeyError('mine')\n        print(chunk", 1),
        # Without a block: the connection is open when the program ends.
        ("with policy.session(seed=0)", "alone = policy.session(1)\nalone.plan({})\nwith alone", 1),
    ],
    ids=["right", "error in the block", "error without a block"],
)
def test_the_client_of_the_page_ends_also_after_an_error(
    running: Callable[..., Running],
    caplog: pytest.LogCaptureFixture,
    at: str,
    wrong: str,
    code: int,
) -> None:
    client = own_client(running(Drift()).address)
    assert at in client
    with caplog.at_level("INFO", logger="stringline"):
        done = subprocess.run(
            [sys.executable, "-c", client.replace(at, wrong, 1)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == code, done.stderr
    assert done.stderr.count("Traceback") == code
    if not code:
        assert done.stdout.count("(5, 14)") == 3
    assert "received 1000 (OK)" in caplog.text, "connections are closed as the protocol says"
    assert "no close frame" not in caplog.text
