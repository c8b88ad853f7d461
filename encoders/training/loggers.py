"""Loggers of a run: TensorBoard and Weights & Biases."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

FOLDER = "tensorboard"
_LATE = "evaluation/"


class TensorBoard:
    """Writes metrics into the folder `tensorboard` of the run.

    To show them: `tensorboard --logdir RUNS`.
    """

    def __init__(self, *, directory: Path, first_step: int) -> None:
        # The suffix distinguishes files that are opened within the same second.
        """Opens a new file, which replaces the metrics of earlier files from `first_step` on."""
        suffix = f".{first_step:09d}"
        self._writer = SummaryWriter(
            str(directory / FOLDER), purge_step=first_step or None, filename_suffix=suffix
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the metrics of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


class WeightsAndBiases:
    """Sends metrics to wandb.ai, or stores them in a folder `wandb` of the run for `wandb sync`."""

    def __init__(
        self,
        *,
        directory: Path,
        first_step: int,
        project: str = "stringline",
        name: str | None = None,
        mode: str = "online",
    ) -> None:
        """Starts a run, or resumes the one of the same directory.

        Args:
            project: Project on wandb.ai.
            name: Name of the run; if None, the name of the directory.
            mode: online, offline (stored in output/wandb for `wandb sync`) or disabled.

        Other Args:
            directory: Directory of the run.
            first_step: First step of this call; wandb keeps its metrics of later steps, which are
                equal.

        Raises:
            ValueError: wandb is not installed, or the mode is unknown.
        """
        if mode not in ("online", "offline", "disabled"):
            raise ValueError(f"logger.mode is {mode!r}; allowed: 'online', 'offline', 'disabled'.")
        try:
            import wandb
        except ImportError as error:
            raise ValueError(
                "logger=wandb needs wandb, which is not installed. Run: pip install "
                '"stringline[wandb]"'
            ) from error
        directory.mkdir(parents=True, exist_ok=True)
        kept = directory / "wandb_run"
        identity = kept.read_text().strip() if kept.is_file() else secrets.token_hex(4)
        kept.write_text(identity)
        self._run: Any = wandb.init(
            project=project,
            name=name or directory.name,
            id=identity,
            resume="allow" if mode == "online" else None,
            dir=str(directory),
            mode=mode,  # type: ignore[arg-type]  # Checked above.
        )
        # Evaluations in another process end after later steps, which wandb would drop.
        self._run.define_metric(f"{_LATE}*", step_metric=f"{_LATE}step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the metrics of a step; those of evaluations may be of an earlier one."""
        late = {name: value for name, value in values.items() if name.startswith(_LATE)}
        if late:
            self._run.log({**late, f"{_LATE}step": step}, commit=False)
        if others := {name: value for name, value in values.items() if name not in late}:
            self._run.log(others, step=step)

    def close(self) -> None:
        """Waits until everything is sent."""
        self._run.finish()
