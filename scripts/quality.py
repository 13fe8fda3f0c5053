#!/usr/bin/env python3
"""Measures what every encoding costs in quality on trained models, and draws it.

    scripts/quality.py --model tiny=models/tiny-qwen3 --text heldout.txt --markdown docs/quantization.md --png docs/quality.png

For each model and encoding: bytes of the quantized matrices, error of the decoded weights, perplexity ratio, KL divergence and
agreement of the first choice against the f32 file, by `cmforge convert` and `cmforge ppl --against`. Needs numpy, and matplotlib
for --png (Debian: python3-numpy python3-matplotlib)."""
import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np

# NAME/mse: with --encoder mse.
ENCODINGS = ["f16", "bf16", "q8", "q8_2f", "vbit", "q4", "q4t", "q4tp", "vbit/mse", "q4t/mse", "q4tp/mse", "q2tp", "q1t", "q1s", "q1", "q1p"]
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def run(program, *arguments):
    """One cmforge command with --json, as the object it prints."""
    done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"cmforge {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def matrices(program, path):
    """The 2-D tensors of an f32 .cmf file: name -> array."""
    data = np.memmap(path, np.uint8, "r")
    arrays = {}
    for tensor in run(program, "info", path)["tensors"]:
        if len(tensor["shape"]) == 2 and tensor["dtype"] == "f32":
            raw = data[tensor["offset"]:tensor["offset"] + tensor["nbytes"]]
            arrays[tensor["name"]] = raw.view("<f4").reshape(tensor["shape"])
    return arrays


def measure(options, label, folder, encoding, work):
    """One row of the table."""
    program, f32 = options.cmforge, work / f"{label}-f32.cmf"
    if not f32.exists():
        run(program, "convert", "--model", folder, "--quant", "f32", "--output", f32)
    quantized, decoded = work / "quantized.cmf", work / "decoded.cmf"
    quant, _, encoder = encoding.partition("/")
    run(program, "convert", "--model", folder, "--quant", quant, "--encoder", encoder or "standard", "--output", quantized)
    run(program, "requant", quantized, "--quant", "f32", "--output", decoded)
    info = {t["name"]: t for t in run(program, "info", quantized)["tensors"]}

    want, got = matrices(program, f32), matrices(program, decoded)
    error = size = weights = nbytes = 0
    for name, w in want.items():
        if info[name]["dtype"] == "f16" and encoding != "f16":
            continue  # kept precise under every encoding
        error += float(np.sum(np.square(got[name].astype("f8") - w)))
        size += float(np.sum(np.square(w.astype("f8"))))
        weights += w.size
        nbytes += info[name]["nbytes"]
    row = {"model": label, "encoding": encoding, "file_bytes": quantized.stat().st_size, "bits": nbytes * 8 / weights,
           "error": (error / size) ** 0.5, "texts": {}}
    for text in options.text:
        row["texts"][text.stem] = run(program, "ppl", f32, "--file", text, "--tokens", options.tokens, "--context",
                                      options.context, "--compute", options.compute, "--against", quantized)
    scored = sum(t["tokens"] for t in row["texts"].values())
    mean = lambda f: sum(f(t) * t["tokens"] for t in row["texts"].values()) / scored
    row["ppl_ratio"] = float(np.exp(mean(lambda t: np.log(t["ppl_ratio"]))))
    row["kl"] = mean(lambda t: t["kl_mean"])
    row["agreement"] = mean(lambda t: t["top1_agreement"])
    row["tokens"] = scored
    quantized.unlink()
    decoded.unlink()
    print(f"{label:12} {encoding:8} {row['bits']:6.2f} bits  error {row['error']:8.4%}  ppl x {row['ppl_ratio']:.4f}  "
          f"KL {row['kl']:.5f}  same first choice {row['agreement']:.2%}", flush=True)
    return row


