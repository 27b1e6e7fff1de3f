"""`-f loadtests/locustfile.py,loadtests/shapes/steps.py`: see `loadtests.load.courses.Steps`."""

from loadtests.load.courses import Steps
from loadtests.shapes.course_shape import CourseShape


class StepsShape(CourseShape):
    """That course."""

    course = Steps
