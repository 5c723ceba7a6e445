"""`python -m kerchief.cli`, where the `kerchief` command is not on the path."""

from __future__ import annotations

from kerchief.cli.main import main

if __name__ == "__main__":
    main()
