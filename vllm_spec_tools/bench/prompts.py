"""The texts that are completed."""

# Beginnings of Python as the bundled models know it, none of it from their training text, each about something
# else: one text that repeats itself would be accepted far more often than what people ask for.
PROMPTS = (
    '"""Keep the newest entries of a mapping."""\n\nimport collections\n\n\nclass NewestCache:\n'
    '    """A mapping that forgets what was used the longest time ago."""\n\n'
    "    def __init__(self, maxsize=128):\n        self.maxsize = maxsize\n",
    "def read_settings(path, encoding=None):\n    settings = {}\n    with open(path, encoding=encoding) as file:\n"
    "        for number, line in enumerate(file, 1):\n            line = line.strip()\n            if line.",
    "class Matrix:\n    def __init__(self, rows):\n        self.rows = [list(row) for row in rows]\n\n"
    "    def transpose(self):\n",
    'def main(argv=None):\n    parser = argparse.ArgumentParser(description="Count the words of text files.")\n'
    '    parser.add_argument("files", nargs="*", help=',
    'class TokenError(Exception):\n    """Raised when a token has no meaning at its place."""\n\n\n'
    "def tokenize(text):\n    pos = 0\n    while pos < len(text):\n        match = pattern.match(text, pos)\n"
    "        if match is None:\n            raise",
    "    async def fetch(self, host, port, timeout=None):\n"
    "        reader, writer = await asyncio.open_connection(host, port)\n        try:\n",
    "import unittest\n\n\nclass TestQueue(unittest.TestCase):\n    def setUp(self):\n        self.queue = Queue()\n\n"
    "    def test_empty(self):\n        self.assert",
    "def shortest_path(graph, start, goal):\n"
    '    """Return the nodes of a shortest path from start to goal, or None.\n\n'
    "    graph is a dictionary that maps a node to its neighbours.\n    ",
    "import os\nimport shutil\nimport tempfile\n\n\ndef copy_newer(source, target):\n"
    "    for root, dirs, files in os.walk(source):\n        for name in files:\n",
    "    def __eq__(self, other):\n        if not isinstance(other, Version):\n            return NotImplemented\n"
    "        return self.parts == other.parts\n\n    def __repr__(self):\n",
    "def format_size(size):\n    if size < 1024:\n        return '%d bytes' % size\n    for unit in ",
    "class Server(threading.Thread):\n    daemon = True\n\n    def __init__(self, address, handler):\n"
    "        super().__init__()\n        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)\n",
)


def prompts_of_round(prompts: tuple[str, ...], batch: int, number: int) -> tuple[str, ...]:
    """`batch` different prompts; each round begins where the one before ended."""
    return tuple(prompts[(number * batch + i) % len(prompts)] for i in range(batch))
