"""Writes own.jsonl: cases that the other files do not cover, in their format (FORMAT.md), with JAX's results.

    python own.py > own.jsonl         (JAX 0.10.2 on CPU; the tests need the file only)
"""
import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

CASES = []
INF, NAN = float("inf"), float("nan")

LAX = """abs acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erf_inv exp exp2 expm1 floor is_finite log log1p logistic
neg rsqrt sign sin sinh sqrt square tan tanh add sub mul div rem max min pow atan2 nextafter eq ne lt le gt ge
shift_left shift_right_logical shift_right_arithmetic""".split()
OPS = {name: lambda p, *xs, f=getattr(lax, name): f(*xs) for name in LAX} | {
    "round": lambda p, x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "reciprocal": lambda p, x: lax.reciprocal(x),
    "integer_pow": lambda p, x: lax.integer_pow(x, p["y"]),
    "gelu": lambda p, x: jax.nn.gelu(x, approximate=p.get("approximate", True)),
    "relu": lambda p, x: jax.nn.relu(x),
    "silu": lambda p, x: jax.nn.silu(x),
    "softplus": lambda p, x: jax.nn.softplus(x),
    "hypot": lambda p, x, y: jnp.hypot(x, y),
    "xlogy": lambda p, x, y: jax.scipy.special.xlogy(x, y),
    "copy": lambda p, x: jnp.copy(x),
    "random_wrap_key_data": lambda p, x: jax.random.wrap_key_data(x),
    "random_bits": lambda p, k: jax.random.bits(k, p["shape"]),
    "clamp": lambda p, lo, x, hi: lax.clamp(lo, x, hi),
    "convert_element_type": lambda p, x: lax.convert_element_type(x, p["dtype"]),
    "bitcast_convert_type": lambda p, x: lax.bitcast_convert_type(x, p["dtype"]),
    "mean": lambda p, x: jnp.mean(x, p["axis"]),
    "var": lambda p, x: jnp.var(x, p["axis"]),
    "einsum": lambda p, *xs: jnp.einsum(p["subscripts"], *xs),
    "matmul": lambda p, x, y: jnp.matmul(x, y),
    "reshape": lambda p, x: jnp.reshape(x, p["new_sizes"]),
    "tile": lambda p, x: lax.tile(x, p["reps"]),
    "amax": lambda p, x: jnp.max(x, p.get("axis")),
    "amin": lambda p, x: jnp.min(x, p.get("axis")),
    "argmax": lambda p, x: jnp.argmax(x, p["axis"]),
    "argmin": lambda p, x: jnp.argmin(x, p["axis"]),
    "logsumexp": lambda p, x: jax.nn.logsumexp(x, p.get("axis")),
    "softmax": lambda p, x: jax.nn.softmax(x, p["axis"]),
    "log_softmax": lambda p, x: jax.nn.log_softmax(x, p["axis"]),
    "pad": lambda p, x, v: lax.pad(x, v, list(zip(p["low"], p["high"], p["interior"]))),
    "recurrence": lambda p, a, b: lax.associative_scan(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (a, b), axis=p["axis"])[1],
    "cumlogsumexp": lambda p, x: lax.cumlogsumexp(x, p["axis"]),
    "pinv": lambda p, x: jnp.linalg.pinv(x),
    # JAX rejects a roll along a sharded dimension, so the array is gathered and sharded again
    "roll": lambda p, x: jax.sharding.reshard(jnp.roll(jax.sharding.reshard(x, P()), p["shift"], p["axis"]), jax.typeof(x).sharding),
    # JAX has no rule for the sharding of ragged products
    "ragged_dot": lambda p, x, w, n: jax.sharding.auto_axes(lax.ragged_dot, out_sharding=P())(x, w, n),
    "ragged_dot_per_group": lambda p, x, y, n: jax.sharding.auto_axes(per_group, out_sharding=P())(x, y, n),
    "linspace": lambda p: jnp.linspace(p["start"], p["stop"], p["num"], endpoint=p.get("endpoint", True)),
}


def per_group(x, y, sizes):
  dims = lax.RaggedDotDimensionNumbers((([0], [0]), ([], [])), lhs_ragged_dimensions=[0], rhs_group_dimensions=[])
  return lax.ragged_dot_general(x, y, sizes, dims)


