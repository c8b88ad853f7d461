"""Saving, loading and opening of policies, and the device on which they compute.

Checkpoints are chosen by name, address or folder; the index lists those with a name. Those at
addresses are verified by their SHA-256 and kept in the cache folder of the user. Only the two files
of a checkpoint are read: YAML and safetensors. The SHA-256 of a checkpoint is that of both files in
this order: `cat checkpoint.yaml weights.safetensors | sha256sum`.
"""

import difflib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.extensions.trust import Trust
from stringline.datasets.files.atomic import exclusive, replaced_directory, standing
from stringline.datasets.files.limits import read_yaml
from stringline.datasets.files.remote_files import download, file_system
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.pretrained.initial_weights import without_files
from stringline.encoders.training.checkpoint import (
    ASKED_FOR,
    FILES,
    WEIGHTS,
    bounded_by,
    build,
    build_settings,
    load_description,
    load_weights,
    save_checkpoint,
    sha256_of,
)
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.chunks.chunk import Policy

INDEX = "index.yaml"
PACKAGE = "package"
_DIGEST = "@sha256:"


@dataclass(frozen=True, kw_only=True)
class RegisteredCheckpoint:
    """An entry of the index.

    Attributes:
        name: Its name, as in `checkpoint=NAME`.
        robot: The embodiment.
        tasks: The tasks of its training data.
        training: The command that trained it.
        evaluation: The command that measured the success rate.
        successes: Successful episodes of this evaluation.
        episodes: All episodes of this evaluation.
        interval_percent: The 95 % Wilson interval of the success rate.
        video: A video of the policy, a path in the repository.
        size_bytes: Size of both files.
        sha256: SHA-256 of the checkpoint, see `checkpoint_digest.sha256_of`.
        where: `package`, an address, or a folder (relative to the index).
    """

    name: str
    robot: str
    tasks: tuple[str, ...]
    training: str
    evaluation: str
    successes: int
    episodes: int
    interval_percent: tuple[int, int]
    video: str
    size_bytes: int
    sha256: str
    where: str

    @property
    def result(self) -> str:
        """The success rate with its interval, such as `47/50 = 94 % [84, 98]`."""
        low, high = self.interval_percent
        share = 100 * self.successes / self.episodes
        return f"{self.successes}/{self.episodes} = {share:.0f} % [{low}, {high}]"

    def __str__(self) -> str:
        """Returns name, robot, tasks and result in one line."""
        return f"{self.name}: {self.robot}, {', '.join(self.tasks)}, {self.result}"


def read_index(folder: Path) -> dict[str, RegisteredCheckpoint]:
    """Returns the entries of the index in a folder by name.

    Raises:
        ValueError: The index cannot be read, or an entry is incomplete.
    """
    plain = read_yaml("The index of checkpoints", folder / INDEX)
    return {str(name): _entry(str(name), entry) for name, entry in dict(plain).items()}


def registered_checkpoint(where: str, folder: Path) -> Path:
    """Returns the folder of a checkpoint, fetched if necessary.

    Args:
        where: A folder, an address of fsspec such as `https://HOST/FOLDER`, or a name in the index;
            with `@sha256:HEX` at its end the checkpoint must have this SHA-256. An address needs
            one.
        folder: The folder of the index and of the checkpoints in the package.

    Raises:
        ValueError: There is no such checkpoint, or it has another SHA-256.
        OSError: It cannot be fetched.
    """
    place, sha256 = _reference(where)
    if "://" in place:
        return _at_address(place, sha256)
    found = standing(Path(place))
    if found.is_dir():
        expected = sha256
    else:
        found, expected = _by_name(place, folder)
    for digest in {expected, sha256} - {None}:
        check_sha256(found, str(digest), place)
    return found


def _reference(where: str) -> tuple[str, str | None]:
    """Returns the place and the SHA-256 of `PLACE@sha256:HEX`."""
    place, separator, sha256 = where.rpartition(_DIGEST)
    if not separator:
        return where, None
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"The SHA-256 of {place} is {sha256!r}; allowed: 64 hexadecimal digits.")
    return place, sha256.lower()


def _at_address(url: str, sha256: str | None) -> Path:
    if sha256 is None:
        file_system(url)  # An unknown protocol is reported first.
        raise ValueError(
            f"{url} needs the SHA-256 of the checkpoint, because files of others are verified "
            f"before use: {url}{_DIGEST}HEX. The publisher finds HEX with: cat checkpoint.yaml "
            "weights.safetensors | sha256sum"
        )
    return fetch(url, sha256)


def _by_name(name: str, folder: Path) -> tuple[Path, str | None]:
    """Returns the folder of a checkpoint in the index, and the SHA-256 that it must have."""
    index = read_index(folder)
    if name not in index:
        raise _unknown(name, index)
    entry = index[name]
    if entry.where == PACKAGE:
        return folder / name, None  # Installed with this code, and verified by a test.
    if "://" in entry.where:
        return fetch(entry.where, entry.sha256, entry.size_bytes), entry.sha256
    found = folder / Path(entry.where).expanduser()
    if not found.is_dir():
        raise ValueError(f"The checkpoint {name} should be in {found}, which is not a folder.")
    return found, entry.sha256


