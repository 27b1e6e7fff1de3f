"""`-f loadtests/locustfile.py,loadtests/shapes/ramp.py`: see `loadtests.load.courses.Ramp`."""

from loadtests.load.courses import Ramp
from loadtests.shapes.course_shape import CourseShape


class RampShape(CourseShape):
    """That course."""

    course = Ramp
