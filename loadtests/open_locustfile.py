"""Requests that arrive at an OpenAI-compatible server as a Poisson process, answered or not.

locust -f loadtests/open_locustfile.py --host http://localhost:8000 --headless -u 1 --rate 4 -t 2m --report all.json
"""

from loadtests.users.open import OpenLoop
from loadtests.wiring import wire

__all__ = ["OpenLoop"]

wire()
