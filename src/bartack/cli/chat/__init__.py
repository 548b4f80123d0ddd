"""`bartack chat`, the terminal chat.

`command` reads the words of the command line, `talk` holds the conversation, `keyboard` reads what a human types,
`approving` asks about tool calls, `slash` has the commands that begin with a slash, `turns` knows the tree of a
session, `status` is the line below the prompt, `prints` is for tools that print. What a run looks like is
`bartack.cli.terminal`.
"""
