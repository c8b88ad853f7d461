"""`stringline-serve`: serves the policy of a checkpoint over the network."""

from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import run
from stringline.datasets.command.command_line import report_next
from stringline.encoders.training.checkpoint import load_description
from stringline.policies.checkpoints.load import checkpoint_digest, find_checkpoint, load_policy
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import CombiningPolicy, Execution
from stringline.policies.remote.server import serve


def main() -> None:
    """Runs the command `stringline-serve`."""
    run("serve", _serve, stopped="Stopped.")


def _serve(config: DictConfig) -> None:
    settings = OmegaConf.to_container(config.execution, resolve=True)
    assert isinstance(settings, dict)
    execution = Execution.of({str(key): value for key, value in settings.items()})
    policy: Policy = load_policy(config.checkpoint)
    digest = checkpoint_digest(config.checkpoint)
    if execution != Execution():
        policy = CombiningPolicy(policy, execution)
        digest = " ".join(
            [digest, *(f"{key}={value}" for key, value in execution.overrides().items())]
        )

    def started(port: int) -> None:
        address = {"checkpoint": f"ws://{config.host}:{port}", **task_setting(config.checkpoint)}
        report_next("stringline-eval", {**address, "output": "runs/eval_remote"})

    serve(
        policy,
        host=config.host,
        port=config.port,
        digest=digest,
        queue=config.queue,
        started=started,
    )


def task_setting(checkpoint: str) -> dict[str, str]:
    """Returns the setting of an evaluation that chooses the task of a checkpoint; {} if unknown."""
    training = load_description(find_checkpoint(checkpoint)).get("training")
    tasks = list(training.get("tasks", ())) if isinstance(training, dict) else []
    # A class of the user has no file in configs/task.
    return {"task.name" if ":" in task else "task": task for task in tasks if len(tasks) == 1}
