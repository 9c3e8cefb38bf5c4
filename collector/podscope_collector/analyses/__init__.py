"""Analyses: models, services, tasks, routes and schemas."""
