"""The report of a load test, as JSON and as a page. Pure: knows neither Locust nor HTTP."""
