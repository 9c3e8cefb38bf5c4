"""The central service: captures, storage, schedules, results, API, tasks."""
