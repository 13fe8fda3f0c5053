#!/usr/bin/python3
"""A second reader of CMF v2, written from the specification with numpy alone.

    read_cmf.py PROGRAM CHECKPOINT [QUANT ...]    converts CHECKPOINT with PROGRAM once for every QUANT and compares
                                                  each tensor with what `PROGRAM dequant --all --json` says of it
    read_cmf.py FILE.cmf                          one JSON line a tensor, in the form of dequant

Status 0: all agree, 1: something differs, 77: no numpy here.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("read_cmf.py: no numpy: skipped")
    sys.exit(77)

DTYPES = {0: "f32", 1: "f16", 2: "bf16", 3: "q8_row", 4: "q4_block", 6: "u8", 8: "vbit", 9: "q8_2f", 10: "vbit_ro",
          11: "q4_tiled", 12: "q1", 13: "q1s", 14: "q1t", 15: "q4tp"}
QUANTS = ["f32", "f16", "bf16", "q8", "q8_2f", "q4", "q4t", "q4tp", "vbit", "q1", "q1s", "q1t"]
f16, f32 = np.dtype("<f2"), np.dtype("<f4")


def fmix(x):
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xFF51AFD7ED558CCD)
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def hash64(data):  # section 8
    data = bytes(data)
    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8")
    with np.errstate(over="ignore"):
        salted = fmix(words) ^ (np.arange(len(words), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        folded = np.bitwise_xor.reduce(salted) if len(words) else np.uint64(0)
        return int(fmix(np.array([folded ^ np.uint64(len(data))], np.uint64))[0])


class Malformed(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Malformed(what)


def nibbles(packed):  # [..., n] bytes -> [..., 2n] values, low nibble first, minus 8
    both = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    return both.astype(np.float32) - np.float32(8)


def q4_block(data, shape):
    n = int(np.prod(shape))
    groups = (n + 31) // 32
    need(len(data) == groups * 18, "q4_block: size")
    q = nibbles(np.frombuffer(data, np.uint8, groups * 16).reshape(groups, 16))
    scale = np.frombuffer(data, f16, groups, groups * 16).astype(f32)
    return (q * scale[:, None]).reshape(-1)[:n]


def q4_tiled(data, shape):
    tiles = np.frombuffer(data, np.dtype([("scale", f16), ("q", np.uint8, 16)]))
    need(len(tiles) * 32 == int(np.prod(shape)), "q4_tiled: size")
    return (nibbles(tiles["q"]) * tiles["scale"].astype(f32)[:, None]).reshape(-1)


def ladder_exp2(x):
    """2^x in float32 as the ladders of existing files have it: one result in a thousand is not the nearest float."""
    x = x.astype(np.float64)
    power = np.round(x * 32) / 32
    r = x - power
    c3, c2, c1 = (float.fromhex(c) for c in ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1"))
    return (((c3 * r + c2) * (r * r) + (c1 * r + 1)) * np.exp2(power)).astype(f32)


def q4tp(data, shape):
    rows, cols = shape
    groups = cols // 32
    stride = (groups * 5 + 7) // 8
    need(len(data) == rows * (groups * 16 + 4 + stride), "q4tp: size")
    q = nibbles(np.frombuffer(data, np.uint8, rows * groups * 16).reshape(rows, groups, 16))
    ladder = np.frombuffer(data, np.dtype([("lo", f16), ("step", f16)]), rows, rows * groups * 16)
    packed = np.frombuffer(data, np.uint8, rows * stride, rows * (groups * 16 + 4)).reshape(rows, stride)
    bits = np.unpackbits(packed, axis=1, bitorder="little")[:, :groups * 5].reshape(rows, groups, 5)
    code = bits @ (1 << np.arange(5))
    rungs = np.empty((rows, 32), f32)  # the running product in float32 is the definition
    rungs[:, 0], ratio = ladder_exp2(ladder["lo"]), ladder_exp2(ladder["step"])
    for c in range(1, 32):
        rungs[:, c] = rungs[:, c - 1] * ratio
    return (q * np.take_along_axis(rungs, code, axis=1)[:, :, None]).reshape(-1)


def q8_row(data, shape):
    rows, cols = shape
    need(len(data) == rows * cols + rows * 2, "q8_row: size")
    q = np.frombuffer(data, np.int8, rows * cols).reshape(rows, cols).astype(f32)
    return (q * np.frombuffer(data, f16, rows, rows * cols).astype(f32)[:, None]).reshape(-1)


def q8_2f(data, shape):
    rows, cols = shape
    need(len(data) == rows * cols + (rows + cols) * 2, "q8_2f: size")
    q = np.frombuffer(data, np.int8, rows * cols).reshape(rows, cols).astype(f32)
    row = np.frombuffer(data, f16, rows, rows * cols).astype(f32)
    col = np.frombuffer(data, f16, cols, rows * cols + rows * 2).astype(f32)
    return (q * row[:, None] * col[None, :]).reshape(-1)


def vbit(data, shape, has_offsets):
    rows, cols = shape
    groups = cols // 32
    widths = np.frombuffer(data, np.uint8, rows)
    need(np.isin(widths, (3, 4, 5, 6, 8)).all(), "vbit: a width")
    scales = np.frombuffer(data, f16, rows * groups, rows).astype(f32).reshape(rows, groups)
    sizes = (cols * widths.astype(np.int64) + 7) // 8
    at = rows + rows * groups * 2
    starts = np.concatenate([[0], np.cumsum(sizes)])
    if has_offsets:
        need((np.frombuffer(data, "<u4", rows + 1, at) == starts).all(), "vbit_ro: offsets")
        at += (rows + 1) * 4
    need(len(data) == at + starts[-1], "vbit: size")
    out = np.empty((rows, cols), f32)
    for r in range(rows):
        b = int(widths[r])
        bits = np.unpackbits(np.frombuffer(data, np.uint8, sizes[r], at + starts[r]))[:cols * b].reshape(cols, b)
        u = bits @ (1 << np.arange(b - 1, -1, -1))
        out[r] = (u - (2 ** (b - 1) - 1)).astype(f32) * np.repeat(scales[r], 32)
    return out.reshape(-1)


def q1_base(data, n):
    tiles = np.frombuffer(data, np.dtype([("scale", f16), ("bits", np.uint8, 4)]), n // 32)
    sign = np.unpackbits(tiles["bits"], axis=1, bitorder="little").astype(f32) * 2 - 1
    return (sign * tiles["scale"].astype(f32)[:, None]).reshape(-1)


def q1(data, shape):
    n = int(np.prod(shape))
    need(len(data) == n // 32 * 6, "q1: size")
    return q1_base(data, n)


def q1s(data, shape):
    n = int(np.prod(shape))
    out = q1_base(data, n)
    at = n // 32 * 6
    count = struct.unpack_from("<I", data, at)[0]
    overlay = np.frombuffer(data, np.dtype([("index", "<u4"), ("value", f16)]), count, at + 4)
    need(len(data) == at + 4 + count * 6, "q1s: size")
    out[overlay["index"]] = overlay["value"].astype(f32)
    return out


def q1t(data, shape):
    rows, cols = shape
    tiles = np.frombuffer(data, np.dtype([("scale", f16), ("codes", np.uint8, 7)]), rows * cols // 32)
    digits = tiles["codes"].astype(np.int64)[:, :, None] // 3 ** np.arange(5) % 3
    value = np.array([0, 1, -1], f32)[digits.reshape(len(tiles), 35)[:, :32]]
    out = (value * tiles["scale"].astype(f32)[:, None]).reshape(rows, cols)
    at = len(tiles) * 9
    ptr = np.frombuffer(data, "<u4", rows + 1, at).astype(np.int64)
    overlay = np.frombuffer(data, np.dtype([("col", "<u2"), ("value", f16)]), -1, at + (rows + 1) * 4)
    need(ptr[0] == 0 and ptr[-1] == len(overlay) and (np.diff(ptr) >= 0).all(), "q1t: row_ptr")
    row = np.repeat(np.arange(rows), np.diff(ptr))
    out[row, overlay["col"]] = overlay["value"].astype(f32)
    return out.reshape(-1) + f32.type(0)


def dequantize(dtype, data, shape):
    if dtype == "f32":
        return np.frombuffer(data, f32)
    if dtype == "f16":
        return np.frombuffer(data, f16).astype(f32)
    if dtype == "bf16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view(f32)
    if dtype == "u8":
        return np.frombuffer(data, np.uint8).astype(f32)
    if dtype in ("vbit", "vbit_ro"):
        return vbit(data, shape, dtype == "vbit_ro")
    return {"q8_row": q8_row, "q8_2f": q8_2f, "q4_block": q4_block, "q4_tiled": q4_tiled, "q4tp": q4tp, "q1": q1,
            "q1s": q1s, "q1t": q1t}[dtype](data, shape)


def read(path):
    """Yields what dequant --all says of each tensor, after checking every hash of the chain."""
    file = Path(path).read_bytes()
    magic, version, _, features = struct.unpack_from("<4sIII", file)
    need(magic == b"CMF\x01" and version == 2 and features & 1 and features < 1 << 7, "envelope")
    offsets = struct.unpack_from("<12Q", file, 16)
    section = {name: file[offsets[2 * i]:offsets[2 * i] + offsets[2 * i + 1]]
               for i, name in enumerate(("header", "directory", "data", "masks", "vocab", "index"))}
    need(all(len(section[name]) == offsets[2 * i + 1] for i, name in enumerate(section)), "a section leaves the file")
    need(offsets[0] == 128 and offsets[4] % 4096 == 0, "alignment")
    header_hash, dir_hash = struct.unpack_from("<2Q", file, 0x70)
    need(header_hash == hash64(section["header"]), "header hash")
    need(dir_hash == hash64(section["directory"]), "directory hash")
    header = json.loads(section["header"])
    for name, value in header.get("section_hashes", {}).items():
        need(value is None or int(value, 16) == hash64(section[name]), f"hash of {name}")
    directory = section["directory"]
    count, pool = struct.unpack_from("<QQ", directory)
    for i in range(count):
        record = struct.unpack_from("<IHBB6IQQQ", directory, 16 + 56 * i)
        name_off, name_len, dtype, ndim = record[:4]
        offset, nbytes, stored = record[10:]
        name = directory[pool + name_off:pool + name_off + name_len].decode()
        shape = list(record[4:4 + ndim])
        need(offset % 64 == 0 and offset + nbytes <= len(section["data"]), f"{name}: place")
        need(not any(record[4 + ndim:10]), f"{name}: tail of its shape")
        data = section["data"][offset:offset + nbytes]
        need(hash64(data) == stored, f"{name}: hash")
        values = dequantize(DTYPES[dtype], data, shape)
        need(len(values) == int(np.prod(shape)), f"{name}: {len(values)} values for {shape}")
        yield {"name": name, "dtype": DTYPES[dtype], "shape": shape, "nbytes": nbytes, "hash": f"{stored:016x}",
               "sum": float(values.astype(np.float64).sum()), "first": [float(v) for v in values[:8]],
               "f32_hash64": f"{hash64(values.astype(f32).tobytes()):016x}"}


def compare(program, checkpoint, quants):
    differences = tensors = 0
    with tempfile.TemporaryDirectory() as folder:
        for quant in quants:
            path = f"{folder}/{quant}.cmf"
            subprocess.run([program, "convert", "-q", "--model", checkpoint, "--quant", quant, "--output", path],
                           check=True)
            said = subprocess.run([program, "dequant", path, "--all", "--json"], check=True, capture_output=True)
            theirs = [json.loads(line) for line in said.stdout.splitlines()]
            ours = list(read(path))
            used = sorted({t["dtype"] for t in ours})
            print(f"{quant}: {len(ours)} tensors of {', '.join(used)}")
            need(len(ours) == len(theirs), f"{quant}: {len(theirs)} tensors listed")
            for a, b in zip(ours, theirs):
                tensors += 1
                scale = max(1.0, abs(a["sum"]))
                same_sum = abs(a.pop("sum") - b.pop("sum")) <= 1e-9 * scale
                if a != b or not same_sum:
                    differences += 1
                    print(f"  {quant}: {a['name']}: read {a}, said {b}")
    print(f"{tensors} tensors, {differences} differ")
    return 1 if differences or not tensors else 0


def main():
    if len(sys.argv) == 2:
        for tensor in read(sys.argv[1]):
            print(json.dumps(tensor))
        return 0
    return compare(sys.argv[1], sys.argv[2], sys.argv[3:] or QUANTS)


if __name__ == "__main__":
    sys.exit(main())