def dtype(name):
  return np.dtype(getattr(ml_dtypes, name, None) or name)


def placed(arg, mesh):
  """Returns the array of an argument, whose `type` and `data` are described in FORMAT.md."""
  name, dims = arg["type"].rstrip("]").split("[")
  sizes = [d.split("@") for d in dims.split(",") if d]
  shape, spec = [int(d[0]) for d in sizes], P(*[d[1] if len(d) > 1 else None for d in sizes])
  data, n = arg["data"], int(np.prod(shape))
  if "list" in data:
    flat = np.array([float(x) if isinstance(x, str) else x for x in data["list"]])
  else:
    i = np.arange(n, dtype=np.uint64)
    h = (i * np.uint64(2654435761) + np.uint64(data["hash"] * 40503 + 12345)) & np.uint64(0xffffffff)
    h ^= h >> np.uint64(15)
    h = (h * np.uint64(2246822519)) & np.uint64(0xffffffff)
    h ^= h >> np.uint64(13)
    kind = dtype(name)
    floats = jnp.issubdtype(kind, jnp.floating)
    flat = h / 2**32 * 2 - 1 if floats else h % 2 if kind == bool else h % 17
  return jax.device_put(flat.astype(dtype(name)).reshape(shape), NamedSharding(mesh, spec))


def number(x):
  x = x.item() if hasattr(x, "item") else x
  if isinstance(x, float):
    if np.isnan(x): return "nan"
    if np.isinf(x): return "inf" if x > 0 else "-inf"
    x = float(np.format_float_positional(np.float32(x), unique=True)) if x == np.float32(x) else x
    return int(x) if x == int(x) and abs(x) < 2**31 and not (x == 0 and np.signbit(x)) else x
  return x


def case(args, body, axes=(("X", 2), ("Y", 4)), tol=None):
  """Adds a case. `args`: {name: (type, data)}; `body`: [(name, op, operands, params)]; the last value is returned."""
  mesh = Mesh(np.array(jax.devices()[:int(np.prod([n for _, n in axes]))]).reshape([n for _, n in axes]),
              [a for a, _ in axes], axis_types=(AxisType.Explicit,) * len(axes))
  args = [{"name": n, "type": t, "data": {"list": d} if isinstance(d, list) else {"hash": d}} for n, (t, d) in args.items()]
  args = [a | {"data": {k: [number(float(x)) if isinstance(x, float) else x for x in v] if k == "list" else v
                        for k, v in a["data"].items()}} for a in args]
  types = {}

  def run(*values):
    env = {a["name"]: v for a, v in zip(args, values)}
    for out, op, ins, params in body:
      operand = lambda i: i["lit"] if isinstance(i, dict) else env[i]
      ins = [operand(i) for i in ins]
      if op in ("add", "mul", "clamp", "pad"):  # a scalar takes the element type of the other operand
        like = next(x for x in ins if hasattr(x, "dtype"))
        ins = [x if hasattr(x, "dtype") else jnp.asarray(x, like.dtype) for x in ins]
      env[out] = OPS[op](params, *ins)
      types[out] = jax.typeof(env[out]).str_short()
    return env[body[-1][0]]

  with jax.set_mesh(mesh):
    value = jax.jit(run)(*[placed(a, mesh) for a in args])
  if value.size == 0:  # JAX cannot fetch sharded arrays without elements
    value = np.zeros(value.shape, value.dtype)
  flat = np.asarray(jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value)
  flat = flat.astype(np.float64) if jnp.issubdtype(flat.dtype, jnp.floating) else flat
  CASES.append({
      "kind": "program", "id": f"own/{len(CASES):04}",
      "mesh": {"axes": [list(a) for a in axes], "types": ["explicit"] * len(axes)},
      **({"tol": tol} if tol else {}),
      "args": args,
      "body": [{"out": [o], "op": op, "in": i, "params": p} for o, op, i, p in body],
      "returns": [body[-1][0]],
      "expect": {"types": types, "values": [[number(x) for x in flat.ravel()]]}})


def unary(op, type, data, params=None, **kw):
  case({"a": (type, data)}, [("v", op, ["a"], params or {})], **kw)


