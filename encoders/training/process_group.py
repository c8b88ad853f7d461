"""How processes that trained together part."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import distributed

from stringline.encoders.training.stopping import Stopped


@contextmanager
def process_group() -> Iterator[None]:
    """Takes this process out of torch's process group at the end of the block, if training within has put it into one.

    A process that ends as a member of its group may be aborted by torch's threads on its way out,
    and then `torchrun` calls a training failed of which everything is saved. So a program that
    trains in several processes has its calls of `Trainer.fit` in one such block; after it, it
    cannot train in that group again.

    Only where all processes get to the end, or to `Stopped`, which they do after the same step.
    After any other error the group stays as it is: others may be waiting in it, and to take leave
    could mean to wait for them.
    """
    try:
        yield
    except Stopped:
        _leave()
        raise
    _leave()


def _leave() -> None:
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
