"""The store of the guide passes the checks with other processes. The page itself runs all others."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bartack.testing import StoreCheck, store_checks
from lab.repository import ROOT

GUIDE = ROOT / "docs" / "guides" / "writing-a-store.md"


@pytest.fixture
def store_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the guide's first block, from a module that other processes can import."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[:1]
    (tmp_path / "one_file_store.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import one_file_store  # type: ignore[import-not-found]

    return one_file_store.OneFileStore


WITHOUT_PROCESSES = {check.name for check in store_checks(processes=False)}


@pytest.mark.parametrize("check", [check for check in store_checks() if check.name not in WITHOUT_PROCESSES], ids=str)
async def test_the_store_of_the_guide_passes(check: StoreCheck, store_class: Any, tmp_path: Path) -> None:
    await check(partial(store_class.open, tmp_path / "sessions"))