def binary(op, type, x, y, params=None, **kw):
  case({"a": (type, x), "b": (type, y)}, [("v", op, ["a", "b"], params or {})], **kw)


def collective(op, type, data, inner, over, axes):
  """Adds a case of `op` over the axes `over`, on blocks of type `inner`; the result is replicated."""
  mesh = Mesh(np.array(jax.devices()[:int(np.prod([n for _, n in axes]))]).reshape([n for _, n in axes]),
              [a for a, _ in axes], axis_types=(AxisType.Explicit,) * len(axes))
  arg = {"name": "a", "type": type, "data": {"list": [number(x) for x in data]}}
  types = {"p0": inner}
  flat = np.array(data).astype(dtype(type.split("[")[0]))
  whole = jax.device_put(flat, NamedSharding(mesh, P(tuple(over))))

  def body(x):
    y = getattr(lax, op)(x, tuple(over))
    types["v1"] = str(jax.typeof(y))
    return y

  with jax.set_mesh(mesh):
    value = jax.jit(jax.shard_map(body, in_specs=P(tuple(over)), out_specs=P()))(whole)
  types["v0"] = jax.typeof(value).str_short()
  CASES.append({
      "kind": "program", "id": f"own/{len(CASES):04}",
      "mesh": {"axes": [list(a) for a in axes], "types": ["explicit"] * len(axes)},
      "args": [arg],
      "body": [{"out": ["v0"], "op": "shard_map", "in": ["a"],
                "params": {"in_specs": [[list(over)]], "out_specs": [[]], "axis_names": None, "check_vma": True},
                "body": {"args": ["p0"], "body": [{"out": ["v1"], "op": op, "in": ["p0"], "params": {"axis_name": list(over)}}],
                         "returns": ["v1"]}}],
      "returns": ["v0"],
      "expect": {"types": types, "values": [[number(x) for x in np.asarray(value).ravel()]]}})


# Bit casts between element types of the same width.
for a, b in [("float32", "int32"), ("int32", "float32"), ("uint32", "float32"), ("float32", "uint32"), ("int16", "float16"),
             ("bfloat16", "uint16"), ("float16", "bfloat16"), ("int8", "uint8"), ("uint32", "int32"), ("float32", "float32")]:
  unary("bitcast_convert_type", f"{a}[8@Y,4]", 3, {"dtype": b})
  unary("bitcast_convert_type", f"{a}[4,2@X]", [-3, 5, 0, 1, 127, 2, 7, 9] if not a.startswith("u") else list(range(8)), {"dtype": b})
unary("bitcast_convert_type", "float32[8]", [0.0, -0.0, 1.5, -2.0, 1e-40, INF, -INF, 3e38], {"dtype": "int32"})

# Operations that no other file covers.
for t in ["float32[8@Y,4]", "float32[16]", "float32[4,2@X]", "float32[]"]:
  unary("cbrt", t, 5)
  unary("gelu", t, 6, {"approximate": False})
unary("cbrt", "float32[8]", [-8.0, -1.0, -0.125, 0.0, 27.0, INF, -INF, NAN])
unary("gelu", "float32[8@X]", [-9.0, -6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 9.0], {"approximate": False})
for d, tol in [("float16", 2e-3), ("bfloat16", 1e-2)]:
  unary("cbrt", f"{d}[8@Y,4]", 7, tol=tol)
  unary("gelu", f"{d}[8@Y,4]", 8, {"approximate": False}, tol=tol)

# Operations of OPS-own.md.
unary("copy", "int32[8@Y,4@X]", 9)
unary("copy", "float32[6]", 10)
for t in ["uint32[2]", "uint32[4@X,2]"]:
  case({"a": (t, 13)}, [("k", "random_wrap_key_data", ["a"], {})] + ([("v", "random_bits", ["k"], {"shape": [3]})] if t == "uint32[2]" else []))

# Ties go to the first extreme element, and NaN wins; along unsharded and sharded dimensions.
extremes = [[1.0, 3.0, 3.0, 2.0], [NAN, 1.0, NAN, 5.0], [-INF, -INF, -INF, -INF], [INF, 2.0, INF, NAN],
            [0.0, -0.0, 0.0, -0.0], [-1.0, -2.0, -2.0, -1.0], [7.0, 7.0, 7.0, 7.0], [-INF, NAN, INF, 0.0]]
