#!/usr/bin/python3
"""Compares tokenize and detokenize with the reference library, live, on random Unicode.

    tokenizer_live.py PROGRAM [SEED [COUNT]]
    tokenizer_live.py PROGRAM every FILE ...      every code point, alone and between letters, through these files

The library is the npm package `tokenizers` below the folder that CMFORGE_NODE_MODULES (or NODE_PATH) names:
    npm install --prefix DIR tokenizers@0.23.2       then CMFORGE_NODE_MODULES=DIR/node_modules
The tokenizers are those of the repository, and with CMFORGE_TOKENIZERS=FOLDER every FOLDER/*/tokenizer.json.
Status 0: all agree, 1: a difference (shown), 77: no node or no package here.
"""
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
modules = os.environ.get("CMFORGE_NODE_MODULES") or os.environ.get("NODE_PATH", "")


def skip(why):
    print(f"tokenizer_live.py: {why}: skipped")
    sys.exit(77)


WORDS = ("The quick brown fox don't I'LL we've it's 1234567 3.14 0x1F foo_bar() {\n\t\"key\": [1, 2]} https://a.b/c?d=e "
         "naïve café Straße ΣΊΣΥΦΟΣ İstanbul ﬁne Ⅷ ½ 你好世界 こんにちは 안녕하세요 นั่งเล่น हिन्दी العربية עברית "
         "👋🏽 👨‍👩‍👧 🇩🇪 e\u0301 a\u0308\u0323 \u200b\u00a0\u2028 ").split(" ")
# Where the interesting characters are: ASCII, Latin, combining, Greek to Hebrew, Indic, Hangul, CJK, forms, emoji, rest.
RANGES = [(0x20, 0x7E), (0, 0x1F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF),
          (0xE00, 0x10FF), (0x1100, 0x11FF), (0x1E00, 0x206F), (0x2070, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF),
          (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFFFD), (0x10000, 0x1F0FF), (0x1F300, 0x1FAFF),
          (0x20000, 0x2A6DF), (0xE0000, 0xE01EF), (0x100000, 0x10FFFD)]


def text(rng, special):
    pieces = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.35:
            pieces.append(rng.choice(WORDS))
        elif kind < 0.5:
            pieces.append(rng.choice([" ", "  ", "\n", "\r\n", "\t", "\n\n  ", "\u00a0", "\u3000"]))
        elif kind < 0.55 and special:
            pieces.append(rng.choice(special))
        elif kind < 0.9:
            low, high = rng.choice(RANGES)
            pieces.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
        else:
            pieces.append(chr(rng.choice([c for c in [rng.randint(0, 0x10FFFF)] if not 0xD800 <= c < 0xE000] or [0xFFFD])))
        if rng.random() < 0.5:
            pieces.append(" ")
    return "".join(pieces)


def ask(command, lines, env=None):
    ran = subprocess.run(command, input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True,
                         encoding="utf-8", env=env)
    if ran.returncode != 0:
        print(ran.stderr[-2000:])
        sys.exit(f"{command[0]}: status {ran.returncode}")
    answers = [json.loads(line) for line in ran.stdout.split("\n") if line]
    assert len(answers) == len(lines), f"{command[0]}: {len(answers)} answers to {len(lines)} lines"
    return answers


def compare(program, path, seed, count):
    parsed = json.loads(path.read_text(encoding="utf-8"))
    special = [token["content"] for token in parsed.get("added_tokens", [])]
    rng = random.Random(seed)
    env = {**os.environ, "NODE_PATH": modules}
    node = ["node", str(HERE / "tokenizer_reference.js"), str(path)]
    lines = [{"text": text(rng, special), "special": rng.random() < 0.5} for _ in range(count)]
    theirs, ours = ask(node, lines, env), ask([program, "tokenize", str(path), "--jsonl"], lines)
    different = [(line, a, b) for line, a, b in zip(lines, theirs, ours) if a["ids"] != b.get("ids")]
    # What came out, and ids at random: most of those decode to bytes that are no text.
    most = max((i for answer in theirs for i in answer["ids"]), default=0)
    back = [{"ids": answer["ids"], "skip_special": rng.random() < 0.5} for answer in theirs[::2]]
    back += [{"ids": [rng.randint(0, most) for _ in range(rng.randint(1, 12))], "skip_special": rng.random() < 0.5}
             for _ in range(count // 2)]
    theirs, ours = ask(node, back, env), ask([program, "detokenize", str(path), "--jsonl"], back)
    different += [(line, a, b) for line, a, b in zip(back, theirs, ours) if a["text"] != b.get("text")]
    print(f"{path}: {len(lines)} texts, {len(back)} lists of ids, {len(different)} differ")
    for line, a, b in different[:5]:
        print(f"  asked {json.dumps(line)[:600]}\n  reference {json.dumps(a)[:600]}\n  ours      {json.dumps(b)[:600]}")
    return len(different)


def compare_every(program, path):
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    env = {**os.environ, "NODE_PATH": modules}
    different = []
    for first in range(0, len(points), 65536):
        lines = [{"text": form.format(chr(c)), "special": False}
                 for c in points[first:first + 65536] for form in ("{}", "a{}b")]
        theirs = ask(["node", str(HERE / "tokenizer_reference.js"), str(path)], lines, env)
        ours = ask([program, "tokenize", str(path), "--jsonl"], lines)
        different += [ord(line["text"].strip("ab") or line["text"][0]) for line, a, b in zip(lines, theirs, ours)
                      if a["ids"] != b.get("ids")]
    print(f"{path}: {len(points)} code points, {len(different)} differ: " + " ".join(f"{c:X}" for c in different[:200]))
    return len(different)


def main():
    if not shutil.which("node"):
        skip("no node")
    if not any((Path(folder) / "tokenizers").is_dir() for folder in modules.split(":") if folder):
        skip("CMFORGE_NODE_MODULES names no folder with the npm package `tokenizers`")
    program = sys.argv[1]
    if len(sys.argv) > 3 and sys.argv[2] == "every":
        return 1 if sum(compare_every(program, Path(path)) for path in sys.argv[3:]) else 0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 2026
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    root = HERE.parent.parent
    paths = [root / "models/tiny-qwen3/tokenizer.json", *sorted(root.glob("tests/data/text/tokenizers/*/tokenizer.json"))]
    if os.environ.get("CMFORGE_TOKENIZERS"):
        paths += sorted(Path(os.environ["CMFORGE_TOKENIZERS"]).glob("*/tokenizer.json"))
    return 1 if sum(compare(program, path, seed, count) for path in paths) else 0


if __name__ == "__main__":
    sys.exit(main())
