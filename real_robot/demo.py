"""`stringline-demo`: the chain from demonstrations to a policy on emulated arms and a report."""

from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import run
from stringline.sim.worlds.task_settings import with_interpreter


def main() -> None:
    """Runs the command."""
    run("demo", _demo, complete=with_interpreter)


def _demo(config: DictConfig) -> None:
    # Imported here: spawned processes of simulations import this module, and must not import torch.
    from stringline.real_robot.showcase.demo_chain import DemoChain
    from stringline.real_robot.showcase.demo_settings import DemoSettings

    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    settings = {str(key): value for key, value in plain.items()}
    DemoChain(DemoSettings.of(settings)).run()