flat = [x for row in extremes for x in row]
for op in ["argmax", "argmin"]:
  for t in ["float32[8,4]", "float32[8@Y,4]", "float32[8,4@X]", "float32[8@X,4@Y]", "bfloat16[8@X,4]"]:
    for axis in [0, 1]:
      unary(op, t, flat, {"axis": axis})
  unary(op, "int32[8@Y,4]", [3, 9, 9, -5, -5, 0, 1, 1] * 4, {"axis": 1})
  unary(op, "uint8[4@X,8]", 11, {"axis": 0})
  unary(op, "bool[8,4@Y]", 12, {"axis": 0})
for op in ["amax", "amin", "logsumexp"]:
  unary(op, "float32[8@Y,4]", flat, {"axis": 1})
  # The reference loses a NaN when it combines the extremes of several devices.
  unary(op, "float32[8,4@X]", [0.25 if x != x else x for x in flat], {"axis": 1})
for op in ["softmax", "log_softmax"]:
  unary(op, "float32[4@X,3]", [0.0, 0.0, 0.0, 1e4, 0.0, -1e4, -INF, 0.0, 1.0, -INF, -INF, 2.0], {"axis": 1})
  unary(op, "float32[4,2@X]", [1.0, 2.0, -3.0, 0.5, INF, 0.0, 0.0, 1.0], {"axis": 0})

# Values at the ends of the range.
wild = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, INF, -INF, NAN, 100.0, -100.0, 1e-10, -1e-10, 3e38, -3e38, 2.5]
for op in """abs acos acosh asin asinh atan atanh cbrt ceil cosh erf erf_inv exp exp2 expm1 floor is_finite log log1p logistic
    neg reciprocal relu round rsqrt sign sinh softplus sqrt square tanh""".split():
  unary(op, "float32[8@X,2]", wild)
for y in [-3, -1, 0, 2, 5]:
  unary("integer_pow", "float32[16]", wild, {"y": y})
left = [0.0, 0.0, -2.0, -2.0, 2.0, INF, NAN, 1.0, -1.0, -8.0, 0.0, -0.0, 5.5, -5.5, 1.0, NAN]
right = [0.0, -1.0, 2.0, 0.5, INF, 0.0, 1.0, NAN, INF, 3.0, 2.0, 3.0, 2.0, 2.0, 0.0, NAN]
for op in "add sub mul div rem max min pow atan2 nextafter eq ne lt le gt ge".split():
  binary(op, "float32[16@Y]", left, right)
for t, least in [("int32", -2**31), ("int8", -128)]:
  x = [7, -7, 7, -7, 5, -5, least, least]
  y = [2, 2, -2, -2, 0, 0, -1, 1]
  for op in "div rem add sub mul pow".split():
    if op != "pow":
      binary(op, f"{t}[8@X]", x, y)
  for op in "shift_left shift_right_logical shift_right_arithmetic".split():
    binary(op, f"{t}[8@Y]", x, [0, 1, 3, 7, 8, 31, 32, 40])
binary("div", "uint8[4@X]", [200, 7, 9, 0], [3, 0, 200, 0])
binary("rem", "uint8[4@X]", [200, 7, 9, 0], [3, 0, 200, 0])
for d in ["int32", "int8", "uint8", "int16", "uint32", "bool", "float16", "bfloat16"]:
  unary("convert_element_type", "float32[8@X]", [1.9, -1.9, 0.5, -0.5, 100.7, 0.0, 3.0, 127.0] if d[0] != "u" else
        [1.9, 0.9, 0.5, 0.0, 100.7, 0.0, 3.0, 127.0], {"dtype": d})
case({"x": ("float32[8@X]", [1.0, -1.0, NAN, INF, -INF, 0.25, -0.25, 0.5])}, [("v", "clamp", [{"lit": -0.5}, "x", {"lit": 0.25}], {})])

# Interior, positive and negative padding together.
for low, high, interior in [([1, -1], [2, 0], [0, 2]), ([-1, 2], [-2, -1], [1, 1]), ([0, -3], [0, 2], [2, 0]), ([-4, 0], [0, 0], [1, 0])]:
  case({"x": ("float32[4,6]", 21)}, [("v", "pad", ["x", {"lit": 1.5}], {"low": low, "high": high, "interior": interior})])
