"""A course as one of Locust's shapes."""

from locust import LoadTestShape

from loadtests.load.courses import Course

# Where Locust's options do not say.
_USERS, _SECONDS = 16, 120.0
# So many users may come or go in a second: a course says by itself how fast.
_AT_ONCE = 1000.0


class CourseShape(LoadTestShape):
    """Takes `-u` for the most users and `-t` for the time.

    Attributes:
        course: which.
    """

    abstract = True
    use_common_options = True
    course: type[Course]

    def tick(self) -> tuple[int, float] | None:
        """How many users there are to be now; None ends the test."""
        assert self.runner is not None
        options = self.runner.environment.parsed_options
        assert options is not None
        course = self.course(options.num_users or _USERS, float(options.run_time or _SECONDS))
        elapsed = self.get_run_time()
        return (course.users(elapsed), _AT_ONCE) if elapsed < course.seconds else None
