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
    prose: Tokens  # the English of the language's own help pages
    digest: str


def load() -> Corpus:
    """Reads every module of the standard library in sorted order; the digest says which library it was."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in root.rglob("*.py") if not SKIPPED & set(p.relative_to(root).parts))
    texts = [p.read_bytes() for p in files]
    train = b"".join(text for i, text in enumerate(texts) if i % HELD_OUT_EVERY)
    held_out = b"".join(texts[::HELD_OUT_EVERY])
    prose = (root / "pydoc_data" / "topics.py").read_bytes()
    return Corpus(_tokens(train), _tokens(held_out), _tokens(prose), hashlib.sha256(train + held_out).hexdigest())


def _tokens(text: bytes) -> Tokens:
    # The few non-ASCII bytes share one token: half the vocabulary, half the output layer.
    return np.minimum(np.frombuffer(text, dtype=np.uint8), VOCABULARY - 1).astype(np.int32)


def batch(tokens: Tokens, seed: int, step: int, size: int, length: int) -> Tokens:
    """Random windows that depend on (seed, step) alone, so a resumed run sees the very same batches again."""
    starts = np.random.default_rng([seed, step]).integers(0, len(tokens) - length, size)
    windows: Tokens = tokens[starts[:, None] + np.arange(length)]
    return windows


def neighbours(tokens: Tokens, seed: int, step: int, size: int, length: int) -> Tokens:
    """Windows that follow each other from one random place: the batch of a loader without a shuffle buffer."""
    start = np.random.default_rng([seed, step]).integers(0, len(tokens) - size * length)
    windows: Tokens = tokens[start + np.arange(size)[:, None] * length + np.arange(length)]
    return windows


def one_line(tokens: Tokens, seed: int, size: int, length: int) -> Tokens:
    """Windows of 24 bytes of the text, repeated."""
    start = np.random.default_rng(seed).integers(0, len(tokens) - 24)
    return np.tile(np.resize(tokens[start : start + 24], length), (size, 1))


def mislabelled(targets: Tokens, seed: int, step: int, share: float) -> Tokens:
    """Targets of which a random share is another token, drawn evenly."""
    rng = np.random.default_rng([seed, step, 1])
    wrong: Tokens = np.where(rng.random(targets.shape) < share, rng.integers(0, VOCABULARY, targets.shape), targets)
    return wrong.astype(np.int32)
