"""Keeping keys out of errors, logs and recordings.

`hide` replaces the very strings in use and everything that looks like a key of a known kind. Providers repeat keys in
their refusals, some of them whole; proxies repeat whole requests.
"""

import re
from collections.abc import Iterable

__all__ = ["HIDDEN", "hide"]

HIDDEN = "[hidden]"

# A string shorter than this is no key, and replacing it would tear words apart.
_SHORTEST_SECRET = 4

# How keys begin: the prefix their vendors give them, so that scanners find them.
_KEYS = re.compile(
    r"\b(?:sk|pk|rk)-[\w*.-]{8,}"  # OpenAI, Anthropic (sk-ant-), DeepSeek, OpenRouter (sk-or-); also half masked
    r"|\bgsk_\w{8,}|\bxai-(?!responses\b)[\w*-]{8,}|\bcsk-[\w*-]{8,}|\bpplx-\w{8,}|\bfw_\w{8,}|\btgp_v1_[\w-]{8,}|\bhf_\w{8,}"
    r"|\bAIza[\w-]{20,}|\bya29\.[\w.-]{8,}|\bAQ\.[\w-]{20,}"  # Google: API key, access token, express key
    r"|\b(?:AKIA|ASIA|ABSK)[A-Za-z0-9+/=]{12,}"  # AWS: access key, session key, Bedrock bearer token
    r"|\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"  # a JSON web token
    r"|(?i:\bbearer\s+)[\w.~+/=-]{8,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user and password in an address
    r"|(?i:(?<=[?&]key=)|(?<=api_key=)|(?<=access_token=))[^&\s\"']{4,}"
)


def hide(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the secrets and without anything that looks like one."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    return _KEYS.sub(HIDDEN, text)
