"""Computes XLA's columns of figures.tsv: compiles the same programs with JAX on 8 CPU devices, with auto axes and the same shardings of operands and results.

    pip install jax==0.10.2
    python tests/bytes_moved/xla.py                # prints: program, xla, xla_scattering
    python tests/bytes_moved/xla.py mlp_dp         # prints the collectives of one program
    python tests/bytes_moved/xla.py --write        # writes both columns into figures.tsv

The bytes that a device receives are computed from the compiled program: (n-1)/n of the result for an all-gather and an all-to-all, twice that for an
all-reduce, and all of it for a permute. A collective in a loop counts once per iteration. If only slices of an all-reduce are read, it counts half in the second column.
"""
import os, re, sys
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P, NamedSharding as N, AxisType

M8 = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
M42 = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
progs = []
def p(name, mesh, args, outs):
    def d(f): progs.append((name, M8 if mesh == 8 else M42, args, outs, f)); return f
    return d
relu = jax.nn.relu
def mlp(x, w1, w2): return relu(x @ w1) @ w2
def mlp_grad(x, w1, w2):
    l, g = jax.value_and_grad(lambda w: jnp.mean(mlp(x, *w) ** 2))((w1, w2)); return l, *g
for name, mesh, n, sx, s1, s2 in [("mlp_dp", 8, 64, P("x"), P(), P()), ("mlp_fsdp_b64", 8, 64, P("x"), P("x"), P("x")), ("mlp_fsdp_b1024", 8, 1024, P("x"), P("x"), P("x")),
    ("mlp_tp", 8, 64, P(), P(None, "x"), P("x")), ("mlp_dp_tp", 42, 64, P("x"), P(None, "y"), P("y")), ("mlp_fsdp_tp", 42, 64, P("x"), P("x", "y"), P("y", "x")), ("mlp_fsdp_tp_b1024", 42, 1024, P("x"), P("x", "y"), P("y", "x"))]:
    p(name, mesh, [((n, 32), sx), ((32, 128), s1), ((128, 32), s2)], [P(), s1, s2])(mlp_grad)
def attention(x, wq, wk, wv, wo):
    q, k, v = (jnp.einsum("td,dhk->thk", x, w) for w in (wq, wk, wv))
    s = jax.nn.softmax(jnp.einsum("thk,shk->hts", q, k) * 0.25, -1)
    o = jnp.einsum("hts,shk->thk", s, v)
    return jnp.einsum("thk,hkd->td", o, wo)
for name, mesh, sx, sw, so, r in [("attn_heads", 8, P(), P(None, "x"), P("x"), P()), ("attn_seq", 8, P("x"), P(), P(), P("x")), ("attn_both", 42, P("x"), P(None, "y"), P("y"), P("x"))]:
    p(name, mesh, [((64, 32), sx)] + [((32, 8, 8), sw)] * 3 + [((8, 8, 32), so)], [r])(lambda *a: (attention(*a),))
@p("attn_both_grad", 42, [((64, 32), P("x"))] + [((32, 8, 8), P(None, "y"))] * 3 + [((8, 8, 32), P("y"))], [P(None, "y")] * 3 + [P("y")])
def _(x, *w): return jax.grad(lambda w: jnp.sum(attention(x, *w) ** 2))(w)
def norm(x, g, b):
    c = x - x.mean(-1, keepdims=True)
    return c * lax.rsqrt((c ** 2).mean(-1, keepdims=True) + 1e-5) * g + b
p("layernorm_split", 8, [((64, 128), P(None, "x")), ((128,), P()), ((128,), P())], [P(None, "x")])(lambda *a: (norm(*a),))
p("layernorm_grad", 8, [((64, 128), P(None, "x")), ((128,), P()), ((128,), P())], [P(None, "x"), P("x"), P("x")])(lambda *a: jax.grad(lambda a: jnp.sum(norm(*a) ** 2))(a))
p("softmax_split", 42, [((64, 128), P("x", "y"))], [P("x", "y")])(lambda x: (jax.nn.softmax(x, -1),))
@p("residual_tp", 42, [((64, 32), P("x")), ((32, 128), P(None, "y")), ((128, 32), P("y")), ((32,), P()), ((32,), P())], [P("x")])
def _(x, w1, w2, g, b):
    for _ in range(3): x = x + mlp(norm(x, g, b), w1, w2)
    return x,
