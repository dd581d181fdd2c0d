"""Token and position embeddings."""

from gpt2core.compile.jit import entry, f2, i1, kernel, own2, scalar


@kernel
def encoder_forward(out, tokens, positions, wte, wpe, row0, row1):
    """Add the embeddings of token and position.

    Writes:   out (N, C) =
    Reads:    tokens, positions (N,) int32; wte (Vp, C), wpe (maxT, C)
    Maths:    out[n] = wte[tokens[n]] + wpe[positions[n]]
    Tiles:    disjoint row ranges are independent
    Cost:     C flop, 12*C bytes per row
    Source:   Radford et al. 2019
    """
    C = out.shape[1]
    for n in range(row0, row1):
        token, position = tokens[n], positions[n]
        for c in range(C):
            out[n, c] = wte[token, c] + wpe[position, c]


@kernel
def encoder_backward_wte(dwte, dout, tokens, first, last, to):
    """Add the gradient of the token embedding's rows [first, last).

    Writes:   dwte (any, C) +=, rows from `to` on
    Reads:    dout (N, C), tokens (N,) int32
    Maths:    gradient of v += sum over the rows n with tokens[n] = v of dout[n], in the order of n
    Tiles:    disjoint ranges of vocabulary are independent
    Cost:     C flop, 12*C bytes per row whose token is in range
    """
    C = dout.shape[1]
    for n in range(tokens.shape[0]):
        token = tokens[n]
        if first <= token < last:
            for c in range(C):
                dwte[to + token - first, c] += dout[n, c]


@kernel
def encoder_backward_wpe(dwpe, dout, positions, first, last, to, adds):
    """Set or add to the gradient of the position embedding's rows [first, last).

    Writes:   dwpe (any, C) =, or += if `adds` is set, rows from `to` on
    Reads:    dout (N, C), positions (N,) int32
    Maths:    gradient of t = sum over the rows n with positions[n] = t of dout[n], in the order of n
    Tiles:    disjoint ranges of positions are independent
    Cost:     C flop, 12*C bytes per row whose position is in range
    """
    C = dout.shape[1]
    if not adds:
        dwpe[to : to + last - first] = 0
    for n in range(positions.shape[0]):
        position = positions[n]
        if first <= position < last:
            for c in range(C):
                dwpe[to + position - first, c] += dout[n, c]


@entry
def encoder_forward_entry(x, t, c):
    encoder_forward(f2(x, 0), i1(x, 1), i1(x, 2), f2(x, 3), f2(x, 4), t[0], t[1])


@entry
def encoder_backward_wte_entry(x, t, c):
    encoder_backward_wte(own2(x, 0, c), f2(x, 1), i1(x, 2), t[0], t[1], t[2])


@entry
def encoder_backward_wpe_entry(x, t, c):
    encoder_backward_wpe(own2(x, 0, c), f2(x, 1), i1(x, 2), t[0], t[1], t[2], scalar(x, 3))
