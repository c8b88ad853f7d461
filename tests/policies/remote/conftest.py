"""Starts servers for tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.policies.remote.served import Running

from stringline.policies.chunks.chunk import Policy


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    servers: list[Running] = []

    def start(policy: Policy, **options: Any) -> Running:
        servers.append(Running(policy, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
