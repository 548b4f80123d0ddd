"""Views: folds over facts for people and programs to read, and the way back.

Each view is a module with ``dump(entries)`` and ``load(json)``, and a class that takes entries one by one. Every
prefix of a session has every view. What a view cannot represent is counted in its ``omitted`` key.

`PartFactory` and `PartValidator` are the namespaces of 003 §4.1 and §4.3: ``PartFactory.create_text_part(...)``,
``PartValidator.validate_part(part)``. The transitions of 003 §4.2 are `bartack.session.ToolStateTransition`.
"""

from bartack.views import document, feed, ledger
from bartack.views import part_factory as PartFactory  # noqa: N812 - the name that 003 gives it
from bartack.views import part_validator as PartValidator  # noqa: N812 - the name that 003 gives it

__all__ = ["PartFactory", "PartValidator", "document", "feed", "ledger"]
