"""The command `stringline-view`: shows an episode, and checks the poses of its cameras."""

import json
import os
import platform
import sys
from pathlib import Path

from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.contract.argument_checks import printable, settings_of
from stringline.datasets.files.atomic import write_file
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.pointclouds.camera_check import check_cameras
from stringline.datasets.pointclouds.clouds import find_episode, fused_cloud, write_ply
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore, format_size
from stringline.datasets.viewing.rerun_recording import Recorder

HOW_TO_OPEN = (
    "Open it on a machine with a display: rerun --bind 127.0.0.1 {path} "
    "(or, in a browser: rerun --bind 127.0.0.1 --web-viewer {path})"
)


def main() -> None:
    """Runs the command `stringline-view`."""
    run("view", view, stopped="Stopped.")


def view(config: DictConfig) -> None:
    """Writes a recording or a cloud, checks cameras, or opens the viewer."""
    store = EpisodeStore.open(config.store)
    episode = store.episode(
        find_episode(store.names(), None if config.episode is None else str(config.episode))
    )
    cameras = None if config.cameras is None else [str(name) for name in config.cameras]
    if config.ply is not None:
        _write_cloud(episode, config, cameras)
    if config.check:
        _check(episode, config, cameras)
    if config.save is None and (config.ply is not None or config.check):
        return
    recorder = Recorder(
        episode,
        cameras,
        config.cloud_hz,
        config.cloud_points,
        config.jpeg_quality,
        _events(config),
    )
    if config.save is not None:
        path = Path(config.save)
        recorder.save(path)
        _print(
            f"{path}: episode {episode.name}, {format_size(path.stat().st_size)}. "
            f"{HOW_TO_OPEN.format(path=path)}"
        )
        _print_keyposes(recorder)
        return
    _check_display()
    recorder.show(str(config.host), config.port)
    _print(f"Opened episode {episode.name} in the viewer.")
    _print_keyposes(recorder)


def _events(config: DictConfig) -> KeyposeSettings | None:
    """Returns how keyposes are found; None means they are not shown."""
    if not config.keyposes:
        return None
    return settings_of(KeyposeSettings, {} if config.events is None else config.events, "events")


def _print_keyposes(recorder: Recorder) -> None:
    if recorder.keyposes is not None:
        _print(recorder.keyposes.sentence)


def _write_cloud(episode: StoredEpisode, config: DictConfig, cameras: list[str] | None) -> None:
    cloud = fused_cloud(episode, config.step, cameras)
    write_ply(cloud, Path(config.ply))
    _print(
        f"{config.ply}: {len(cloud)} points of episode {episode.name} at step {config.step}, in "
        "metres, in the base frame."
    )


def _check(episode: StoredEpisode, config: DictConfig, cameras: list[str] | None) -> None:
    check = check_cameras(
        episode, steps=config.check_steps or (), cameras=cameras, reference=config.reference
    )
    _print(f"Episode {episode.name}; pairs of cameras:")
    for pair in check.pairs:
        _print(f"  {pair}")
    _print(f"If the pose of {check.reference} is correct:")
    for correction in check.corrections:
        _print(f"  {correction}")
        if correction.T_base_camera is not None:
            rows = [
                "    [" + ", ".join(f"{value:9.5f}" for value in row) + "]"
                for row in correction.T_base_camera
            ]
            for line in ("    T_base_camera should be", *rows):
                _print(line)
    for camera in check.unreached:
        _print(f"  {camera}: no result; its overlap with the other cameras is too small.")
    if config.proposal is not None:
        proposal = {
            "reference": check.reference,
            "cameras": [correction.to_dict() for correction in check.corrections],
        }
        write_file(Path(config.proposal), json.dumps(proposal, indent=1).encode())
        _print(f"Corrections written to {config.proposal}.")


def _check_display() -> None:
    """Checks that there is a display for the viewer."""
    if platform.system() == "Linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        raise ValueError(
            "There is no display for the viewer. Save a file: save=FILE.rrd. "
            f"{HOW_TO_OPEN.format(path='FILE.rrd')}"
        )


def _print(line: str) -> None:
    """Prints a line; names in it come from data."""
    sys.stdout.write(f"{printable(line)}\n")


if __name__ == "__main__":
    main()
