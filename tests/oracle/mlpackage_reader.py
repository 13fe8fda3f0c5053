#!/usr/bin/env python3
"""An independent reader of Core ML packages: its own protobuf decoding, its own rules, nothing of ours.

Run: python3 tests/oracle/mlpackage_reader.py [--sorted] [--decode] X.mlpackage X.mlmodelc ...

Checks the layout on disk, the manifest, every field and value of the program, the weight file, the types of
operations whose rules are simple, and that the description says what the program does. Prints one line, exits 1
with the first fault otherwise. --sorted also wants maps in order, which makes files reproducible. --decode also
prints every decompressed constant: its name, how it is stored, and the SHA-256 of its fp16 numbers.
"""
import hashlib
import json
import os
import re
import struct
import sys

import numpy as np

NAMES = {1: "bool", 2: "string", 10: "fp16", 11: "fp32", 12: "fp64", 13: "bf16", 21: "int8", 22: "int16", 23: "int32",
         24: "int64", 25: "int4", 31: "uint8", 32: "uint16", 33: "uint32", 34: "uint64", 35: "uint4", 36: "uint2",
         37: "uint1", 38: "uint6", 39: "uint3", 40: "fp8e4m3fn", 41: "fp8e5m2"}
BITS = {"bool": 8, "fp16": 16, "fp32": 32, "fp64": 64, "bf16": 16, "int8": 8, "int16": 16, "int32": 32, "int64": 64, "int4": 4,
        "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "uint4": 4, "uint2": 2, "uint1": 1, "uint6": 6, "uint3": 3,
        "fp8e4m3fn": 8, "fp8e5m2": 8}
BLOB = {1: "fp16", 2: "fp32", 3: "uint8", 4: "int8", 5: "bf16", 6: "int16", 7: "uint16", 8: "int4", 9: "uint1", 10: "uint2",
        11: "uint4", 12: "uint3", 13: "uint6", 14: "int32", 15: "uint32", 16: "fp8e4m3fn", 17: "fp8e5m2"}
ARRAYS = {65568: "fp32", 65600: "fp64", 131104: "int32", 131080: "int8", 65552: "fp16"}
OPSETS = {"CoreML5", "CoreML6", "CoreML7", "CoreML8", "CoreML9"}


SORTED = "--sorted" in sys.argv
DECODE = "--decode" in sys.argv
PATHS = [a for a in sys.argv[1:] if not a.startswith("--")]