roll = jnp.roll
def loop(n, f): return lambda u: (lax.fori_loop(0, n, lambda _, u: f(u), u),)
p("roll_1d_loop", 8, [((1024,), P("x"))], [P("x")])(loop(10, lambda u: 0.5 * u + 0.25 * (roll(u, 1, 0) + roll(u, -1, 0))))
lap = lambda u: roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1) - 4.0 * u
p("roll_2d_loop", 42, [((64, 64), P("x", "y"))], [P("x", "y")])(loop(10, lambda u: u + 0.1 * lap(u)))
def heat_cat(u):
    a, b, c = u[2:], u[1:-1], u[:-2]
    return jnp.concatenate([u[:1], b + 0.1 * (a - 2.0 * b + c), u[-1:]])
def heat_set(x): return x.at[1:-1].set(0.5 * x[1:-1] + 0.25 * x[:-2] + 0.25 * x[2:])
def heat_set2(x):
    c = x[1:-1, 1:-1]
    return x.at[1:-1, 1:-1].set(c + 0.1 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4.0 * c))
p("heat_concat_loop", 8, [((1024,), P("x"))], [P("x")])(loop(10, heat_cat))
p("heat_set_loop", 8, [((1024,), P("x"))], [P("x")])(loop(10, heat_set))
p("heat_set_grad", 8, [((1024,), P("x"))], [P("x")])(lambda u: (jax.grad(lambda u: jnp.sum(loop(10, heat_set)(u)[0] ** 2))(u),))
p("heat_set_2d_loop", 42, [((64, 64), P("x", "y"))], [P("x", "y")])(loop(10, heat_set2))
@p("conv_taps", 8, [((256, 16), P("x")), ((3, 16, 16), P())], [P("x")])
def _(x, w):
    xp = jnp.pad(x, [(1, 1), (0, 0)]); return xp[:-2] @ w[0] + xp[1:-1] @ w[1] + xp[2:] @ w[2],
p("uneven_diff", 8, [((64, 16), P("x"))], [P(None, "x")])(lambda x: ((x[1:] - x[:-1]) ** 2 + 1.0,))
@p("at_set_updates", 8, [((256,), P("x")), ((64,), P("x"))], [P("x")])
def _(x, u):
    x = x.at[10:74].set(u); x = x.at[100:164].add(u * 2.0); return x.at[:8].set(0.0) + 1.0,
@p("transposes", 8, [((64, 64), P("x")), ((64, 64), P("x"))], [P("x")])
def _(a, b):
    s = a + a.T; return (s.T @ b).T * 2.0 + a,
p("reshape_transpose", 42, [((64, 64), P("x", "y"))], [P("x", "y")])(lambda a: (jnp.exp(a.reshape(8, 8, 64).transpose(1, 0, 2)).reshape(64, 64) * 2.0,))
p("chain3", 8, [((64, 128), P("x")), ((128, 64), P(None, "x")), ((64, 32), P("x"))], [P("x")])(lambda a, b, c: (a @ b @ c,))
p("chain5", 42, [((64, 64), s) for s in (P("x", "y"), P("x", "y"), P("y", "x"), P("x"), P(None, "y"))], [P("x", "y")])(lambda a, b, c, d, e: (a @ b @ c @ d @ e,))
p("einsum_batch", 42, [((8, 32, 64), P("x", None, "y")), ((8, 64, 32), P(None, "y", "x"))], [P("x", "y")])(lambda a, b: (jnp.einsum("bij,bjk->bik", a, b),))
@p("gnn_2d", 42, [((128, 128), P("x", "y")), ((128, 16), P("x")), ((16, 16), P()), ((16, 16), P())], [P("x")])
def _(a, h, w1, w2): return a @ (relu(a @ (h @ w1)) @ w2),
p("embed_onehot", 8, [((64, 256), P("x")), ((256, 32), P("x"))], [P("x")])(lambda h, t: (jnp.tanh(h @ t),))
p("scalars", 42, [((64, 64), P("x", "y"))] * 2, [P()] * 4)(lambda a, b: (a.mean(), a.max(), (a * b).sum(), jnp.sqrt((a ** 2).sum())))
@p("lse_loss_grad", 42, [((64, 32), P("x")), ((32, 128), P(None, "y")), ((64, 128), P("x"))], [P(), P(None, "y")])
def _(x, w, t):
    def f(w):
        z = x @ w; return (jax.nn.logsumexp(z, -1) - (z * t).sum(-1)).mean()
    return jax.value_and_grad(f)(w)
