#!/usr/bin/env python3
"""Small Core ML programs with their results by plain numpy (float64 inside): tests/data/coreml/ops.json.

Run: python3 tests/oracle/coreml_ops.py tests/data/coreml/ops.json

A case is {"name", "inputs": {name: tensor}, "steps": [{"op", "args", "out": [names]}], "outputs": {name: tensor}}.
An argument is the name of a value, a list of such names, or {"const": tensor}. Inputs are numbers that fp16 can
hold, so that the same case is true for an fp16 program.
"""
import json
import math
import sys

import numpy as np

rng = np.random.default_rng(18)
cases = []


def f16(a):
    return np.asarray(a, np.float64).astype(np.float16).astype(np.float64)


def rnd(*shape, low=-2.0, high=2.0):
    return f16(rng.uniform(low, high, shape))


def number(v):
    v = float(v)
    if math.isnan(v):
        return "nan"
    if math.isinf(v):
        return "inf" if v > 0 else "-inf"
    return int(v) if v == int(v) and abs(v) < 2**53 else float(np.float32(v))


def tensor(a, dtype=None):
    a = np.asarray(a)
    if dtype is None:
        dtype = {"b": "bool", "i": "int32", "u": "int32", "f": "fp32"}[a.dtype.kind]
    return {"dtype": dtype, "shape": list(a.shape), "data": [number(v) for v in a.reshape(-1)]}


def const(a, dtype=None):
    if isinstance(a, str):
        return {"const": {"dtype": "string", "shape": [], "data": [], "text": a}}
    return {"const": tensor(a, dtype)}


def case(name, inputs, steps, outputs, **flags):
    cases.append({"name": name, "inputs": {k: tensor(v) for k, v in inputs.items()}, "steps": steps,
                  "outputs": {k: tensor(v) for k, v in outputs.items()}, **flags})


def step(op, out, **args):
    return {"op": op, "args": args, "out": out if isinstance(out, list) else [out]}


def one(op, inputs, result, variant="", flags=None, **consts):
    """One operation on runtime inputs and constants."""
    args = {k: k for k in inputs}
    args.update({k: v if isinstance(v, (dict, list)) else const(v) for k, v in consts.items()})
    results = result if isinstance(result, list) else [result]
    outs = [f"y{i}" for i in range(len(results))]
    case(f"{op}{' ' + variant if variant else ''}", inputs, [step(op, outs, **args)], dict(zip(outs, results)),
         **(flags or {}))


erf = np.vectorize(math.erf, otypes=[np.float64])
I32 = np.int32

# ---- elementwise, two inputs ------------------------------------------------------------------------------------
a, b = rnd(2, 3, 4), rnd(2, 3, 4)
row, column, scalar = rnd(4), rnd(3, 1), rnd()
away = np.where(np.abs(b) < 0.25, 0.5, b)  # divisors
ia, ib = rng.integers(-9, 10, (2, 3)).astype(I32), np.where((k := rng.integers(-4, 5, (2, 3))) == 0, 3, k).astype(I32)
binary = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
for op, fn in binary.items():
    one(op, {"x": a, "y": b}, fn(a, b))
    one(op, {"x": a, "y": row}, fn(a, row), "with a row")
    one(op, {"x": column, "y": row}, fn(column, row), "of a column and a row")
    one(op, {"x": row, "y": a}, fn(row, a), "with a row first")
    one(op, {"x": a, "y": scalar}, fn(a, scalar), "with a scalar")
    one(op, {"x": ia, "y": ib}, fn(ia, ib), "of integers")
big = np.array([2147483647, -2147483648, 65536], I32)
with np.errstate(over="ignore"):
    one("add", {"x": big, "y": big}, big + big, "wraps")
    one("mul", {"x": big, "y": big}, big * big, "wraps")
