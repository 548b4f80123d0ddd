"""A plan for long work: a tool with which a model writes down its steps, and the steps of a call, to show as a list."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from bartack.tools import tool

PLAN_TOOL = "update_plan"


class PlanStep(msgspec.Struct, frozen=True):
    """One step of a plan."""

    text: str
    status: Literal["todo", "doing", "done"] = "todo"


@tool(name=PLAN_TOOL)
async def update_plan(steps: list[PlanStep]) -> str:
    """Write down or update the plan for work of several steps, which the user sees as a list. Pass all steps each time.

    Use it for work of three steps or more, and update it as soon as a step is done. At most one step is being done.

    Args:
        steps: All steps in order, each with a short text and its status.
    """
    done = sum(step.status == "done" for step in steps)
    return f"{done} of {len(steps)} steps are done."


def steps_of(arguments: Mapping[str, Any]) -> list[PlanStep]:
    """The steps in the arguments of a call, which may be incomplete while the model writes them."""
    values = arguments.get("steps")
    steps = []
    for value in values if isinstance(values, list) else ():
        try:
            steps.append(msgspec.convert(value, PlanStep))
        except msgspec.ValidationError:
            continue
    return steps