scanf = lambda x, w: lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0]
p("scan_layers", 42, [((64, 32), P("x")), ((4, 32, 32), P(None, None, "y"))], [P("x")])(lambda x, w: (scanf(x, w),))
p("scan_fsdp_grad", 8, [((256, 32), P("x")), ((4, 32, 32), P(None, "x"))], [P(None, "x")])(lambda x, w: (jax.grad(lambda w: jnp.mean(scanf(x, w) ** 2))(w),))
def piter(a, v):
    def f(_, v):
        w = a @ v; return w / jnp.sqrt((w ** 2).sum())
    return lax.fori_loop(0, 10, f, v),
p("power_iter", 8, [((128, 128), P("x")), ((128,), P())], [P()])(piter)
@p("kmeans", 8, [((256, 16), P("x")), ((8, 16), P())], [P()])
def _(x, c):
    def f(_, c):
        d = (x ** 2).sum(-1, keepdims=True) - 2.0 * x @ c.T + (c ** 2).sum(-1)
        m = jax.nn.one_hot(d.argmin(-1), 8)
        return (m.T @ x) / (m.sum(0)[:, None] + 1e-6)
    return lax.fori_loop(0, 5, f, c),
@p("adam_fsdp", 8, [((256, 32), P("x"))] + [((32, 64), P("x"))] * 3, [P("x")] * 3)
def _(x, w, m, v):
    g = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
    m = 0.9 * m + 0.1 * g; v = 0.99 * v + 0.01 * g ** 2
    return w - 0.01 * (m / (jnp.sqrt(v) + 1e-8)), m, v
p("conflict_sum0", 8, [((64, 64), P("x")), ((64, 64), P(None, "x"))], [P("x")])(lambda a, b: ((a + b).sum(0),))
p("conflict_same_dim", 42, [((64, 64), P("x")), ((64, 64), P("y"))], [P("x")])(lambda a, b: (jnp.tanh(a + b),))
p("fsdp_transposed_w", 8, [((256, 32), P("x")), ((64, 32), P("x"))], [P("x")])(lambda x, w: (jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w.T) ** 2))(w),))
@p("gram_cov", 8, [((512, 32), P("x"))], [P()])
def _(x):
    c = x - x.mean(0); return c.T @ c,
@p("cg_step", 42, [((64, 64), P("x", "y"))] * 2, [P("x", "y")])
def _(a, b):
    def f(_, s):
        x, r, q = s
        ap = 4.1 * q - (roll(q, 1, 0) + roll(q, -1, 0) + roll(q, 1, 1) + roll(q, -1, 1))
        rr = (r ** 2).sum(); al = rr / (q * ap).sum()
        x, r = x + al * q, r - al * ap
        return x, r, r + (r ** 2).sum() / rr * q
    x, r, _ = lax.fori_loop(0, 10, f, (jnp.zeros_like(b), b, b)); return x + r,

p("embed_ids", 8, [((64,), P("x")), ((256, 32), P("x"))], [P("x")])(lambda i, t: (jnp.tanh(jax.nn.one_hot(i.astype(jnp.int32), 256) @ t),))
@p("vocab_loss_grad", 42, [((64, 32), P("x")), ((32, 256), P(None, "y")), ((64,), P("x"))], [P("x"), P(None, "y")])
def _(x, w, i):
    def f(a):
        z = a[0] @ a[1]; return (jax.nn.logsumexp(z, -1) - (z * jax.nn.one_hot(i.astype(jnp.int32), 256)).sum(-1)).mean()
    return jax.grad(f)((x, w))
@p("packed_qkv", 42, [((64, 32), P("x")), ((32, 192), P(None, "y")), ((64, 32), P("y"))], [P("x")])
def _(x, w, o):
    h = (x @ w).reshape(64, 8, 3, 8); q, k, v = h[:, :, 0], h[:, :, 1], h[:, :, 2]
    s = jax.nn.softmax(jnp.einsum("thk,shk->hts", q, k) * 0.25, -1)
    return jnp.einsum("hts,shk->thk", s, v).reshape(64, 64) @ o,
