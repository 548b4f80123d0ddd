"""`ServerFailure`: a server cannot be used. It becomes a tool error; it never ends a run."""

__all__ = ["NEEDS_SIGN_IN", "ServerFailure"]

NEEDS_SIGN_IN = "it requires sign-in; run 'bartack mcp test' with its name"


class ServerFailure(Exception):
    """Why a server cannot be used, as the rest of a sentence that names it."""
