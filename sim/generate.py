"""The command `stringline-scenes`: labelled images and clips of procedural rooms and of tasks.

A room, or an episode of a task, depends on the settings and its number alone, so the store holds
the same bytes for any number of processes. Neither this process nor the others import torch.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from tqdm import tqdm

from stringline.datasets.cameras.resampling import checked_image_size
from stringline.datasets.command.application import run
from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.images.image_store import ImageWriter
from stringline.sim.collection.stage_clips import (
    EMPTY_IN_A_ROW,
    StageClips,
    StageSettings,
    StageTally,
)
from stringline.sim.scenes.catalogue import CACHE, FurnitureChoice, load_assets
from stringline.sim.scenes.motion_clips import MotionClips, MotionSettings
from stringline.sim.scenes.rooms import ChooseAsset, seeded_asset
from stringline.sim.scenes.scene_images import Optics, SceneImages, SceneSettings, Tally, draw_rooms

logger = logging.getLogger(__name__)


def generate_images(
    settings: SceneSettings,
    path: str | Path,
    count: int,
    *,
    workers: int = 0,
    choose: ChooseAsset = seeded_asset,
) -> Tally:
    """Writes a new store of labelled images of rooms.

    Args:
        settings: What rooms and cameras are drawn from.
        path: The store; it must not exist.
        count: Number of images.
        workers: Number of processes; 0 takes one per processor.
        choose: Draws an asset of a class, by default a parametric one.

    Returns:
        Counts of objects, and of the partly hidden ones.

    Raises:
        ValueError: An argument is wrong, or not enough objects fit in a room.
    """
    COUNT.check(count=count)
    tally = Tally()
    rooms = -(-count // settings.images_per_room)
    with (
        ImageWriter(path) as writer,
        tqdm(total=count, unit="image", desc="rooms") as progress,
    ):
        for drawn in draw_rooms(partial(SceneImages, settings, choose), rooms, workers):
            kept = drawn[: count - tally.images]
            for image in kept:
                writer.add(image)
            tally.add(kept)
            progress.update(len(kept))
    return tally


def generate_clips(
    settings: MotionSettings, path: str | Path, count: int, *, workers: int = 0
) -> None:
    """Writes a new store of labelled clips of motions, each followed by its reversal.

    Args:
        settings: What motions and cameras are drawn from.
        path: The store; it must not exist.
        count: Number of clips; with an odd number the last one lacks its reversal.
        workers: Number of processes; 0 takes one per processor.

    Raises:
        ValueError: An argument is wrong.
    """
    COUNT.check(count=count)
    left = count
    with ImageWriter(path) as writer, tqdm(total=count, unit="clip", desc="motions") as progress:
        for drawn in draw_rooms(partial(MotionClips, settings), -(-count // 2), workers):
            for clip in drawn[:left]:
                writer.add_clip(clip)
                progress.update()
            left -= len(drawn)


def generate_stages(
    settings: StageSettings, path: str | Path, count: int, *, workers: int = 0
) -> StageTally:
    """Writes a new store of labelled clips of the stages of experts' episodes.

    Args:
        settings: What episodes and clips are drawn from.
        path: The store; it must not exist.
        count: Number of clips; the tasks take turns until there are so many.
        workers: Number of processes; 0 takes one per processor.

    Returns:
        Counts of clips, of failed episodes and of what was left out.

    Raises:
        ValueError: An argument is wrong, or too many episodes in a row have no clip.
    """
    COUNT.check(count=count)
    tally = StageTally()
    most = EMPTY_IN_A_ROW * count
    with (
        ImageWriter(path) as writer,
        tqdm(total=count, unit="clip", desc="stages") as progress,
        closing(draw_rooms(partial(StageClips, settings), most, workers)) as episodes,
    ):
        for (episode,) in episodes:
            kept = episode.clips[: count - tally.clips]
            for clip in kept:
                writer.add_clip(clip)
            tally.add(episode, len(kept))
            progress.update(len(kept))
            if tally.clips == count:
                break
    return tally


def settings_of(config: DictConfig) -> SceneSettings:
    """Returns the settings of a configuration of `stringline-scenes`."""
    return SceneSettings(
        kinds=_names(config.rooms),
        seed=config.seed,
        objects=pair("objects", config.objects),
        images_per_room=config.images_per_room,
        captions=config.captions,
        optics=_optics(config),
    )


def _names(value: Any) -> tuple[str, ...]:
    """Returns names that are given as one or as a list."""
    return (value,) if isinstance(value, str) else tuple(value)


def _optics(config: DictConfig) -> Optics:
    return Optics(
        size=checked_image_size(config.image_size),
        fovy_deg=pair("fovy_deg", config.fovy_deg),
        aspect=pair("aspect", config.aspect),
    )


def pair(name: str, value: Any) -> tuple[Any, Any]:
    """Returns the two ends of a range, given as one number or two.

    Raises:
        ValueError: There are more or fewer.
    """
    ends = [value] * 2 if isinstance(value, int | float) else list(value)
    if len(ends) != 2:
        raise ValueError(f"{name} is {ends}; allowed: a number, or the least and the largest.")
    return ends[0], ends[1]


def main() -> None:
    """The command `stringline-scenes`."""
    run("scenes", _generate, stopped="Stopped; nothing was stored.")


def chosen_assets(config: DictConfig) -> ChooseAsset:
    """Returns the choice of assets; reads catalogues here first, which fills the cache.

    Raises:
        ValueError: A catalogue or folder has no usable pieces, or the share is not one.
    """
    named = _names(config.furniture)
    choice = FurnitureChoice(tuple(str(path) for path in named), config.furniture_share)
    if not named:
        return seeded_asset
    for path in named:
        found = load_assets(path, CACHE.expanduser())
        logger.info("%s: %d pieces, %d refused.", path, len(found.assets), len(found.refused))
        for name, reason in found.refused:
            logger.info("Refused: %s: %s", name, reason)
        if not found.assets:
            raise ValueError(f"{path} has no usable pieces; allowed: at least one .glb or .obj.")
    return choice


def _images(config: DictConfig) -> None:
    tally = generate_images(
        settings_of(config),
        str(config.output),
        config.count,
        workers=config.workers,
        choose=chosen_assets(config),
    )
    logger.info("%s: %s", config.output, tally)


def _motions(config: DictConfig) -> None:
    names = _names(config.motions)
    settings = MotionSettings(names, config.seed, config.clip_frames, _optics(config))
    generate_clips(settings, str(config.output), config.count, workers=config.workers)


def _stages(config: DictConfig) -> None:
    settings = StageSettings(
        tasks=_names(config.tasks),
        seed=config.seed,
        clip_frames=config.clip_frames,
        camera=config.camera,
        image_size=checked_image_size(config.image_size),
        looks=config.looks,
    )
    tally = generate_stages(settings, str(config.output), config.count, workers=config.workers)
    logger.info("%s: %s", config.output, tally)


KINDS: Mapping[str, Callable[[DictConfig], None]] = {
    "images": _images,
    "motions": _motions,
    "stages": _stages,
}


def _generate(config: DictConfig) -> None:
    if config.kind not in KINDS:
        raise unknown_name("kind", config.kind, KINDS)
    KINDS[config.kind](config)


if __name__ == "__main__":
    main()