p("seq_parallel", 42, [((64, 32), P(("x", "y"))), ((32, 128), P(None, "y")), ((128, 32), P("y")), ((32,), P()), ((32,), P())], [P(("x", "y"))])(lambda x, w1, w2, g, b: (x + mlp(norm(x, g, b), w1, w2),))
@p("batchnorm_grad", 42, [((64, 32), P("x", "y")), ((32,), P("y"))], [P("x", "y"), P("y")])
def _(x, g):
    def f(a):
        c = a[0] - a[0].mean(0); return jnp.tanh(c * lax.rsqrt((c ** 2).mean(0) + 1e-5) * a[1]).sum()
    return jax.grad(f)((x, g))
@p("conv2d", 42, [((32, 32, 8), P("x", "y")), ((9, 8, 16), P())], [P("x", "y")])
def _(x, w):
    xp = jnp.pad(x, [(1, 1), (1, 1), (0, 0)]); return sum(xp[k // 3:k // 3 + 32, k % 3:k % 3 + 32] @ w[k] for k in range(9)),
p("cumsum_tril", 8, [((64, 16), P("x"))], [P("x")])(lambda x: (jnp.tril(jnp.ones((64, 64))) @ x,))
p("scan_leading", 8, [((64, 32), P()), ((8, 32, 32), P("x"))], [P()])(lambda x, w: (scanf(x, w),))
p("scan_ys", 8, [((64,), P("x")), ((16, 64), P(None, "x"))], [P(None, "x")])(lambda c, r: (lax.scan(lambda c, r: ((0.9 * c + r,) * 2), c, r)[1],))
p("pairwise", 8, [((128, 16), P("x"))], [P("x")])(lambda x: (((x[:, None] - x[None]) ** 2).sum(-1),))
@p("mgs", 8, [((128, 8), P("x"))], [P("x")])
def _(a):
    q = []
    for j in range(4):
        v = a[:, j]
        for u in q: v = v - (u * v).sum() * u
        q.append(v / jnp.sqrt((v ** 2).sum()))
    return jnp.stack(q, 1),
p("attn_seq_grad", 8, [((64, 32), P("x"))] + [((32, 8, 8), P())] * 3 + [((8, 8, 32), P())], [P("x")])(lambda x, *w: (jax.grad(lambda x: jnp.sum(attention(x, *w) ** 2))(x),))
p("mixed_reduce", 42, [((64, 64), P("x", "y"))], [P("x"), P("y"), P()])(lambda a: (a.sum(1), a.max(0), jnp.exp(a - a.max(1, keepdims=True)).sum()))
p("pool_reshape", 42, [((64, 64), P("x", "y"))], [P("x", "y")])(lambda a: (a.reshape(16, 4, 16, 4).mean((1, 3)),))
p("fft_like", 8, [((64, 64), P("x")), ((64, 64), P()), ((64, 64), P())], [P("x")])(lambda a, f, g: (f @ (a @ g),))

SZ = {"f32": 4, "s32": 4, "u32": 4, "pred": 1, "f64": 8, "s64": 8, "bf16": 2, "f16": 2, "u8": 1, "s8": 1}
def size(t): return sum(SZ[d] * eval("*".join(s.split(",")) or "1") for d, s in re.findall(r"\b(f32|s32|u32|pred|f64|s64|bf16|f16|u8|s8)\[([\d,]*)\]", t))
KINDS = r"(all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute|collective-broadcast)(-start)?\("
def group(line):
    m = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if m: return len(m[1].split(","))
    m = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if m: return int(m[2])
    m = re.search(r"replica_groups=mesh\[(.*?)\][^{]*\{(.*?)\}", line)
    if not m: raise ValueError(line)
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", m[1])); n = 1
    for name, sub in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", m[2]): n *= int(sub or sizes[name])
    return n
def parse(text):
    comps, cur, entry = {}, None, None
    for line in text.splitlines():
        m = re.match(r"^(ENTRY )?%?([\w.\-]+) .*\{$", line)
        if m and not line.startswith(" "): cur = m[2]; comps[cur] = []; entry = cur if m[1] else entry
        elif cur and line.startswith(" "): comps[cur].append(line)
    out = []
    def walk(c, times):
        users = {}
        for line in comps[c]:
            m = re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*)", line)
            if not m: continue
            k = re.search(KINDS, m[2])
            if k and not "-done(" in m[2].split("=")[0]:
                t = m[2][:k.start()]; kind = k[1]; n = 8 if kind == 'collective-permute' else group(line); v = size(t)
                if kind == "all-gather": b = v * (n - 1) / n
                elif kind == "all-reduce":
                    b = 2 * v * (n - 1) / n
                elif kind == "reduce-scatter": b = v * (n - 1)
                elif kind == "all-to-all": b = v * (n - 1) / n
                else:
                    pairs = re.findall(r"\{(\d+),(\d+)\}", line.split("source_target_pairs=")[1].split("}}")[0] + "}"); b = v if any(a != b for a, b in pairs) else 0
                uses = [l for l in comps[c] if re.search(r"%" + re.escape(m[1]) + r"[,)\s]", l.split(" = ", 1)[-1])]
                # An all-reduce whose result is only sliced, which other back ends turn into a reduce-scatter.
                # (In a fusion, this operand must be the one that is sliced.)
                def users(comp, name): return [l for l in comp if re.search(r"%" + re.escape(name) + r"[,)\s]", l.split(" = ", 1)[-1])]
                def only_cut(comp, name): found = users(comp, name); return bool(found) and all(cut(l, name) for l in found)
                def cut(line, name):
                    made, does = re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*)", line).groups()
                    if re.search(r" dynamic-slice\(%?" + re.escape(name) + r"[,)]", does): return True
                    called = re.search(r" fusion\((.*?)\), kind=.*calls=%?([\w.\-]+)", does)
                    if not called: return False
                    operands = [re.sub(r"/\*.*?\*/|[%\s]", "", o) for o in called[1].split(",")]
                    inner = comps.get(called[2], [])
                    params = [re.match(r"\s+(?:ROOT )?%?([\w.\-]+) =", l)[1] for i, o in enumerate(operands) if o == name for l in inner if f" parameter({i})" in l]
                    return bool(params) and all(only_cut(inner, x) for x in params)
                credit = 0.0
                if kind == "all-reduce":
                    if t.startswith("("):
                        for i, el in enumerate(re.findall(r"\w+\[[\d,]*\]", t)):
                            g = [re.match(r"\s+(?:ROOT )?%?([\w.\-]+) =", l)[1] for l in uses if f"index={i}" in l and "get-tuple-element" in l]
                            if g and all(only_cut(comps[c], x) for x in g): credit += size(el) * (n - 1) / n
                    elif only_cut(comps[c], m[1]): credit = v * (n - 1) / n
                out.append((kind, t.strip(), n, b, times, credit))
            w = re.search(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)", line)
            if w:
                tc = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
                if tc: trips = int(tc[1])
                else:
                    cs = [int(x) for l in comps[w[1]] for x in re.findall(r"constant\((\d+)\)", l)]; trips = max(cs) if cs else -1
                walk(w[2], times * trips); walk(w[1], times * trips)
            for callee in re.findall(r"(?:to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)", line):
                if callee in comps and not re.search(KINDS, line) : walk(callee, times)
    walk(entry, 1)
    return out
