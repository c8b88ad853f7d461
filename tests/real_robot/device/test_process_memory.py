"""Memory and processor time of processes, and lines through them."""

import mmap
import os
import time
from pathlib import Path

import numpy as np
import pytest

from stringline.real_robot.device.process_monitor import MEBIBYTE, Growth, processor_s, resident

NOBODY = 2**22 + 1  # Above the largest number of a process.


def test_only_touched_memory_is_counted() -> None:
    before = resident(os.getpid())
    # Not by malloc, which may return memory that was touched before.
    reserved = mmap.mmap(-1, 64 * MEBIBYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    between = resident(os.getpid())
    np.frombuffer(reserved, np.uint8).fill(1)
    after = resident(os.getpid())
    assert before is not None
    assert between is not None
    assert after is not None
    assert between.rss - before.rss < 8 * MEBIBYTE
    for kind in ("rss", "pss", "private"):
        assert getattr(after, kind) - getattr(between, kind) == pytest.approx(
            64 * MEBIBYTE, abs=8 * MEBIBYTE
        )
    assert after.rss >= after.pss >= after.private > 0
    assert reserved[-1] == 1
    reserved.close()


def test_processor_time_grows_during_a_computation() -> None:
    before, until = processor_s(os.getpid()), time.process_time() + 0.1
    while time.process_time() < until:
        pass
    assert 0.05 <= processor_s(os.getpid()) - before < 5.0


def test_an_ended_process_has_no_memory_and_no_processor_time() -> None:
    assert resident(NOBODY) is None
    assert np.isnan(processor_s(NOBODY))


def test_a_process_name_may_contain_brackets(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(
        "7 (a) b) c) S 1 7 7 0 -1 4 1 0 0 0 150 50 0 0 20 0 1 0 1 1 1"
    )
    assert processor_s(7, tmp_path) == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))
    (tmp_path / "7" / "smaps_rollup").write_text(
        "00-ff ---p 0 00:00 0 [rollup]\nRss: 3 kB\nPss: 2 kB\nPrivate_Dirty: 1 kB\n"
    )
    found = resident(7, tmp_path)
    assert found is not None
    assert (found.rss, found.pss, found.private) == (3072, 2048, 1024)
    (tmp_path / "7" / "smaps_rollup").write_text("Rss: 3 kB\n")
    assert resident(7, tmp_path) is None


def test_a_line_is_fitted_with_its_error() -> None:
    seconds = np.arange(0.0, 1200.0, 10.0)
    rising = (100 * MEBIBYTE + 1.5 * MEBIBYTE * seconds / 600).astype(int).tolist()
    exact = Growth.of(seconds.tolist(), rising)
    assert exact.mib == pytest.approx(1.5, abs=1e-6)
    assert exact.error_mib < 1e-6
    assert exact.span_s == 1190.0
    noise = np.random.default_rng(0).normal(0, 0.1 * MEBIBYTE, len(seconds))
    noisy = Growth.of(seconds.tolist(), (rising + noise).astype(int).tolist())
    assert 0 < noisy.error_mib < 0.05
    assert abs(noisy.mib - 1.5) < 3 * noisy.error_mib
    assert np.isnan(Growth.of([0.0, 600.0], [0, MEBIBYTE]).error_mib)
    assert Growth.of([0.0, 600.0], [0, MEBIBYTE]).mib == pytest.approx(1.0)
    with pytest.raises(
        ValueError, match="needs two samples or more, each with its time; got 1 and 1"
    ):
        Growth.of([0.0], [1])
