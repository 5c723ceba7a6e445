"""All roles in one process, thousands at once: the compiled loop, its recorder and its metrics."""
