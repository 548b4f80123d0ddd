"""The page of the package on an index: what `hatch_build.py` makes of the README, and the classifiers."""

import re
import tomllib
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from markdown_it import MarkdownIt

from hatch_build import published

ROOT = Path(__file__).parents[1]
_TARGET = re.compile(r'(?:href|src)="([^"]*)"')


def targets(text: str) -> list[str]:
    """Where the links and pictures of a rendered page lead."""
    return _TARGET.findall(MarkdownIt("commonmark").enable("table").render(text))


@pytest.mark.parametrize("home", ["", "https://example.com/b"])
def test_the_page_has_no_relative_links(home: str) -> None:
    found = targets(published((ROOT / "README.md").read_text(encoding="utf-8"), home, "v1"))
    assert [one for one in found if not one.startswith(("https://", "#"))] == []
    files = {one.removeprefix(f"{home}/blob/v1/").removeprefix(f"{home}/raw/v1/") for one in found if home}
    assert [name for name in files if not name.startswith(("#", "https:")) and not (ROOT / name).exists()] == []
    assert ("https://example.com/b/raw/v1/docs/pictures/walk.svg" in found) == bool(home)


def test_code_and_absolute_links_stay() -> None:
    text = "[a](docs/a.md) ![p](p.png) [b](https://x.org) [c](#c)\n```python\nd[0](e)\n```\n"
    assert published(text, "", "v1") == "a  [b](https://x.org) [c](#c)\n```python\nd[0](e)\n```\n"


def test_hatchling_accepts_the_metadata() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    core = ProjectMetadata(str(ROOT), PluginManager(), table).core  # refuses unknown classifiers
    assert core.readme_content_type == "text/markdown"
    assert core.readme.startswith("# Bartack\n")
    assert "Programming Language :: Python :: 3.13" in core.classifiers
    assert core.urls == {}
