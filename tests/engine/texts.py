"""Prompts."""

import inspect
import random

from tests.engine.exact import Reference, Tokens
from vllm_spec_tools.certify.prompts import REPETITIVE

BLOCK_SIZE = 32


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