def table(options, rows):
    lines = []
    for label, _ in options.model:
        lines += [f"**{label}**", "",
                  "| `--quant` | bits per weight | weight error | perplexity ratio | KL, nats | same first choice |",
                  "|---|---|---|---|---|---|"]
        for r in (r for r in rows if r["model"] == label):
            lines.append(f"| `{r['encoding']}` | {r['bits']:.2f} | {r['error']:.3%} | {r['ppl_ratio']:.4f} | {r['kl']:.5f} | "
                         f"{r['agreement']:.1%} |")
        lines.append("")
    return "\n".join(lines)


def draw(options, rows):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    rows = [r for r in rows if r["kl"] > 0]  # lossless ones have no place on a logarithmic axis
    encodings = [e for e in ENCODINGS if any(r["encoding"] == e for r in rows)]
    colours = {e: plt.get_cmap("tab20")(i) for i, e in enumerate(encodings)}
    markers = {label: marker for (label, _), marker in zip(options.model, "os^Dv" * 9)}
    figure, (axes, crowded) = plt.subplots(1, 2, figsize=(12, 5.2), dpi=110, width_ratios=(3, 2))
    for area in (axes, crowded):
        for r in rows:
            area.plot(r["bits"], r["kl"], markers[r["model"]], color=colours[r["encoding"]], markersize=7)
        area.grid(alpha=0.3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([1.5, 2, 3, 4, 6, 8], ["1.5", "2", "3", "4", "6", "8"])
    axes.set_xlim(1.4, 9)
    crowd = [r["kl"] for r in rows if 4 < r["bits"] < 5] or [0, 1]
    crowded.set_xlim(4.1, 5)
    crowded.set_ylim(min(crowd) * 0.9, max(crowd) * 1.05)
    crowded.set_title("the same, between 4 and 5 bits")
    crowded.set_xlabel("bits per quantized weight")
    axes.set_xlabel("bits per quantized weight, scales included")
    axes.set_ylabel("KL divergence from the f32 model, nats a token")
    axes.set_title("What each encoding costs")
    handles = [Line2D([], [], marker="s", ls="", color=colours[e], label=e) for e in encodings]
    handles += [Line2D([], [], marker=m, ls="", color="black", label=label) for label, m in markers.items()]
    figure.legend(handles=handles, loc="center right")
    figure.tight_layout(rect=(0, 0, 0.88, 1))
    figure.savefig(options.png, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cmforge", default="build/release/cmforge")
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FOLDER", help="may be repeated")
    parser.add_argument("--text", action="append", required=True, type=pathlib.Path, help="held-out text; may be repeated")
    parser.add_argument("--encodings", default=",".join(ENCODINGS))
    parser.add_argument("--tokens", type=int, default=4096, help="of each text")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--compute", default="exact", help="exact: the error of the weights alone; fast: as models run")
    parser.add_argument("--markdown", type=pathlib.Path, help=f"a file whose part between '{BEGIN}' and '{END}' is replaced")
    parser.add_argument("--png", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, help="everything measured")
    parser.add_argument("--measured", action="append", default=[], type=pathlib.Path, metavar="JSON",
                        help="rows of an earlier --json, not measured again; may be repeated")
    options = parser.parse_args()
    options.model = [tuple(m.split("=", 1)) if "=" in m else (pathlib.Path(m).name, m) for m in options.model]

    rows = [row for path in options.measured for row in json.loads(path.read_text())]
    known = {(row["model"], row["encoding"]) for row in rows}
    with tempfile.TemporaryDirectory() as work:
        for label, folder in options.model:
            for encoding in options.encodings.split(","):
                if (label, encoding) not in known:
                    rows.append(measure(options, label, folder, encoding, pathlib.Path(work)))
    rows.sort(key=lambda row: (-row["bits"], ENCODINGS.index(row["encoding"]) if row["encoding"] in ENCODINGS else 99))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.markdown:
        text = options.markdown.read_text()
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        options.markdown.write_text(text[:begin] + "\n" + table(options, rows) + text[end:])
    if options.png:
        draw(options, rows)


if __name__ == "__main__":
    main()
