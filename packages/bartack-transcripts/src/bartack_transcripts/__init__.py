"""Sessions of other agents, in and out. `formats` has one row for each program; `disk` finds and stores their files."""
