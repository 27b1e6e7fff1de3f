"""Courses of Locust users, and whether the server's counts and the clients' agree."""
