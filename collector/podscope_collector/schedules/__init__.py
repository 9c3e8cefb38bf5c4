"""Schedules: models, services, tasks, routes and schemas."""
