"""The terminal agent: the chat, single runs, editors, and the check of an installation."""
