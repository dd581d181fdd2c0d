"""The halo of images: a border of zeros, one pixel wide, that convolutions read instead of testing for the border."""

from gpt2core.compile.jit import kernel
from gpt2core.layers.windows import BORDER


@kernel
def clear_halo(image, side, channels):
    """Zeros around a square image of `side` rows, in an array of (side + 2, side + 2, channels)."""
    line = (side + BORDER) * channels
    image[:line] = 0
    for y in range(1, side + 1):
        image[y * line : y * line + channels] = 0
        image[(y + 1) * line - channels : (y + 1) * line] = 0
    image[(side + 1) * line : (side + BORDER) * line] = 0