def _unknown(name: str, index: Mapping[str, RegisteredCheckpoint]) -> ValueError:
    """Returns the error for an unknown name, with a line per checkpoint, the nearest first."""
    message = str(unknown_name("checkpoint folder or shipped checkpoint", name, index))
    nearest = difflib.get_close_matches(name, index, n=len(index) or 1, cutoff=0.0)
    lines = [f"  {index[each]}" for each in nearest]
    return ValueError(
        "\n".join((f"{message.partition(' Allowed: ')[0]} Allowed: a folder or", *lines))
    )


def _entry(name: str, plain: Any) -> RegisteredCheckpoint:
    """Reads an entry of the index."""
    needed = {field.name for field in fields(RegisteredCheckpoint)} - {"name"}
    if not isinstance(plain, dict) or set(plain) != needed:
        got = ", ".join(map(str, plain)) if isinstance(plain, dict) else repr(plain)
        raise ValueError(
            f"The entry {name} of {INDEX} has {got}; needed: {', '.join(sorted(needed))}."
        )
    pairs = {key: tuple(plain[key]) for key in ("tasks", "interval_percent")}
    return RegisteredCheckpoint(name=name, **{**plain, **pairs})


logger = logging.getLogger(__name__)

LARGEST_BYTES = 16 * 2**30
"""Largest size of a checkpoint whose size no index states."""
_OTHER_FILES = (".safetensors", ".yaml", ".pt", ".pth", ".ckpt", ".pkl", ".bin", ".zip", ".gz")


def cache_folder() -> Path:
    """Returns the folder of fetched checkpoints, `$XDG_CACHE_HOME/stringline/checkpoints`."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "stringline" / "checkpoints"


def fetch(url: str, sha256: str, size_bytes: int | None = None) -> Path:
    """Returns the folder of a checkpoint at an address, which is fetched unless the cache has it.

    Args:
        url: Address of a folder, in a protocol of fsspec.
        sha256: SHA-256 of the checkpoint, see `checkpoint_digest.sha256_of`.
        size_bytes: Size of both files, if known; otherwise `LARGEST_BYTES` is the limit.

    Raises:
        ValueError: The address has no such files, or they have another SHA-256.
        OSError: They cannot be read, or have more bytes than allowed.
    """
    _check_folder(url)
    folder = cache_folder() / sha256
    if _has(folder, sha256):
        return standing(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.parent):
        if _has(folder, sha256):  # Another process has fetched it in the meantime.
            return standing(folder)
        if folder.exists():
            logger.warning("%s is damaged; it is fetched again.", folder)
        with replaced_directory(folder) as fresh:
            _fetch_files(url.rstrip("/"), fresh, size_bytes or LARGEST_BYTES)
            check_sha256(fresh, sha256, url)
    logger.info("%s is in %s.", url, folder)
    return folder


def check_sha256(folder: Path, sha256: str, where: str) -> None:
    """Raises a ValueError if a checkpoint has another SHA-256; `where` is for the message."""
    if (found := sha256_of(folder)) != sha256:
        raise ValueError(
            f"{where} has the SHA-256 {found}, but {sha256} was expected: the files are damaged, "
            "incomplete or another checkpoint. They are not used."
        )


def _has(folder: Path, sha256: str) -> bool:
    """Returns whether a folder of the cache has an undamaged checkpoint."""
    there = standing(folder)
    return all((there / name).is_file() for name in FILES) and sha256_of(there) == sha256


def _check_folder(url: str) -> None:
    if url.endswith(_OTHER_FILES):
        raise ValueError(
            f"{url} is the address of a file; allowed: the address of a folder with "
            f"{' and '.join(FILES)}. Other files, such as pickled ones, are never read."
        )


def _fetch_files(url: str, folder: Path, most: int) -> None:
    """Downloads both files, which have at most `most` bytes together."""
    left = most
    for name in FILES:
        download(f"{url}/{name}", folder / name, left)
        left -= (folder / name).stat().st_size


if TYPE_CHECKING:
    from stringline.policies.remote.client import RemotePolicy

CPU = "cpu"


def checked_device(name: str) -> torch.device:
    """Returns a device by its name: `cpu`, `cuda`, or `cuda:<number>`.

    Raises:
        ValueError: The name is unknown, or the GPU does not exist.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [CPU, *(["cuda"] if gpus else []), *(f"cuda:{number}" for number in range(gpus))]
    if name in devices:
        return torch.device(name)
    none = re.fullmatch(r"cuda(:\d+)?", str(name)) and not gpus
    why = ", since torch finds no GPU" if none else ""
    raise ValueError(f"device is {name!r}; allowed here{why}: {', '.join(devices)}.")


ADDRESSES = ("ws://", "wss://")
REMOTE_POLICY = "stringline.policies.remote.client:RemotePolicy"
SHIPPED = Path(__file__).parent


def find_checkpoint(where: str | Path) -> Path:
    """Returns the folder of a checkpoint: a folder, a name of the index, or an address.

    See `registered_checkpoint`. After a crash, on file systems that cannot replace a folder in one
    step, the previous checkpoint.
    """
    return registered_checkpoint(str(where), SHIPPED)


