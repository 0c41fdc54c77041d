"""The text the tiny model learns: the Python standard library that runs it, as bytes."""

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 128
HELD_OUT_EVERY = 20
# Not the library itself: installed packages, its tests (large tables of odd bytes), and byte code.
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}

Tokens = NDArray[np.int32]


@dataclass(frozen=True)
class Corpus:
    """Byte tokens, split by file so that no held-out file was ever seen in training."""

    train: Tokens
    held_out: Tokens
    digest: str


def load() -> Corpus:
    """Reads every module of the standard library in sorted order; the digest says which library it was."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in root.rglob("*.py") if not SKIPPED & set(p.relative_to(root).parts))
    texts = [p.read_bytes() for p in files]
    train = b"".join(text for i, text in enumerate(texts) if i % HELD_OUT_EVERY)
    held_out = b"".join(texts[::HELD_OUT_EVERY])
    return Corpus(_tokens(train), _tokens(held_out), hashlib.sha256(train + held_out).hexdigest())


def _tokens(text: bytes) -> Tokens:
    # The few non-ASCII bytes share one token: half the vocabulary, half the output layer.
    return np.minimum(np.frombuffer(text, dtype=np.uint8), VOCABULARY - 1).astype(np.int32)


def batch(tokens: Tokens, seed: int, step: int, size: int, length: int) -> Tokens:
    """Random windows that depend on (seed, step) alone, so a resumed run sees the very same batches again."""
    starts = np.random.default_rng([seed, step]).integers(0, len(tokens) - length, size)
    windows: Tokens = tokens[starts[:, None] + np.arange(length)]
    return windows
