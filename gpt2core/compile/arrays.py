"""Values of arrays in compiled code."""

from gpt2core.compile.later import module

arrayobj, ir = module("numba.np.arrayobj"), module("llvmlite.ir")


def array_value(context, builder, kind, data, shape):
    """Emit the value of a C-contiguous array: `kind` is its Numba type, data a pointer, shape a list of int64."""
    array = context.make_array(kind)(context, builder)
    itemsize = ir.Constant(ir.IntType(64), context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    arrayobj.populate_array(array, data, shape, strides[: kind.ndim], itemsize, meminfo=None)
    return array._getvalue()
