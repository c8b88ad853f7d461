"""The network with places: agreement with the transformer, draws, compilation and export."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from stringline.encoders.positions.absolute import SinusoidalEncoding
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.positions.lie import LieRE
from stringline.encoders.positions.rotary import (
    CayleyString,
    CirculantString,
    NoEncoding,
    TensorProductString,
)
from stringline.policies.networks.denoiser import TransformerDenoiser
from stringline.policies.networks.inputs import TokenPlaces
from stringline.policies.networks.placed_denoiser import PlacedDenoiser

METRES = (0.1, 2.0)
ENCODINGS: dict[str, EncodingFactory] = {
    "cayley": partial(CayleyString, wavelengths=METRES, share_heads=False),
    "circulant": partial(CirculantString, wavelengths=METRES, block=4),
    "liere": partial(LieRE, block=4),
    "tensor_product": partial(TensorProductString, wavelengths=METRES),
    "sinusoidal": partial(SinusoidalEncoding, wavelengths=METRES),
}
RELATIVE = [name for name in ENCODINGS if name not in ("sinusoidal", "liere")]
SIZES = {"action_dim": 6, "chunk": 8, "conditioning_dim": 12, "dim": 16, "heads": 2, "depth": 2}


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Clears the graphs of other tests."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def network(
    kind: str,
    *,
    noisy_pose: bool = True,
    values: bool = True,
    depth: int = 2,
) -> PlacedDenoiser:
    """Returns a network for two arms with interleaved numbers, of which three are positions."""
    torch.manual_seed(0)
    arms = [[0, 2, 4], [1, 3, 5]]
    encoding = ENCODINGS[kind](heads=2, head_dim=8, axes=3)
    made = PlacedDenoiser(
        **SIZES | {"depth": depth},  # type: ignore[arg-type]
        encoding=encoding,
        arms=arms,
        positions=arms if noisy_pose else None,
        values=values,
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made.double()


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def scene() -> tuple[Tensor, TokenPlaces, Tensor]:
    """Returns seven conditioning tokens, their places, and those that exist; one has none."""
    known = torch.tensor([[True] * 5 + [False, True]] * 2)
    places = TokenPlaces(
        coordinates=draw(2, 7, 3),
        has_position=known,
        grippers=draw(2, 2, 3),
        directions=draw(2, 2, 3, 3),
    )
    return draw(2, 7, 12), places, torch.tensor([[True] * 7, [True] * 3 + [False] + [True] * 3])


def test_without_positions_it_is_the_transformer() -> None:
    """With the encoding `none` and one arm, with the same weights, the outputs are equal."""
    torch.manual_seed(0)
    usual = TransformerDenoiser(**SIZES).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in usual.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    placed = PlacedDenoiser(**SIZES, encoding=NoEncoding(2, 8, 3), arms=[range(6)]).double()  # type: ignore[arg-type]
    placed.load_state_dict(usual.state_dict())
    tokens, places, present = scene()
    places = TokenPlaces(**vars(places) | {"grippers": places.grippers[:, :1]})
    noisy, level = draw(2, 3, 8, 6), torch.rand(2, 3, dtype=torch.float64)
    torch.testing.assert_close(
        placed(noisy, level, placed.precompute(tokens, places=places), present),
        usual(noisy, level, usual.precompute(tokens), present),
    )


@pytest.mark.parametrize("noisy_pose", [True, False])
@pytest.mark.parametrize("kind", RELATIVE)
def test_a_common_shift_of_tokens_and_grippers_has_no_effect(kind: str, noisy_pose: bool) -> None:
    denoiser = network(kind, noisy_pose=noisy_pose, values=kind != "tensor_product")
    tokens, places, present = scene()
    shift = torch.tensor([0.4, -1.3, 0.7], dtype=torch.float64)
    noisy, level = draw(2, 3, 8, 6), torch.rand(2, 3, dtype=torch.float64)
    here, there, apart = (
        denoiser(
            noisy,
            level,
            denoiser.precompute(
                tokens,
                places=TokenPlaces(
                    coordinates=places.coordinates + moved * shift,
                    has_position=places.has_position,
                    grippers=places.grippers + grippers * shift,
                    directions=places.directions,
                ),
            ),
            present,
        )
        for moved, grippers in ((0, 0), (1, 1), (0, 1))
    )
    assert (here - there).abs().max() < 1e-9
    assert (here - apart).abs().max() > 1e-5


@pytest.mark.parametrize("kind", sorted(ENCODINGS))
def test_draws_are_independent_and_absent_tokens_have_no_effect(kind: str) -> None:
    denoiser = network(kind)
    tokens, places, present = scene()
    noisy, level = draw(2, 3, 8, 6), torch.rand(2, 3, dtype=torch.float64)
    memory = denoiser.precompute(tokens, places=places)
    together = denoiser(noisy, level, memory, present)
    for one in range(3):
        alone = denoiser(noisy[:, one : one + 1], level[:, one : one + 1], memory, present)
        torch.testing.assert_close(together[:, one : one + 1], alone)
    changed = torch.where(present[..., None], tokens, 5.0)
    torch.testing.assert_close(
        denoiser(noisy, level, denoiser.precompute(changed, places=places), present), together
    )


def test_each_arm_reads_from_its_own_place() -> None:
    """Two equal arms differ in their place and their learned embeddings only."""
    denoiser = network("cayley", noisy_pose=False)
    with torch.no_grad():
        denoiser.position[2:] = denoiser.position[:2]  # Two tokens of four steps per arm.
    tokens, places, present = scene()
    noisy = draw(2, 1, 8, 3).repeat_interleave(2, dim=-1)
    level = torch.rand(2, 1, dtype=torch.float64)
    apart = denoiser(noisy, level, denoiser.precompute(tokens, places=places), present)
    assert (apart[..., ::2] - apart[..., 1::2]).abs().max() > 1e-4
    same = TokenPlaces(**vars(places) | {"grippers": places.grippers[:, :1].expand(-1, 2, -1)})
    together = denoiser(noisy, level, denoiser.precompute(tokens, places=same), present)
    torch.testing.assert_close(together[..., ::2], together[..., 1::2])


class Whole(nn.Module):
    """Precomputes and denoises, of tensors alone."""

    def __init__(self, denoiser: PlacedDenoiser) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, noisy: Tensor, level: Tensor, tokens: Tensor, *places: Tensor) -> Tensor:
        names = ("coordinates", "has_position", "grippers", "directions")
        memory = self.denoiser.precompute(
            tokens, places=TokenPlaces(**dict(zip(names, places, strict=True)))
        )
        result: Tensor = self.denoiser(noisy, level, memory)
        return result


@pytest.mark.slow
def test_it_compiles_to_one_graph_with_gradients_and_exports() -> None:
    whole = Whole(network("cayley", depth=1).float())
    tokens, places, _ = scene()
    given = [x for x in (tokens, *vars(places).values()) if x is not None]
    floats = [x.float() if x.is_floating_point() else x for x in given]
    inputs = (draw(2, 3, 8, 6).float(), torch.rand(2, 3), *floats)
    expected = whole(*inputs)
    compiled = torch.compile(whole, fullgraph=True, backend="aot_eager")
    got = compiled(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    got.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in whole.parameters())
    exported = torch.export.export(whole, inputs).module()
    torch.testing.assert_close(exported(*inputs), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_compiled_network_takes_what_was_precomputed_eagerly() -> None:
    denoiser = network("cayley", depth=1).float()
    tokens, places, present = scene()
    floats = TokenPlaces(
        **{
            name: x.float() if x.is_floating_point() else x
            for name, x in vars(places).items()
            if x is not None
        }
    )
    memory = denoiser.precompute(tokens.float(), places=floats)
    noisy, level = draw(2, 3, 8, 6).float(), torch.rand(2, 3)
    compiled = torch.compile(denoiser, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(noisy, level, memory, present),
        denoiser(noisy, level, memory, present),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([[0, 1], [2, 3, 4, 5]], r"arms have \[2, 4\] of 6 numbers"),
        ([[0, 1], [2, 3]], r"arms have \[2, 2\] of 6 numbers of an action; allowed"),
    ],
)
def test_arms_without_equal_shares_are_reported(arms: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlacedDenoiser(**SIZES, encoding=NoEncoding(2, 8, 3), arms=arms)  # type: ignore[arg-type]


def test_missing_places_are_reported() -> None:
    with pytest.raises(ValueError, match="needs those of the conditioning tokens"):
        network("cayley").precompute(draw(2, 7, 12))
