"""Calls from compiled code to functions that are compiled already, by their address.

numba would take such a function apart and compile it again into each of its callers, at each level
of calls. A handler of a few lines would take half a minute to compile.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir

FAILED = -1


def link(symbol: str, kernel: Any) -> None:
    """Let compiled code find the function under this name; must come before the code is loaded."""
    (found,) = kernel.overloads.values()
    address = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    binding.add_symbol(symbol, address)


def call_of(symbol: str, kernel: Any, arguments: Any) -> Any:
    """What an intrinsic returns that calls the function with a tuple of arguments.

    The function returns an integer, or FAILED if there was no memory for its work.
    """
    (found,) = kernel.overloads.values()
    wanted, returned = found.signature.args, found.signature.return_type

    def make(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        values = [
            context.cast(builder, builder.extract_value(given[0], i), arguments[i], wants)
            for i, wants in enumerate(wanted)
        ]
        convention = context.call_conv
        kind = convention.get_function_type(returned, wanted)
        function = builder.module.globals.get(symbol)
        if function is None:
            function = ir.Function(builder.module, kind, symbol)
        status, result = convention.call_function(builder, function, returned, wanted, values)
        return builder.select(status.is_error, ir.Constant(result.type, FAILED), result)

    return returned(arguments), make