one("real_div", {"x": a, "y": away}, a / away)
one("real_div", {"x": np.array([1.0, -1.0, 0.0]), "y": np.zeros(3)}, np.array([np.inf, -np.inf, np.nan]), "by zero")
one("pow", {"x": np.abs(a) + 0.5, "y": b}, np.power(f16(np.abs(a) + 0.5), b), flags={"tolerance": 2e-3})
cases[-1]["inputs"]["x"] = tensor(f16(np.abs(a) + 0.5))
one("pow", {"x": np.array([2, -3, 0], I32), "y": np.array([3, 2, 0], I32)}, np.array([8, 9, 1], I32), "of integers")
one("floor_div", {"x": a, "y": away}, np.floor(a / away))
one("floor_div", {"x": ia, "y": ib}, ia // ib, "of integers")
one("mod", {"x": a, "y": away}, np.mod(a, away), flags={"tolerance": 2e-3})
one("mod", {"x": ia, "y": ib}, np.mod(ia, ib), "of integers")
ties = f16(np.round(a))
other = f16(np.round(b))
for op, fn in {"equal": np.equal, "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal,
               "less": np.less, "less_equal": np.less_equal}.items():
    one(op, {"x": ties, "y": other}, fn(ties, other))
    one(op, {"x": ties, "y": row}, fn(ties, row), "with a row")
    one(op, {"x": ia, "y": ib}, fn(ia, ib), "of integers")
    n = np.array([np.nan, 1.0, np.inf, -np.inf])
    one(op, {"x": n, "y": np.array([np.nan, np.nan, np.inf, 0])}, fn(n, np.array([np.nan, np.nan, np.inf, 0])),
        "of NaN and infinities")
p, q = np.array([0, 0, 1, 1], I32), np.array([0, 1, 0, 1], I32)
for op, fn in {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}.items():
    case(op, {"p": p, "q": q}, [step("cast", "x", x="p", dtype=const("bool")), step("cast", "y", x="q", dtype=const("bool")),
                                step(op, "z", x="x", y="y")], {"z": fn(p, q)})
case("logical_not", {"p": p}, [step("cast", "x", x="p", dtype=const("bool")), step("logical_not", "z", x="x")],
     {"z": np.logical_not(p)})

# ---- elementwise, one input -------------------------------------------------------------------------------------
x = rnd(3, 5, low=-4, high=4)
x[0, 0] = 0
sigmoid = lambda v: 1 / (1 + np.exp(-v))
unary = {"tanh": np.tanh, "exp": np.exp, "erf": erf, "sigmoid": sigmoid, "silu": lambda v: v * sigmoid(v),
         "relu": lambda v: np.maximum(v, 0), "softplus": lambda v: np.logaddexp(0, v), "floor": np.floor, "ceil": np.ceil,
         "round": np.round, "sin": np.sin, "cos": np.cos, "abs": np.abs, "square": np.square, "sign": np.sign,
         "exp2": np.exp2}
for op, fn in unary.items():
    one(op, {"x": x}, fn(x))
one("round", {"x": np.array([0.5, 1.5, 2.5, -0.5, -1.5])}, np.array([0, 2, 2, 0, -2.0]), "half to even")
one("sqrt", {"x": np.abs(x)}, np.sqrt(np.abs(x)))
one("sqrt", {"x": np.array([-1.0, 0.0, np.inf])}, np.array([np.nan, 0, np.inf]), "of special numbers")
one("exp", {"x": np.array([-np.inf, 0.0, np.inf])}, np.array([0, 1, np.inf]), "of infinities")
one("tanh", {"x": np.array([-60000.0, 60000.0])}, np.array([-1.0, 1.0]), "of large numbers")
one("sigmoid", {"x": np.array([-60000.0, 60000.0])}, np.array([0.0, 1.0]), "of large numbers")
one("softplus", {"x": np.array([-60000.0, 60000.0, 30.0])}, np.array([0.0, 60000.0, 30.0]), "of large numbers")
for op, fn in {"abs": np.abs, "square": np.square, "sign": np.sign}.items():
    one(op, {"x": ia}, fn(ia), "of integers")
one("exp2", {"x": np.array([0, 5, -1], I32)}, np.array([1, 32, 0], I32), "of integers")
one("identity", {"x": x}, x)
pos = np.abs(x) + 0.25
pos = f16(pos)
one("rsqrt", {"x": pos}, 1 / np.sqrt(pos + 0.125), epsilon=0.125)
one("rsqrt", {"x": pos}, 1 / np.sqrt(pos + 1e-12), "without epsilon")
one("log", {"x": pos}, np.log(pos + 0.25), epsilon=0.25, flags={"tolerance": 1e-3})
one("log", {"x": pos}, np.log(pos), "without epsilon", flags={"tolerance": 1e-3})
one("inverse", {"x": pos}, 1 / (pos + 0.5), epsilon=0.5)
one("inverse", {"x": pos}, 1 / (pos + 1e-4), "without epsilon")
one("clip", {"x": x}, np.clip(x, -1.5, 0.75), alpha=-1.5, beta=0.75)
one("gelu", {"x": x}, 0.5 * x * (1 + erf(x / math.sqrt(2))), flags={"tolerance": 1e-5})
one("gelu", {"x": x}, 0.5 * x * (1 + erf(x / math.sqrt(2))), "EXACT", mode="EXACT", flags={"tolerance": 1e-5})
one("gelu", {"x": x}, 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), "TANH_APPROXIMATION",
    mode="TANH_APPROXIMATION", flags={"tolerance": 1e-5})
one("gelu", {"x": x}, x * sigmoid(1.702 * x), "SIGMOID_APPROXIMATION", mode="SIGMOID_APPROXIMATION")
c = np.array([0.0, 1.75, -1.75, 300.0, -300.0, 0.5])
one("cast", {"x": c}, np.trunc(c).astype(I32), "to int32", dtype="int32")
one("cast", {"x": c}, c != 0, "to bool", dtype="bool")
one("cast", {"x": ia}, ia.astype(np.float64), "integers to fp32", dtype="fp32", flags={"no16": True})
one("cast", {"x": ia}, ia.astype(np.float64), "integers to fp16", dtype="fp16")
one("cast", {"x": np.array([1.0, -1.0, 0.333251953125])}, np.array([1.0, -1.0, 0.333251953125]), "to fp16", dtype="fp16")
for small, low, high in (("int8", -128, 127), ("uint8", 0, 255), ("int16", -32768, 32767), ("uint16", 0, 65535)):
    v = np.array([0, 1, min(high, 100), max(low, -100)], I32)
    one("cast", {"x": v}, v, "to " + small, dtype=small)
cond = np.array([[1], [0], [1]], I32)
for variant, u, v in (("", rnd(3, 4), rnd(3, 4)), ("broadcasting", rnd(4), rnd(3, 1)), ("of integers", ia[:1].repeat(3, 0),
                                                                                    ib[:1].repeat(3, 0))):
    case(f"select {variant}".strip(), {"c": cond, "a": u, "b": v},
         [step("cast", "cond", x="c", dtype=const("bool")), step("select", "y", cond="cond", a="a", b="b")],
         {"y": np.where(cond != 0, u, v)})
inf = np.where(np.arange(4) > 1, -np.inf, 0.0)
case("select of infinities", {"c": cond, "a": rnd(3, 4) * 0, "b": np.broadcast_to(inf, (3, 4)).copy()},
     [step("cast", "cond", x="c", dtype=const("bool")), step("select", "y", cond="cond", a="a", b="b")],
     {"y": np.where(cond != 0, 0.0, np.broadcast_to(inf, (3, 4)))})


