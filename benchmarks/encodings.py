"""Costs of position encodings: an attention layer with one, relative to the layer without one.

    python benchmarks/encodings.py --json encodings.json
    python benchmarks/encodings.py --tokens 196 --rounds 5 --only cayley circulant --skip-compiled

Names: layer/<encoding>/<tokens>/<fwd|fwd_bwd>/<eager|compiled>, peer `none`, ratio of times.
<encoding> is one of
    none, rope, rope_mixed, rope_mixed_per_head, circulant (projections in its constant basis, as in
    our networks), circulant_each_time (basis multiplied in by every forward), cayley,
    cayley_per_head, cayley_folded (as deployed: see fwd), comrope_ap, comrope_ld, liere_8,
    liere_64, tensor_product; with relative values: rope_mixed_values, circulant_values,
    cayley_values, comrope_ld_values, liere_8_values; peers: timm_axial, timm_mixed,
    circulant_by_fft, cayley_per_token, comrope_per_token, liere_8_per_token, liere_64_per_token.
The layer is that of a ViT-B by default: dim 768, 12 heads, batch 8, float32. Every token has its
own metric place, different in each example (timm's: one grid for all), and places are prepared anew
for each call, as in a network of a single layer: the worst case. Encodings are measured in turn,
round after round, by the clock. The value is the best round of each; the ratio is the median over
rounds of its time to that of `none` in the same round, which other work on the machine disturbs
least. LieRE of whole heads and the exponentials of ComRoPE are omitted above 512 tokens, where they
need more than 24 GB. If `spread`, the median round over the best one, is large, the machine was
busy: repeat the measurement.
"""

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import truediv

import torch
import torch._dynamo
from measurement import Row, parser_of, row, write_rows
from published_encodings import (
    CayleyPerToken,
    CirculantByFft,
    ExponentialPerToken,
    TimmAxial,
    TimmMixed,
)
from torch import Tensor, nn
from tqdm import tqdm

from stringline.datasets.command.entry_points import keep_freed_memory
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.lie import ComRopeAp, ComRopeLd, LieRE
from stringline.encoders.positions.rotary import (
    CayleyString,
    CirculantString,
    NoEncoding,
    Rope,
    RopeMixed,
    TensorProductString,
)
from stringline.encoders.vision.attention import PositionalAttention

METRES = (0.04, 2.0)
PEER = "none"
OURS: dict[str, Callable[[int, int], PositionEncoding]] = {
    PEER: lambda heads, size: NoEncoding(heads, size, 3),
    "rope": lambda heads, size: Rope(heads, size, 3, wavelengths=METRES),
    "rope_mixed": lambda heads, size: RopeMixed(heads, size, 3, wavelengths=METRES),
    "rope_mixed_per_head": lambda heads, size: RopeMixed(
        heads, size, 3, wavelengths=METRES, share_heads=False
    ),
    "circulant": lambda heads, size: CirculantString(
        heads, size, 3, wavelengths=METRES
    ).without_constant_basis(),
    "circulant_each_time": lambda heads, size: CirculantString(heads, size, 3, wavelengths=METRES),
    "cayley": lambda heads, size: CayleyString(heads, size, 3, wavelengths=METRES),
    "cayley_per_head": lambda heads, size: CayleyString(
        heads, size, 3, wavelengths=METRES, share_heads=False
    ),
    "cayley_folded": lambda heads, size: CayleyString(heads, size, 3, wavelengths=METRES).folded(),
    "comrope_ap": lambda heads, size: ComRopeAp(heads, size, 3),
    "comrope_ld": lambda heads, size: ComRopeLd(heads, size, 3),
    "liere_8": lambda heads, size: LieRE(heads, size, 3, block=8),
    "liere_64": lambda heads, size: LieRE(heads, size, 3, block=size),
    "tensor_product": lambda heads, size: TensorProductString(heads, size, 3, wavelengths=METRES),
}
VALUES = ("rope_mixed", "circulant", "cayley", "comrope_ld", "liere_8")
PEERS: dict[str, Callable[[int, int], nn.Module]] = {
    "timm_axial": TimmAxial,
    "timm_mixed": TimmMixed,
    "circulant_by_fft": CirculantByFft,
    "cayley_per_token": CayleyPerToken,
    "comrope_per_token": lambda heads, size: ExponentialPerToken(heads, size, 8, comrope=True),
    "liere_8_per_token": lambda heads, size: ExponentialPerToken(heads, size, 8, comrope=False),
    "liere_64_per_token": lambda heads, size: ExponentialPerToken(heads, size, size, comrope=False),
}
# Matrices as wide as a head for every token: with many tokens they need more than 24 GB.
LARGE, FEW_TOKENS = ("liere_64", "liere_64_per_token", "comrope_per_token"), 512
# torch.compile takes about twenty seconds for each, so only encodings that users would compile.
COMPILED = (
    "none",
    "rope",
    "rope_mixed",
    "circulant",
    "circulant_each_time",
    "cayley",
    "comrope_ap",
    "comrope_ld",
    "circulant_values",
    "cayley_values",
)


class Layer(nn.Module):
    """Attention among tokens, including the preparation of their places."""

    def __init__(self, encoding: PositionEncoding, *, values: bool) -> None:
        super().__init__()
        self.encoding = encoding
        self.attention = PositionalAttention(
            encoding.heads * encoding.head_dim, encoding.heads, values=values
        )

    def forward(self, x: Tensor, coordinates: Tensor) -> Tensor:
        """Attends."""
        y: Tensor = self.attention(x, self.encoding.prepare(coordinates))
        return y