case({"x": ("int32[4@X,6]", 22)}, [("v", "pad", ["x", {"lit": -7}], {"low": [1, -2], "high": [2, 1], "interior": [1, 1]})])
case({"x": ("float32[4,6@X]", 23)}, [("v", "pad", ["x", {"lit": 0.0}], {"low": [0, -1], "high": [1, 3], "interior": [2, 0]})])

# Evenly spaced values; the end is exact to the last bit.
for start, stop, num, endpoint in [(0.1, 0.7, 7, True), (-3.0, 5.0, 11, False), (1.0, 1.0, 4, True), (2.0, 9.0, 1, True), (0.0, 1.0, 0, True)]:
  case({}, [("v", "linspace", [], {"start": start, "stop": stop, "num": num, "endpoint": endpoint})])

# Which operand's sharding a batch dimension takes if the other one is unsharded there: that of the product's left
# operand, which is the later one if the order of the result would need a transpose. Also three operands, dimensions
# of size 1 combined with others, and `...`.
for subscripts, *types in [
    ("ab,b->ab", "float32[4@X,8]", "float32[8@Y]"), ("ab,b->ab", "float32[4@X,8@Y]", "float32[8]"),
    ("bhqk,bkhd->bqhd", "float32[4@X,2,2,3]", "float32[4,3,2@Y,4]"), ("bhqk,bkhd->bqhd", "float32[4,2@X,2,3]", "float32[4@Y,3,2,4]"),
    ("cb,dc->cdb", "float32[6,4]", "float32[8@X,6@Y]"), ("cb,dc->cdb", "float32[6@Y,4@X]", "float32[9@Y,6]"),
    ("bqhd,bkhd->bhqk", "float32[4,3,2@X,2]", "float32[4@Y,5,2,2]"),
    ("ij,jk,kl->il", "float32[2,8@Y]", "float32[8,4]", "float32[4@Y,6@X]"), ("ij,jk,kl->il", "float32[8@X,2]", "float32[2,8@Y]", "float32[8,3]"),
    ("bd,cdb,edb->bec", "float32[4@X,8]", "float32[6@Y,8,4]", "float32[4,8,4]"), ("i,j,k->kij", "float32[2@X]", "float32[3@Y]", "float32[4]"),
    ("ij,jk->ik", "float32[2@X,1]", "float32[3@Y,4]"), ("ij,ij->ij", "float32[2@X,1]", "float32[1,3@Y]"),
    ("...ij,...jk->...ik", "float32[2@X,4,3]", "float32[3,4@Y]"), ("...i,i...", "float32[2@X,3]", "float32[3,2]"), ("...i->i", "float32[2,4@X,3@Y]"),
]:
  axes = (("X", 2), ("Y", 2)) if not any("3@" in t or "6@Y" in t for t in types) else (("X", 2), ("Y", 3))
  case({n: (t, 31 + k) for k, (n, t) in enumerate(zip("abc", types))}, [("v", "einsum", list("abc"[:len(types)]), {"subscripts": subscripts})], axes=axes)

# A sharded batch dimension of size 1 with an unsharded one.
case({"a": ("float32[1@X,4,2]", 36), "b": ("float32[1,2,6@Y]", 37)}, [("v", "matmul", ["a", "b"], {})], axes=(("X", 1), ("Y", 2)))
case({"a": ("float32[1,4@Y,2]", 36), "b": ("float32[1@X,2,6]", 37)}, [("v", "matmul", ["a", "b"], {})], axes=(("X", 1), ("Y", 2)))

# Reshapes and tiles of arrays without elements.
for t, to in [("float32[0@X,12@Y]", [0, 1, 12]), ("float32[6@Y,0,8@X]", [1, 6, 0, 8]), ("int32[4@X,0@Y]", [4, 1, 0])]:
  unary("reshape", t, 38, {"new_sizes": to}, axes=(("X", 2), ("Y", 3)))
unary("tile", "float32[0,12@X]", 39, {"reps": [3, 1]})

