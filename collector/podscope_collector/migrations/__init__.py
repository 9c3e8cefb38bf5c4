"""Alembic migrations of the collector's database."""