class Fault(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Fault(text)


# ---- protobuf ------------------------------------------------------------------------------------------------------


def varint(data, at):
    value = shift = 0
    while True:
        need(at < len(data) and shift < 70, "a varint leaves its message")
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """[(number, value)] in order; a value is an int or bytes."""
    out, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = data[at:at + 8], at + 8
        elif kind == 5:
            value, at = data[at:at + 4], at + 4
        else:
            need(kind == 2, f"wire type {kind}")
            size, at = varint(data, at)
            need(at + size <= len(data), "a field leaves its message")
            value, at = data[at:at + size], at + size
        out.append((number, value))
    return out


class Message:
    def __init__(self, data, known, what):
        self.items = fields(data)
        for number, _ in self.items:
            need(number in known, f"{what}: field {number} is not expected")

    def all(self, number):
        return [v for n, v in self.items if n == number]

    def get(self, number, absent=None):
        values = self.all(number)
        need(len(values) <= 1, f"field {number} occurs {len(values)} times")
        return values[0] if values else absent

    def text(self, number):
        return self.get(number, b"").decode()

    def map(self, number):
        out, before = {}, None
        for entry in self.all(number):
            pair = Message(entry, {1, 2}, "map entry")
            key = pair.text(1)
            need(key not in out, f"key '{key}' occurs twice")
            need(not SORTED or before is None or before < key, f"key '{key}' after '{before}': maps are sorted")
            before = key
            out[key] = pair.get(2, b"")
        return out


def signed(v):
    return v - (1 << 64) if v >> 63 else v


def packed(data):
    out, at = [], 0
    while at < len(data):
        v, at = varint(data, at)
        out.append(signed(v))
    return out


# ---- types and values ----------------------------------------------------------------------------------------------


def tensor_type(data):
    m = Message(data, {1, 2, 3, 4}, "TensorType")
    dims = []
    for d in m.all(3):
        dim = Message(d, {1, 2}, "Dimension")
        constant, unknown = dim.get(1), dim.get(2)
        need((constant is None) != (unknown is None), "a dimension is constant or unknown")
        dims.append(None if constant is None else Message(constant, {1}, "ConstantDimension").get(1, 0))
    need(m.get(2, 0) == len(dims), "rank and dimensions differ")
    need(m.get(1, 0) in NAMES, "element type")
    return NAMES[m.get(1, 0)], tuple(dims)


def value_type(data):
    m = Message(data, {1, 2, 3, 4, 5}, "ValueType")
    need(len(m.items) == 1, "a type is one of the five")
    number, inner = m.items[0]
    if number == 1:
        return ("tensor",) + tensor_type(inner)
    if number == 5:
        kind = value_type(Message(inner, {1}, "StateType").get(1))
        need(kind[0] == "tensor", "a state wraps a tensor")
        return ("state",) + kind[1:]
    return ("other",)


def unpack(raw, bits, count, is_signed):
    stream = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
    need(not stream[bits * count:].any(), "unused bits are not zero")
    codes = (stream[:bits * count].reshape(count, bits).astype(np.int64) << np.arange(bits)).sum(1)
    return np.where(codes >> (bits - 1), codes - (1 << bits), codes) if is_signed else codes


def decode(raw, dtype, shape):
    count = int(np.prod(shape, dtype=np.int64))
    need(len(raw) == (BITS[dtype] * count + 7) // 8, f"{len(raw)} bytes for {dtype}{list(shape)}")
    if BITS[dtype] < 8:
        return unpack(raw, BITS[dtype], count, dtype == "int4").reshape(shape)
    if dtype in ("bf16", "fp8e4m3fn", "fp8e5m2"):
        return np.zeros(shape)
    kind = {"bool": "u1", "fp16": "<f2", "fp32": "<f4", "fp64": "<f8"}.get(dtype)
    kind = kind or ("<i" if dtype[0] == "i" else "<u") + str(BITS[dtype] // 8)
    return np.frombuffer(raw, kind).reshape(shape)


class Blob:
    def __init__(self, path):
        self.data = open(path, "rb").read()
        self.count, version = struct.unpack_from("<II", self.data)
        need(version == 2, f"weight file version {version}")
        need(not any(self.data[8:64]), "the rest of the header is not zero")
        self.entries, at = {}, 64
        for _ in range(self.count):
            need(at % 64 == 0 and at + 64 <= len(self.data), f"entry at {at}")
            mark, code, size, offset, pad = struct.unpack_from("<IIQQQ", self.data, at)
            need(mark == 0xDEADBEEF, f"entry at {at}: mark {mark:x}")
            need(code in BLOB, f"entry at {at}: type {code}")
            need(offset == at + 64 and offset + size <= len(self.data), f"entry at {at}: data {offset} + {size}")
            need(not any(self.data[at + 32:at + 64]), f"entry at {at}: the rest is not zero")
            need(pad < 8 and (pad == 0 or BITS[BLOB[code]] < 8), f"entry at {at}: padding {pad}")
            self.entries[at] = (BLOB[code], size, pad)
            end = offset + size
            at = -(-end // 64) * 64
            need(not any(self.data[end:at]), f"gap after {end} is not zero")
        need(len(self.data) == (end if self.count else 64), "bytes behind the last entry")
        self.used = set()

    def tensor(self, offset, dtype, shape):
        need(offset in self.entries, f"offset {offset} is no entry")
        stored, size, pad = self.entries[offset]
        need(stored == dtype, f"entry at {offset} is {stored}, {dtype} is wanted")
        count = int(np.prod(shape, dtype=np.int64))
        need(pad == (-BITS[dtype] * count) % 8, f"entry at {offset}: padding {pad}")
        self.used.add(offset)
        return decode(self.data[offset + 64:offset + 64 + size], dtype, shape)


def immediate(data, dtype, shape):
    tensor = Message(data, {1, 2, 3, 4}, "ImmediateValue").get(1)
    need(tensor is not None, "no tensor")
    m = Message(tensor, {1, 2, 3, 4, 5, 6, 7}, "TensorValue")
    need(len(m.items) == 1, "a tensor value is one of the seven")
    number, inner = m.items[0]
    wanted = {"fp32": 1, "int32": 2, "int16": 2, "uint16": 2, "bool": 3, "string": 4, "int64": 5, "uint64": 5, "fp64": 6}.get(dtype, 7)
    need(number == wanted, f"{dtype} in field {number} instead of {wanted}")
    count = int(np.prod(shape, dtype=np.int64))
    values = Message(inner, {1}, "repeated values")
    if number == 4:
        strings = [v.decode() for v in values.all(1)]
        need(len(strings) == count, "number of strings")
        return strings[0] if shape == () else strings
    raw = values.get(1, b"")
    if number in (1, 6, 7):
        return decode(raw, dtype, shape)
    numbers = packed(raw)
    need(len(numbers) == count, f"{len(numbers)} numbers for {dtype}{list(shape)}")
    return np.array(numbers, np.int64).reshape(shape)


# ---- the program ---------------------------------------------------------------------------------------------------


def agree(a, b):
    return a[0] == b[0] and len(a[1]) == len(b[1]) and all(x == y or x is None or y is None for x, y in zip(a[1], b[1]))


def broadcast(a, b):
    out = []
    for i in range(max(len(a), len(b))):
        x = a[-1 - i] if i < len(a) else 1
        y = b[-1 - i] if i < len(b) else 1
        need(x == y or x == 1 or y == 1 or x is None or y is None, f"{a} and {b} do not broadcast")
        out.append(y if x == 1 else x if y == 1 or x is not None else y)
    return tuple(reversed(out))


ELEMENTWISE = "add sub mul maximum minimum pow real_div floor_div mod".split()
COMPARISONS = "equal not_equal greater greater_equal less less_equal logical_and logical_or logical_xor".split()
LIKE_X = ("tanh exp sqrt erf sigmoid silu relu softplus floor ceil round sin cos abs square sign exp2 logical_not identity rsqrt log inverse "
          "clip gelu softmax layer_norm instance_norm batch_norm l2_norm cumsum band_part slice_update").split()


def infer(op, types, values):
    """The type of the first result by rules of our own, or None where they are not simple."""
    t = lambda name: types[name][0]
    v = lambda name, absent=None: values[name] if values.get(name) is not None else absent
    if op in ELEMENTWISE:
        return t("x")[0], broadcast(t("x")[1], t("y")[1])
    if op in COMPARISONS:
        return "bool", broadcast(t("x")[1], t("y")[1])
    if op in LIKE_X:
        return t("x")
    if op == "cast":
        return v("dtype"), t("x")[1]
    if op == "select":
        return t("a")[0], broadcast(broadcast(t("a")[1], t("b")[1]), t("cond")[1])
    if op == "transpose":
        return t("x")[0], tuple(t("x")[1][int(i)] for i in v("perm"))
    if op.startswith("reduce_") and op not in ("reduce_argmax", "reduce_argmin"):
        rank = len(t("x")[1])
        axes = {int(a) % rank for a in np.atleast_1d(v("axes", np.arange(rank)))} if rank else set()
        keep = bool(v("keep_dims", False))
        return t("x")[0], tuple(1 if i in axes else d for i, d in enumerate(t("x")[1]) if keep or i not in axes)
    if op == "expand_dims":
        rank = len(t("x")[1]) + len(v("axes"))
        axes, rest = {int(a) % rank for a in v("axes")}, iter(t("x")[1])
        return t("x")[0], tuple(1 if i in axes else next(rest) for i in range(rank))
    if op == "concat":
        shapes = [x[1] for x in types["values"]]
        axis = int(v("axis")) % len(shapes[0])
        sizes = [s[axis] for s in shapes]
        return types["values"][0][0], tuple(
            (None if None in sizes else sum(sizes)) if i == axis else d for i, d in enumerate(shapes[0]))
    if op == "gather" and int(v("batch_dims", 0)) == 0:
        axis = int(v("axis", 0)) % len(t("x")[1])
        return t("x")[0], t("x")[1][:axis] + t("indices")[1] + t("x")[1][axis + 1:]
    if op == "linear":
        return t("x")[0], t("x")[1][:-1] + (t("weight")[1][0],)
    if op == "matmul" and len(t("x")[1]) > 1 and len(t("y")[1]) > 1:
        x, y = list(t("x")[1]), list(t("y")[1])
        if v("transpose_x", False):
            x[-2:] = x[:-3:-1]
        if v("transpose_y", False):
            y[-2:] = y[:-3:-1]
        need(x[-1] == y[-2] or None in (x[-1], y[-2]), f"{x} times {y}")
        return t("x")[0], broadcast(tuple(x[:-2]), tuple(y[:-2])) + (x[-2], y[-1])
    if op == "constexpr_lut_to_dense" and "shape" not in types:
        shape, lut = list(t("indices")[1]), t("lut")[1]
        need(len(lut) == len(shape) + 2 and lut[-2] == 1 << BITS[t("indices")[0]], f"lut {lut} for {t('indices')}")
        need(all(d % g == 0 for d, g in zip(shape, lut)), f"lut {lut} does not divide {shape}")
        if lut[-1] > 1:
            shape[int(v("vector_axis"))] *= lut[-1]
        return t("lut")[0], tuple(shape)
    if op == "constexpr_blockwise_shift_scale":
        need(all(d % g == 0 for d, g in zip(t("data")[1], t("scale")[1])), "blocks do not divide")
        return t("scale")[0], t("data")[1]
    if op == "read_state":
        return t("input")
    return None


def decompress(op, values):
    """The dense numbers of a compressed constant: a table per group of every axis, or a scale per block."""
    if op == "constexpr_lut_to_dense":
        indices, lut = values["indices"], values["lut"]
        places = np.meshgrid(*[np.arange(d) // (d // g) for d, g in zip(indices.shape, lut.shape)], indexing="ij", sparse=True)
        return lut[tuple(places) + (indices, 0)]
    data, scale = values["data"], values["scale"]
    for axis, (d, g) in enumerate(zip(data.shape, scale.shape)):
        scale = np.repeat(scale, d // g, axis)
    return (data.astype(np.float32) * scale.astype(np.float32)).astype(np.float16)


class Program:
    def __init__(self, folder):
        self.folder, self.blobs = folder, {}
        self.operations = self.inferred = 0

    def value(self, data):
        m = Message(data, {1, 2, 3, 5}, "Value")
        kind = value_type(m.get(2))
        blob = m.get(5)
        if blob is not None:
            ref = Message(blob, {1, 2}, "BlobFileValue")
            name = ref.text(1)
            need(name.startswith("@model_path/"), f"weight file '{name}'")
            path = os.path.join(self.folder, name[len("@model_path/"):])
            if path not in self.blobs:
                self.blobs[path] = Blob(path)
            return kind, self.blobs[path].tensor(ref.get(2, 0), kind[1], kind[2])
        need(m.get(3) is not None, "a value without contents")
        return kind, immediate(m.get(3), kind[1], kind[2]) if kind[0] == "tensor" else None

    def named(self, data):
        m = Message(data, {1, 2}, "NamedValueType")
        need(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_@]*", m.text(1)), f"name '{m.text(1)}'")
        return m.text(1), value_type(m.get(2))

    def function(self, data):
        m = Message(data, {1, 2, 3, 4}, "Function")
        need(m.text(2) in OPSETS, f"opset '{m.text(2)}'")
        blocks = m.map(3)
        need(list(blocks) == [m.text(2)], "the one block is that of the opset")
        block = Message(blocks[m.text(2)], {2, 3, 4}, "Block")
        known = {}
        inputs = [self.named(i) for i in m.all(1)]
        for name, kind in inputs:
            need(name not in known, f"'{name}' twice")
            known[name] = (kind, None)
        for op in block.all(3):
            self.operation(op, known)
        outputs = [o.decode() for o in block.all(2)]
        for name in outputs:
            need(name in known, f"output '{name}' is not defined")
        return inputs, {name: known[name][0] for name in outputs}

    def operation(self, data, known):
        m = Message(data, {1, 2, 3, 5}, "Operation")
        op, attributes = m.text(1), {k: self.value(v) for k, v in m.map(5).items()}
        outputs = [self.named(o) for o in m.all(3)]
        label = f"{op} '{outputs[0][0] if outputs else ''}'"
        try:
            need(op == "write_state" or outputs, "no outputs")
            types, values = {}, {}
            for parameter, argument in m.map(2).items():
                types[parameter] = []
                for binding in Message(argument, {1}, "Argument").all(1):
                    b = Message(binding, {1, 2}, "Binding")
                    need(len(b.items) == 1, "a binding is a name or a value")
                    if b.get(1) is not None:
                        need(b.text(1) in known, f"'{b.text(1)}' is not defined")
                        kind, contents = known[b.text(1)]
                    else:
                        kind, contents = self.value(b.get(2))
                    types[parameter].append(kind[1:] if kind[0] != "other" else None)
                    values[parameter] = contents
            result = attributes["val"][1] if op == "const" else None
            if DECODE and op in ("constexpr_lut_to_dense", "constexpr_blockwise_shift_scale"):
                dense = decompress(op, values)
                stored = ", ".join(f"{k} {types[k][0][0]}{list(types[k][0][1])}" for k in sorted(types))
                print(f"{outputs[0][0]}: {stored}: {hashlib.sha256(dense.astype('<f2').tobytes()).hexdigest()}")
            if op == "const":
                need(set(attributes) <= {"name", "val"} and not types, "const has name and val")
                need(attributes["val"][0] == outputs[0][1], f"declared {outputs[0][1]}, val is {attributes['val'][0]}")
            else:
                need(set(attributes) <= {"name"}, f"attributes {sorted(attributes)}")
                inferred = infer(op, types, values)
                if inferred:
                    self.inferred += 1
                    need(agree(inferred, outputs[0][1][1:]), f"declared {outputs[0][1]}, inputs give {inferred}")
            if op == "write_state":
                need(types["data"][0] == types["input"][0], "data and state differ")
            self.operations += 1
        except Fault as fault:
            raise Fault(f"{label}: {fault}")
        for name, kind in outputs:
            need(name not in known, f"{label}: '{name}' twice")
            known[name] = (kind, result)


def features(message, number):
    out = {}
    for data in message.all(number):
        m = Message(data, {1, 2, 3}, "FeatureDescription")
        kind = Message(m.get(3), {5, 8, 1000}, "FeatureType")
        is_state = kind.get(8) is not None
        array = Message(kind.get(8), {1}, "StateFeatureType").get(1) if is_state else kind.get(5)
        a = Message(array, {1, 2, 21, 31, 41, 51, 61}, "ArrayFeatureType")
        shape = tuple(packed(a.get(1, b"")))
        for option in a.all(21):
            shapes = [tuple(packed(Message(s, {1}, "Shape").get(1, b""))) for s in Message(option, {1}, "EnumeratedShapes").all(1)]
            need(shape in shapes, f"'{m.text(1)}': default shape {shape} is none of {shapes}")
        need(a.get(2) in ARRAYS, "array type")
        need(m.text(1) not in out, f"feature '{m.text(1)}' twice")
        out[m.text(1)] = (is_state, ARRAYS[a.get(2)], shape, bool(a.all(21) or a.all(31)))
    return out


def same(described, actual, what):
    need(set(described) == set(actual), f"{what}: described {sorted(described)}, the program has {sorted(actual)}")
    for name, (is_state, dtype, shape, flexible) in described.items():
        kind = actual[name]
        need(is_state == (kind[0] == "state") and dtype == kind[1], f"{what} '{name}': {dtype}, the program has {kind}")
        if shape == () and what == "outputs" or shape == (1,) and kind[2] == ():
            continue
        need(agree((dtype, shape), kind[1:]), f"{what} '{name}': {shape}, the program has {kind}")
        if what == "inputs":
            need((None in kind[2]) == flexible, f"input '{name}': flexible on one side only")
        if is_state:
            need(dtype == "fp16" and None not in kind[2], f"state '{name}' is {kind}")


def check_description(description, functions):
    d = Message(description, {1, 10, 13, 20, 21, 11, 12, 50, 100}, "ModelDescription")
    if list(functions) == ["main"]:
        need(not d.all(20) and d.get(21) is None, "one function called main leaves the list empty")
        described = {"main": (features(d, 1), features(d, 10), features(d, 13))}
    else:
        need(not d.all(1) and not d.all(10) and not d.all(13), "several functions leave the top level empty")
        described = {}
        for data in d.all(20):
            f = Message(data, {1, 2, 3, 6}, "FunctionDescription")
            described[f.text(1)] = (features(f, 2), features(f, 3), features(f, 6))
        need(d.text(21) in functions, f"default function '{d.text(21)}'")
    need(set(described) == set(functions), f"functions {sorted(described)} are described, there are {sorted(functions)}")
    for name, (inputs, outputs) in functions.items():
        ins, outs, states = described[name]
        same({**ins}, {n: k for n, k in inputs if k[0] != "state"}, "inputs")
        same({**states}, {n: k for n, k in inputs if k[0] == "state"}, "states")
        same({**outs}, outputs, "outputs")


def check_package(path):
    manifest = json.load(open(os.path.join(path, "Manifest.json")))
    need(set(manifest) == {"fileFormatVersion", "itemInfoEntries", "rootModelIdentifier"}, f"manifest keys {sorted(manifest)}")
    need(manifest["fileFormatVersion"] == "1.0.0", "manifest version")
    items = manifest["itemInfoEntries"]
    for key, item in items.items():
        need(re.fullmatch(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", key), f"identifier '{key}'")
        need(set(item) == {"author", "description", "name", "path"}, f"item {item}")
        need(os.path.exists(os.path.join(path, "Data", item["path"])), f"'{item['path']}' is not there")
    root = os.path.join(path, "Data", items[manifest["rootModelIdentifier"]]["path"])
    folder = os.path.dirname(root)
    need(os.path.isdir(os.path.join(folder, "weights")) == any(i["name"] == "weights" for i in items.values()), "weights item")
    model = Message(open(root, "rb").read(), {1, 2, 10, 502}, "Model")
    need(model.get(1) in range(6, 11), f"specification version {model.get(1)}")
    m = Message(model.get(502), {1, 2, 3, 4}, "Program")
    need(m.get(1) == 1, "program version")
    program = Program(folder)
    functions = {}
    for name, data in m.map(2).items():
        try:
            functions[name] = program.function(data)
        except Fault as fault:
            raise Fault(f"function '{name}': {fault}")
    check_description(model.get(2), functions)
    for name, blob in program.blobs.items():
        need(blob.used == set(blob.entries), f"{name}: entries {sorted(set(blob.entries) - blob.used)} are not used")
    return program


def check_compiled(path):
    data = open(os.path.join(path, "coremldata.bin"), "rb").read()
    kind, version = struct.unpack_from("<II", data)
    need(kind == 502 and not any(data[8:28]), "envelope")
    need(data[0x1C:0x2B] == struct.pack("<Q", 7) + b"generic" and data[0x2B] == version and not any(data[0x2C:0x4B]), "engine")
    size, = struct.unpack_from("<Q", data, 0x4B)
    description = Message(data[0x53:0x53 + size], {1, 10, 13, 20, 21, 11, 12, 50, 100}, "ModelDescription")
    need(description.get(100) is not None, "metadata is always there")
    functions = max(1, len(description.all(20)))
    need(data[0x53 + size:] == struct.pack("<I12x", 502) * functions, "one trailer a function")
    metadata = json.load(open(os.path.join(path, "metadata.json")))
    need(isinstance(metadata, list) and len(metadata) == 1 and metadata[0]["metadataOutputVersion"] == "3.0", "metadata.json")
    need(len(metadata[0].get("functions", [None])) == functions, "metadata.json: functions")
    text = open(os.path.join(path, "model.mil")).read()
    need(re.match(r"program\(1\.\d+\)\n\[buildInfo = dict<string, string>\(\{\{", text) and text.endswith("}"), "model.mil")
    need(text.count("    func ") == functions, "model.mil: functions")
    for offset in set(map(int, re.findall(r"offset = uint64\((\d+)\)", text))):
        weight = re.search(r'path = string\("@model_path/([^"]+)"\)', text).group(1)
        need(offset in Blob(os.path.join(path, weight)).entries, f"offset {offset}")


def main():
    operations = inferred = 0
    for path in PATHS:
        try:
            if path.endswith(".mlmodelc"):
                check_compiled(path)
                continue
            program = check_package(path)
            operations += program.operations
            inferred += program.inferred
        except (Fault, KeyError, ValueError, OSError, struct.error) as fault:
            print(f"{path}: {type(fault).__name__}: {fault}")
            return 1
    print(f"accepted {len(PATHS)} models, {operations} operations, {inferred} with types of its own")
    return 0


if __name__ == "__main__":
    sys.exit(main())
