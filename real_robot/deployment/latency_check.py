"""The latency check of `stringline-deploy mode=check`, which moves nothing."""

import json
import math
import os
import platform
import time
from typing import Any

import numpy as np
from tqdm import tqdm

from stringline.datasets.files.atomic import write_file
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.device.scheduling import (
    GRANT,
    PERIODS_S,
    RULE,
    LatencyMeasurement,
    Lateness,
)
from stringline.real_robot.operator.live_status import print_line

FILE = "latency.json"
_EDGES_MS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_SHARES = (0.5, 0.99, 0.999)
_BAR = 40
_POLL_S = 0.1
# Beyond the duration: the start of the process, and stops of the machine.
_PATIENCE_S = 30.0


class LatencyCheck:
    """Measures the lateness of a loop on this machine and reports which periods it can bear."""

    def __init__(self, settings: DeploymentSettings) -> None:
        self._settings = settings

    def run(self) -> bool:
        """Measures and reports; returns whether the machine bears the period of the robot.

        Raises:
            RuntimeError: The measurement died, or did not end.
        """
        settings = self._settings
        found = self._measure(settings.check_seconds)
        for line in describe(found):
            print_line(line)
        robot = settings.robot
        borne = found.bears(1.0 / robot.device_hz)
        print_line(
            f"{robot.name} has cycles of {1e3 / robot.device_hz:g} ms: this machine "
            f"{'bears' if borne else 'does not bear'} them."
        )
        settings.output.mkdir(parents=True, exist_ok=True)
        file = settings.output / FILE
        write_file(file, (json.dumps(to_dict(found), indent=2) + "\n").encode())
        print_line(f"Written to {file}")
        return borne

    def _measure(self, seconds: float) -> Lateness:
        print_line(f"Measuring the lateness of a loop for {seconds:g} s; no port is opened.")
        bar = tqdm(total=seconds, bar_format="|{bar}| {n:.0f} of {total:.0f} s", leave=False)
        start = time.monotonic()
        with bar, LatencyMeasurement(seconds) as measurement:
            while (passed := time.monotonic() - start) < seconds + _PATIENCE_S:
                if (found := measurement.result(_POLL_S)) is not None:
                    return found
                bar.update(min(passed, seconds) - bar.n)
        raise RuntimeError(f"The measurement of {seconds:g} s did not end.")


def describe(found: Lateness) -> list[str]:
    """Returns the quantiles, a histogram, the shares of late cycles, and the shortest period."""
    named = zip(("median", "99 %", "99.9 %"), _SHARES, strict=True)
    quantiles = [f"{name} {1e3 * found.quantile(share):.3f}" for name, share in named]
    later = [f"{1e3 * period:g} ms {found.share_later(period):.3%}" for period in PERIODS_S]
    scheduling = "without" if found.refusal else "with"
    largest = f"largest {1e3 * found.seconds.max():.3f} ms"
    lines = [
        f"Lateness {scheduling} real-time priority: {', '.join(quantiles)}, {largest}",
        *_histogram(found),
        f"Later than {', '.join(later)}",
    ]
    if found.refusal:
        lines.append(f"No real-time priority ({found.refusal}). {GRANT}")
    shortest = found.shortest_period_s
    if shortest is None:
        periods = ", ".join(f"{1e3 * period:g}" for period in PERIODS_S)
        return [*lines, f"This machine bears none of the periods {periods} ms: docs/real-time.md."]
    return [*lines, f"The shortest period that this machine bears: {1e3 * shortest:g} ms ({RULE})."]


def _counts(found: Lateness) -> list[int]:
    edges = [0.0, *(1e-3 * edge for edge in _EDGES_MS), np.inf]
    return [int(count) for count in np.histogram(found.seconds, edges)[0]]


def _histogram(found: Lateness) -> list[str]:
    """Returns lines with bars whose length is logarithmic, so that single late cycles are seen."""
    names = [*(f"up to {edge:g} ms" for edge in _EDGES_MS), "longer"]
    full = math.log1p(len(found.seconds))
    return [
        f"  {name:>11} {count:>9,} {'#' * round(_BAR * math.log1p(count) / full)}".rstrip()
        for name, count in zip(names, _counts(found), strict=True)
    ]


def to_dict(found: Lateness) -> dict[str, Any]:
    """Returns the result as plain JSON, in milliseconds."""
    shortest = found.shortest_period_s
    return {
        "cycles": len(found.seconds),
        "real_time_priority": not found.refusal,
        "quantiles_ms": {f"{share:g}": 1e3 * found.quantile(share) for share in _SHARES},
        "largest_ms": 1e3 * float(found.seconds.max()),
        "share_later": {f"{1e3 * period:g}": found.share_later(period) for period in PERIODS_S},
        "histogram": {"edges_ms": list(_EDGES_MS), "counts": _counts(found)},
        "shortest_period_ms": None if shortest is None else 1e3 * shortest,
        "rule": RULE,
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
