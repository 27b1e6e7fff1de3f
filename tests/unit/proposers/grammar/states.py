"""Grammars of a few texts, and small tokenizers."""

import json
from collections.abc import Iterable, Mapping, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from vllm_spec_plugin.proposers.grammar.vocabulary import Vocabulary

CORPUS = ['{"name": "Ann Lee", "age": 41, "city": "Bern"}', "the name of the city is Bern and the age is 41"] * 4


class Wrapped:
    """A tokenizer of the package `tokenizers`, as a grammar's."""

    def __init__(self, tokenizer: Tokenizer, special: Iterable[int] = ()) -> None:
        self.tokenizer, self.special, self.num_encoded = tokenizer, set(special), 0
        self.vocabulary = Vocabulary(self.pieces())

    def encode(self, text: str) -> list[int]:
        self.num_encoded += 1
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(token_ids)))

    def spell(self, token_ids: Sequence[int]) -> bytes:
        """Returns the bytes of tokens without special ones."""
        return self.vocabulary.join(token for token in token_ids if token not in self.special) or b""

    def pieces(self) -> Mapping[str, int]:
        return {piece: i for piece, i in self.tokenizer.get_vocab().items() if i not in self.special}


def byte_level() -> Wrapped:
    """A byte-level BPE, with the stop token 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return Wrapped(tokenizer, [0])


def sentence_piece() -> Wrapped:
    """A BPE like SentencePiece's, which puts a space before a text and has tokens of single bytes."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    special = ["<end>", "<unk>"]
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=160, special_tokens=special))
    model = json.loads(trained.to_str())["model"]
    vocab = model["vocab"] | {f"<0x{byte:02X}>": 1000 + byte for byte in range(256)}
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = trained.pre_tokenizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(special)
    return Wrapped(tokenizer, [0, 1])


class Texts:
    """A grammar of a few texts, which a stop token ends. Knows forced text unless told otherwise."""

    stop_token_ids: Sequence[int] = (0,)

    def __init__(self, texts: Iterable[str], tokenizer: Wrapped, so_far: str = "", *, reads_text: bool = True) -> None:
        self.texts = {text.encode() for text in texts}
        self.tokenizer, self.reads_text = tokenizer, reads_text
        self.steps = [so_far.encode()]

    @property
    def text(self) -> bytes:
        return b"".join(self.steps)

    def rests(self) -> list[bytes]:
        """Returns what may follow."""
        start = self.text
        return [text[len(start) :] for text in self.texts if text.startswith(start)]

    def forced_text(self) -> str:
        rests = self.rests()
        first, last = min(rests), max(rests)
        size = next((i for i, byte in enumerate(first) if last[i] != byte), len(first))
        return first[:size].decode(errors="ignore")

    def allows(self, text: str) -> bool:
        return any(rest.startswith(text.encode()) for rest in self.rests())

    def accept_text(self, text: str) -> bool:
        return self.accept(text.encode())

    def accept_token(self, token_id: int) -> bool:
        return self.accept(self.tokenizer.spell([token_id]))

    def accept(self, text: bytes) -> bool:
        if not any(rest.startswith(text) for rest in self.rests()):
            return False
        self.steps.append(text)
        return True

    def undo(self, num_steps: int) -> None:
        del self.steps[-num_steps:]

    def is_complete(self) -> bool:
        return b"" in self.rests()

    def allowed(self, most: int) -> list[int]:
        rests = self.rests()
        found = [0] if b"" in rests else []
        for token_id in self.tokenizer.pieces().values():
            text = self.tokenizer.spell([token_id])
            if text and any(rest.startswith(text) for rest in rests):
                found.append(token_id)
        return sorted(found) if len(found) <= most else []


def times(*seconds: float) -> "Clock":
    return Clock(list(seconds))


class Clock:
    """Shows given times, and the last one for good."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
