"""A run on a terminal: events in, lines out. Imported only by commands that show one."""
