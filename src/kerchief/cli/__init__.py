"""The command line: parse, call, print. The work is in the rooms below."""
