"""Tasks of worlds that others wrote, by name."""

from typing import Any

from stringline.datasets.names import unknown_name
from stringline.sim.peers import aloha_sim
from stringline.sim.peers.aloha_sim import AlohaSim
from stringline.sim.peers.gym_aloha import KINDS, GymAloha
from stringline.sim.peers.transfer_cube import TransferCubeExpert
from stringline.sim.peers.world import PeerWorld

PEER_TASKS: tuple[str, ...] = (*KINDS, f"{aloha_sim.PREFIX}hand_over_banana")  # And aloha_sim's others, which it lists itself.


def is_peer(task: str) -> bool:
    """Says whether a name is of a task that others wrote."""
    return task in KINDS or task.startswith(aloha_sim.PREFIX)


def open_peer(task: str, **settings: Any) -> PeerWorld:
    """Builds the world of a peer's task.

    Args:
        task: Its name, one for which `is_peer` holds.
        settings: The other arguments of `PeerWorld`.

    Raises:
        ValueError: The peer is not installed, or in another version; there is no such task; a setting is out of range.
    """
    peer = GymAloha(task) if task in KINDS else AlohaSim(task)
    try:
        return PeerWorld(peer, **settings)
    except ValueError:
        peer.close()
        raise


def peer_instruction(task: str) -> str:
    """Returns what a person would say to have a peer's task done.

    Raises:
        ValueError: The peer is not installed, or there is no such task.
    """
    return KINDS[task].instruction if task in KINDS else aloha_sim.instruction(task)


def make_peer_expert(task: str, *, varied: bool = True) -> TransferCubeExpert:
    """Builds our expert of a peer's task.

    Args:
        task: Its name.
        varied: Whether each episode has a pace of its own.

    Raises:
        ValueError: There is none.
    """
    if task != TransferCubeExpert.task:
        raise unknown_name("expert for the task", task, [TransferCubeExpert.task])
    return TransferCubeExpert() if varied else TransferCubeExpert(paces=(1.0, 1.0))
