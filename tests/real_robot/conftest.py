"""Emulated arms without MuJoCo, each in a process of its own, for tests that talk to them over the wire."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stringline.real_robot.emulators.client import Emulator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(["--plant", "first_order"]) as running:
        yield running


@pytest.fixture
def waiting_emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(["--plant", "first_order", "--lock-step", "--capture", str(tmp_path)]) as running:
        yield running
