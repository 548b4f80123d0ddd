"""Tools for the demo model, which cannot do by itself what they do: exact arithmetic, and counting lines."""

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction

from bartack.nouns.errors import ToolError
from bartack.tools import ToolContext, ToolDefinition, tool
from bartack.tools.runtime import SearchFiles

__all__ = ["demo_tools"]

_MAX_CHARS = 200
_MAX_EXPONENT = 1_000
_MAX_LINES = 1_000_000
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}


@tool(idempotent=True)
def calculate(expression: str) -> str:
    """Calculate an arithmetic expression exactly.

    Args:
        expression: Numbers with + - * / // % ** ( ) and sqrt( ).
    """
    if len(expression) > _MAX_CHARS:
        raise ToolError(f"The expression is longer than {_MAX_CHARS} characters.")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError:
        raise ToolError(f"{expression!r} is not an arithmetic expression.") from None
    except ZeroDivisionError:
        raise ToolError(f"{expression!r} divides by zero.") from None
    except (OverflowError, RecursionError, ValueError):  # ValueError: more digits than Python prints
        raise ToolError(f"The result of {expression!r} is too large.") from None
    return f"{expression.strip()} {_result_text(value)}"


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(repr(number))
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand)
        case ast.BinOp(op=ast.Pow()):
            return _power(_value(node.left), _value(node.right))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
        case ast.Call(func=ast.Name(id="sqrt"), args=[argument], keywords=[]):
            return _root(_value(argument))
        case _:
            raise ToolError("Only numbers, + - * / // % ** ( ) and sqrt( ) are allowed.")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > _MAX_EXPONENT:
        raise ToolError(f"An exponent must be a whole number up to {_MAX_EXPONENT}.")
    if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent) > 10_000:
        raise OverflowError
    return Fraction(base**exponent.numerator)


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise ToolError("A negative number has no real square root.")
    exact = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return exact if exact**2 == value else Fraction(math.sqrt(value))


def _result_text(value: Fraction) -> str:
    if value.denominator == 1:
        return f"= {value.numerator}"
    rounded = f"{float(value):.12g}"
    return f"{'=' if Fraction(rounded) == value else '≈'} {rounded}"


@tool(idempotent=True, requires_runtime=True)
async def count_lines(context: ToolContext, path: str = ".") -> str:
    """Count the lines of a text file, or of all text files in a directory.

    Args:
        path: The file or directory, relative to the working directory.
    """
    output = await context.runtime.execute(SearchFiles(pattern="^", path=path, limit=_MAX_LINES))
    count = output.metadata["matches"]
    notes = [line for line in str(output.content).splitlines()[count:] if line.startswith("[")]
    where = "The files here have" if path == "." else f"{path} has"
    return "\n".join([f"{where} {count:,} {'line' if count == 1 else 'lines'}.", *notes])


def demo_tools(*, files: bool) -> tuple[ToolDefinition, ...]:
    """The tools; without `files`, those that need no working directory."""
    return (calculate, count_lines) if files else (calculate,)
