"""Captures: models, services, tasks, routes and schemas."""
