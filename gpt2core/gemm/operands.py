"""Operands of matrix products, as compiled code passes them. Addresses are in bytes."""

from typing import NamedTuple

from gpt2core.compile.jit import kernel


class Operand(NamedTuple):
    """A row-major matrix that a product reads: its address, its row length in elements, whether it is transposed, and
    whether its elements are bfloat16 instead of float32."""

    at: int
    length: int
    transposed: int
    halves: int


class Out(NamedTuple):
    """A row-major matrix of float32 that a product writes: its address, its row length in elements, whether the product
    is added to it, and whether it is fetched first because it is not expected in a cache."""

    at: int
    length: int
    adds: int
    fetches: int


@kernel
def plain(at, length):
    """A matrix of float32 as it lies."""
    return Operand(at, length, 0, 0)


@kernel
def transposed(at, length):
    """The transpose of a matrix of float32."""
    return Operand(at, length, 1, 0)


@kernel
def into(at, length, adds):
    """A matrix in a cache that a product overwrites, or is added to."""
    return Out(at, length, adds, 0)


WHOLE, COLUMNS_TO, COLUMNS_FROM, WORDS_TO, WORDS_FROM = range(5)  # kinds of a band


class Band(NamedTuple):
    """What a triangle leaves of a product, by its row i and the index i + `shift`. Our own product on vector registers
    skips the register tiles and the words that are outside; elsewhere the whole product is computed.

    kind           what of row i
    WHOLE          all
    COLUMNS_TO     only columns up to this index are wanted; what others of C contain is undefined
    COLUMNS_FROM   only columns from this index on
    WORDS_TO       elements of A behind this index are 0
    WORDS_FROM     elements of A before this index are 0
    """

    kind: int
    shift: int


class Lines(NamedTuple):
    """Words in lines, as a strided tile reads them as A: their address, and the strides in bytes of rows, of words
    along a line, and of lines."""

    at: int
    row: int
    word: int
    line: int


class Vectors(NamedTuple):
    """Words in lines, as a strided tile reads them as B: the strides are those of words, of lines, and of vectors."""

    at: int
    word: int
    line: int
    vector: int


class Rows(NamedTuple):
    """Rows of float32: their address, and the stride in bytes; the address 0 is that of none."""

    at: int
    row: int


class Target(NamedTuple):
    """Where a strided tile writes: rows, and how many columns of them."""

    at: int
    row: int
    columns: int
