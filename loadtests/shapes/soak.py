"""`-f loadtests/locustfile.py,loadtests/shapes/soak.py`: see `loadtests.load.courses.Soak`."""

from loadtests.load.courses import Soak
from loadtests.shapes.course_shape import CourseShape


class SoakShape(CourseShape):
    """That course."""

    course = Soak
