#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text to train a gate on, from what a Debian machine has anyway.

make_corpus.py --heldout heldout-8x65536.bin --out DIR

Headers, Python, manual pages and documents, as the bytes of files with a zero
byte before each: train.bin and valid.bin. A file that shares text with the
held-out streams is left out: one that contains a piece of a held-out
document, or of whose longer lines more than a quarter are held-out lines.
"""

import argparse
import gzip
import hashlib
import pathlib
import random

# (folder, endings, bytes at the most): the kinds of text of the model's own
# training set.
SOURCES = [
    ("/usr/include", (".h", ".hpp", ""), 9_000_000),
    ("/usr/lib/llvm-22/include", (".h", ".td", ".inc"), 8_000_000),
    ("/usr/lib/python3.11", (".py",), 9_000_000),
    ("/usr/lib/python3/dist-packages", (".py",), 3_000_000),
    ("/usr/share/man", (".gz",), 5_000_000),
    ("/usr/share/doc", ("", ".txt", ".gz", ".md"), 5_000_000),
]
PIECE = 48  # bytes of a held-out document that no file may contain
LINE = 30  # shorter lines say nothing about where they are from


def documents_of(heldout, length=65536):
    for at in range(0, len(heldout), length):
        yield from (d for d in heldout[at : at + length].split(b"\0") if d)


def long_lines(text):
    return [line for line in text.split(b"\n") if len(line) >= LINE]


class HeldOut:
    """Tells whether a text has been held out."""

    def __init__(self, documents):
        documents = list(documents)
        # Licence headers are everybody's: only lines of few documents count.
        seen = {}
        for document in documents:
            for line in set(long_lines(document)):
                seen[line] = seen.get(line, 0) + 1
        self.lines = {line for line, count in seen.items() if count <= 2}
        self.pieces = [
            d[at : at + PIECE]
            for d in documents
            for at in (len(d) // 2, len(d) * 3 // 4, len(d) * 9 // 10)
            if len(d) >= 4 * PIECE
        ]

    def has(self, text):
        lines = long_lines(text)
        known = sum(line in self.lines for line in lines)
        return known > max(2, len(lines) // 4) or any(
            piece in text for piece in self.pieces)


def is_table(text):
    digits = sum(map(text.count, "0123456789"))
    return digits > len(text) // 3


def files_of(folder, endings):
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.suffix in endings and path.is_file() and not path.is_symlink():
            yield path


def text_of(path):
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, gzip.BadGzipFile, EOFError):
        return b""


def collect(heldout):
    known, taken, dropped = set(), [], 0
    for folder, endings, budget in SOURCES:
        paths = list(files_of(folder, endings))
        random.Random(1).shuffle(paths)
        for path in paths:
            if budget <= 0:
                break
            text = text_of(path)
            digest = hashlib.sha256(text).digest()
            if not 200 <= len(text) <= 400_000 or digest in known:
                continue
            known.add(digest)
            try:
                if "\0" in text.decode() or is_table(text.decode()):
                    continue
            except UnicodeDecodeError:
                continue
            if heldout.has(text):
                dropped += 1
                continue
            taken.append(text)
            budget -= len(text)
    return taken, dropped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heldout", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    heldout = HeldOut(documents_of(arguments.heldout.read_bytes()))
    taken, dropped = collect(heldout)
    random.Random(2).shuffle(taken)
    arguments.out.mkdir(parents=True, exist_ok=True)
    cut = len(taken) // 25
    for name, part in (("valid", taken[:cut]), ("train", taken[cut:])):
        text = b"".join(b"\0" + document for document in part)
        (arguments.out / f"{name}.bin").write_bytes(text)
        print(f"{name}: {len(part)} documents, {len(text)} bytes")
    print(f"{dropped} documents share text with the held-out streams")


if __name__ == "__main__":
    main()
