"""The bundled models' tokenizer: byte-level BPE, with a chat template that reads as Python."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"

# The models know Python and nothing else: a conversation is shown to them as a module in which
# users speak in comments and the assistant answers in code.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}"
    "{{- message['content'] + '\\n\\n' -}}"
    "{%- else -%}"
    "{{- '# ' + message['content'].replace('\\n', '\\n# ') + '\\n' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Learns the merges from `texts`; every byte is in the vocabulary, so any text can be encoded.

    Args:
        texts: training documents.
        vocab_size: tokens in all, the 256 bytes and `END_OF_TEXT` included.
        max_length: the models' context length, recorded for users of the tokenizer.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        bos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes `tokenizer` where transformers and vLLM find it."""
    tokenizer.save_pretrained(folder)
