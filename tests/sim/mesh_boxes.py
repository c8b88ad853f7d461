"""A box as an OBJ file whose texture has two halves, for tests of meshes."""

from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (0.04, 0.06, 0.10)  # Metres.
TOP, BOTTOM = (200, 30, 40), (10, 20, 220)
FACES = ("1 2 4 3", "5 7 8 6", "1 5 6 2", "3 4 8 7", "1 3 7 5", "2 6 8 4")


def write_box(path: Path, *, scale: float = 1.0, texture: str = "texture.png") -> Path:
    """Writes a box as an OBJ with a texture whose upper and lower halves differ."""
    path.parent.mkdir(parents=True, exist_ok=True)
    corners = [
        " ".join(f"{scale * side * bit:g}" for side, bit in zip(SIZE, bits, strict=True))
        for bits in np.ndindex(2, 2, 2)
    ]
    places = ["0 0", "1 0", "1 1", "0 1"]
    faces = ["f " + " ".join(f"{v}/{n + 1}" for n, v in enumerate(face.split())) for face in FACES]
    lines = [f"mtllib {path.stem}.mtl", *(f"v {each}" for each in corners)]
    lines += [*(f"vt {each}" for each in places), "usemtl skin", *faces]
    path.write_text("\n".join(lines))
    path.with_suffix(".mtl").write_text(f"newmtl skin\nKd 1 1 1\nmap_Kd {texture}\n")
    return path


def write_texture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((8, 4, 3), np.uint8)
    pixels[:4] = TOP
    pixels[4:] = BOTTOM
    Image.fromarray(pixels).save(path)
