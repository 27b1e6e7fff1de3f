"""`-f loadtests/locustfile.py,loadtests/shapes/spike.py`: see `loadtests.load.courses.Spike`."""

from loadtests.load.courses import Spike
from loadtests.shapes.course_shape import CourseShape


class SpikeShape(CourseShape):
    """That course."""

    course = Spike
