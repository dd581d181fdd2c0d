"""Task Bench's tasks: check that every input carries (point, timestep - 1), work for a while, stamp the output."""

from llvmlite import ir

from gpt2core.compile import llvm
from gpt2core.compile.jit import address_of, intrinsic, kernel, pointer_f64, types
from gpt2core.compile.line import LINE
from gpt2core.step.signature import Int64Matrix, Int64s, OwnFloat64s, OwnInt64s, Scalar, Step, TileInts

VECTORS, LANES = 8, 8  # of float64: independent chains, enough to hide the latency of a fused multiply-add
TIMESTEP, POINT, RESULT = 0, 1, 2  # in a cell
CHUNK = 64  # float64 of an iteration of the memory kernel


@intrinsic
def multiply_add(typingctx, iterations):
    """Fused multiply-adds in registers: a = a * 0.999 + 0.001 on VECTORS x LANES float64, iterations times; their sum.

    Written as vectors, because a compiler need not keep an array of accumulators in registers.
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
def check_inputs(inputs, violations, now, tile):
    """Count the inputs that do not carry (point, now - 1).

    Writes:   violations (LINE,) +=, of this thread
    Reads:    inputs (points, LINE): TIMESTEP, POINT of each output of the timestep before
    Tile:     point, number of inputs, their points
    """
    for i in range(tile[1]):
        point = tile[2 + i]
        if inputs[point, TIMESTEP] != now - 1 or inputs[point, POINT] != point:
            violations[0] += 1


@kernel
def stamp_output(cells, now, point, result):
    """Write (point, now) and the result, a float64, into the task's own cell.

    Writes:   cells (points, LINE) =, row `point`
    """
    cells[point, TIMESTEP] = now
    cells[point, POINT] = point
    pointer_f64(address_of(cells, point * LINE + RESULT))[0] = result


@kernel
def stream(address, elements, streamed, iterations):
    """Add one to CHUNK float64 per iteration, from where this thread's last task ended, cyclically in its buffer.

    Writes:   elements float64 from address on, +=; streamed[0], the iterations so far, +=
    Cost:     CHUNK flop, 16 * CHUNK bytes an iteration
    """
    chunks = elements // CHUNK
    chunk = streamed[0] % chunks
    for _ in range(iterations):
        part = pointer_f64(address + 8 * CHUNK * chunk)  # no index can be negative, so the loop is vectorised
        for i in range(CHUNK):
            part[i] += 1.0
        chunk = chunk + 1 if chunk + 1 < chunks else 0
    streamed[0] += iterations


@kernel
def compute_task(
    cells: Int64Matrix, inputs: Int64Matrix, grain: Int64s, violations: OwnInt64s, timestep: Scalar, timesteps: Scalar,
    step: Step, tile: TileInts,
):  # fmt: skip
    """A task of the compute kernel. Reads and writes as check_inputs and stamp_output; grain (LINE,)."""
    now = step * timesteps + timestep
    check_inputs(inputs, violations, now, tile)
    stamp_output(cells, now, tile[0], multiply_add(grain[0]))


@kernel
def memory_task(
    cells: Int64Matrix, inputs: Int64Matrix, grain: Int64s, violations: OwnInt64s, buffer: OwnFloat64s,
    streamed: OwnInt64s, timestep: Scalar, timesteps: Scalar, step: Step, tile: TileInts,
):  # fmt: skip
    """A task of the memory kernel: as compute_task, over each thread's own buffer (elements,) and streamed (LINE,)."""
    now = step * timesteps + timestep
    check_inputs(inputs, violations, now, tile)
    stream(address_of(buffer, 0), buffer.shape[0], streamed, grain[0])
    stamp_output(cells, now, tile[0], float(streamed[0]))
