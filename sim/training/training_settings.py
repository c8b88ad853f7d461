"""What is chosen about a training, besides the policy and the trainer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from stringline.datasets.augmentation.augment import Augmentation
from stringline.datasets.contract.arguments import NOT_NEGATIVE, POSITIVE, WHOLE
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.interfaces import LoggerFactory
from stringline.sim.training.initialisation import Start
from stringline.sim.training.training_evaluation import TrainingEvaluation


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Which data are looked at and how, what a run begins with, and what is done beside it.

    Attributes:
        early_s: See `WindowBatches`.
        early_factor: See `WindowBatches`.
        held_out: Episodes that are not trained on but probed and validated with, of each store; at
            most a fifth of it.
        augmentation: Configuration of an `Augmentation` of the batches trained on; None: none.
            Probes see images as they are.
        validation_windows: How many windows of those episodes the validation loss is the mean of;
            0: there is none.
        start: The weights to begin with; None: random ones.
        evaluate: Measures success in simulation meanwhile; None: nobody does.
        log: Where figures go besides `history.jsonl` of the run; None: nowhere.
    """

    early_s: float = 0.0
    early_factor: float = 1.0
    held_out: int = 16
    augmentation: Mapping[str, Any] | None = None
    validation_windows: int = 256
    start: Start | None = None
    evaluate: TrainingEvaluation | None = None
    log: LoggerFactory | None = None

    def __post_init__(self) -> None:
        """Refuses numbers that mean nothing.

        Raises:
            ValueError: It names the first of them, and what is allowed.
        """
        WHOLE.check(held_out=self.held_out, validation_windows=self.validation_windows)
        NOT_NEGATIVE.check(early_s=self.early_s)
        POSITIVE.check(early_factor=self.early_factor)

    def augment(self) -> Augmentation | None:
        """Returns what the configuration of the augmentation describes, None where that changes nothing.

        Raises:
            ValueError: It describes something else.
        """
        built = (
            None if self.augmentation is None else build(dict(self.augmentation), torch.nn.Module)
        )
        if built is not None and not isinstance(built, Augmentation):
            raise ValueError(
                f"augmentation is a {type(built).__name__}; allowed: {Augmentation.__name__}."
            )
        return built if built is not None and built.transforms else None

    def course(self) -> dict[str, Any]:
        """Returns, as plain data, what of this decides what a run learns."""
        return {
            "early": [self.early_s, self.early_factor],
            "augmentation": dict(self.augmentation)
            if self.augmentation and self.augment()
            else None,
            "start": self.start.describe() if self.start else None,
        }