def bytes_of(found): return round(sum(b * times for _, _, _, b, times, _ in found))
def bytes_scattering(found): return round(sum((b - credit) * times for _, _, _, b, times, credit in found))

def collectives(mesh, args, outs, f):
    operands = [jax.device_put(jnp.ones(s, jnp.float32), N(mesh, q)) for s, q in args]
    return parse(jax.jit(f, out_shardings=tuple(N(mesh, q) for q in outs)).lower(*operands).compile().as_text())

if __name__ == "__main__":
    only = [a for a in sys.argv[1:] if not a.startswith("-")]
    columns = {}
    for name, mesh, args, outs, f in progs:
        if only and name not in only: continue
        found = collectives(mesh, args, outs, f)
        columns[name] = (bytes_of(found), bytes_scattering(found))
        print(name, *columns[name], sep="\t", flush=True)
        if only:
            for kind, _, n, b, times, credit in found: print(f"  {kind} of {n}: {b:.0f} bytes, {times} times{', only sliced' if credit else ''}")
    if "--write" in sys.argv:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "figures.tsv")
        head, *rows = open(path).read().splitlines()
        rows = [r.split("\t") for r in rows]
        rows = [[*r[:3], *map(str, columns.get(r[0], r[3:5])), r[5]] for r in rows]
        open(path, "w").write("\n".join([head, *("\t".join(r) for r in rows)]) + "\n")