@dataclass(frozen=True)
class Setting:
    """Input of a layer."""

    tokens: int
    batch: int
    dim: int
    heads: int
    dtype: str
    device: str

    def draw(self) -> tuple[Tensor, Tensor]:
        """Returns tokens (batch, tokens, dim) and places (batch, tokens, 3) in a cubic metre."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.batch, self.tokens, self.dim, generator=generator)
        coordinates = torch.rand(self.batch, self.tokens, 3, generator=generator)
        return x.to(self.device).requires_grad_(), coordinates.to(self.device)


def layers(setting: Setting, only: Sequence[str]) -> Iterator[tuple[str, nn.Module]]:
    """Yields the chosen layers that fit into memory, by the name of the encoding."""
    for name, layer in _all_layers(setting, only):
        if setting.tokens <= FEW_TOKENS or name not in LARGE:
            yield name, layer


def _all_layers(setting: Setting, only: Sequence[str]) -> Iterator[tuple[str, nn.Module]]:
    size = setting.dim // setting.heads
    for name, make in OURS.items():
        for values in (False, True) if name in VALUES else (False,):
            if not only or name + "_values" * values in (*only, PEER):
                torch.manual_seed(0)
                yield (
                    name + "_values" * values,
                    Layer(make(setting.heads, size), values=values).to(setting.device),
                )
    for name, make_peer in PEERS.items():
        if not only or name in only:
            torch.manual_seed(0)
            yield name, make_peer(setting.heads, size).to(setting.device)


def runs(setting: Setting, layer: nn.Module) -> dict[str, Callable[[], None]]:
    """Returns the timed functions: the forward pass alone, and both passes."""
    x, coordinates = setting.draw()
    autocast = torch.autocast(setting.device, torch.bfloat16, enabled=setting.dtype == "bfloat16")

    def forward() -> None:
        with torch.no_grad(), autocast:
            layer(x, coordinates)

    def both() -> None:
        layer.zero_grad(set_to_none=True)
        with autocast:
            y = layer(x, coordinates)
        y.float().square().sum().backward()

    return {"fwd": forward, "fwd_bwd": both}


def seconds(run: Callable[[], None], device: str) -> float:
    """Returns the time of one call."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(setting: Setting, rounds: int, kinds: Sequence[str], only: Sequence[str]) -> list[Row]:
    """Times all layers in turn and returns one entry per name."""
    torch._dynamo.config.recompile_limit = 1000  # All layers are compilations of the same code.
    timed: dict[tuple[str, str, str], Callable[[], None]] = {}
    for name, layer in layers(setting, only):
        for kind in kinds:
            if kind == "compiled" and name not in COMPILED:
                continue
            timed_layer = copy.deepcopy(layer)
            if kind == "compiled":
                timed_layer.compile(fullgraph=True, dynamic=False)
            timed |= {
                (name, passes, kind): run for passes, run in runs(setting, timed_layer).items()
            }
    for key, run in tqdm(timed.items(), desc=f"{setting.tokens} tokens, first calls", disable=None):
        run()
        if key[2] == "compiled":
            run()
    took: dict[tuple[str, str, str], list[float]] = {key: [] for key in timed}
    for _ in tqdm(range(rounds), desc=f"{setting.tokens} tokens, rounds", disable=None):
        for key, run in timed.items():
            took[key].append(seconds(run, setting.device))
    best = {key: min(times) for key, times in took.items()}
    return [
        row(
            f"layer/{name}/{setting.tokens}/{passes}/{kind}",
            1e3 * best[name, passes, kind],
            "ms",
            PEER,
            statistics.median(map(truediv, took[name, passes, kind], took[PEER, passes, kind])),
            spread=sorted(took[name, passes, kind])[rounds // 2] / best[name, passes, kind],
        )
        for (name, passes, kind) in timed
    ]


def main() -> None:
    """Prints the table and writes it on request."""
    keep_freed_memory()
    parser = parser_of(__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[196, 1024])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--threads", type=int, default=0, help="processor threads; 0 leaves the number to torch"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", nargs="+", default=[], help="these encodings besides `none`")
    parser.add_argument(
        "--skip-compiled", action="store_true", help="omit torch.compile, which takes minutes"
    )
    given = parser.parse_args()
    known = [*OURS, *(f"{name}_values" for name in VALUES), *PEERS]
    for name in given.only:
        if name not in known:
            parser.error(str(unknown_name("encoding", name, known)))
    if given.threads:
        torch.set_num_threads(given.threads)
    entries: list[Row] = []
    for tokens in given.tokens:
        setting = Setting(tokens, given.batch, given.dim, given.heads, given.dtype, given.device)
        measured = measure(
            setting,
            given.rounds,
            ("eager",) if given.skip_compiled else ("eager", "compiled"),
            given.only,
        )
        for entry in measured:
            figures = (
                f"{entry['value']:10.2f} {entry['unit']}   {entry['ratio']:7.3f} x {entry['peer']}"
            )
            print(f"{entry['name']:55s} {figures}   spread {entry['spread']:.2f}", flush=True)
        entries += measured
        write_rows(entries, given.json)


if __name__ == "__main__":
    main()