# No intermediate overflow or underflow.
binary("hypot", "float32[4@X,4@Y]", [3.0, 0.0, -0.0, 1e30, 3e38, 1e-30, INF, INF, -INF, -5.0, 0.0, 1.0, 1e-20, 2.5, 7.0, 1e20],
       [4.0, 0.0, 0.0, 1e30, 0.0, 1e-30, 1.0, INF, 2.0, 12.0, -2.0, 1e-8, 1.0, -2.5, 24.0, -1e20])
binary("hypot", "bfloat16[8,4@Y]", 40, 41, tol=1e-2)

# The result is 0 where x is 0, whatever the logarithm is.
binary("xlogy", "float32[4@X,4@Y]", [0.0, 0.0, -0.0, 0.0, 0.0, 1.0, 2.0, -3.0, INF, INF, 1.0, NAN, 1e-30, 2.5, -1.0, NAN],
       [0.0, INF, 0.0, -1.0, 2.0, 0.0, 3.0, 0.5, 1.0, 2.0, -1.0, 1.0, 1e30, INF, 0.0, 0.0])
binary("xlogy", "bfloat16[8,4@Y]", 42, [0.25 * k for k in range(32)], tol=1e-2)

# Maximum and minimum over devices for every kind of element: the programs differ only in the operation.
for name, data in [("bool", [True, False, True, True, False, False, True, False]), ("int32", [3, -5, 7, 2, 0, -1, 4, 9]),
                   ("uint8", [3, 200, 7, 2, 0, 255, 4, 9]), ("float32", [0.5, -2.0, 3.25, 1.0, INF, -INF, 0.0, -4.0])]:
  for op in ("pmax", "pmin", "psum"):
    collective(op, f"{name}[8@X]", data, f"{name}[4]{{V:X}}", ["X"], (("X", 2),))
    collective(op, f"{name}[8@(X,Y)]", data, f"{name}[2]{{V:(X,Y)}}", ["X", "Y"], (("X", 2), ("Y", 2)))

# A linear recurrence with decaying and growing factors.
binary("recurrence", "float32[4@Y,4]", [0.5, -2, 1, 3, 0, 0.25, -1, 2, 1, 1, 0.5, -0.5, 4, 0, 2, 1],
       [1, 2, -3, 0.5, 4, -1, 0.25, 2, 0, 1, 1, -2, 8, 0.5, -0.5, 3], params={"axis": 1})
unary("cumlogsumexp", "float32[4@Y,4]", [0.5, -2, 1, 3, 0, 0.25, -1, 2, 100, 100, 0.5, -0.5, -4, 0, 2, 1], {"axis": 1})

# Pseudo-inverses of columns.
unary("pinv", "float32[2@X,2,1]", [3.0, 4.0, 0.0, 5.0])

# Rolls along sharded dimensions.
unary("roll", "float32[4@Y,4]", list(range(1, 17)), {"shift": 1, "axis": 0})
unary("roll", "int32[4@Y,4@X]", list(range(1, 17)), {"shift": -2, "axis": 1})

# Products of groups of rows: as many rows as the sizes say, fewer, and more; empty groups; sums over the rows of groups.
def ragged(op, dtype, shapes, sizes, **kw):
  case({"a": (f"{dtype}[{shapes[0]}]", 5), "b": (f"{dtype}[{shapes[1]}]", 6), "c": (f"int32[{len(sizes)}]", sizes)},
       [("v", op, ["a", "b", "c"], {})], **kw)

for sizes in [[3, 1, 4], [0, 5, 0], [8, 0, 0], [0, 0, 0], [6, 7, 2]]:
  ragged("ragged_dot", "float32", ["8,4", "3,4,6"], sizes)
  ragged("ragged_dot_per_group", "float32", ["8,4", "8,6"], sizes)
ragged("ragged_dot", "bfloat16", ["8,4", "3,4,6"], [3, 1, 4], tol=1e-2)
ragged("ragged_dot", "int32", ["8,4", "3,4,6"], [3, 1, 4])
ragged("ragged_dot", "float32", ["6,600", "2,600,3"], [2, 4], tol=1e-4)

if __name__ == "__main__":
  meta = {"meta": {"set": "own", "jax": jax.__version__, "devices": "8 CPU", "cases": len(CASES)}}
  for line in [meta, *CASES]:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
