"""The command `stringline-eval dataset=STORE`: evaluates a checkpoint on recordings."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import run
from stringline.datasets.files.atomic import exclusive, made_folder
from stringline.sim.evaluation.offline_evaluation import OfflineSettings, evaluate_offline
from stringline.sim.evaluation.suites import with_suites
from stringline.sim.report.offline_report import PAGE, headline, write_offline_report

logger = logging.getLogger(__name__)

DATASET = "dataset"
_OPTIONS = ("checkpoint", "trust", "output", "device")


def with_dataset(arguments: Sequence[str]) -> list[str]:
    """Returns a command line in the form that Hydra reads.

    `dataset=STORE` becomes `dataset.path=STORE`, because Hydra would look for a choice of a group.
    """
    return [
        argument.replace("=", ".path=", 1) if argument.startswith(f"{DATASET}=") else argument
        for argument in arguments
    ]


def check_overrides(overrides: Sequence[str]) -> None:
    """Raises a ValueError if an override `key=value` has no effect on recordings."""
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if not key.startswith((*_OPTIONS, f"{DATASET}.", "hydra")):
            raise ValueError(
                f"Both dataset= and {override} are given; allowed beside dataset=: "
                f"{', '.join(_OPTIONS)}, dataset.episodes, dataset.windows. A run evaluates either "
                "on recordings (dataset=) or in simulation (task=, suite=)."
            )


def main() -> None:
    """The command `stringline-eval` with `dataset=STORE`."""
    run("eval", _evaluate, complete=lambda arguments: with_dataset(with_suites(arguments)))


def _evaluate(config: DictConfig) -> None:
    check_overrides(HydraConfig.get().overrides.task)
    dataset: Any = OmegaConf.to_container(config.dataset, resolve=True)
    settings = OfflineSettings(
        checkpoint=str(config.checkpoint),
        output=Path(str(config.output)),
        dataset=Path(str(dataset.pop("path"))),
        device=str(config.device),
        **dataset,
    )
    result = evaluate_offline(settings)
    with made_folder(settings.output), exclusive(settings.output):
        result.write()
        write_offline_report(result)
    sys.stdout.write(f"{headline(result)}\n{result.linear}\n")
    page = (settings.output / PAGE).resolve().as_uri()
    logger.info("Open the page: %s", page)
