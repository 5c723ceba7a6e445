"""Where roles keep what must survive a crash: memory, SQLite or PostgreSQL, and a witness."""
