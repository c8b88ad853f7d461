"""The prefetcher keeps order, stays bounded, passes errors on and ends."""

import threading
import time

import pytest

from stringline.datasets.loading.sampler import Prefetcher


def running() -> int:
    """Number of prefetching threads."""
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def test_yields_in_order_and_ends() -> None:
    """All steps, once, in order, and the thread is gone afterwards."""
    with Prefetcher(lambda step: step * step, start=3, stop=40) as prefetcher:
        assert list(prefetcher) == [step * step for step in range(3, 40)]
        assert list(prefetcher) == []
    assert running() == 0


def test_none_is_a_result() -> None:
    """A result that is None or an exception object is a result like any other."""
    results: list[object] = [None, ValueError("kept"), ()]
    with Prefetcher(lambda step: results[step], stop=3) as prefetcher:
        assert list(prefetcher) == results


def test_runs_ahead_but_bounded() -> None:
    """No more results are prepared than fit into the queue."""
    made: list[int] = []
    with Prefetcher(lambda step: made.append(step) or step, depth=3) as prefetcher:  # type: ignore[func-returns-value]
        iterator = iter(prefetcher)
        assert next(iterator) == 0
        deadline = time.monotonic() + 5
        while len(made) < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        assert made == [0, 1, 2, 3, 4]  # One taken, three waiting, one in hand.
    assert running() == 0


def test_errors_arrive_in_their_place() -> None:
    """Results before the error are delivered first."""

    def make(step: int) -> int:
        if step == 2:
            raise OSError("the disk is gone")
        return step

    seen = []
    with Prefetcher(make) as prefetcher, pytest.raises(OSError, match="the disk is gone"):
        list(map(seen.append, prefetcher))
    assert seen == [0, 1]
    assert running() == 0


def test_leaving_early_stops_the_thread() -> None:
    """Also when the consumer fails."""
    prefetcher = Prefetcher(lambda step: step)
    assert next(iter(prefetcher)) == 0
    assert running() == 1
    with pytest.raises(KeyboardInterrupt), prefetcher:
        raise KeyboardInterrupt
    assert running() == 0
    with pytest.raises(ValueError, match=r"threads must be an integer of at least 1 \(got 0\)"):
        Prefetcher(lambda step: step, threads=0)
    with pytest.raises(ValueError, match="depth must be an integer of at least 1"):
        Prefetcher(lambda step: step, depth=0)


@pytest.mark.parametrize(("threads", "stop"), [(2, 40), (3, 41), (5, 7)])
def test_several_threads_keep_the_order(threads: int, stop: int) -> None:
    """Also when the first results take longest, and up to an error."""

    def make(step: int) -> int:
        time.sleep(0.01 if step < 6 and step % threads == 0 else 0)
        if step == 38:
            raise OSError("the disk is gone")
        return step * step

    seen: list[int] = []
    with Prefetcher(make, start=3, stop=min(stop, 38), threads=threads) as prefetcher:
        assert running() <= threads
        seen = list(prefetcher)
    assert seen == [step * step for step in range(3, min(stop, 38))]
    seen = []
    with (
        Prefetcher(make, start=3, threads=threads) as endless,
        pytest.raises(OSError, match="the disk is gone"),
    ):
        list(map(seen.append, endless))
    assert seen == [step * step for step in range(3, 38)]
    assert running() == 0
