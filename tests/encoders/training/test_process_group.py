"""A process leaves torch's group only if all processes do."""

import signal
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import distributed, nn

from stringline.encoders.training.monitor import Stopped, process_group


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A group of one process, as in a training, over a file in place of the network."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1
    )
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_the_group_is_left_at_the_end() -> None:
    with process_group():
        assert distributed.is_initialized()
    assert not distributed.is_initialized()


@pytest.mark.usefixtures("group")
def test_no_model_holds_the_group_at_the_end() -> None:
    with process_group():
        wrapped = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
        wrapped.itself = wrapped  # As in a training, by other objects in between.
        known = weakref.ref(wrapped)
        del wrapped
        assert known() is not None
    assert known() is None


@pytest.mark.usefixtures("group")
def test_the_group_is_left_after_a_stop(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="after step 3"), process_group():
        raise Stopped(signal.SIGTERM, 3, tmp_path)
    assert not distributed.is_initialized()


@pytest.mark.usefixtures("group")
def test_the_group_is_kept_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), process_group():
        raise ValueError("broken")
    assert distributed.is_initialized()


def test_a_single_process_needs_no_group() -> None:
    with process_group():
        pass
    assert not distributed.is_initialized()
