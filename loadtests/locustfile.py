"""Users that stream from an OpenAI-compatible server, each asking again when it has been answered.

    locust -f loadtests/locustfile.py --host http://localhost:8000 --headless -u 16 -t 2m --report figures.json

With `-f loadtests/locustfile.py,loadtests/shapes/spike.py` the number of users takes a course. Scenarios can be named
at the end of the line, as `CodeCompletion OpenChat`.
"""

from loadtests.users.closed import CodeCompletion, CopyHeavyEdit, Extraction, OpenChat
from loadtests.wiring import wire

__all__ = ["CodeCompletion", "CopyHeavyEdit", "Extraction", "OpenChat"]

wire()
