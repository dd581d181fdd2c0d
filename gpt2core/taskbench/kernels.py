"""Task Bench's tasks: check that every input carries (point, timestep - 1), work for a while, stamp the output."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gpt2core.compile import llvm
from gpt2core.compile.jit import STEP, THREAD, d1, entry, kernel, l1, pointer_f64, pointer_i64, scalar

VECTORS, LANES = 8, 8  # of float64: independent chains, enough to hide the latency of a fused multiply-add
LINE = 8  # int64 of a point's cell, one cache line
TIMESTEP, POINT, RESULT = 0, 1, 2  # in a cell
CHUNK = 64  # float64 that an iteration of the memory kernel takes


@intrinsic
def multiply_add(typingctx, iterations):
    """Fused multiply-adds in registers: a = a * 0.999 + 0.001 on VECTORS x LANES float64, iterations times; their sum.

    Written as vectors, because nothing makes a compiler keep an array of accumulators in registers.
    """

    def codegen(context, builder, signature, args):
        i64, number = ir.IntType(64), ir.DoubleType()
        vector = ir.VectorType(number, LANES)
        name = f"llvm.fma.v{LANES}f64"
        factor, summand = (ir.Constant(vector, [ir.Constant(number, v)] * LANES) for v in (0.999, 0.001))
        first = [
            ir.Constant(vector, [ir.Constant(number, 1.0 + LANES * i + lane) for lane in range(LANES)])
            for i in range(VECTORS)
        ]
        before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        builder.cbranch(builder.icmp_signed(">", args[0], ir.Constant(i64, 0)), body, after)
        builder.position_at_end(body)
        count, sums = builder.phi(i64), [builder.phi(vector) for _ in first]
        following = builder.add(count, ir.Constant(i64, 1))
        results = [llvm.call(builder, name, vector, [each, factor, summand]) for each in sums]
        builder.cbranch(builder.icmp_signed("<", following, args[0]), body, after)
        builder.position_at_end(after)
        ends = [builder.phi(vector) for _ in first]
        count.add_incoming(ir.Constant(i64, 0), before)
        count.add_incoming(following, body)
        for start, each, result, end in zip(first, sums, results, ends, strict=True):
            each.add_incoming(start, before)
            each.add_incoming(result, body)
            end.add_incoming(start, before)
            end.add_incoming(result, body)
        total = ends[0]
        for end in ends[1:]:
            total = builder.fadd(total, end)
        lanes = [builder.extract_element(total, ir.Constant(ir.IntType(32), lane)) for lane in range(LANES)]
        out = lanes[0]
        for lane in lanes[1:]:
            out = builder.fadd(out, lane)
        return out

    return types.float64(types.int64), codegen


@kernel
def check_inputs(cells, violations, width, timesteps, now, tile):
    """Count the inputs that do not carry (point, now - 1), in a cell of this task's point.

    Writes:   violations (width * LINE,) +=
    Reads:    cells (timesteps * width * LINE,): TIMESTEP, POINT of each task's output
    Tile:     timestep in the program, point, number of inputs, their points
    """
    before = (tile[0] if tile[0] > 0 else timesteps) - 1
    for i in range(tile[2]):
        point = tile[3 + i]
        at = (before * width + point) * LINE
        if cells[at + TIMESTEP] != now - 1 or cells[at + POINT] != point:
            violations[tile[1] * LINE] += 1


@kernel
def stamp_output(cells, results, width, now, tile, result):
    """Write (point, now) and the result into the task's own cell.

    Writes:   cells (timesteps * width * LINE,) =; results is the same memory as float64
    """
    at = (tile[0] * width + tile[1]) * LINE
    cells[at + TIMESTEP] = now
    cells[at + POINT] = tile[1]
    results[at + RESULT] = result


@kernel
def stream(address, elements, streamed, iterations):
    """Add one to CHUNK float64 an iteration, on from where this thread's last task ended, round its buffer.

    Writes:   elements float64 from address on, +=; streamed[0], the iterations so far, +=
    Cost:     CHUNK flop, 16 * CHUNK bytes an iteration
    """
    chunks = elements // CHUNK
    chunk = streamed[0] % chunks
    for _ in range(iterations):
        part = pointer_f64(address + 8 * CHUNK * chunk)  # no index can be negative: the loop becomes vectors
        for i in range(CHUNK):
            part[i] += 1.0
        chunk = chunk + 1 if chunk + 1 < chunks else 0
    streamed[0] += iterations


@entry
def compute_task_entry(x, t, c):
    """operands: cells, grain (LINE,), violations, width, timesteps."""
    width, timesteps = scalar(x, 3), scalar(x, 4)
    now = c[STEP] * timesteps + t[0]
    check_inputs(l1(x, 0), l1(x, 2), width, timesteps, now, t)
    stamp_output(l1(x, 0), d1(x, 0), width, now, t, multiply_add(l1(x, 1)[0]))


@entry
def memory_task_entry(x, t, c):
    """operands: as above, and each thread's own buffer (elements,) and streamed (LINE,)."""
    width, timesteps, grain = scalar(x, 3), scalar(x, 4), l1(x, 1)[0]
    now = c[STEP] * timesteps + t[0]
    check_inputs(l1(x, 0), l1(x, 2), width, timesteps, now, t)
    streamed = pointer_i64(x[24] + c[THREAD] * x[27])
    stream(x[20] + c[THREAD] * x[23], x[21], streamed, grain)
    stamp_output(l1(x, 0), d1(x, 0), width, now, t, float(streamed[0]))
