"""`stringline-eval`: measures a checkpoint on seeds that no demonstration has, and writes results, films and a report."""

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.application import run
from stringline.datasets.disk import write_file
from stringline.policies.chunk_policy import ChunkPolicy
from stringline.policies.load import checkpoint_digest, load_policy
from stringline.sim.evaluation import Evaluation, evaluation_seeds, open_world
from stringline.sim.machine import machine_kind, versions
from stringline.sim.report import Report, choose_clips, write_report
from stringline.sim.results import EpisodeResult, Summary

logger = logging.getLogger(__name__)


def main() -> None:
    """The command `stringline-eval`."""
    run("eval", _evaluate)


def _evaluate(config: DictConfig) -> None:
    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    plain = {str(key): value for key, value in settings.items()}
    results = evaluate_checkpoint(plain)
    summary, output = Summary.of(results), Path(plain["output"])
    write_file(output / "summary.json", json.dumps({"settings": plain, "summary": summary.to_dict()}, indent=1).encode())
    write_report(output / "report.html", _report(plain, results, summary))
    logger.info("Success %s; %.1f ms per plan.", summary.rate, summary.inference_ms)
    logger.info("Open the report: %s", (output / "report.html").resolve().as_uri())


def evaluate_checkpoint(settings: dict[str, Any]) -> list[EpisodeResult]:
    """Runs what is not yet done of an evaluation.

    Args:
        settings: Those of `configs/eval.yaml`, resolved.

    Returns:
        One result per seed.

    Raises:
        ValueError: The checkpoint, the task and the settings do not fit together.
    """
    torch.set_num_threads(1)  # The simulations beside it want the other processors.
    policy, task, output = load_policy(settings["checkpoint"]), settings["task"], Path(settings["output"])
    evaluation = Evaluation(
        policy,
        partial(open_world, task["name"], time_limit_s=task["time_limit_s"], frame_hz=task["frame_hz"], **_as_trained(policy)),
        execute_steps=settings["execute_steps"],
        workers=settings["workers"],
        options=task["options"],
        films=output / "films" if settings["films"] else None,
        cluster=instantiate(settings["cluster"]) if "cluster" in settings else None,
    )
    about = {
        "task": task["name"],
        "checkpoint": checkpoint_digest(settings["checkpoint"]),
        "time_limit_s": task["time_limit_s"],
        "frame_hz": task["frame_hz"],
    }
    return evaluation.run(evaluation_seeds(settings["seeds"], settings["first_seed"]), output / "results.jsonl", about)


def _as_trained(policy: ChunkPolicy) -> dict[str, Any]:
    """Returns the cameras, their size and the rate of actions that a policy was trained with."""
    contract = policy.contract
    sizes = {(camera.height, camera.width) for camera in contract.cameras}
    height, width = next(iter(sizes), (128, 128))
    if len(sizes) > 1 or height != width:
        raise ValueError(f"The policy sees pictures of {sorted(sizes)} pixels; tasks draw square ones of one size.")
    return {"cameras": [camera.name for camera in contract.cameras], "image_size": height, "control_hz": contract.control_hz}


def _report(settings: dict[str, Any], results: list[EpisodeResult], summary: Summary) -> Report:
    task, output = settings["task"], Path(settings["output"])
    changed = ", ".join(f"{name} {value}" for name, value in task["options"].items()) or "none"
    return Report(
        title=f"{task['name'].replace('_', ' ').capitalize()}: evaluation",
        headline=f"The policy succeeded in {summary.rate} of unseen starts in simulation.",
        facts={
            "checkpoint": str(settings["checkpoint"]),
            "seeds": f"{results[0].seed} to {results[-1].seed}",
            "execution": f"{settings['execute_steps']} actions between two plans",
            "changes to the task": changed,
            "machine": machine_kind(),
            "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        },
        rates={"policy": summary.rate},
        episodes={"policy": results},
        clips=choose_clips(results, output / "films"),
        commands=[f"stringline-eval checkpoint={settings['checkpoint']} seeds={settings['seeds']} output={output}"],
    )
