"""What people and programs look at: folds over facts, and the way back.

Each view is a module with ``dump(entries)`` and ``load(json)``, and a class that takes entries one by one. Every
prefix of a session has every view. What a view cannot carry is counted at its head, under ``omitted``.
"""

from bartack.views import document, feed, ledger

__all__ = ["document", "feed", "ledger"]
