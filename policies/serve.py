"""`stringline-serve`: serves the policy of a checkpoint over the network."""

from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import run
from stringline.policies.checkpoints.load import checkpoint_digest, load_policy
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
    serve(policy, host=config.host, port=config.port, digest=digest, queue=config.queue)
