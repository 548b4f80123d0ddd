"""The files of the page, as far as they can be judged without a browser."""

import re
from pathlib import Path

import pytest

from lab.repository import PACKAGES

STATIC = PACKAGES["bartack-server"] / "web" / "static"
MODULES = sorted(STATIC.glob("*.js"))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_every_file_is_used_and_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"static/([\w.-]+)", text_of(STATIC / "index.html")))
    for module in MODULES:
        named |= set(re.findall(r'"\./([\w.-]+\.js)"', text_of(module)))
    assert named | {"index.html"} == {path.name for path in STATIC.iterdir()}


def test_the_document_has_no_inline_script_style_or_other_host() -> None:
    page = text_of(STATIC / "index.html")
    assert re.findall(r"<script(?![^>]+src=)|<style|\sstyle=|\son\w+=|https?://", page) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_only_one_module_sets_html_and_none_evaluates_text(module: Path) -> None:
    source = text_of(module)
    assert re.findall(r"\beval\(|new Function|document\.write|insertAdjacentHTML|outerHTML|setHTMLUnsafe", source) == []
    assert ("innerHTML" in source) == (module.name == "dom.js")
    assert [host for host in re.findall(r"https?://[^\s\"`]+", source) if "www.w3.org" not in host] == []


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.css")), ids=lambda path: path.name)
def test_style_sheets_load_nothing(path: Path) -> None:
    assert re.findall(r"@import|url\(", text_of(path)) == []
