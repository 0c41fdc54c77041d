"""The sizes of the model, and what follows from them; needs nothing but Python."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; hashable, so that jit treats it as a constant."""

    vocabulary: int = 128
    width: int = 64
    layers: int = 2
    heads: int = 2
    experts: int = 8
    chosen: int = 2
    hidden: int = 64
    context: int = 128

    @property
    def active_weights(self) -> int:
        """Matrix weights that one token passes: attention, its experts, the router, the output layer."""
        experts = self.chosen * 3 * self.width * self.hidden + self.width * self.experts
        return self.layers * (4 * self.width**2 + experts) + self.width * self.vocabulary

    @property
    def flops_per_token(self) -> int:
        """Forward and backward matrix products of the active weights, and attention scores; 6 per weight."""
        return 6 * (self.active_weights + self.layers * self.context * self.width)
