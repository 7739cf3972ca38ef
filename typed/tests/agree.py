#!/usr/bin/env python3
"""Writes agreement/cases.rs: for every equation of the conformance cases whose op has a static rule, whether rustc finds the rule to hold, and the type.

Run from anywhere: `python3 typed/tests/agree.py`. What is left out, and why, is counted in agreement/left_out.txt. The first
line of cases.rs has a digest of the files that it was made from, which tests/generated.rs compares.
"""
import collections, glob, json, os, re, subprocess, zlib

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "..", "..", "tests", "conformance")
left_out = collections.Counter()


def digest(files):
    """Returns the CRC-32 of the names and contents of the files, in the order of their names."""
    crc = 0
    for file in files:
        with open(file, "rb") as f:
            crc = zlib.crc32(f.read(), zlib.crc32(os.path.basename(file).encode(), crc))
    return crc


def listed(name):
    """Returns the words of each line of a list of cases."""
    return [line.split() for line in open(os.path.join(CASES, name)) if line.strip() and not line.startswith("#")]


class Skip(Exception):
    pass


def skip(why):
    raise Skip(why)


TYPE = re.compile(r"^(\w+)\[(.*?)\](?:\{(.*)\})?$")


def parse(text):
    m = TYPE.match(text)
    if not m:
        skip("a type that is no array of numbers")
    dtype, dims, sets = m.groups()
    out = []
    for d in re.findall(r"\d+(?:@\([^)]*\)|@\w+)?", dims):
        n, _, axes = d.partition("@")
        out.append((int(n), [a for a in axes.strip("()").split(",") if a]))
    found = {"V": [], "U": [], "R": []}
    for name, axes in re.findall(r"([VUR]):(\([^)]*\)|\w+)", sets or ""):
        found[name] = axes.strip("()").split(",")
    return dtype, out, found


class Mesh:
    def __init__(self, mesh):
        self.axes = mesh["axes"]

    def key(self):
        return tuple((a, n) for a, n in self.axes)

    def ident(self, axis):
        if axis not in [a for a, _ in self.axes]:
            skip("a name that is no axis of the mesh")
        return axis[0].upper() + axis[1:]

    def declared(self):
        one = lambda a, n: f'{self.ident(a)}: {n}' if self.ident(a) == a else f'{self.ident(a)}("{a}"): {n}'
        return "mesh! { pub struct Pod { %s } }" % ", ".join(one(a, n) for a, n in self.axes)

    def split(self, axes):
        if len(axes) > 3:
            skip("a dim over more than three axes")
        names = [self.ident(a) for a in axes]
        return names[0] if len(names) == 1 else "(" + ", ".join(names) + ")"

    def dims(self, dims, stretch):
        if len(dims) > 8:
            skip("rank above 8")
        out = []
        for n, axes in dims:
            if n == 0:
                skip("a dim of size 0")
            if n == 1 and axes and stretch:
                skip("a dim of size 1 that is split over an axis of size 1, and may repeat")
            out.append("~" if n == 1 and stretch else f"{n}@{self.split(axes)}" if axes else str(n))
        return "S![%s]" % ", ".join(out)

    def sets(self, sets, inside):
        slots = []
        for a, _ in self.axes:
            name = self.ident(a)
            slots.append(name if a in sets["V"] else f"UnreducedSum<{name}>" if a in sets["U"] else f"ReducedSum<{name}>" if a in sets["R"] else "Invariant")
        tuple_ = "(" + "".join(s + "," for s in slots) + ")"
        if inside:
            return tuple_
        return "()" if all(s == "Invariant" for s in slots) else f"GlobalSets<{tuple_}>"

    def spec(self, spec, rank):
        u, r = [], []
        if isinstance(spec, dict):
            u, r, spec = spec.get("unreduced") or [], spec.get("reduced") or [], spec["spec"]
        spec = list(spec) + [None] * (rank - len(spec))
        if len(spec) != rank:
            skip("a spec longer than the rank: the token after the last dim")
        entries = [[] if e is None else [e] if isinstance(e, str) else e for e in spec]
        flat = [a for e in entries for a in e] + u + r
        if len(set(flat)) != len(flat):
            skip("an axis twice in one spec: rejected at the token")
        if len(u) > 2 or len(r) > 2 or (u and r):
            skip("a spec with both sets, or sets of more than two axes")
        text = ", ".join(self.split(e) if e else "_" for e in entries)
        for name, axes in (("U", u), ("R", r)):
            if axes:
                axes = [a for a, _ in self.axes if a in axes]
                text += f"; {name}: ({', '.join(self.ident(a) for a in axes)})"
        return f"P![{text}]"


