"""Training that begins with the weights of a checkpoint instead of anew."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.training.checkpoint import load_description
from stringline.encoders.training.partial_loading import Taken, take_weights
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import checkpoint_digest, find_checkpoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """A checkpoint, and what of it a new run begins with.

    Attributes:
        checkpoint: Its folder, or the name of one that ships.
        take: Parts to take, such as `memory`, the encoder; none: all.
        leave: Parts that start anew, such as `denoiser.read_action`, or `misfits`: whatever does
            not fit.
        keep_ranges: Whether joints and actions keep the ranges that the checkpoint was trained
            with; otherwise they get those of the new data, and the same number of the network then
            means another angle.
    """

    checkpoint: str | Path
    take: Sequence[str] = ()
    leave: Sequence[str] | str = ()
    keep_ranges: bool = False

    def statistics(self, contract: Contract, measured: Statistics) -> Statistics:
        """Returns the statistics that the policy is built with.

        Args:
            contract: Of the new data.
            measured: Of the new data.

        Raises:
            ValueError: The ranges are to be kept, but joints or actions are others.
        """
        if not self.keep_ranges:
            return measured
        description = self._description()
        if other := [
            name
            for name in ("joints", "action")
            if getattr(description.contract, name) != getattr(contract, name)
        ]:
            raise ValueError(
                f"keep_ranges=true, but {' and '.join(other)} of {self.checkpoint} are others "
                f"than those of the data. "
                f"{' '.join(description.contract.misfits(contract))}"
            )
        return description.statistics

    def fill(self, policy: ChunkPolicy) -> Taken:
        """Fills a policy with what is taken, and lists it in the log.

        Raises:
            ValueError: All is to be taken, but the checkpoint was trained for another contract; or
                a part does not exist or does not fit. The message says what can be done.
        """
        where = find_checkpoint(self.checkpoint)
        misfits = self._description().contract.misfits(policy.contract)
        if misfits and not self.take and not self.leave:
            raise ValueError(
                f"{where} was trained for another contract. {' '.join(misfits)} "
                "Take the encoder alone (take=[memory]), or let what does not fit start anew "
                "(leave=misfits)."
            )
        for misfit in misfits:
            logger.warning("%s was trained for another contract: %s", where, misfit)
        taken = take_weights(where, policy, take=self.take, leave=self.leave)
        logger.info("From %s, %s.", where, taken)
        return taken

    def describe(self) -> dict[str, Any]:
        """Returns, as plain data, what decides with which weights the run begins."""
        return {
            "checkpoint": checkpoint_digest(self.checkpoint),
            "take": list(self.take),
            "leave": self.leave if isinstance(self.leave, str) else list(self.leave),
            "keep_ranges": self.keep_ranges,
        }

    def _description(self) -> "_Description":
        return _Description.read(find_checkpoint(self.checkpoint))


@dataclass(frozen=True)
class _Description:
    contract: Contract
    statistics: Statistics

    @classmethod
    def read(cls, where: Path) -> "_Description":
        plain = load_description(where)
        try:
            return cls(
                Contract.from_dict(plain["contract"]), Statistics.from_dict(plain["statistics"])
            )
        except KeyError as error:
            raise ValueError(f"{where} holds no policy: its description lacks {error}.") from error


def start_of(settings: Mapping[str, Any]) -> Start | None:
    """Returns what the settings of `configs/train.yaml` ask for; None without a checkpoint to begin with.

    Raises:
        ValueError: Parts are named, but no checkpoint.
    """
    checkpoint = settings["initialise"]
    chosen = {name: settings[name] for name in ("take", "leave", "keep_ranges")}
    if checkpoint is None:
        if given := [name for name, value in chosen.items() if value]:
            raise ValueError(
                f"{given[0]} says what to take from a checkpoint; name it: initialise=CHECKPOINT."
            )
        return None
    chosen |= {name: [chosen[name]] for name in ("take",) if isinstance(chosen[name], str)}
    return Start(checkpoint, **chosen)
