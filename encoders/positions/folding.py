"""How a basis is multiplied into the projections around attention."""

from torch import Tensor, nn


def into_input(basis: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns P^T W: what projects straight into the basis.

    Args:
        basis: (heads | 1, head_dim, head_dim).
        weight: (k heads head_dim, C) for k stacked projections, or their bias (k heads head_dim,).
        heads: Attention heads.
    """
    stacked = weight.reshape(-1, heads, basis.shape[-1], weight[0].numel())
    return (basis.mT @ stacked).reshape(weight.shape)


def into_output(basis: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns W_o P, (C, heads head_dim): what projects straight out of the basis; biases of the output stay."""
    by_head = weight.reshape(-1, heads, basis.shape[-1]).transpose(0, 1)  # Else matmul would copy P for each row of W_o.
    return (by_head @ basis).transpose(0, 1).reshape(weight.shape)


def commutes_with_bases(norm: nn.Module | None) -> bool:
    """Says whether a normalisation of each head's channels commutes with every orthogonal matrix.

    None and the identity do, and a root-mean-square norm without gains; a gain per channel or a subtracted mean does not.
    """
    return norm is None or isinstance(norm, nn.Identity) or (isinstance(norm, nn.RMSNorm) and norm.weight is None)


def require_foldable(norm: nn.Module | None) -> None:
    """Refuses to fold through a normalisation that stands between projection and rotation.

    Raises:
        ValueError: It does not commute with the basis.
    """
    if not commutes_with_bases(norm):
        raise ValueError(
            f"Between the projection and the rotation stands {norm}, which does not commute with a basis, so folding would "
            "change the outputs; allowed: no normalisation, or an RMSNorm without gains. Deploy this model unfolded."
        )
