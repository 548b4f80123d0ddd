"""The history rules of every format, and of the vendors that are stricter than their format."""

from bartack.formats import FORMATS, format_named
from bartack.formats.format import HistoryRules
from bartack.formats.openai_chat.capabilities import BY_PROVIDER

RULES: dict[str, HistoryRules] = {name: format_named(name).rules for name in FORMATS} | {
    "mistral": BY_PROVIDER["mistral"].rules,
    "perplexity": BY_PROVIDER["perplexity"].rules,
}
