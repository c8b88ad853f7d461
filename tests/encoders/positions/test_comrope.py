"""ComRoPE against its published form, a matrix exponential per token."""

import pytest
import torch
from tests.encoders.conftest import Draw
from torch import Tensor

from stringline.encoders.positions.lie import ComRopeAp, ComRopeLd, planes_of


def _block_diagonal(blocks: Tensor) -> Tensor:
    return torch.block_diag(*blocks)


def _angle_matrices(draw: Draw, sets: int = 2) -> Tensor:
    drawn = draw(sets, 4, 4, 4)
    return drawn - drawn.mT


def test_axial_partition_is_the_published_exponential(draw: Draw) -> None:
    encoding = ComRopeAp(2, 16, 3, block=4).double()
    matrices = _angle_matrices(draw)
    r = draw(1, 5, 3)
    encoding.set_angle_matrices(matrices)
    for head in range(2):
        for token in range(5):
            exponent = [r[0, token, block % 3] * matrices[head, block] for block in range(4)]
            expected = torch.linalg.matrix_exp(_block_diagonal(torch.stack(exponent)))
            torch.testing.assert_close(
                encoding.rotation(r)[0, head, token], expected, rtol=0, atol=1e-10
            )


def test_linear_dependence_is_the_published_exponential(draw: Draw) -> None:
    encoding = ComRopeLd(2, 16, 3, block=4).double()
    matrices = _angle_matrices(draw)
    r = draw(1, 5, 3)
    factors = encoding.get_parameter("frequency_model.directions")
    with torch.no_grad():
        encoding.set_angle_matrices(matrices)
        factors.copy_(draw(*factors.shape))
    for head in range(2):
        weights = r[0] @ factors[head].detach()  # (tokens, blocks)
        for token in range(5):
            expected = torch.linalg.matrix_exp(
                _block_diagonal(weights[token, :, None, None] * matrices[head])
            )
            torch.testing.assert_close(
                encoding.rotation(r)[0, head, token], expected, rtol=0, atol=1e-10
            )


def test_planes_are_separated_for_all_frequencies(draw: Draw) -> None:
    matrices = draw(5, 8, 8)
    matrices = matrices - matrices.mT
    matrices[0] = 0
    matrices[1, 4:] = matrices[1, :, 4:] = 0  # Two planes do not rotate.
    equal = torch.zeros(8, 8, dtype=torch.float64)
    equal[range(4), range(4, 8)] = 2.0  # All planes have the same frequency.
    turn = torch.linalg.qr(draw(8, 8)).Q
    matrices[2] = turn @ (equal - equal.mT) @ turn.mT
    magnitudes, basis = planes_of(matrices)
    identity = torch.eye(8, dtype=torch.float64).expand(5, -1, -1)
    torch.testing.assert_close(basis @ basis.mT, identity, rtol=0, atol=1e-13)
    speeds = magnitudes.diag_embed()
    planes = torch.cat(
        (torch.cat((0 * speeds, -speeds), dim=-1), torch.cat((speeds, 0 * speeds), dim=-1)), dim=-2
    )
    torch.testing.assert_close(basis @ planes @ basis.mT, matrices, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", [ComRopeAp, ComRopeLd])
def test_gradients_are_correct_for_planes_of_equal_frequency(
    kind: type[ComRopeAp | ComRopeLd], draw: Draw
) -> None:
    encoding = kind(1, 8, 2, block=4).double()
    turn = torch.linalg.qr(draw(4, 4)).Q
    plane = torch.tensor(
        [[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, -1], [0, 0, 1, 0]], dtype=torch.float64
    )
    encoding.set_angle_matrices((turn @ plane @ turn.mT).expand(1, 2, 4, 4))
    speeds = encoding.get_parameter("frequency_model.scaled")
    torch.testing.assert_close(speeds, torch.ones_like(speeds))
    x, r = draw(1, 1, 3, 8), draw(1, 3, 2)
    names = [name for name, _ in encoding.named_parameters()]

    def logits(*parameters: Tensor) -> Tensor:
        network = _Logits(encoding)
        return torch.func.functional_call(
            network, {f"encoding.{n}": p for n, p in zip(names, parameters, strict=True)}, (x, r)
        )

    assert torch.autograd.gradcheck(logits, tuple(encoding.parameters()))


class _Logits(torch.nn.Module):
    def __init__(self, encoding: ComRopeAp | ComRopeLd) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        turned = self.encoding.rotate(x, self.encoding.prepare(r))
        return turned @ turned.mT


@pytest.mark.parametrize("kind", [ComRopeAp, ComRopeLd])
def test_zero_matrices_are_plain_attention_with_gradients(
    kind: type[ComRopeAp | ComRopeLd], draw: Draw
) -> None:
    encoding = kind(2, 16, 2, block=8, init_std=0.0).double()
    x, places = draw(1, 2, 4, 16), encoding.prepare(draw(1, 4, 2))
    turned = encoding.rotate(x, places)
    torch.testing.assert_close(turned @ turned.mT, x @ x.mT, rtol=0, atol=1e-11)
    (turned @ turned.mT * draw(4)).sum().backward()
    gradients = [p.grad for p in encoding.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert max(float(gradient.abs().max()) for gradient in gradients) > 0.1


def test_initial_matrices_have_the_published_spread() -> None:
    encoding = ComRopeLd(12, 64, 3, init_std=1.0)
    speeds = encoding.get_parameter("frequency_model.scaled")
    # A = B - B^T has entries of variance 2, so squared frequencies average (8 - 1) * 2 / 2
    # ... as trace(A^T A) / 8.
    assert speeds.square().mean().item() == pytest.approx(14.0, rel=0.1)
    assert encoding.get_parameter("frequency_model.directions").std().item() == pytest.approx(
        1.0, rel=0.2
    )


def test_invalid_settings_and_matrices_are_rejected() -> None:
    encoding = ComRopeAp(2, 16, 3, block=4)
    with pytest.raises(ValueError, match=r"have shape \(2, 4, 4, 3\)"):
        encoding.set_angle_matrices(torch.zeros(2, 4, 4, 3))
    with pytest.raises(ValueError, match="allowed: antisymmetric ones"):
        encoding.set_angle_matrices(torch.ones(2, 4, 4, 4))
    with pytest.raises(ValueError, match="block is 6; allowed: even divisors of head_dim 16"):
        ComRopeLd(2, 16, 3, block=6)
    with pytest.raises(ValueError, match=r"init_std must be a number of at least 0 \(got -1.0\)"):
        ComRopeLd(2, 16, 3, init_std=-1.0)
