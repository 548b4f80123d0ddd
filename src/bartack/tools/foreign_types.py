"""Types that msgspec does not know: pydantic models, recognised by their methods, so that nothing is imported."""

from typing import Any

__all__ = ["foreign_schema", "foreign_value"]


def foreign_schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """A hook for msgspec: the schema of a type, whose own definitions are added to `definitions`."""
    if not hasattr(hint, "model_json_schema"):
        raise NotImplementedError
    schema: dict[str, Any] = hint.model_json_schema(ref_template="#/$defs/{model}")
    for name, shape in schema.pop("$defs", {}).items():
        if definitions.setdefault(name, shape) != shape:
            raise TypeError(f"two different models are named {name!r}")
    return schema


def foreign_value(hint: Any, value: Any) -> Any:
    """A hook for msgspec: the value as the type; `ValueError` if it does not match."""
    if not hasattr(hint, "model_validate"):
        raise NotImplementedError
    try:
        return hint.model_validate(value)
    except ValueError as error:
        faults: list[Any] = error.errors(include_url=False) if hasattr(error, "errors") else []
        texts = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in faults]
        raise ValueError("; ".join(texts) or str(error)) from None
