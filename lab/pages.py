"""The generated parts of pages in docs/: what is between `<!-- NAME -->` and `<!-- end -->`."""

__all__ = ["fill_section", "section"]

_END = "<!-- end -->"


def section(text: str, name: str) -> str:
    """The generated part of this name. Raises `ValueError` if the page has none."""
    return _split(text, name)[1]


def fill_section(text: str, name: str, content: str) -> str:
    """The page with this content in its part of this name. Raises `ValueError` if the page has none."""
    preceding, _, following = _split(text, name)
    return f"{preceding}<!-- {name} -->\n{content}\n{_END}{following}"


def _split(text: str, name: str) -> tuple[str, str, str]:
    preceding, begin, remainder = text.partition(f"<!-- {name} -->")
    content, end, following = remainder.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no part between <!-- {name} --> and {_END}")
    return preceding, content, following
