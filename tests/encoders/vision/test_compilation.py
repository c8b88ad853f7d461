"""Compiling and exporting: one graph, no complex numbers, the same outputs."""

from collections.abc import Iterator

import pytest
import torch
from tests.encoders.conftest import Draw, make
from torch import Tensor

from stringline import LinearAttention, PositionEncoding
from stringline.encoders.vision.vit import VisionTransformer

# One of each kind of rotation; every rotary encoding shares the code of these.
EACH_WAY = [
    "mixed_per_head",
    "cayley",
    "circulant_8",
    "rope_in_givens",
    "tensor_product",
    "liere_8",
    "learned",
]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Clears the graphs of other tests."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _network(encoding: PositionEncoding, **choices: object) -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(encoding.float(), 32, depth=1, mlp_ratio=1, registers=1, **choices)  # type: ignore[arg-type]


def _inputs(encoding: PositionEncoding, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    return draw(2, 5, 32).float(), draw(2, 5, encoding.axes).float(), draw(2, 5) > -1


@pytest.mark.slow
@pytest.mark.parametrize("kind", EACH_WAY)
def test_a_network_is_one_graph(kind: str, draw: Draw) -> None:
    """Traced in full by the compiler's front end with gradients, and run by its eager back end."""
    encoding = make(kind)
    network, inputs = _network(encoding), _inputs(encoding, draw)
    expected = network(*inputs)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    got = compiled(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    got.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"
)  # PyTorch's own.
def test_compiled_code_computes_the_same(draw: Draw) -> None:
    """The default back end makes real code; one encoding, since it takes a while."""
    encoding = make("cayley")
    network, inputs = _network(encoding), _inputs(encoding, draw)
    expected = network(*inputs)
    torch.testing.assert_close(
        torch.compile(network, fullgraph=True)(*inputs), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", EACH_WAY[1:-1])
def test_an_exported_network_has_no_complex_numbers(kind: str, draw: Draw) -> None:
    encoding = make(kind)
    network, inputs = _network(encoding), _inputs(encoding, draw)
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(
        network, inputs, dynamic_shapes=({0: batch}, {0: batch}, {0: batch})
    )
    tensors = [node.meta.get("val") for node in exported.graph.nodes]
    assert not any(value.is_complex() for value in tensors if isinstance(value, Tensor))
    larger = tuple(torch.cat((each, each.flip(0), each)) for each in inputs)
    torch.testing.assert_close(exported.module()(*larger), network(*larger), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_linear_attention_compiles_and_exports(draw: Draw) -> None:
    encoding = make("cayley")
    network, inputs = _network(encoding, attention=LinearAttention), _inputs(encoding, draw)
    expected = network(*inputs)
    torch.testing.assert_close(
        torch.compile(network, fullgraph=True, backend="aot_eager")(*inputs), expected
    )
    torch.testing.assert_close(torch.export.export(network, inputs).module()(*inputs), expected)


@pytest.mark.slow
def test_a_network_with_uncertain_places_compiles_and_exports(draw: Draw) -> None:
    encoding = make("cayley")
    network, inputs = _network(encoding), _inputs(encoding, draw)
    spread = {"spread": 0.1 * inputs[1].roll(1, dims=1)}
    expected = network(*inputs, **spread)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs, **spread), expected, rtol=1e-4, atol=1e-4)
    exported = torch.export.export(network, inputs, spread).module()
    torch.testing.assert_close(exported(*inputs, **spread), expected, rtol=1e-4, atol=1e-4)
    assert (network(*inputs) - expected).abs().max() > 1e-3


@pytest.mark.slow
def test_a_folded_network_exports_without_its_basis(draw: Draw) -> None:
    encoding = make("cayley")
    network, inputs = _network(encoding), _inputs(encoding, draw)
    unfolded, expected = torch.export.export(network, inputs), network(*inputs)
    network.fold_()
    folded = torch.export.export(network, inputs)
    torch.testing.assert_close(folded.module()(*inputs), expected, rtol=1e-4, atol=1e-4)
    operators = [{str(node.target) for node in each.graph.nodes} for each in (unfolded, folded)]
    assert any("solve" in name for name in operators[0])
    assert not any("solve" in name for name in operators[1])
