"""Users that stream from an OpenAI-compatible server.

locust -f loadtests/locustfile.py --host http://localhost:8000 --headless -u 16 -t 2m --report report.json

A closed loop: each user sends its next request after the response to the last. `--rate 4` makes it an open loop,
`--load-profile spike` changes the number of users over time. Scenarios can be named at the end of the line, such as
`CodeCompletion OpenChat`.
"""

from loadtests.events import listen
from loadtests.users import CodeCompletion, CopyHeavyEdit, Extraction, OpenChat, OpenLoop

__all__ = ["CodeCompletion", "CopyHeavyEdit", "Extraction", "OpenChat", "OpenLoop"]

listen()