# ---- along axes --------------------------------------------------------------------------------------------------
def softmax(v, axis):
    e = np.exp(v - v.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


t = rnd(2, 3, 4, low=-6, high=6)
one("softmax", {"x": t}, softmax(t, -1), "of the last axis by default")
for axis in (0, 1, 2, -2):
    one("softmax", {"x": t}, softmax(t, axis), f"axis {axis}", axis=np.int32(axis))
m = t.copy()
m[0, :, 2:] = -np.inf
one("softmax", {"x": m}, softmax(m, -1), "masked", axis=np.int32(-1))


def norm(v, axes, eps):
    mean = v.mean(axis=axes, keepdims=True)
    return (v - mean) / np.sqrt(((v - mean) ** 2).mean(axis=axes, keepdims=True) + eps)


g1, b1 = rnd(4), rnd(4)
one("layer_norm", {"x": t}, norm(t, (2,), 1e-5) * g1 + b1, "of the last axis", axes=np.array([-1], I32), gamma=g1, beta=b1,
    epsilon=1e-5, flags={"tolerance": 1e-4})
one("layer_norm", {"x": t}, norm(t, (0, 1, 2), 1e-5), "of all axes by default", flags={"tolerance": 1e-4})
g2 = rnd(2, 4)
one("layer_norm", {"x": t}, norm(t, (0, 2), 0.5) * g2[:, None, :], "of two axes", axes=np.array([0, 2], I32), gamma=g2, epsilon=0.5)
sp = rnd(2, 3, 2, 3)
gc, bc = rnd(3), rnd(3)
one("instance_norm", {"x": sp}, norm(sp, (2, 3), 1e-3) * gc[:, None, None] + bc[:, None, None], gamma=gc, beta=bc,
    epsilon=1e-3, flags={"tolerance": 1e-4})
mean, var = rnd(3), f16(np.abs(rnd(3)) + 0.5)
one("batch_norm", {"x": sp}, (sp - mean[:, None, None]) / np.sqrt(var[:, None, None] + 1e-3) * gc[:, None, None] + bc[:, None, None],
    mean=mean, variance=var, gamma=gc, beta=bc, epsilon=1e-3, flags={"tolerance": 1e-4})
one("l2_norm", {"x": sp}, sp / np.sqrt((sp**2).sum(axis=(1, 2, 3), keepdims=True) + 0.5), epsilon=0.5)
w = rnd(2, 3, 4, low=-1.5, high=1.5)
reductions = {"reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod,
              "reduce_sum_square": lambda v, axis, keepdims: np.sum(v * v, axis=axis, keepdims=keepdims),
              "reduce_l1_norm": lambda v, axis, keepdims: np.sum(np.abs(v), axis=axis, keepdims=keepdims),
              "reduce_l2_norm": lambda v, axis, keepdims: np.sqrt(np.sum(v * v, axis=axis, keepdims=keepdims)),
              "reduce_log_sum": lambda v, axis, keepdims: np.log(np.sum(v, axis=axis, keepdims=keepdims)),
              "reduce_log_sum_exp": lambda v, axis, keepdims: np.log(np.sum(np.exp(v), axis=axis, keepdims=keepdims))}
for op, fn in reductions.items():
    v = np.abs(w) + 0.25 if op == "reduce_log_sum" else w
    v = f16(v)
    loose = {"tolerance": 1e-5}
    one(op, {"x": v}, fn(v, axis=None, keepdims=False), "of everything", flags=loose)
    one(op, {"x": v}, fn(v, axis=(2,), keepdims=True), "of the last axis, kept", axes=np.array([-1], I32), keep_dims=np.bool_(True),
        flags=loose)
    one(op, {"x": v}, fn(v, axis=(0, 2), keepdims=False), "of two axes", axes=np.array([2, 0], I32), keep_dims=np.bool_(False),
        flags=loose)
for op in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum_square", "reduce_l1_norm"):
    one(op, {"x": ia}, reductions[op](ia, axis=(1,), keepdims=False).astype(I32), "of integers", axes=np.array([1], I32))
one("reduce_log_sum_exp", {"x": np.array([1000.0, 1000.0])}, np.array(1000 + math.log(2)), "of large numbers")
tie = np.array([[1.0, 3, 3, 0], [0, 0, -1, -1]])
for op, fn in {"reduce_argmax": np.argmax, "reduce_argmin": np.argmin}.items():
    one(op, {"x": tie}, fn(tie, axis=-1).astype(I32), "of the last axis by default")
    one(op, {"x": tie}, np.expand_dims(fn(tie, axis=0), 0).astype(I32), "kept", axis=np.int32(0), keep_dims=np.bool_(True),
        output_dtype="int32")
    one(op, {"x": ia}, fn(ia, axis=1).astype(I32), "of integers", axis=np.int32(1))
one("cumsum", {"x": t}, np.cumsum(t, axis=0), "of the first axis by default", flags={"tolerance": 1e-5})
one("cumsum", {"x": t}, np.cumsum(t, axis=1) - t, "exclusive", axis=np.int32(1), exclusive=np.bool_(True), flags={"tolerance": 1e-5})
rev = np.flip(np.cumsum(np.flip(t, 2), axis=2), 2)
one("cumsum", {"x": t}, rev, "reversed", axis=np.int32(-1), reverse=np.bool_(True), flags={"tolerance": 1e-5})
one("cumsum", {"x": t}, rev - t, "exclusive and reversed", axis=np.int32(2), exclusive=np.bool_(True), reverse=np.bool_(True),
    flags={"tolerance": 1e-5})
one("cumsum", {"x": ia}, np.cumsum(ia, axis=1).astype(I32), "of integers", axis=np.int32(1))
order = np.argsort(-tie, axis=-1, kind="stable")
one("topk", {"x": tie}, [np.take_along_axis(tie, order, -1)[:, :2], order[:, :2].astype(I32)], k=np.int32(2))
up = np.argsort(tie, axis=0, kind="stable")
one("topk", {"x": tie}, [np.take_along_axis(tie, up, 0)[:1], up[:1].astype(I32)], "ascending along axis 0", k=np.int32(1),
    axis=np.int32(0), ascending=np.bool_(True))
one("topk", {"x": tie}, [np.take_along_axis(tie, order, -1)[:, :3]], "values alone", k=np.int32(3), return_indices=np.bool_(False))
one("argsort", {"x": tie}, order.astype(I32))
one("argsort", {"x": tie}, up.astype(I32), "ascending along axis 0", axis=np.int32(0), ascending=np.bool_(True))

# ---- products ----------------------------------------------------------------------------------------------------
loose = {"tolerance": 2e-5}
A, B = rnd(2, 3, 5), rnd(2, 5, 4)
one("matmul", {"x": A, "y": B}, A @ B, flags=loose)
one("matmul", {"x": A, "y": B[0]}, A @ B[0], "with one matrix", flags=loose)
one("matmul", {"x": A[None], "y": np.stack([B, B])}, A[None] @ np.stack([B, B]), "broadcasting batches", flags=loose)
At, Bt = A.swapaxes(1, 2).copy(), B.swapaxes(1, 2).copy()
one("matmul", {"x": At, "y": B}, A @ B, "transpose_x", transpose_x=np.bool_(True), flags=loose)
one("matmul", {"x": A, "y": Bt}, A @ B, "transpose_y", transpose_y=np.bool_(True), flags=loose)
one("matmul", {"x": At, "y": Bt}, A @ B, "both transposed", transpose_x=np.bool_(True), transpose_y=np.bool_(True), flags=loose)
one("matmul", {"x": A}, A @ Bt[0].T, "with a constant transposed", y=Bt[0], transpose_y=np.bool_(True), flags=loose)
one("matmul", {"x": A}, A @ B[1], "with a constant", y=B[1], flags=loose)
one("matmul", {"x": A[0, 0], "y": B[0]}, A[0, 0] @ B[0], "of a row vector", flags=loose)
one("matmul", {"x": A[0], "y": B[0][:, 0].copy()}, A[0] @ B[0][:, 0], "of a column vector", flags=loose)
one("matmul", {"x": ia, "y": ib.T.copy()}, (ia @ ib.T).astype(I32), "of integers")
wide = rnd(3, 37)
W, bias = rnd(6, 37), rnd(6)
one("linear", {"x": wide}, wide @ W.T + bias, weight=W, bias=bias, flags={"tolerance": 1e-4})
one("linear", {"x": wide[0]}, wide[0] @ W.T, "of a vector, without bias", weight=W, flags={"tolerance": 1e-4})
three = rnd(2, 2, 37)
one("linear", {"x": three}, three @ W.T + bias, "of rank 3", weight=W, bias=bias, flags={"tolerance": 1e-4})
for equation in ("bnij,bnjk->bnik", "abc,cd->abd", "abcd,adce->abce", "ab,bc->ca"):
    left, right = equation.split("->")[0].split(",")
    size = dict(zip("abcdeijkn", (2, 3, 4, 3, 2, 2, 3, 4, 2)))
    L, R = rnd(*[size[ch] for ch in left]), rnd(*[size[ch] for ch in right])
    case(f"einsum {equation}", {"u": L, "v": R}, [step("einsum", "y", values=["u", "v"], equation=const(equation))],
         {"y": np.einsum(equation, L, R)}, tolerance=2e-5)


def conv(x, w, bias, strides, pads, dilations, groups):
    """pads: [(before, after)] per spatial axis."""
    n, cin = x.shape[:2]
    spatial = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + pads)
    kernel = w.shape[2:]
    out = [(x.shape[2 + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(spatial)]
    y = np.zeros([n, w.shape[0]] + out)
    per_in, per_out = cin // groups, w.shape[0] // groups
    for place in np.ndindex(*kernel):
        index = tuple(slice(place[i] * dilations[i], place[i] * dilations[i] + (out[i] - 1) * strides[i] + 1, strides[i])
                      for i in range(spatial))
        for g in range(groups):
            piece = x[(slice(None), slice(g * per_in, (g + 1) * per_in)) + index]
            weights = w[(slice(g * per_out, (g + 1) * per_out), slice(None)) + place]
            y[:, g * per_out:(g + 1) * per_out] += np.einsum("nc...,oc->no...", piece, weights)
    return y + (0 if bias is None else bias.reshape([1, -1] + [1] * spatial))


def conv_case(variant, x, w, bias=None, strides=None, pad_type=None, pad=None, dilations=None, groups=1, runtime_weight=False):
    spatial = x.ndim - 2
    s, d = strides or [1] * spatial, dilations or [1] * spatial
    pads = [(0, 0)] * spatial
    if pad_type == "custom":
        pads = [(pad[2 * i], pad[2 * i + 1]) for i in range(spatial)]
    elif pad_type in ("same", "same_lower"):
        pads = []
        for i in range(spatial):
            out = -(-x.shape[2 + i] // s[i])
            total = max(0, (out - 1) * s[i] + (w.shape[2 + i] - 1) * d[i] + 1 - x.shape[2 + i])
            small, large = total // 2, total - total // 2
            pads.append((small, large) if pad_type == "same" else (large, small))
    consts = {}
    inputs = {"x": x}
    if runtime_weight:
        inputs["weight"] = w
    else:
        consts["weight"] = w
    for key, value in (("strides", strides), ("pad", pad), ("dilations", dilations)):
        if value is not None:
            consts[key] = np.array(value, I32)
    if pad_type:
        consts["pad_type"] = pad_type
    if bias is not None:
        consts["bias"] = bias
    if groups != 1:
        consts["groups"] = np.int32(groups)
    one("conv", inputs, conv(x, w, bias, s, pads, d, groups), variant, flags={"tolerance": 1e-4, "fixed": runtime_weight}, **consts)


conv_case("1x1 of one place", rnd(1, 37, 1, 1), rnd(5, 37, 1, 1), rnd(5))
conv_case("1x1 of a row", rnd(1, 6, 1, 7), rnd(5, 6, 1, 1), rnd(5), strides=[1, 1], pad_type="valid", pad=[0, 0, 0, 0], dilations=[1, 1])
conv_case("1x1 of a batch", rnd(2, 6, 2, 3), rnd(4, 6, 1, 1))
conv_case("with weights known when it runs", rnd(1, 3, 1, 5), rnd(4, 3, 1, 2), runtime_weight=True)
conv_case("3x3 strided", rnd(1, 2, 7, 6), rnd(3, 2, 3, 3), strides=[2, 1])
conv_case("3x2 custom padding", rnd(2, 2, 4, 5), rnd(3, 2, 3, 2), rnd(3), pad_type="custom", pad=[1, 0, 0, 2])
conv_case("same", rnd(1, 2, 5, 6), rnd(2, 2, 2, 3), pad_type="same", strides=[2, 2])
conv_case("same_lower", rnd(1, 2, 5, 6), rnd(2, 2, 2, 4), pad_type="same_lower", strides=[1, 2])
conv_case("dilated", rnd(1, 2, 7, 7), rnd(2, 2, 2, 2), dilations=[2, 3])
conv_case("grouped", rnd(1, 6, 3, 3), rnd(4, 3, 2, 2), rnd(4), groups=2)
conv_case("depthwise causal", rnd(1, 5, 9), rnd(5, 1, 4), pad_type="custom", pad=[3, 0], groups=5)
conv_case("of one axis", rnd(2, 3, 8), rnd(4, 3, 3), strides=[3])
conv_case("of three axes", rnd(1, 2, 3, 4, 3), rnd(2, 2, 2, 2, 2), pad_type="custom", pad=[0, 1, 1, 0, 0, 0])


def attention(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    return softmax(s, -1) @ v


Q, K, V = rnd(1, 2, 3, 4), rnd(1, 2, 5, 4), rnd(1, 2, 5, 6)
one("scaled_dot_product_attention", {"query": Q, "key": K, "value": V}, attention(Q, K, V), flags=loose)
fm = np.where(np.arange(5)[None] <= np.arange(3)[:, None] + 1, 0.0, -np.inf)
one("scaled_dot_product_attention", {"query": Q, "key": K, "value": V, "attn_mask": fm}, attention(Q, K, V, fm),
    "with a float mask", flags=loose)
bm = np.array([1, 0, 1, 1, 0], I32).reshape(1, 1, 1, 5)
case("scaled_dot_product_attention with a bool mask", {"q": Q, "k": K, "v": V, "m": bm},
     [step("cast", "mask", x="m", dtype=const("bool")),
      step("scaled_dot_product_attention", "y", query="q", key="k", value="v", attn_mask="mask")],
     {"y": attention(Q, K, V, bm != 0)}, tolerance=2e-5)

# ---- moving elements ---------------------------------------------------------------------------------------------
u, v = rnd(2, 3, 4), rnd(2, 2, 4)


def listed(op, inputs, result, variant="", **consts):
    args = {"values": list(inputs)}
    args.update({k: const(x) for k, x in consts.items()})
    case(f"{op} {variant}".strip(), inputs, [step(op, "y", **args)], {"y": result})


listed("concat", {"u": u, "v": v}, np.concatenate([u, v], 1), axis=np.int32(1))
listed("concat", {"u": u}, u, "of one value", axis=np.int32(0))
listed("concat", {"u": u, "v": u + 0, "w": -u}, np.concatenate([u, u, -u], -1), "of three along the last axis", axis=np.int32(-1),
       interleave=np.bool_(False))
listed("concat", {"u": u, "v": -u}, np.stack([u, -u], 2).reshape(2, 6, 4), "interleaved", axis=np.int32(1), interleave=np.bool_(True))
listed("concat", {"u": ia, "v": ib}, np.concatenate([ia, ib], 0), "of integers", axis=np.int32(0))
listed("stack", {"u": u, "v": -u}, np.stack([u, -u], 0), "in front", axis=np.int32(0))
listed("stack", {"u": u, "v": -u}, np.stack([u, -u], -1), "behind", axis=np.int32(-1))
listed("stack", {"u": u, "v": -u}, np.stack([u, -u], 1), "between", axis=np.int32(1))
one("split", {"x": u}, np.split(u, 3, 1), "in equal parts", axis=np.int32(1), num_splits=np.int32(3))
one("split", {"x": u}, np.split(u, 2, 0), "along the first axis", axis=np.int32(0), num_splits=np.int32(2))
one("split", {"x": u}, [u[..., :1], u[..., 1:]], "by sizes", axis=np.int32(-1), split_sizes=np.array([1, 3], I32))
s = rnd(4, 5, 6)


def masks(**m):
    return {k: np.array(x, bool) for k, x in m.items()}


def sliced(variant, index, begin, end, x=s, **consts):
    one("slice_by_index", {"x": x}, x[index], variant, begin=np.array(begin, I32), end=np.array(end, I32), **consts)


sliced("inside", np.s_[1:3, 2:5, 0:6], [1, 2, 0], [3, 5, 6])
sliced("of whole rows", np.s_[1:3], [1, 0, 0], [3, 5, 6])
sliced("from the end", np.s_[-3:-1, -4:5, 1:-1], [-3, -4, 1], [-1, 5, -1])
sliced("clamped", np.s_[2:99, 0:5, 0:6], [2, 0, 0], [99, 5, 6])
sliced("strided", np.s_[::2, 1:5:3, 5:0:-2], [0, 1, 5], [4, 5, 0], stride=np.array([2, 3, -2], I32))
sliced("backwards to the front", np.s_[:, :, ::-1], [0, 0, 0], [4, 5, 0], stride=np.array([1, 1, -1], I32),
       **masks(begin_mask=[1, 1, 1], end_mask=[1, 1, 1]))
sliced("masked", np.s_[:3, 2:, :], [1, 2, 3], [3, 4, 4], **masks(begin_mask=[1, 0, 1], end_mask=[0, 1, 1]))
sliced("squeezed", np.s_[2, :, -1], [2, 0, -1], [3, 5, 0], **masks(squeeze_mask=[1, 0, 1]))
sliced("of integers", np.s_[:, 1:], [0, 1], [2, 3], x=ia)
beg, end = np.array([1, 0, 2], I32), np.array([3, 5, 4], I32)
one("slice_by_index", {"x": s, "begin": beg, "end": end}, s[1:3, :, 2:4], "with begin and end known when it runs", flags={"open": True})
one("slice_by_index", {"x": s, "begin": np.array([3, 0, 0], I32), "end": np.array([0, 0, 0], I32)}, s[3], "a row known when it runs",
    flags={"open": True}, **masks(squeeze_mask=[1, 0, 0], begin_mask=[0, 1, 1], end_mask=[0, 1, 1]))
one("slice_by_size", {"x": s}, s[1:3, 0:5, 4:6], begin=np.array([1, 0, 4], I32), size=np.array([2, 5, 2], I32))
one("slice_by_size", {"x": s}, s[1:, 2:4], "to the end", begin=np.array([1, 2, 0], I32), size=np.array([-1, 2, -1], I32))
one("slice_by_size", {"x": s, "begin": np.array([2, 1, 0], I32)}, s[2:4, 1:4], "with begin known when it runs",
    size=np.array([2, 3, 6], I32), flags={"open": True})


def updated(variant, index, shape, begin, end, runtime=False, x=s, **consts):
    update = rnd(*shape) if x.dtype.kind == "f" else rng.integers(-5, 6, shape).astype(I32)
    y = x.copy()
    y[index] = update
    inputs = {"x": x, "update": update}
    if runtime:
        inputs.update(begin=np.array(begin, I32), end=np.array(end, I32))
    else:
        consts.update(begin=np.array(begin, I32), end=np.array(end, I32))
    one("slice_update", inputs, y, variant, **consts)


updated("inside", np.s_[1:3, 2:5, 0:2], (2, 3, 2), [1, 2, 0], [3, 5, 2])
updated("with begin and end known when it runs", np.s_[1:2, 2:5], (1, 3, 6), [1, 2, 0], [2, 5, 6], runtime=True)
updated("masked", np.s_[2:3, :, 4:], (1, 5, 2), [2, 3, 4], [3, 1, 1], **masks(begin_mask=[0, 1, 0], end_mask=[0, 1, 1]))
updated("squeezed", np.s_[2, 1:3, :], (2, 6), [2, 1, 0], [0, 3, 6], **masks(squeeze_mask=[1, 0, 0]))
updated("strided", np.s_[::2, 4:0:-2, 1:6:4], (2, 2, 2), [0, 4, 1], [4, 0, 6], stride=np.array([2, -2, 4], I32))
updated("of integers", np.s_[0:1], (1, 3), [0, 0], [1, 3], x=ia)

table = rnd(7, 5)
idx = np.array([[6, 0, 3], [3, 3, 1]], I32)
one("gather", {"x": table, "indices": idx}, table[idx], "rows")
one("gather", {"indices": idx}, table[idx], "rows of a constant", x=table, axis=np.int32(0), batch_dims=np.int32(0),
    validate_indices=np.bool_(False))
one("gather", {"x": table, "indices": idx[0] % 5}, table[:, idx[0] % 5], "columns", axis=np.int32(1))
one("gather", {"x": table, "indices": np.int32(4)}, table[4], "by a scalar")
one("gather", {"x": ia, "indices": np.array([1, 0], I32)}, ia[[1, 0]], "of integers")
bt = rnd(2, 4, 3)
bi = np.array([[0, 3], [2, 2]], I32)
one("gather", {"x": bt, "indices": bi}, np.stack([bt[i][bi[i]] for i in range(2)]), "in batches", axis=np.int32(1), batch_dims=np.int32(1))
small = np.array([1, 0], I32)
case("gather by uint8", {"x": table, "i": small}, [step("cast", "j", x="i", dtype=const("uint8")),
                                                   step("gather", "y", x="x", indices="j")], {"y": table[small]})
al = np.array([[0, 4, 1, 1, 2], [6, 5, 4, 3, 2]], I32)
one("gather_along_axis", {"x": table, "indices": al}, np.take_along_axis(table, al, 0))
ar = np.array([[0, 4], [1, 1], [2, 0], [3, 3], [4, 4], [0, 0], [1, 2]], I32)
one("gather_along_axis", {"x": table, "indices": ar}, np.take_along_axis(table, ar, 1), "the last axis", axis=np.int32(-1))
nd = np.array([[[0, 1], [6, 4]], [[3, 3], [2, 0]]], I32)
one("gather_nd", {"x": table, "indices": nd}, table[nd[..., 0], nd[..., 1]])
one("gather_nd", {"x": table, "indices": nd[..., :1].copy()}, table[nd[..., 0]], "rows")
one("gather_nd", {"x": bt, "indices": bi[:, :, None].copy()}, np.stack([bt[i][bi[i]] for i in range(2)]), "in batches",
    batch_dims=np.int32(1))
one("expand_dims", {"x": ia}, ia[:, None, :, None], axes=np.array([1, 3], I32))
one("expand_dims", {"x": u}, u[None, ..., None], "from the end", axes=np.array([0, -1], I32))
one("squeeze", {"x": u[:1, :, :1]}, u[0, :, 0], axes=np.array([0, -1], I32))
one("squeeze", {"x": u[:1, :, :1]}, u[0, :, 0], "of all ones", flags={"fixed": True})
one("reshape", {"x": u}, u.reshape(4, 6), shape=np.array([4, 6], I32))
one("reshape", {"x": u}, u.reshape(-1, 8), "with one open", shape=np.array([-1, 8], I32))
one("reshape", {"x": u}, u.reshape(6, 1, 4), "that keeps dimensions", shape=np.array([6, 1, 0], I32))
one("reshape", {"x": u, "shape": np.array([6, 4], I32)}, u.reshape(6, 4), "to a shape known when it runs", flags={"open": True})
one("transpose", {"x": u}, u.transpose(2, 0, 1), perm=np.array([2, 0, 1], I32))
one("transpose", {"x": u[:1]}, u[:1].transpose(1, 0, 2), "of ones alone", perm=np.array([1, 0, 2], I32))
one("transpose", {"x": u}, u.transpose(0, 2, 1), "from the end", perm=np.array([-3, -1, -2], I32))
one("tile", {"x": u}, np.tile(u, (1, 2, 3)), reps=np.array([1, 2, 3], I32))
one("tile", {"x": u, "reps": np.array([2, 1, 1], I32)}, np.tile(u, (2, 1, 1)), "as often as known when it runs", flags={"open": True})
one("tile", {"x": u}, u, "once", reps=np.array([1, 1, 1], I32))
one("pad", {"x": u}, np.pad(u, [(0, 0), (0, 0), (1, 2)]), pad=np.array([1, 2], I32))
one("pad", {"x": u}, np.pad(u, [(0, 0), (2, 0), (0, 1)], constant_values=0.5), "with a value", pad=np.array([2, 0, 0, 1], I32),
    mode="constant", constant_val=0.5)
one("pad", {"x": u}, np.pad(u, [(0, 0), (1, 2), (3, 0)], mode="reflect"), "reflect", pad=np.array([1, 2, 3, 0], I32), mode="reflect",
    constant_val=0.0)
one("pad", {"x": u}, np.pad(u, [(1, 1), (1, 2), (5, 0)], mode="edge"), "replicate", pad=np.array([1, 1, 1, 2, 5, 0], I32),
    mode="replicate")
sq = rnd(2, 4, 5)
one("band_part", {"x": sq}, np.triu(np.tril(sq, 2), -1), lower=np.int32(1), upper=np.int32(2))
one("band_part", {"x": sq}, np.tril(sq), "lower triangle", upper=np.int32(0))
one("band_part", {"x": sq}, sq, "whole")
one("fill", {}, np.full((2, 3), 1.5), shape=np.array([2, 3], I32), value=1.5)
one("fill", {"shape": np.array([3, 1], I32)}, np.full((3, 1), 7, I32), "of a shape known when it runs", value=np.int32(7),
    flags={"open": True})
one("fill", {}, np.zeros((2,)), "with zeros by default", shape=np.array([2], I32), flags={"no16": True})
one("range_1d", {}, np.arange(2, 11, 3).astype(I32), start=np.int32(2), end=np.int32(11), step=np.int32(3))
one("range_1d", {}, np.arange(0.5, -1.0, -0.25), "of floats", start=0.5, end=-1.0, step=-0.25)
one("range_1d", {"end": np.int32(4)}, np.arange(4).astype(I32), "to an end known when it runs", start=np.int32(0), step=np.int32(1),
    flags={"open": True})
one("shape", {"x": u}, np.array([2, 3, 4], I32))
hot = np.array([0, 2, 5], I32)
one("one_hot", {"indices": hot}, (hot[:, None] == np.arange(4)).astype(I32), one_hot_vector_size=np.int32(4))
one("one_hot", {"indices": hot}, np.where(np.arange(6)[:, None] == hot, 2.5, -1.0), "in front", one_hot_vector_size=np.int32(6),
    axis=np.int32(0), on_value=2.5, off_value=-1.0)

# ---- compressed constants ----------------------------------------------------------------------------------------
WIDTHS = {1: "uint1", 2: "uint2", 3: "uint3", 4: "uint4", 6: "uint6", 8: "uint8"}


def grid_index(shape, grid):
    """Per element of `shape`, the index of its block along every axis."""
    at = np.indices(shape)
    return tuple(at[i] // (shape[i] // grid[i]) for i in range(len(shape)))


def compressed(name, steps, result, **flags):
    """The weight is an output of its own, through an identity, which needs an input."""
    case(name, {"zero": np.zeros(1)}, steps + [step("add", "y", x="w", y="zero")], {"y": result}, **flags)


for bits, dtype in WIDTHS.items():
    for grid in ((1, 1), (2, 1), (4, 1), (2, 3)):
        codes = rng.integers(0, 2**bits, (4, 9)).astype(I32)
        lut = rnd(*grid, 2**bits, 1)
        compressed(f"constexpr_lut_to_dense {dtype} groups {grid}",
                   [step("constexpr_lut_to_dense", "w", indices=const(codes, dtype), lut=const(lut))],
                   lut[grid_index((4, 9), grid) + (codes, 0)])
for axis in (0, 1):
    codes = rng.integers(0, 4, (2, 4)).astype(I32)
    lut = rnd(2, 1, 4, 3)
    vectors = lut[grid_index((2, 4), (2, 1)) + (codes,)]  # [2, 4, 3]
    dense = vectors.transpose(0, 2, 1).reshape(6, 4) if axis == 0 else vectors.reshape(2, 12)
    compressed(f"constexpr_lut_to_dense of vectors along axis {axis}",
               [step("constexpr_lut_to_dense", "w", indices=const(codes, "uint2"), lut=const(lut), vector_axis=const(np.int32(axis)))],
               dense)
SIGNED = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255)}
for dtype, (low, high) in SIGNED.items():
    for grid in ((1, 1), (4, 1), (4, 3), (2, 9)):
        data = rng.integers(low, high + 1, (4, 9)).astype(I32)
        scale = f16(np.abs(rnd(*grid)) / 8 + 0.03125)
        offset = rng.integers(low, high + 1, grid).astype(I32)
        at = grid_index((4, 9), grid)
        compressed(f"constexpr_blockwise_shift_scale {dtype} blocks {grid}",
                   [step("constexpr_blockwise_shift_scale", "w", data=const(data, dtype), scale=const(scale))], scale[at] * data,
                   tolerance=1e-3)
        compressed(f"constexpr_blockwise_shift_scale {dtype} blocks {grid} with offset",
                   [step("constexpr_blockwise_shift_scale", "w", data=const(data, dtype), scale=const(scale), offset=const(offset, dtype))],
                   scale[at] * (data - offset[at]), tolerance=1e-3)
codes = rng.integers(0, 16, (4, 9)).astype(I32)
lut = rnd(2, 1, 16, 1)
scale = f16(np.abs(rnd(4, 1)) + 0.25)
compressed("constexpr_blockwise_shift_scale of a palette",
           [step("constexpr_lut_to_dense", "d", indices=const(codes, "uint4"), lut=const(lut)),
            step("constexpr_blockwise_shift_scale", "w", data="d", scale=const(scale))],
           scale * lut[grid_index((4, 9), (2, 1)) + (codes, 0)], tolerance=1e-3)
qlut = rng.integers(-128, 128, (1, 1, 16, 1)).astype(I32)
compressed("constexpr_blockwise_shift_scale of a palette of int8",
           [step("constexpr_lut_to_dense", "d", indices=const(codes, "uint4"), lut=const(qlut, "int8")),
            step("constexpr_blockwise_shift_scale", "w", data="d", scale=const(scale))],
           scale * qlut[0, 0, :, 0][codes], tolerance=1e-3)
mask = (rng.uniform(size=(4, 9)) < 0.4).astype(I32)
mask[0, 0] = 1
at = np.nonzero(mask.reshape(-1))[0]
dense = np.zeros(36)
values = rnd(len(at))
dense[at] = values
compressed("constexpr_sparse_to_dense", [step("constexpr_sparse_to_dense", "w", nonzero_data=const(values), mask=const(mask, "uint1"))],
           dense.reshape(4, 9))
sparse_codes = rng.integers(0, 4, len(at)).astype(I32)
slut = rnd(2, 1, 4, 1)
dense = np.zeros(36)
dense[at] = slut[tuple(g.reshape(-1)[at] for g in grid_index((4, 9), (2, 1))) + (sparse_codes, 0)]
compressed("constexpr_lut_to_sparse",
           [step("constexpr_lut_to_sparse", ["m", "d"], indices_mask=const(mask, "uint1"), indices_nonzero_data=const(sparse_codes, "uint2"),
                 lut=const(slut)),
            step("constexpr_sparse_to_dense", "w", nonzero_data="d", mask="m")], dense.reshape(4, 9))
# Vectors of three along either axis: each index that is set gives three numbers, in the order of the output.
vectors = np.random.default_rng(77)
for axis in (0, 1):
    vlut = f16(vectors.standard_normal((2, 1, 4, 3)))
    expanded = list(mask.shape)
    expanded[axis] *= 3
    dense = np.zeros(expanded)
    codes_at = np.full(mask.shape, -1)
    codes_at.reshape(-1)[at] = sparse_codes
    for position in np.ndindex(*expanded):
        index = list(position)
        index[axis] //= 3
        code = codes_at[tuple(index)]
        if code >= 0:
            dense[position] = vlut[index[0] // 2, 0, code, position[axis] % 3]
    compressed("constexpr_lut_to_sparse",
               [step("constexpr_lut_to_sparse", ["m", "d"], indices_mask=const(mask, "uint1"), indices_nonzero_data=const(sparse_codes, "uint2"),
                     lut=const(vlut), vector_axis=const(np.int32(axis))),
                step("constexpr_sparse_to_dense", "w", nonzero_data="d", mask="m")], dense)
sparse_data = rng.integers(-128, 128, len(at)).astype(I32)
offset = rng.integers(-20, 20, (4, 1)).astype(I32)
rows = at // 9
dense = np.zeros(36)
dense[at] = scale[rows, 0] * (sparse_data - offset[rows, 0])
compressed("constexpr_sparse_blockwise_shift_scale",
           [step("constexpr_sparse_blockwise_shift_scale", ["m", "d"], data_mask=const(mask, "uint1"),
                 nonzero_data=const(sparse_data, "int8"), scale=const(scale), offset=const(offset, "int8")),
            step("constexpr_sparse_to_dense", "w", nonzero_data="d", mask="m")], dense.reshape(4, 9), tolerance=1e-3)
q8 = rng.integers(-128, 128, (4, 9)).astype(I32)
zero = rng.integers(-128, 128, 4).astype(I32)
row_scale = f16(np.abs(rnd(4)) + 0.125)
compressed("constexpr_affine_dequantize",
           [step("constexpr_affine_dequantize", "w", quantized_data=const(q8, "int8"), zero_point=const(zero, "int8"), scale=const(row_scale),
                 axis=const(np.int32(0)))], row_scale[:, None] * (q8 - zero[:, None]), tolerance=1e-3)
compressed("constexpr_affine_dequantize with one scale",
           [step("constexpr_affine_dequantize", "w", quantized_data=const(np.abs(q8) % 256, "uint8"), zero_point=const(np.int32(7), "uint8"),
                 scale=const(0.5), axis=const(np.int32(1)))], 0.5 * (np.abs(q8) % 256 - 7.0))
halves = rnd(2, 3)
case("constexpr_cast", {"zero": np.zeros(1)},
     [step("constexpr_cast", "w", source_val=const(halves, "fp16"), output_dtype=const("fp32")), step("add", "y", x="w", y="zero")],
     {"y": halves}, no16=True)
# The forms of iOS 16: one table or mask packed into bytes, the shape listed.
codes = rng.integers(0, 8, 20).astype(I32)
packed = np.packbits(np.array([[(c >> k) & 1 for k in range(3)] for c in codes], np.uint8).reshape(-1), bitorder="little").astype(I32)
lut = rnd(8)
compressed("constexpr_lut_to_dense of iOS 16",
           [step("constexpr_lut_to_dense", "w", indices=const(packed, "uint8"), lut=const(lut), shape=const(np.array([4, 5], I32), "uint32"))],
           lut[codes].reshape(4, 5))
bits = np.packbits(mask.reshape(-1).astype(np.uint8), bitorder="little").astype(I32)
dense = np.zeros(36)
dense[at] = values
compressed("constexpr_sparse_to_dense of iOS 16",
           [step("constexpr_sparse_to_dense", "w", nonzero_data=const(values), mask=const(bits, "uint8"),
                 shape=const(np.array([4, 9], I32), "uint32"))], dense.reshape(4, 9))
# A palettized convolution, the use of all this.
codes = rng.integers(0, 64, (16, 12, 1, 1)).astype(I32)
lut = rnd(2, 1, 1, 1, 64, 1)
weight = lut[grid_index((16, 12, 1, 1), (2, 1, 1, 1)) + (codes, 0)]
cx = rnd(1, 12, 1, 5)
case("conv with a palette of 8 channels", {"x": cx},
     [step("constexpr_lut_to_dense", "w", indices=const(codes, "uint6"), lut=const(lut)), step("conv", "y", x="x", weight="w")],
     {"y": conv(cx, weight, None, [1, 1], [(0, 0), (0, 0)], [1, 1], 1)}, tolerance=1e-4)

# ---- small graphs as language models have them ---------------------------------------------------------------------
h = rnd(1, 3, 8)
gamma = rnd(8)
doubled = np.concatenate([h, -h], -1)
case("RMS norm by layer_norm of [x, -x]", {"h": h},
     [step("mul", "n", x="h", y=const(-1.0)), step("concat", "d", values=["h", "n"], axis=const(np.int32(-1)), interleave=const(np.bool_(False))),
      step("layer_norm", "l", x="d", axes=const(np.array([-1], I32)), epsilon=const(1e-5)),
      step("split", ["p", "q"], x="l", axis=const(np.int32(-1)), num_splits=const(np.int32(2))), step("mul", "y", x="p", y=const(gamma))],
     {"y": h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-5) * gamma}, tolerance=1e-2)
heads = rnd(1, 4, 3, 8)
cos, sin = rnd(1, 1, 3, 8), rnd(1, 1, 3, 8)
half = np.concatenate([-heads[..., 4:], heads[..., :4]], -1)
case("rotary embedding by halves", {"x": heads, "cos": cos, "sin": sin},
     [step("split", ["a", "b"], x="x", axis=const(np.int32(-1)), num_splits=const(np.int32(2))), step("mul", "n", x="b", y=const(-1.0)),
      step("concat", "r", values=["n", "a"], axis=const(np.int32(-1)), interleave=const(np.bool_(False))), step("mul", "p", x="x", y="cos"),
      step("mul", "q", x="r", y="sin"), step("add", "y", x="p", y="q")], {"y": heads * cos + half * sin}, tolerance=3e-3)

with open(sys.argv[1], "w") as file:
    file.write('{"cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
print(f"{len(cases)} cases, operations: {len({s['op'] for c in cases for s in c['steps']})}")
