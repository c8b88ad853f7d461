"""`stringline-serve`: serves the policy of a checkpoint over the network."""

from collections.abc import Sequence
from dataclasses import replace

from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import report_next, run
from stringline.policies.checkpoints.load import checked_device, checkpoint_digest, load_policy
from stringline.policies.checkpoints.training_record import (
    TrainingRecord,
    given_record,
    given_values,
)
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import CombiningPolicy, Execution
from stringline.policies.remote.access import ServerAccess
from stringline.policies.remote.server import serve


def main() -> None:
    """Runs the command `stringline-serve`."""
    run("serve", _serve, stopped="Stopped.", complete=with_trained_execution)


def with_trained_execution(arguments: Sequence[str]) -> list[str]:
    """Adds the execution of the checkpoint's record, if none is given and a server can apply it."""
    given = given_values(arguments)
    record = given_record(given)
    if record is None or record.execution is None or not record.execution.execution.on_server:
        return list(arguments)
    # The clients decide how many actions are executed.
    return [*arguments, *record.execution_overrides({"execute_steps": "", **given})]


def _serve(config: DictConfig) -> None:
    settings = OmegaConf.to_container(config.execution, resolve=True)
    assert isinstance(settings, dict)
    execution = Execution.of({str(key): value for key, value in settings.items()})
    access = ServerAccess.of(config.access)
    device = checked_device(config.device)
    policy: Policy = load_policy(config.checkpoint).to(device)
    digest = checkpoint_digest(config.checkpoint)
    record = TrainingRecord.read(config.checkpoint)
    _warn_of_other_execution(record, execution)
    if execution != Execution():
        policy = CombiningPolicy(policy, execution)
        digest = " ".join(
            [digest, *(f"{key}={value}" for key, value in execution.overrides().items())]
        )

    def started(port: int) -> None:
        address = f"{'ws' if access.tls is None else 'wss'}://{config.host}:{port}"
        report_next("stringline-eval", {"checkpoint": address, "output": "runs/eval_remote"})

    serve(
        policy,
        host=config.host,
        port=config.port,
        digest=digest,
        training=_for_clients(record, execution).to_dict(),
        clients=config.clients,
        access=access,
        started=started,
    )


def _warn_of_other_execution(record: TrainingRecord, execution: Execution) -> None:
    recorded = record.execution
    # Without a combination on the server, the clients use the recorded one.
    if recorded is None or (execution == Execution() and not recorded.execution.on_server):
        return
    record.warn(replace(recorded, execution=execution).options())


def _for_clients(record: TrainingRecord, execution: Execution) -> TrainingRecord:
    """Returns the record for clients, which do not combine plans that the server has combined."""
    if record.execution is None or execution == Execution():
        return record
    return replace(record, execution=replace(record.execution, execution=Execution()))
