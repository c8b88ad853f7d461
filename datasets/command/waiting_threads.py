"""How OpenMP threads wait for their next work."""

import os

_POLICY = "OMP_WAIT_POLICY"
_SPINS = "GOMP_SPINCOUNT"

# Seconds per step of a KUKA training on two virtual cores: one training alone, compiled and not
# compiled; two trainings at the same time, not compiled. On a busy host, a step of
# the demonstration took 1.27, 1.17 and 1.29 s with no spins, 1,000 and active waiting.
#
#   passive (0 spins)   1.5    0.80    2.0
#   1,000 spins         0.53   0.77    2.05
#   10,000 spins        0.48   0.69    2.5
#   libgomp's default   not measured   2.9
#   active              0.45   0.65    not measured
_BRIEF = 1000


def wait_briefly() -> None:
    """Makes OpenMP threads spin for some microseconds and then sleep.

    Threads that sleep at once must be woken for each of the thousands of short operations of a
    training step, which is slow on virtual machines. Threads that spin for long take the processor
    from other programs. libgomp reads the number of spins; other implementations of OpenMP do not
    know it, so their threads sleep at once.

    Must be called before torch is imported. Variables of the environment that the user has set
    have priority.
    """
    if _POLICY in os.environ or _SPINS in os.environ:
        return
    os.environ[_POLICY] = "PASSIVE"
    os.environ[_SPINS] = str(_BRIEF)
