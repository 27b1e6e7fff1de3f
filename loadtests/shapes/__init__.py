"""Courses that Locust's number of users can take, a file each: Locust takes the one shape that it is given."""
