"""Instructions from templates, for training drafters of a chat model and for measuring them: no text of others."""

import random
from collections.abc import Callable, Iterator
from typing import Any

NAMES = "Anna Bruno Chloe David Elena Farid Greta Hiro Ines Jonas Kofi Lena Marco Nadia Omar Petra Quinn Rosa Sami Tara"
CITIES = "Oslo Turin Lyon Leeds Porto Kyoto Quito Accra Perth Izmir Lima Ghent Basel Malmo Davao Tunis"
JOBS = "baker nurse pilot teacher plumber lawyer painter farmer driver chemist gardener translator"
THINGS = "apples pears plums cherries figs bananas oranges kiwis lemons grapes peaches melons olives onions leeks beans"
PLACES = "bridge library school harbour museum hospital station market stadium theatre"
STUFF = "steel stone wood brick glass concrete"
TOPICS = [
    "the sky is blue",
    "leaves turn red in autumn",
    "the sea is salty",
    "bread rises",
    "ice floats",
    "the moon has phases",
    "cats purr",
    "onions make us cry",
    "metals rust",
    "birds fly south",
    "we sleep",
    "stars twinkle",
    "volcanoes erupt",
    "bees make honey",
    "tea keeps us awake",
    "rainbows appear",
    "thunder follows lightning",
    "the days are longer in summer",
]
TASKS = [
    "learn a language",
    "plan a birthday",
    "clean a bicycle",
    "write a letter of thanks",
    "save money",
    "grow tomatoes",
    "prepare for an interview",
    "cook rice",
    "fix a flat tyre",
    "start running",
    "read more books",
    "pack for a journey",
    "paint a room",
    "train a puppy",
    "make new friends in a new town",
    "brew coffee",
]
FIELDS = "price tax amount count weight length score level total width height rate"
VERBS = "add double halve scale shift check clean merge split rank"

CURRENCIES = "EUR USD GBP JPY CHF"
STATES = "ordered paid shipped delivered returned"

_MOST_TRAINED = 1000

Chat = dict[str, Any]


def _pick(rng: random.Random, words: str, count: int) -> list[str]:
    return rng.sample(words.split(), count)


def chat(rng: random.Random) -> Chat:
    """A question, or a request for advice."""
    topic, task, job = rng.choice(TOPICS), rng.choice(TASKS), rng.choice(JOBS.split())
    count, city, thing = rng.randint(3, 6), rng.choice(CITIES.split()), rng.choice(["key", "map", "coin"])
    asked = rng.choice(
        [
            f"Why is it that {topic}?",
            f"Explain to a child why {topic}.",
            f"How do I {task}?",
            f"Give me {count} tips on how to {task}.",
            f"What does a {job} do all day?",
            f"Write a short story about a {job} from {city} who finds a {thing}.",
        ]
    )
    return {"asked": asked}


def summary(rng: random.Random) -> Chat:
    """A report to summarise."""
    place, stuff, (first, second) = rng.choice(PLACES.split()), rng.choice(STUFF.split()), _pick(rng, NAMES, 2)
    day, month = (
        rng.choice(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]),
        rng.choice(["spring", "summer", "autumn"]),
    )
    report = (
        f"The committee met on {day} to discuss the new {place} of {rng.choice(CITIES.split())}. {first} said that the "
        f"{place} was needed, as the old one was too small and its roof leaked. {second} asked who would pay for it. "
        f"After {rng.randint(2, 5)} hours the members agreed that the {place} would be built of {stuff}, that it would "
        f"cost {rng.randint(2, 90)} million, and that work would begin in {month}. {first} will write to the council."
    )
    return {"asked": f"{rng.choice(['Summarise', 'Shorten', 'Sum up in one sentence'])}:\n\n{report}"}


def _people(rng: random.Random) -> list[tuple[str, int, str, str]]:
    count = rng.randint(3, 5)
    lists = [_pick(rng, words, count) for words in (NAMES, CITIES, JOBS)]
    return [(name, rng.randint(20, 70), city, job) for name, city, job in zip(*lists, strict=True)]


def _sentences(people: list[tuple[str, int, str, str]]) -> str:
    return " ".join(f"{name} is {age}, lives in {city} and works as a {job}." for name, age, city, job in people)


