"""What a run looks like in a terminal: events in, lines out; imported only by the commands that show one."""
