"""The preview of a call: what it would do, as its tool describes it, in the question that a person answers.

It is made for the question, and again immediately before the call acts. If the two differ, nothing runs, and the
question is asked again with the new preview. A preview is JSON: equal previews must mean that the same thing happens. A
tool that can compare once more while it acts, as file operations do, raises `PreviewChanged` if it finds a difference.
A preview that raises `ToolError` says that the call cannot succeed: the model gets the error, and nobody is asked.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from bartack.nouns.errors import ErrorCode, ToolError
from bartack.tools.output import valid_object, valid_text
from bartack.tools.tool_context import ToolContext

__all__ = ["MakePreview", "PreviewChanged", "make_preview"]

# A function of the arguments, or of the arguments and the context of the call; regular or async.
MakePreview = Callable[..., Any]


class PreviewChanged(ToolError):
    """The call would no longer do what its preview shows; it has done nothing."""


async def make_preview(make: MakePreview, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any] | None:
    """The preview of a call with these arguments; text becomes an object with the key ``text``."""
    inputs = (arguments, context)[: len(inspect.signature(make).parameters)]
    if inspect.iscoroutinefunction(make):
        answer = await make(*inputs)
    else:
        answer = await asyncio.to_thread(make, *inputs)
        answer = await answer if inspect.isawaitable(answer) else answer
    if answer is None:
        return None
    preview = valid_object({"text": valid_text(answer)} if isinstance(answer, str) else answer)
    if preview is None:
        raise ToolError("A preview must be a JSON object or text.", code=ErrorCode.TOOL_NOT_RUN)
    return preview