def extraction(rng: random.Random) -> Chat:
    """Facts to find in a text."""
    people = _people(rng)
    wanted = rng.choice(
        ["the names and cities", "each person's name, age and city", "the names and jobs, one per line"]
    )
    return {"asked": f"List {wanted}:\n\n{_sentences(people)}"}


def answers_in_json(rng: random.Random) -> Chat:
    """Facts to give as JSON."""
    if rng.random() < 0.5:
        things = [f"{thing} {rng.randint(2, 40)}" for thing in _pick(rng, THINGS, rng.randint(4, 7))]
        return {"asked": f'Give me this list as a JSON array of objects with "name" and "count": {", ".join(things)}.'}
    return {"asked": f'Give me a JSON array of objects with "name", "age" and "city": {_sentences(_people(rng))}'}


def edit(rng: random.Random) -> Chat:
    """A function to change a little; its present text predicts the answer."""
    verb, (one, two, three) = rng.choice(VERBS.split()), _pick(rng, FIELDS, 3)
    code = (
        f"def {verb}_{one}s({one}s, {two}s, {three}):\n    result = 0\n    for {one}, {two} in zip({one}s, {two}s):\n"
        f"        if {one} > {rng.randint(1, 9)}:\n            result = result + {one} * (1 + {two})\n"
        f"        else:\n            result = result - {two}\n    result = result - {three}\n    return result\n"
    )
    change = rng.choice(
        [f"Rename {three} to {three}_limit", "Add type hints", "Add a docstring", f"Rename the function to {verb}_all"]
    )
    return {"asked": f"{change}, and return the whole function:\n\n```python\n{code}```", "prediction": code}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_TEXT = {"type": "string", "maxLength": 40}
_ORDER = _object(
    order_number={"type": "integer"},
    status={"enum": STATES.split()},
    customer=_object(name=_TEXT, city=_TEXT, occupation=_TEXT),
    items={
        "type": "array",
        "items": _object(article=_TEXT, quantity={"type": "integer"}, unit_price={"type": "number"}),
        "minItems": 1,
        "maxItems": 6,
    },
    currency={"enum": CURRENCIES.split()},
    is_gift={"type": "boolean"},
)


def structured(rng: random.Random) -> Chat:
    """An order to give as JSON with a schema."""
    [person] = _pick(rng, NAMES, 1)
    items = [
        f"{rng.randint(2, 40)} {thing} at {rng.randint(1, 9)}.{rng.choice(['00', '25', '50'])} each"
        for thing in _pick(rng, THINGS, rng.randint(2, 4))
    ]
    order = (
        f"Order {rng.randint(1000, 9999)} was {rng.choice(STATES.split())}. {person} from "
        f"{rng.choice(CITIES.split())}, a {rng.choice(JOBS.split())}, takes {', '.join(items[:-1])} and "
        f"{items[-1]}, in {rng.choice(CURRENCIES.split())}. It is {rng.choice(['', 'not '])}a gift."
    )
    return {"asked": f"Give me this order as JSON: {order}", "schema": _ORDER, "max_tokens": 256}


WORKLOADS: dict[str, Callable[[random.Random], Chat]] = {
    "chat": chat,
    "summary": summary,
    "extraction": extraction,
    "edit": edit,
    "json": answers_in_json,
}
# Only to measure with. They come last, so that the others stay as they were.
STRUCTURED: dict[str, Callable[[random.Random], Chat]] = {"structured": structured}


def instructions(purpose: str, count: int) -> Iterator[dict[str, Any]]:
    """Returns entries of a file of prompts.

    Args:
        purpose: "train": `count` different chats; "bench": `count` others per workload, with predictions and schemas.
    """
    is_bench = purpose == "bench"
    others = instructions("train", _MOST_TRAINED) if is_bench else ()
    seen = {entry["messages"][0]["content"] for entry in others}
    rng, makers, common = random.Random(purpose), WORKLOADS | STRUCTURED, list(WORKLOADS)
    names = [common[i % len(common)] for i in range(count * (len(common) if is_bench else 1))]
    for name in [*names, *(name for name in STRUCTURED if is_bench for _ in range(count))]:
        made = makers[name](rng)
        while made["asked"] in seen:
            made = makers[name](rng)
        seen.add(made["asked"])
        entry: dict[str, Any] = {"messages": [{"role": "user", "content": made.pop("asked")}]}
        yield entry if purpose == "train" else {**entry, "workload": name, **made}
