"""`stringline-serve`: answers observations over the network with a checkpoint's actions."""

from omegaconf import DictConfig

from stringline.datasets.application import run
from stringline.policies.load import checkpoint_digest, load_policy
from stringline.policies.remote.server import serve


def main() -> None:
    """The command `stringline-serve`."""
    run("serve", _serve, stopped="Stopped.")


def _serve(config: DictConfig) -> None:
    serve(
        load_policy(config.checkpoint),
        host=config.host,
        port=config.port,
        digest=checkpoint_digest(config.checkpoint),
        queue=config.queue,
    )
