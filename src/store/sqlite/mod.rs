//! SQLite (in work)
