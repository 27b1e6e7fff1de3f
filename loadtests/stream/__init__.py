"""Streams as their client sees them: read, timed and summed up. Pure; knows neither Locust nor HTTP."""
