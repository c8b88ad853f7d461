"""The training loop: whatever has a loss is trained here, stopped, and continued exactly."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from stringline.encoders.training.faces import Asides, Batches, Prepare, Probe, SaveModel
from stringline.encoders.training.history import History
from stringline.encoders.training.run import Run
from stringline.encoders.training.settings import TrainerSettings


class Trainer(TrainerSettings):
    """Trains a module whose `loss(batch)` returns a scalar.

    AdamW with a linear warm-up and a cosine decay, gradients clipped, a moving average of the weights.
    Accelerate places it: one process and `torchrun` are the same code, and a program that is to run in several processes has
    it in a `process_group` block. Random numbers are drawn from a state that (seed, step, process) alone decides, so a stopped
    and continued run equals an uninterrupted one to the bit.
    """

    def fit(
        self,
        model: nn.Module,
        batches: Batches,
        directory: Path,
        *,
        save_model: SaveModel,
        probe: Probe | None = None,
        prepare: Prepare | None = None,
        asides: Asides | None = None,
    ) -> History:
        """Trains to the last step, from wherever an earlier call in the same directory stopped.

        Args:
            model: Has `loss(batch) -> scalar tensor`; ends with the averaged weights.
            batches: Gives the batch of each step.
            directory: Keeps the history and the resumable state.
            save_model: Called with the averaged model after the last step.
            probe: See `Asides`; either there or here.
            prepare: The same.
            asides: Whatever else is to be done.

        Returns:
            The history of the whole run.

        Raises:
            BrokenLossError: The loss or its gradients are not finite; the last state stays.
            Stopped: Ctrl-C or SIGTERM came; a state of the step that was done is kept.
        """
        asides = asides or Asides()
        asides = replace(asides, probe=probe or asides.probe, prepare=prepare or asides.prepare)
        run = Run(self, model, directory, asides)
        run.train(batches)
        return run.finish(save_model)
