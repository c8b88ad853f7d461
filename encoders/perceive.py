"""The command `stringline-perceive`: trains and measures a network of perception."""

import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import nn

from stringline.datasets.command.application import run
from stringline.datasets.command.configuration import command_recipe
from stringline.datasets.images.image_store import ImageStore
from stringline.encoders.perception.perception_data import PerceptionData
from stringline.encoders.perception.perception_network import PerceptionFactory
from stringline.encoders.perception.perception_run import (
    InitialNetwork,
    PerceptionSettings,
    run_perception,
)
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.monitor import Stopped
from stringline.encoders.training.settings import check_hardware
from stringline.encoders.training.trainer import Trainer

logger = logging.getLogger(__name__)

TASK = "task="


def main() -> None:
    """The command `stringline-perceive`; exit code 143 after SIGTERM and 130 after Ctrl-C."""
    run("perceive", _perceive, complete=with_heads)


def with_heads(arguments: Sequence[str]) -> list[str]:
    """Returns a command line with `head=NAME` in place of `task=NAME`.

    Hydra would look for the name among the tasks of the simulation.
    """
    return [
        f"head={argument.removeprefix(TASK)}" if argument.startswith(TASK) else argument
        for argument in arguments
    ]


def _perceive(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    settings = {str(key): value for key, value in plain.items()}
    trainer: Trainer = build(settings["trainer"])
    check_hardware(trainer)
    factory: PerceptionFactory = build({**settings["head"], "_partial_": True}, nn.Module)
    data = PerceptionData.of(
        ImageStore(Path(str(settings["images"]))),
        settings["split"],
        settings["held_out"],
        settings["split_seed"],
        factory.func.needs,  # type: ignore[attr-defined]  # It is the class.
        settings["train_share"],
    )
    chosen = PerceptionSettings(
        image_size=settings["image_size"],
        image_fit=settings["image_fit"],
        frame=settings["frame"],
        minutes=settings["minutes"],
        validation_images=settings["validation_images"],
        probe_images=settings["probe_images"],
        augmentation=settings["augmentation"],
        study=build(settings.get("study")),
        initial=InitialNetwork.of(settings),
        log=build(settings.get("logger")),
    )
    output = Path(str(settings["output"]))
    try:
        results = run_perception(
            settings["head"], data, trainer, output, chosen, {"recipe": command_recipe()}
        )
    except Stopped as stopped:
        logger.info("%s", stopped)
        if stopped.number == signal.SIGTERM:
            raise SystemExit(stopped.exit_code) from None
        raise
    sys.stdout.write(table(results))
    logger.info("The network, the results and a page of predictions are in %s.", output)


def table(results: Mapping[str, Any]) -> str:
    """Returns the measures of a run, of subsets of objects, and of its studies, as text."""
    images = results["images"]
    known = results["intervals"]
    lines = [f"{images['test']} held-out images, {images['train']} for training"]
    if known:
        lines.append(f"Intervals of 95 % over {results['groups']} {results['unit']}")
    for name, value in results["measures"].items():
        low_high = " [{:.4g}, {:.4g}]".format(*known[name]) if name in known else ""
        lines.append(f"  {name:28}{value:10.4g}{low_high}")
    lines += [_row(row, "subset") for row in results["subsets"]]
    for name, rows in results["studies"].items():
        lines += [name, *(_row(row, "setting") for row in rows)]
    return "\n".join(lines) + "\n"


def _row(row: Mapping[str, Any], title: str) -> str:
    values = (f"{key} {value:.4g}" for key, value in row.items() if key != title)
    return f"  {row[title]:28}{', '.join(values)}"