def checkpoint_digest(where: str | Path) -> str:
    """Returns the identifier of a checkpoint, the start of the SHA-256 of its files."""
    return sha256_of(find_checkpoint(where))[:16]


def is_address(where: str | Path) -> bool:
    """Returns whether a policy is on a server, such as `ws://127.0.0.1:8765`."""
    return str(where).startswith(ADDRESSES)


def remote_policy(address: str | Path) -> "RemotePolicy":
    """Returns the policy of a server, whose client is imported only here.

    Raises:
        RemoteError: The server does not answer.
    """
    connect: type[RemotePolicy] = resolve_name(REMOTE_POLICY)
    return connect(str(address))


def open_policy(
    where: str | Path, trust: Sequence[str] = (), *, device: str = CPU
) -> tuple[Policy, str]:
    """Returns a policy and the digest of its checkpoint.

    Args:
        where: A checkpoint, see `find_checkpoint`, or the address of a policy server.
        trust: See `load_policy`.
        device: Where it computes: `cpu`, `cuda`, or `cuda:<number>`; a server decides for itself.

    Raises:
        ValueError: See `load_policy`; the device does not exist, or is not the CPU for a server.
    """
    torch_device = checked_device(device)
    if is_address(where):
        if device != CPU:
            raise ValueError(
                f"device is {device!r} with the policy of a server, which has its own device; "
                f"allowed: {CPU}."
            )
        remote = remote_policy(where)
        return remote, remote.digest
    return load_policy(where, trust).to(torch_device), checkpoint_digest(where)


def build_policy(
    model: Mapping[str, Any],
    contract: Contract,
    statistics: Statistics,
    trust: Trust = ASKED_FOR,
) -> LearnedPolicy:
    """Builds an untrained policy of a resolved configuration with `_target_`.

    The statistics of the training data include those of the actions; see `add_action_statistics`.
    """
    policy = build(dict(model), nn.Module, trust, contract=contract, statistics=statistics)
    if not isinstance(policy, LearnedPolicy):
        raise ValueError(
            f"{model.get('_target_')!r} is not a policy; allowed: classes derived from ChunkPolicy "
            "or LearnedPolicy."
        )
    return policy


def add_action_statistics(
    statistics: Statistics,
    model: Mapping[str, Any],
    contract: Contract,
    episodes: Sequence[StoredEpisode],
    slots: Sequence[Mapping[str, str]] | None = None,
    trust: Trust = ASKED_FOR,
) -> Statistics:
    """Adds the statistics of what a policy generates, measured on its training windows.

    Known statistics stay unchanged, such as those of actions of the contract. The episodes are read
    twice.

    Args:
        statistics: The statistics of the episodes.
        model: The resolved configuration of the policy.
        contract: Contract of the data.
        episodes: The training episodes.
        slots: The camera of each episode in each slot, by the slot; see `Source`. If None, the
            cameras have the names of the contract.
        trust: Packages whose classes the configuration may name.
    """
    settings = build_settings(model, nn.Module, trust)
    measured: Statistics = settings.with_action_statistics(
        statistics, contract, episodes, slots, model["observation_encoder"].get("cameras")
    )
    return measured


def save_policy(
    directory: Path, policy: LearnedPolicy, model: Mapping[str, Any], training: Mapping[str, Any]
) -> None:
    """Writes a self-contained checkpoint for `load_policy`.

    `model` is the configuration of the policy, `training` the record of its training, plain data.
    """
    description = {
        "model": dict(model),
        "contract": policy.contract.to_dict(),
        "statistics": policy.statistics.to_dict(),
        "training": dict(training),
    }
    save_checkpoint(directory, policy, description)


def load_policy(where: str | Path, trust: Sequence[str] = ()) -> LearnedPolicy:
    """Loads the policy of a checkpoint, in evaluation mode.

    Args:
        where: Its folder, the name of a shipped one, or `ADDRESS@sha256:HEX` (docs/checkpoints.md).
        trust: Top-level packages whose classes the checkpoint may name, which runs their code.
            Packages that the user trusted on a command line are allowed as well.

    Raises:
        ValueError: The checkpoint is missing, broken, newer than this code, or names a class of a
            package that is not trusted or not installed.
        OSError: It cannot be fetched.
    """
    if isinstance(trust, str):
        raise ValueError(f"trust is {trust!r}; allowed: a sequence of names, such as ({trust!r},).")
    directory = find_checkpoint(where)
    description = load_description(directory)
    try:
        model = description["model"]
        contract = description["contract"]
        statistics = description["statistics"]
    except KeyError as error:
        raise ValueError(f"{directory} contains no policy: {error} is missing.") from error
    with bounded_by(directory / WEIGHTS, {"model": model, "contract": contract}):
        policy = build_policy(
            without_files(model),
            Contract.from_dict(contract),
            Statistics.from_dict(statistics),
            Trust(f"The checkpoint {where}", frozenset(trust)),
        )
    load_weights(directory, policy)
    return policy.eval()
