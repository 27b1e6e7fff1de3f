"""Prompts."""

import inspect
import random

from tests.engine.exact import Reference, Tokens

BLOCK_SIZE = 32

# Each ends where it has been before, so that drafts exist at once; none goes on in one way only.
REPETITIVE = (
    '''
def check(a, b, c):
    """Check the arguments and return them."""
    if a is None:
        raise ValueError("a must not be None")
    if b is None:
        raise ValueError("b must not be None")
    if c is None:
        raise''',
    '''
class Cache:
    """A cache of values by key."""

    def get(self, key, default=None):
        if key in self.data:
            return self.data[key]
        return default

    def pop(self, key, default=None):
        if key in self.data:
            return self.data''',
    '''
class Point:
    def __init__(self, name, value, size, parent=None):
        """Initialize the point."""
        self.name = name
        self.value = value
        self.size = size
        self.parent = parent

    def copy(self):
        self.name =''',
    """
import os
import sys

def main(args):
    for name in args:
        print(name)
        print(os.path.join(name))
    for name in sys.argv:
        print(name)
        print(os.path.""",
)


def repetitive(reference: Reference) -> list[Tokens]:
    """`REPETITIVE` cut at the left so that all but one token fill whole blocks: the prefix cache holds them."""
    prompts = []
    for text in REPETITIVE:
        tokens = reference.encode(text)
        length = (len(tokens) - 1) // BLOCK_SIZE * BLOCK_SIZE + 1
        prompts.append(tuple(tokens[-length:]))
    return prompts


def sources(reference: Reference, count: int, longest: int) -> list[Tokens]:
    """Beginnings and middles of the standard library's sources, of mixed length, in groups of one beginning.

    Args:
        reference: for its tokenizer.
        count: how many.
        longest: most tokens; the shortest are a few.
    """
    import argparse
    import ast
    import configparser
    import dataclasses
    import json.decoder
    import logging
    import pathlib
    import textwrap

    modules = (argparse, ast, configparser, dataclasses, json.decoder, logging, pathlib, textwrap)
    texts = [reference.encode(inspect.getsource(module)[:6000]) for module in modules]
    rng = random.Random(0)
    prompts: list[Tokens] = []
    while len(prompts) < count:
        text = texts[len(prompts) % len(texts)]
        # Half of the prompts share their beginning with others, half start anywhere.
        start = 0 if rng.random() < 0.5 else rng.randrange(len(text) - longest)
        mean = 4 if rng.random() < 0.1 else 200
        length = min(longest, 2 + int(rng.expovariate(1 / mean)))
        prompts.append(tuple(text[start : start + length]))
    return prompts
