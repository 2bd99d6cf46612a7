"""The event log and the only code that talks to PostgreSQL."""
