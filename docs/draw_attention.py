"""Draws docs/attention.png: attention of one query over positions, for each encoding.

    python docs/draw_attention.py docs/attention.png

Encodings have their initial values. Upper rows: the query is in the middle of a square metre; lower
rows: it has moved by (0.25, -0.2) m. Colours are logits, averaged over the same 64 random contents
of a head of 64 channels (for absolute encodings: of the position embeddings alone) and divided by
that of a token at the same position.
"""

import math
import sys
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image
from torch import Tensor

from stringline.encoders.positions.absolute import LearnedEncoding, SinusoidalEncoding
from stringline.encoders.positions.bases import GivensBasis
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.lie import ComRopeAp, ComRopeLd, LieRE
from stringline.encoders.positions.rotary import (
    CayleyString,
    CirculantString,
    LiereCommute,
    NoEncoding,
    Rope,
    RopeInLearnedBasis,
    RopeMixed,
    TensorProductString,
)

METRES = (0.1, 2.0)
QUERIES = ((0.0, 0.0), (0.25, -0.2))
POINTS, CONTENTS, CHANNELS = 121, 64, 64

ENCODINGS: dict[str, Callable[..., PositionEncoding]] = {
    "none": NoEncoding,
    "learned, absolute": partial(LearnedEncoding, cells=(8, 8), low=(-0.5, -0.5), high=(0.5, 0.5)),
    "sinusoidal, absolute": partial(SinusoidalEncoding, wavelengths=METRES),
    "RoPE, axial": partial(Rope, wavelengths=METRES),
    "RoPE in a learned basis": partial(RopeInLearnedBasis, basis=GivensBasis, wavelengths=METRES),
    "RoPE-Mixed": partial(RopeMixed, wavelengths=METRES),
    "Circulant-STRING": partial(CirculantString, wavelengths=METRES),
    "Cayley-STRING": partial(CayleyString, wavelengths=METRES),
    "ComRoPE-AP": partial(ComRopeAp, init_std=4.0),
    "ComRoPE-LD": partial(ComRopeLd, init_std=4.0),
    "LieRE-Commute": partial(LiereCommute, uniform=30.0),
    "LieRE, blocks of 8": partial(LieRE, block=8, uniform=12.0),
    "LieRE, whole heads": partial(LieRE, block=CHANNELS, uniform=4.0),
    "tensor-product STRING": partial(TensorProductString, wavelengths=METRES, features=16),
}


def plane() -> Tensor:
    """Returns coordinates (1, POINTS^2, 2) of a square metre around the origin, row by row."""
    line = torch.linspace(-0.5, 0.5, POINTS, dtype=torch.float64)
    y, x = torch.meshgrid(line, line, indexing="ij")
    return torch.stack((x, y), dim=-1).reshape(1, -1, 2)


@torch.no_grad()
def logits(encoding: PositionEncoding, query: tuple[float, float]) -> Tensor:
    """Returns (POINTS, POINTS): mean logits between a token at the query and equal tokens."""
    generator = torch.Generator().manual_seed(0)
    content = torch.randn(CONTENTS, 1, 1, CHANNELS, dtype=torch.float64, generator=generator)
    total = torch.zeros(POINTS**2, dtype=torch.float64)
    places_q = encoding.prepare(torch.tensor([[query]], dtype=torch.float64))
    places_k = encoding.prepare(plane())
    factor = encoding.logit_factor(places_q, places_k)
    for each in content:
        q, k = each.unsqueeze(0), each.unsqueeze(0).expand(-1, -1, POINTS**2, -1)
        if places_q.embedding is not None:  # The position embeddings, scaled like contents.
            size = 1 / places_q.embedding.std()
            q, k = (
                e.embedding.unsqueeze(1) * size
                for e in (places_q, places_k)
                if e.embedding is not None
            )
        values = (encoding.rotate(q, places_q) @ encoding.rotate(k, places_k).mT)[0, 0, 0]
        total += values if factor is None else values * factor[0, 0, 0]
    on_the_spot = total[
        (plane()[0] - torch.tensor(query, dtype=torch.float64)).norm(dim=-1).argmin()
    ]
    return (total / on_the_spot).reshape(POINTS, POINTS)


def draw(file: Path) -> None:
    """Writes the image."""
    columns = math.ceil(len(ENCODINGS) / 2)
    figure, axes = plt.subplots(4, columns, figsize=(2.1 * columns, 9.2), layout="constrained")
    image = None
    for number, (name, make) in enumerate(ENCODINGS.items()):
        encoding = make(heads=1, head_dim=CHANNELS, axes=2).double()
        encoding.reset_parameters(0)
        for row, query in enumerate(QUERIES):
            panel = axes[2 * (number // columns) + row, number % columns]
            shown = logits(encoding, query).numpy()
            image = panel.imshow(
                shown, origin="lower", extent=(-0.5, 0.5, -0.5, 0.5), cmap="RdBu_r", vmin=-1, vmax=1
            )
            panel.plot(*query, marker="+", color="black", markersize=9)
            panel.set(xticks=[], yticks=[])
            if row == 0:
                panel.set_title(name, fontsize=9)
    assert image is not None  # There are encodings.
    figure.colorbar(image, ax=axes, shrink=0.4, label="logit, relative to the same position")
    drawn = BytesIO()
    figure.savefig(drawn, dpi=80, format="png")
    # A third of the size without a visible difference.
    Image.open(drawn).convert("RGB").quantize(96).save(file, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/attention.png"))