def scalar_methods():
    """Returns the names of the rows of `methods` in the table of scalar functions."""
    table = open(os.path.join(HERE, "..", "..", "src", "core", "scalar_op", "table.rs")).read()
    rows = table[table.index("    methods {") : table.index("    unary {")]
    return re.findall(r"^        [A-Z]\w+ (\w+) [A-Z]\w+:", rows, re.M)


LINEAR = "neg stop_gradient".split()
UNARY = scalar_methods() + "square reciprocal relu silu softplus gelu integer_pow is_finite not".split()
BINARY = "div rem max min pow atan2 nextafter eq ne lt le gt ge and or xor shift_left shift_right_arithmetic shift_right_logical hypot xlogy".split()
TRUTH = "eq ne lt le gt ge is_finite".split()


def over(axes, rank, keep):
    axes = sorted(set(a + rank if a < 0 else a for a in axes))
    if any(a >= 8 for a in axes):
        skip("a dim number above 7")
    if not axes:
        skip("a reduction over no dim")
    dims = f"D<{axes[0]}>" if len(axes) == 1 else "(" + ", ".join(f"D<{a}>" for a in axes) + ")"
    return f"Kept<{dims}>" if keep else dims


def query(mesh, eq, types, inside):
    """The rule as a Rust type, and the result's element type (None: the first operand's)."""
    op, params = eq["op"], eq.get("params") or {}
    ins = [None if isinstance(i, dict) else types(i) for i in eq.get("in", [])]
    if any(i is None and not isinstance(j, dict) for i, j in zip(ins, eq.get("in", []))):
        skip("the type of an operand is not stated")
    arrays = [i for i in ins if i is not None]
    if any(i[0] == "key" or i[0].startswith("complex") for i in arrays):
        skip("complex numbers and keys have no static types")
    S = lambda k, stretch=False: mesh.dims(arrays[k][1], stretch)
    V = lambda k: mesh.sets(arrays[k][2], inside)
    rank = lambda k=0: len(arrays[k][1])
    same = arrays[0][0] if arrays else None
    if any(set(a[2]["V"]) and not inside for a in arrays):
        skip("a varying value outside of shard_map")

    if op in LINEAR:
        return f"Any<{S(0)}, {V(0)}>", same
    if op in UNARY or (op in BINARY + ["add", "sub", "mul"] and len(arrays) == 1 and len(ins) == 2):
        return f"{'Number' if len(ins) == 2 else 'Unary'}<{S(0)}, {V(0)}>", "bool" if op in TRUTH else same
    if op in BINARY + ["add", "sub", "mul"] and len(arrays) == 2:
        if arrays[0][0] != arrays[1][0]:
            skip("element types differ: a bound on the method")
        kind = {"add": "Add", "sub": "Add", "mul": "Mul"}.get(op, "Join")
        return f"{kind}<{S(0, True)}, {V(0)}, {S(1, True)}, {V(1)}>", "bool" if op in TRUTH else same
    if op == "convert_element_type":
        return f"Any<{S(0)}, {V(0)}>", params["dtype"]
    if op in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"):
        if params.get("out_sharding") is not None:
            skip("a reduction with a stated sharding: `.then`")
        if any(a < 0 for a in params["axes"]):
            skip("a dim number that is negative or above 7")
        if len(set(params["axes"])) != len(params["axes"]):
            skip("a dim named twice: no way to write it")
        wide = "ReduceSum" if op == "reduce_sum" else "Reduce"
        return f"{wide}<{S(0)}, {V(0)}, {over(params['axes'], rank(), False)}>", same
    if op in ("sum", "prod", "mean", "var", "std", "any", "all", "amax", "amin", "logsumexp", "softmax", "log_softmax"):
        axis = params.get("axis")
        axes = list(range(rank())) if axis is None else [axis] if isinstance(axis, int) else axis
        if rank() == 0:
            skip("a reduction over no dim")
        dims = over(axes, rank(), bool(params.get("keepdims")))
        out = "bool" if op in ("any", "all") else same
        if op in ("sum", "prod") and same in ("bool", "int8", "int16", "uint8", "uint16"):
            out = "uint32" if same.startswith("u") else "int32"
        if op in ("mean", "var", "std") and not same.startswith(("float", "bfloat")):
            skip("a mean of whole numbers: a bound on the method")
        if "softmax" in op:
            return f"Softmax<{S(0)}, {V(0)}, {dims}>", out
        return f"{'ReduceSum' if op == 'sum' else 'Reduce'}<{S(0)}, {V(0)}, {dims}>", out
    if op in ("argmax", "argmin"):
        axes = list(range(rank())) if params["axis"] is None else [params["axis"]]
        return f"Position<{S(0)}, {V(0)}, {over(axes, rank(), False)}>", "int32"
    if op == "transpose":
        order = "".join(f"D<{d}>," for d in params["permutation"])
        if any(d >= 8 or d < 0 for d in params["permutation"]):
            skip("a dim number that is negative or above 7")
        return f"Move<{S(0)}, {V(0)}, ({order})>", same
    if op in ("expand_dims", "squeeze"):
        if len(params["dimensions"]) != 1 or params["dimensions"][0] not in range(8):
            skip("several new dims at once: one by one")
        return f"{'Expand' if op == 'expand_dims' else 'Squeeze'}<{S(0)}, {V(0)}, D<{params['dimensions'][0]}>>", same
    if op in ("sort", "argsort", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "roll", "top_k"):
        d = params["dimension"] if op == "sort" else params["axis"]
        if len(arrays) > 1 or d not in range(8):
            skip("sorts of several operands, or a dim number that is negative or above 7")
        if op == "cumsum" and params.get("reverse") or op.startswith("cum") and params.get("dtype") or same == "bool" and op in ("cumsum", "cumprod"):
            skip("running sums from the end, in another element type, or of bool: `.then`")
        if op == "roll":
            return f"Roll<{S(0)}, {V(0)}, D<{d}>>", same
        if op == "top_k":
            if d >= rank() or params["k"] < 1:
                skip("none of the greatest elements, or along a dim that is not there")
            return f"TopK<{S(0)}, {V(0)}, D<{d}>, N![{params['k']}]>", same
        return f"{'AlongSum' if op == 'cumsum' else 'Along'}<{S(0)}, {V(0)}, D<{d}>>", "int32" if op == "argsort" else same
    if op == "pad":
        widths = list(zip(params["low"], params["high"], params.get("interior") or [0] * len(params["low"])))
        padded = [d for d, w in enumerate(widths) if w != (0, 0, 0)]
        if len(padded) != 1 or len(widths) != rank() or min(widths[padded[0]]) < 0 or widths[padded[0]][2] != 0 or len(arrays) > 1:
            skip("pad of other than one dim, between elements, or by less than nothing: `.then`")
        d = padded[0]
        if arrays[0][2]["U"] or arrays[0][2]["R"]:
            skip("pad of an unreduced or reduced value: `.then`")
        return f"Padded<{S(0)}, {V(0)}, D<{d}>, N![{widths[d][0]}], N![{widths[d][1]}]>", same
    if op == "tile":
        reps = params["reps"]
        repeated = [d for d, n in enumerate(reps) if n != 1]
        if len(reps) != rank() or len(repeated) != 1 or reps[repeated[0]] < 1:
            skip("tile of other than one dim: dim by dim, or `.then`")
        if arrays[0][2]["U"] or arrays[0][2]["R"]:
            skip("tile of an unreduced or reduced value: `.then`")
        return f"Tiled<{S(0)}, {V(0)}, D<{repeated[0]}>, N![{reps[repeated[0]]}]>", same
    if op == "stack":
        if len(arrays) != 2 or arrays[0][0] != arrays[1][0]:
            skip("stack of other than two operands of one element type: `.then`")
        d = params["axis"]
        if d not in range(8):
            skip("a dim number that is negative or above 7")
        return f"Stack<{S(0)}, {V(0)}, {S(1)}, {V(1)}, D<{d}>>", same
    if op in ("take", "take_along_axis", "at_add", "at_mul", "at_min", "at_max", "at_set"):
        d, out = params.get("axis", 0), params.get("out_sharding")
        if d not in range(8):
            skip("a dim number that is negative or above 7")
        if len(arrays) < len(ins):
            skip("an update by a number: the rule of its indices")
        if len(arrays[1][1]) + rank() > 9:
            skip("rank above 8")
        if not arrays[1][0].startswith(("int", "uint")) or len(arrays) == 3 and arrays[2][0] != same:
            skip("an error of element types: bounds on methods, in tests/ui")
        args = f"{S(0)}, {V(0)}, {S(1)}, {V(1)}, D<{d}>"
        if op == "take_along_axis":
            stretch = lambda k: "S![%s]" % ", ".join(
                ("~" if x[0] == 1 and not x[1] and i != d else mesh.dims([x], False)[3:-1]) for i, x in enumerate(arrays[k][1]))
            if out is not None:
                skip("take_along_axis with a stated sharding: in the random cases")
            return f"TakeAlong<{stretch(0)}, {V(0)}, {stretch(1)}, {V(1)}, D<{d}>>", same
        if op == "take":
            return (f"Take<{args}>" if out is None else f"TakeTo<{args}, {mesh.spec(out, rank() + rank(1) - 1)}>"), same
        if out is not None:
            skip("an update with a stated sharding: `.then`")
        return f"Update<{args}, {S(2)}, {V(2)}>", same
    if op == "one_hot":
        return f"OneHot<{S(0)}, {V(0)}, N![{params['num_classes']}]>", params.get("dtype", "float32")
    if op in ("tril", "triu"):
        return f"Triangle<{S(0)}, {V(0)}>", same
    if op == "rev":
        skip("keeps the type: no rule to compare")
    if op == "reshard":
        return f"Reshard<{S(0)}, {V(0)}, {mesh.spec(params['spec'], rank())}>", same
    if op == "matmul":
        if arrays[0][0] != arrays[1][0]:
            skip("element types differ: a bound on the method")
        out = params.get("out_sharding")
        one = [r for r in (rank(0), rank(1))]
        lead = max(0, max(one) - 2)
        n = lead + (rank(0) >= 2) + (rank(1) >= 2)
        stretch = lambda k: "S![%s]" % ", ".join(
            ("~" if d[0] == 1 and not d[1] and i < rank(k) - 2 else mesh.dims([d], False)[3:-1]) for i, d in enumerate(arrays[k][1]))
        args = f"{stretch(0)}, {V(0)}, {stretch(1)}, {V(1)}"
        return (f"Matmul<{args}>" if out is None else f"MatmulTo<{args}, {mesh.spec(out, n)}>"), same
    if op in ("dot_general", "einsum"):
        if any(a[0] != arrays[0][0] for a in arrays):
            skip("element types differ: a bound on the method")
        if params.get("preferred_element_type") is not None:
            same = params["preferred_element_type"]
        if op == "dot_general":
            (lc, rc), (lb, rb) = params["contracting"], params["batch"]
            if len(lc) != len(rc) or len(lb) != len(rb):
                skip("pairs of dims that are none: no way to write it")
            outs = [f"PairedDim<{i}, {j}>" for i, j in zip(lb, rb)]
            outs += [f"LeftDim<{i}>" for i in range(rank(0)) if i not in lc + lb]
            outs += [f"RightDim<{j}>" for j in range(rank(1)) if j not in rc + rb]
            pairs = [f"PairedDim<{i}, {j}>" for i, j in zip(lc, rc)]
            if len(set(lc + lb)) != len(lc + lb) or len(set(rc + rb)) != len(rc + rb):
                skip("a dim named twice: no way to write it")
            left, right = S(0), S(1)
        else:
            text = params["subscripts"].replace(" ", "")
            if len(arrays) != 2:
                skip("einsum of one or three operands: rejected at the token, or a transpose of sums")
            if "->" not in text or "." in text:
                skip("einsum without `->`, or with `..`: rejected at the token")
            ab, out = text.split("->")
            a, b = ab.split(",")
            if len(set(a)) != len(a) or len(set(b)) != len(b) or len(set(out)) != len(out):
                skip("einsum with a letter twice in one operand: rejected at the token")
            if len(a) != rank(0) or len(b) != rank(1):
                skip("einsum with another number of letters than dims: a bound on the operand")
            left, right = S(0), S(1)
            for k, (mine, other) in enumerate(((a, b), (b, a))):
                for i in reversed([i for i, c in enumerate(mine) if c not in out and c not in other]):
                    if k == 0:
                        left, a = f"Summed<{left}, D<{i}>>", a[:i] + a[i + 1:]
                    else:
                        right, b = f"Summed<{right}, D<{i}>>", b[:i] + b[i + 1:]
            if any(c not in a and c not in b for c in out):
                skip("einsum with a letter of the result in no operand: rejected at the token")
            together = [c for c in out if c in a and c in b]
            turned = "".join(together + [c for c in a if c not in b] + [c for c in b if c not in a]) != out
            both = "SwappedDim" if turned and params.get("out_sharding") is None else "PairedDim"
            outs = [f"{both}<{a.index(c)}, {b.index(c)}>" if c in a and c in b else f"LeftDim<{a.index(c)}>" if c in a else f"RightDim<{b.index(c)}>" for c in out]
            pairs = [f"PairedDim<{i}, {b.index(c)}>" for i, c in enumerate(a) if c in b and c not in out]
        if len(pairs) > 4 or len(outs) > 8:
            skip("more than four contracted pairs")
        args = f"{left}, {V(0)}, {right}, {V(1)}, ({''.join(o + ',' for o in outs)}), ({''.join(p + ',' for p in pairs)})"
        out = params.get("out_sharding")
        if out is None:
            return f"Einsum<{args}>", same
        spec = mesh.spec(out, len(outs))
        return f"EinsumTo<{args}, {spec}>", same
    if op == "broadcast_to":
        if params.get("out_sharding") is not None:
            skip("broadcast_to with a stated sharding: `.then`")
        skip("broadcast_to: the new shape is stated with its sharding, so a wrong one is another type")
    if op == "select":
        if any(a is None for a in ins) or rank(0) == 0:
            skip("select with a number or one condition for all: `.then`")
        a, b = arrays[1], arrays[2]
        if a[0] != b[0]:
            skip("element types differ: a bound on the method")
        return f"Select<{S(0)}, {V(0)}, {S(1)}, {V(1)}, {S(2)}, {V(2)}>", a[0]
    if op == "where":
        if len(arrays) < 2 or len(arrays) == 3 and arrays[1][0] != arrays[2][0] or same != "bool":
            skip("select between two numbers, or element types that differ")
        operands = ", ".join(f"{S(k, True)}, {V(k)}" for k in range(len(arrays)))
        return f"{'Select' if len(arrays) == 3 else 'Join'}<{operands}>", arrays[1][0]
    if op == "concatenate":
        if len(arrays) not in range(2, 9):
            skip("concat of one operand, or of more than eight: `.then`")
        if any(a[0] != arrays[0][0] for a in arrays):
            skip("element types differ: a bound on the method")
        if params["dimension"] not in range(8):
            skip("a dim number that is negative or above 7")
        if len(arrays) > 2:
            every = range(len(arrays))
            return f"ConcatAll<({', '.join(S(k) for k in every)}), ({', '.join(V(k) for k in every)}), D<{params['dimension']}>>", same
        return f"Concat<{S(0)}, {V(0)}, {S(1)}, {V(1)}, D<{params['dimension']}>>", same
    if op == "split":
        if len(params["sizes"]) not in range(2, 9) or params["axis"] not in range(8) or 0 in params["sizes"]:
            skip("split into one part, more than eight, or an empty one: `.then`")
        if len(params["sizes"]) > 2:
            return f"CutAll<{S(0)}, {V(0)}, D<{params['axis']}>, ({', '.join(f'N![{n}]' for n in params['sizes'])})>", same
        a, b = params["sizes"]
        return f"Cut<{S(0)}, {V(0)}, D<{params['axis']}>, N![{a}], N![{b}]>", same
    if op == "slice":
        start, limit, strides = params["start"], params["limit"], params.get("strides")
        steps = strides or [1] * len(start)
        if len(steps) != rank():
            skip("pairs of dims that are none: no way to write it")
        cut = [d for d, (n, _) in enumerate(arrays[0][1]) if d < len(start) and (start[d], limit[d], steps[d]) != (0, n, 1)]
        if len(start) != rank() or len(cut) != 1:
            skip("a slice of other than one dim: dim by dim, or `.then`")
        d = cut[0]
        if steps[d] not in range(1, 17):
            skip("a slice in steps of 0, or of more than 16: `.then`")
        if steps[d] != 1:
            return f"Strided<{S(0)}, {V(0)}, D<{d}>, N![{start[d]}], N![{limit[d]}], N![{steps[d]}]>", same
        return f"Sliced<{S(0)}, {V(0)}, D<{d}>, N![{start[d]}], N![{limit[d]}]>", same
    if op == "reshape":
        if params.get("out_sharding") is not None:
            skip("a reshape with a stated sharding: `.then`")
        old, new = arrays[0][1], params["new_sizes"]
        i = 0
        while i < min(len(old), len(new)) and old[i][0] == new[i]:
            i += 1
        j = 0
        while j < min(len(old), len(new)) - i and old[-1 - j][0] == new[-1 - j]:
            j += 1
        o, n = old[i:len(old) - j], new[i:len(new) - j]
        if len(o) == 1 and len(n) == 2 and 1 not in n and n[0] * n[1] == o[0][0] and i < 8:
            return f"Factor<{S(0)}, {V(0)}, D<{i}>, N![{n[0]}], N![{n[1]}]>", same
        if len(o) == 2 and len(n) == 1 and 1 not in (o[0][0], o[1][0]) and o[0][0] * o[1][0] == n[0] and i < 7:
            return f"Merge<{S(0)}, {V(0)}, D<{i}>, D<{i + 1}>>", same
        if not any(axes for _, axes in old) and all(n > 0 for n in new) and len(new) <= 8:
            return f"Reshaped<{S(0)}, {V(0)}, {mesh.dims([(n, []) for n in new], False)}>", same
        skip("a reshape of sharded dims other than one split or one merge: `.then`")
    if op in ("psum", "pmean", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute", "pcast", "axis_index"):
        if not inside:
            skip("a collective outside of shard_map")
        names = params["axis_name"]
        names = [names] if isinstance(names, str) else names
        several = op in ("psum", "pmean", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all") and len(names) in (2, 3) and len(set(names)) == len(names)
        if len(names) != 1 and not several or params.get("axis_index_groups") is not None:
            skip("collectives over more axes than three or over one twice, in groups, and moves over several: one by one, or `.then`")
        A = mesh.split([n for n in names if mesh.ident(n)])
        if op == "axis_index":
            return f"Index<{A}>", "int32"
        if not arrays:
            skip("a collective of a number")
        if arrays[0][2]["U"] or arrays[0][2]["R"]:
            skip("a collective of an unreduced or reduced value: `.then`")
        if op in ("psum", "pmean", "pmax", "pmin"):
            if same == "bool" or op == "pmean" and "float" not in same:
                skip("a sum of bool, a mean of whole numbers: a bound on the method")
            return f"Psum<{S(0)}, {V(0)}, {A}>", same
        tiled = params.get("tiled", False)
        if op in ("all_gather", "psum_scatter", "all_to_all") and not tiled:
            skip("a stacked gather, scatter or exchange: `.then`")
        dim = lambda d: f"D<{d}>" if d in range(8) else skip("a dim number that is negative or above 7")
        if op == "all_gather":
            if params.get("to", "varying") != "varying":
                skip("a gather to an invarying or reduced value: `.then`")
            return f"AllGather<{S(0)}, {V(0)}, {A}, {dim(params.get('axis', 0))}>", same
        if op == "psum_scatter":
            return f"PsumScatter<{S(0)}, {V(0)}, {A}, {dim(params.get('scatter_dimension', 0))}>", same
        if op == "all_to_all":
            i, j = params["split_axis"], params["concat_axis"]
            if i == j:
                skip("an exchange along one dim: `.then`")
            return f"AllToAll<{S(0)}, {V(0)}, {A}, {dim(i)}, {dim(j)}>", same
        if op == "ppermute":
            return f"Pvary<{S(0)}, {V(0)}, {A}>", same
        if op == "pcast" and params.get("to") == "varying":
            return f"Pcast<{S(0)}, {V(0)}, {A}>", same
        skip("a cast to reduced or unreduced: `.then`")
    if op == "shard_map":
        if inside or params.get("axis_names") is not None or params.get("check_vma") is False:
            skip("a shard_map within another, over some axes, or unchecked")
        skip("a shard_map itself: its blocks and its results are compared one by one")
    if op == "_local":
        return f"Local<{S(0)}, {V(0)}>", same
    if op == "_global":
        return f"Global<{S(0)}, {V(0)}, {mesh.spec(params['spec'], rank())}>", same
    skip("an op without a static rule")


def equations(case):
    """Each equation of the case with a rule, its operands' types, and what is expected of it."""
    expect, known = case["expect"], {a["name"]: a["type"] for a in case["args"]}
    for name, text in (expect.get("types") or {}).items():
        known.setdefault(name, text)

    def types(name):
        return parse(known[name]) if name in known else None

    def walk(body, inside, plain):
        for eq in body:
            out = eq["out"][0]
            rejected = expect.get("at") == out
            answered = out in known and not rejected
            if plain and (rejected or answered) and "welcome" not in case:
                yield eq, inside, types, (None if rejected else known[out]), expect.get("error") if rejected else None
            params = eq.get("params") or {}
            manual = eq["op"] in ("shard_map", "smap")
            full = eq["op"] == "shard_map" and params.get("axis_names") is None and params.get("check_vma", True) is not False
            transparent = eq["op"] in ("jit", "checkpoint", "scan", "cond", "fori_loop", "while_loop", "switch", "grad", "value_and_grad", "vjp", "jvp")
            go = plain and (full and not inside or transparent)
            inner = [eq["body"]] if "body" in eq else []
            if go and manual and "error" not in expect and "welcome" not in case and params.get("in_specs") is not None:
                for name, inner_name in zip(eq["in"], eq["body"]["args"]):
                    if isinstance(name, str) and inner_name in known:
                        yield {"op": "_local", "in": [name], "out": [inner_name]}, False, types, known[inner_name], None
            if go and manual and "welcome" not in case:
                # a result that leaves wrongly is rejected at the shard_map itself
                for name, out_name, spec in zip(eq["body"]["returns"], eq["out"], params["out_specs"]):
                    if isinstance(spec, dict):
                        continue
                    global_ = {"op": "_global", "in": [name], "out": [out_name], "params": {"spec": spec or []}}
                    if "error" not in expect and out_name in known:
                        yield global_, True, types, known[out_name], None
                    elif expect.get("at") == out and len(eq["out"]) == 1 and expect["error"] == "vma":
                        yield global_, True, types, None, "vma"
            for b in inner + eq.get("branches", []):
                yield from walk(b["body"], inside or manual, go)

    yield from walk(case["body"], False, True)


def main():
    exceptions = {line[1] for line in listed("exceptions.txt")}
    # cases that are accepted although the reference rejects them, with our type
    accepted = {line[0]: line[1] for line in listed("accepted.txt")}
    meshes, seen, total = {}, set(), 0
    # a scalar function has the types of all others of its class, so those of functions.jsonl are left out
    files = sorted(f for f in glob.glob(os.path.join(CASES, "*.jsonl")) if os.path.basename(f) != "functions.jsonl")
    made_from = [*files, *(os.path.join(CASES, name) for name in ("accepted.txt", "exceptions.txt")), os.path.abspath(__file__)]
    for file in files:
        for line in open(file):
            case = json.loads(line)
            if case.get("kind") != "program" or case["id"] in exceptions:
                continue
            if any(t != "explicit" for t in case["mesh"]["types"]):
                left_out["a mesh with auto axes"] += 1
                continue
            mesh = Mesh(case["mesh"])
            for k, (eq, inside, types, answer, error) in enumerate(equations(case)):
                total += 1
                if error is not None and case["id"] in accepted:
                    answer, error = accepted[case["id"]], None
                try:
                    if error == "dtype":
                        skip("an error of element types: bounds on methods, in tests/ui")
                    if error == "mesh":
                        skip("an error of a spec or a name: at the token, or an axis that is no type")
                    text, dtype = query(mesh, eq, types, inside)
                    if answer is not None:
                        d, dims, sets = parse(answer)
                        assert d == dtype, (case["id"], eq["op"], d, dtype)
                        if any(n == 0 for n, _ in dims):
                            skip("a dim of size 0")
                        answer = answer[len(d):]
                    key = (mesh.key(), text, answer)
                    if key in seen:
                        left_out["the same as another case"] += 1
                        continue
                    seen.add(key)
                    meshes.setdefault(mesh.key(), (mesh, []))[1].append((f"{case['id']} {eq['out'][0]}", text, answer))
                except Skip as why:
                    left_out[str(why)] += 1
    cases_rs = os.path.join(HERE, "agreement", "cases.rs")
    with open(cases_rs, "w") as f:
        f.write(f"// Written by typed/tests/agree.py from files of digest {digest(made_from):08x}. Do not edit.\n")
        count = 0
        for i, (mesh, cases) in enumerate(meshes.values()):
            f.write(f"pub mod m{i} {{\n use crate::queries::*;\n {mesh.declared()}\n")
            f.write(" type Local<S, V> = LocalOn<S, V, Pod>;\n type Global<S, V, P> = GlobalOn<S, V, P, Pod>;\n")
            f.write(" pub static CASES: &[crate::Case] = &[\n")
            for name, text, answer in cases:
                expected = "None" if answer is None else f'Some("{answer}")'
                f.write(f'  case!({text.split("<")[0]}, "{name}", {text}, {expected}),\n')
                count += 1
            f.write(" ];\n}\n")
        f.write("pub static ALL: &[&[crate::Case]] = &[%s];\n" % ", ".join(f"m{i}::CASES" for i in range(len(meshes))))
    config = os.path.join(HERE, "..", "..")
    subprocess.run(["rustfmt", "--edition", "2024", "--config-path", config, cases_rs], check=True)
    with open(os.path.join(HERE, "agreement", "left_out.txt"), "w") as f:
        f.write(f"Of {total} equations of the conformance cases (and {left_out['a mesh with auto axes']} cases on meshes with auto axes, which types do not show)\n")
        f.write(f"{count} are compared. Left out:\n")
        for why, n in left_out.most_common():
            f.write(f"{n:6} {why}\n")


main()
