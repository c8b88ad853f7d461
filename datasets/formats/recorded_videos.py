"""Videos beside the numbers of a raw recording: `videos/<episode>/<camera>.mp4`.

diffusion_policy records them with `replay_buffer.zarr` (Chi et al., 2023); step k of an episode saw
the frame at k divided by the control rate, as in its `real_data_to_replay_buffer`.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.formats.confinement import inside
from stringline.datasets.formats.foreign import ForeignDataError, Frames, chosen_cameras
from stringline.datasets.formats.video import frames_at, size_and_rate

BUFFER = "replay_buffer.zarr"
FOLDER = "videos"


def recorded_buffer(path: Path) -> Path:
    """Returns the replay buffer of a recording, given its folder or the buffer itself."""
    return inside(path, path / BUFFER) if (path / BUFFER).is_dir() else path


def recorded_videos(buffer: Path) -> Path | None:
    """Returns the folder of the videos beside a replay buffer, or None."""
    folder = buffer.resolve().parent / FOLDER
    return folder if any(inside(folder.parent, folder).glob("*/*.mp4")) else None


def video_cameras(
    folder: Path, number: int, chosen: Mapping[str, str] | None, times: Array
) -> dict[str, tuple[Camera, Frames]]:
    """Returns the cameras of an episode by the name of their file, and functions with their frames.

    Args:
        folder: The folder `videos`.
        number: Number of the episode.
        chosen: New name of the camera by the name of the file; None takes all files.
        times: (T,) s since the beginning of the videos.

    Raises:
        ForeignDataError: The episode has no videos, or a file cannot be read.
    """
    found_files = sorted((folder / str(number)).glob("*.mp4"))
    files = {path.stem: inside(folder.parent, path) for path in found_files}
    if not files:
        raise ForeignDataError(f"There are no videos of it in {folder / str(number)}.")
    found: dict[str, tuple[Camera, Frames]] = {}
    for name, new in chosen_cameras(chosen, list(files), "video").items():
        key = f"{FOLDER}/{number}/{name}"
        height, width, fps = size_and_rate(files[name], key)
        frames = partial(frames_at, files[name], key, times, fps=fps)
        found[name] = (Camera(new, height, width, has_geometry=False), frames)
    return found
