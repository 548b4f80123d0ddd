"""`bartack chat`, the terminal chat.

`command` parses the command line and runs the prompt loop, `conversation` holds the session and shows its runs,
`keyboard` reads input, `approvals` asks about tool calls, and `slash` has the commands that start with a slash. How a
run is shown is in `bartack_code.terminal`.
"""
