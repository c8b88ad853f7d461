"""What a position encoding costs: one attention layer with it, in units of the same layer without.

    python benchmarks/encodings.py --json encodings.json
    python benchmarks/encodings.py --tokens 196 --repeats 5 --skip-compiled

Names: layer/<encoding>/<tokens>/<fwd|fwd_bwd>/<eager|compiled>, peer `none`, ratio of times. <encoding> is one of none,
rope_mixed, rope_mixed_per_head, cayley, cayley_per_head, circulant, each but none also as <encoding>_values (relative values).
The layer is that of a ViT-B by default: dim 768, 12 heads, batch 8, float32. Every token has its own metric place, different
in each example, and the places are prepared anew for each call, as in a network of a single layer: the worst case.
Encodings are measured in turn, round after round; the figure is the best round of each. On a CPU it is processor time, which
neighbours on a shared machine disturb less than the clock on the wall.
"""

import argparse
import copy
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo
from torch import Tensor, nn

from stringline.encoders.attention import PositionalAttention
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.rotary import CayleyString, CirculantString, NoEncoding, RopeMixed

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
METRES = (0.04, 2.0)
PEER = "none"
ENCODINGS: dict[str, Callable[[int, int], PositionEncoding]] = {
    PEER: lambda heads, size: NoEncoding(heads, size, 3),
    "rope_mixed": lambda heads, size: RopeMixed(heads, size, 3, wavelengths=METRES),
    "rope_mixed_per_head": lambda heads, size: RopeMixed(heads, size, 3, wavelengths=METRES, share_heads=False),
    "cayley": lambda heads, size: CayleyString(heads, size, 3, wavelengths=METRES),
    "cayley_per_head": lambda heads, size: CayleyString(heads, size, 3, wavelengths=METRES, share_heads=False),
    "circulant": lambda heads, size: CirculantString(heads, size, 3, wavelengths=METRES),
}


class Layer(nn.Module):
    """Attention among tokens, their places included."""

    def __init__(self, encoding: PositionEncoding, *, values: bool) -> None:
        """Makes the layer for the sizes of the encoding."""
        super().__init__()
        self.encoding = encoding
        self.attention = PositionalAttention(encoding.heads * encoding.head_dim, encoding.heads, values=values)

    def forward(self, x: Tensor, coordinates: Tensor) -> Tensor:
        """Attends."""
        y: Tensor = self.attention(x, self.encoding.prepare(coordinates))
        return y


@dataclass(frozen=True)
class Setting:
    """What a layer is run on."""

    tokens: int
    batch: int
    dim: int
    heads: int
    dtype: str
    device: str

    def draw(self) -> tuple[Tensor, Tensor]:
        """Returns tokens (batch, tokens, dim) and places (batch, tokens, 3) within a cubic metre."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.batch, self.tokens, self.dim, generator=generator)
        coordinates = torch.rand(self.batch, self.tokens, 3, generator=generator)
        return x.to(self.device).requires_grad_(), coordinates.to(self.device)


def layers(setting: Setting) -> Iterator[tuple[str, Layer]]:
    """Yields every layer by the name of its encoding."""
    for name, make in ENCODINGS.items():
        for values in (False, True) if name != PEER else (False,):
            torch.manual_seed(0)
            layer = Layer(make(setting.heads, setting.dim // setting.heads), values=values)
            yield name + "_values" * values, layer.to(setting.device)


def runs(setting: Setting, layer: nn.Module) -> dict[str, Callable[[], None]]:
    """Returns what is timed: the forward pass alone, and both passes."""
    x, coordinates = setting.draw()
    autocast = torch.autocast(setting.device, torch.bfloat16, enabled=setting.dtype == "bfloat16")

    def forward() -> None:
        with torch.no_grad(), autocast:
            layer(x, coordinates)

    def both() -> None:
        layer.zero_grad(set_to_none=True)
        with autocast:
            y = layer(x, coordinates)
        y.sum().backward()

    return {"fwd": forward, "fwd_bwd": both}


def seconds(run: Callable[[], None], device: str) -> float:
    """Returns how long one call takes."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    start = clock()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def measure(setting: Setting, repeats: int, kinds: Sequence[str]) -> list[dict[str, object]]:
    """Times all layers in turn and returns one entry per name."""
    torch._dynamo.config.recompile_limit = 1000  # All layers are compilations of the same code.
    timed: dict[tuple[str, str, str], Callable[[], None]] = {}
    for name, layer in layers(setting):
        for kind in kinds:
            timed_layer = copy.deepcopy(layer)
            if kind == "compiled":
                timed_layer.compile(fullgraph=True, dynamic=False)
            timed |= {(name, passes, kind): run for passes, run in runs(setting, timed_layer).items()}
    for run in timed.values():
        run()
        run()
    best = dict.fromkeys(timed, float("inf"))
    for _ in range(repeats):
        for key, run in timed.items():
            best[key] = min(best[key], seconds(run, setting.device))
    return [
        {
            "name": f"layer/{name}/{setting.tokens}/{passes}/{kind}",
            "value": 1e3 * took,
            "unit": "ms",
            "peer": PEER,
            "ratio": took / best[PEER, passes, kind],
        }
        for (name, passes, kind), took in best.items()
    ]


def keep_large_blocks() -> None:
    """Starts the process again with a malloc that keeps large blocks; else it fetches every temporary page by page."""
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ALLOCATOR)


def main() -> None:
    """Prints the table and, if asked, writes it."""
    keep_large_blocks()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--tokens", type=int, nargs="+", default=[196, 1024])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="processor threads; 0 leaves the number to torch")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--skip-compiled", action="store_true", help="leave out torch.compile, which takes minutes")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    entries: list[dict[str, object]] = []
    for tokens in given.tokens:
        setting = Setting(tokens, given.batch, given.dim, given.heads, given.dtype, given.device)
        entries += measure(setting, given.repeats, ("eager",) if given.skip_compiled else ("eager", "compiled"))
    for entry in entries:
        print(f"{entry['name']:60s} {entry['value']:10.2f} {entry['unit']}   {entry['ratio']:.3f} x {entry['peer']}")
    if given.json is not None:
        given.json.write_text(json.dumps(entries, indent=2) + "\n")


if __name__ == "__main__":
    main()
