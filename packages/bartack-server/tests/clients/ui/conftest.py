"""The browser of the page's tests shows the clients that need one, and is closed after the last test here, too."""

from tests.web.conftest import _closed_browser

__all__ = ["_closed_browser"]
