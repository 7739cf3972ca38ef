"""Writes figures.tsv: compiles the programs of model.rs with JAX on 8 CPU devices, with auto axes and the same shardings of operands, results and activations.

    pip install jax==0.10.2
    python tests/xla_agreement/xla.py            # prints the rows
    python tests/xla_agreement/xla.py --write    # writes figures.tsv

A row has the bytes that a device receives, the number of arrays that are all-reduced and all-gathered (counting a loop's body once), and the bytes of
arguments, results and temporaries of a device. The bytes are computed from the compiled program: (n-1)/n of the result for an all-gather, twice that for an
all-reduce. A collective in a loop counts once per iteration.
"""
import math, os, re, sys
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P, NamedSharding as NS, AxisType

SMALL = dict(N=2, D=64, F=256, H=16, KV=8, V=128, B=16, S=32)
LARGE = dict(N=4, D=1024, F=4096, H=16, KV=16, V=32000, B=32, S=1024)
MESHES = dict(dp8=(8, 1, 1), fsdp8=(1, 8, 1), tp8=(1, 1, 8), dp4_tp2=(4, 1, 2), all222=(2, 2, 2))


def program(c, mesh_s, remat=True, unroll=False, what="grad"):
    N, D, F, H, KV, V, B, S = (c[k] for k in "N D F H KV V B S".split())
    K, G = D // H, H // KV
    mesh = jax.make_mesh(mesh_s, ("data", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3)
    batch = P(("data", "fsdp"))
    held = lambda x: lax.with_sharding_constraint(x, NS(mesh, batch))

    def norm(x, g):
        return x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5) * g

    def block(p, x):
        h = norm(x, p["n1"])
        q = jnp.einsum("bsd,dhgk->bshgk", h, p["wq"])
        k = jnp.einsum("bsd,dhk->bshk", h, p["wk"])
        v = jnp.einsum("bsd,dhk->bshk", h, p["wv"])
        a = jnp.einsum("bshgk,bthk->bhgst", q, k) / K ** 0.5
        a = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((S, S), bool)), a, -1e9), -1)
        o = jnp.einsum("bhgst,bthk->bshgk", a, v)
        x = held(x + jnp.einsum("bshgk,hgkd->bsd", o, p["wo"]))
        h = norm(x, p["n2"])
        g, u = jnp.einsum("bsd,df->bsf", h, p["wg"]), jnp.einsum("bsd,df->bsf", h, p["wu"])
        return held(x + jnp.einsum("bsf,fd->bsd", g * jax.nn.sigmoid(g) * u, p["wd"]))

    layer = jax.checkpoint(block) if remat else block

    def loss(p, ids, labels):
        x = held(jnp.einsum("bsv,vd->bsd", jax.nn.one_hot(ids, V), p["emb"]))
        if unroll:
            for l in p["layers"]: x = layer(l, x)
        else:
            x = lax.scan(lambda x, l: (layer(l, x), None), x, p["layers"])[0]
        logits = jnp.einsum("bsd,dv->bsv", norm(x, p["norm"]), p["head"])
        right = jnp.sum(jax.nn.one_hot(labels, V) * logits, -1)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - right)

    def step(s, ids, labels):
        l, g = jax.value_and_grad(loss)(s["model"], ids, labels)
        t, tm = s["t"] + 1.0, jax.tree.map
        m = tm(lambda m, g: 0.9 * m + 0.1 * g, s["m"], g)
        v = tm(lambda v, g: 0.999 * v + 0.001 * g * g, s["v"], g)
        c1, c2 = 1 - 0.9 ** t, 1 - 0.999 ** t
        model = tm(lambda p, m, v: p - 0.0001 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), s["model"], m, v)
        return l, dict(model=model, m=m, v=v, t=t)

    cols = P("fsdp", "tensor")
    shapes = dict(n1=((D,), P()), wq=((D, KV, G, K), cols), wk=((D, KV, K), cols), wv=((D, KV, K), cols),
                  wo=((KV, G, K, D), P("tensor", None, None, "fsdp")), n2=((D,), P()),
                  wg=((D, F), cols), wu=((D, F), cols), wd=((F, D), P("tensor", "fsdp")))
    sds = lambda s, p, t=jnp.float32: jax.ShapeDtypeStruct(s, t, sharding=NS(mesh, p))
    one = {k: sds(*v) for k, v in shapes.items()}
    stacked = {k: sds((N,) + s, P(None, *p)) for k, (s, p) in shapes.items()}
    params = dict(emb=sds((V, D), P("tensor", "fsdp")), layers=[one] * N if unroll else stacked, norm=sds((D,), P()), head=sds((D, V), cols))
    ids, scalar = sds((B, S), batch, jnp.int32), sds((), P())
    outs = lambda t: jax.tree.map(lambda x: x.sharding, t)
    f, args = jax.value_and_grad(loss), (params, ids, ids)
    out = (scalar.sharding, outs(params))
    if what == "step":
        st = dict(model=params, m=params, v=params, t=scalar)
        f, args, out = step, (st, ids, ids), (scalar.sharding, outs(st))
    return jax.jit(f, out_shardings=out).lower(*args).compile()


SIZES = dict(f32=4, bf16=2, f16=2, s32=4, u32=4, pred=1, s64=8, f64=8, u8=1, s8=1)


def nbytes(text):
    types = re.findall(r"(f32|bf16|f16|s32|u32|pred|s64|f64|u8|s8)\[([\d,]*)\]", text)
    return [math.prod(int(x) for x in d.split(",") if x) * SIZES[t] for t, d in types]


def devices(line):
    """Returns the number of devices in a group of a collective."""
    if g := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(g.group(1).split(","))
    if m := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", line):
        size = {k.strip().strip("'"): int(v) for k, v in (kv.split("=") for kv in m.group(1).split(","))}
        n = 1
        for name, _, part in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", m.group(2)):
            n *= int(part) if part else size[name]
        return n
    return int(re.search(r"replica_groups=\[(\d+),(\d+)\]", line).group(2))


def collectives(text):
    """Returns (kind, arrays, bytes, times) of each collective."""
    comps, cur, entry = {}, None, None
    for line in text.splitlines():
        if m := re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            cur = m.group(2)
            comps[cur] = []
            entry = cur if m.group(1) else entry
        elif cur:
            comps[cur].append(line)
    found = []
    def walk(name, times):
        for line in comps.get(name, []):
            if m := re.search(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\(", line):
                n, kind, sizes = devices(line) if "replica_groups" in line else 2, m.group(2), nbytes(m.group(1))
                per = {"all-reduce": 2 * (n - 1) / n, "all-gather": (n - 1) / n, "reduce-scatter": n - 1, "all-to-all": (n - 1) / n, "collective-permute": 1}
                found.append((kind, len(sizes), int(sum(sizes) * per[kind]), times))
            if re.search(r" while\(", line):
                count = re.search(r"known_trip_count[^\d]*(\d+)", line)
                walk(re.search(r"body=%?([\w.\-]+)", line).group(1), times * (int(count.group(1)) if count else 1))
            elif "all-reduce" not in line and "reduce-scatter" not in line:
                for k in re.findall(r"(?:calls|to_apply|branch_computations)=\{?%?([\w.\-]+)", line):
                    walk(k, times)
    walk(entry, 1)
    return found


def row(name, *args, **options):
    co = program(*args, **options)
    found, ma = collectives(co.as_text()), co.memory_analysis()
    arrays = lambda kind: sum(n for k, n, _, _ in found if k == kind)
    held = ma.argument_size_in_bytes + ma.output_size_in_bytes + ma.temp_size_in_bytes
    text = "\t".join(map(str, [name, sum(b * t for _, _, b, t in found), arrays("all-reduce"), arrays("all-gather"), held]))
    print(text, flush=True)
    return text


rows = [f"name\tbytes\tall_reduces\tall_gathers\tmemory"]
for size, c in [("small", SMALL), ("large", LARGE)]:
    rows += [row(f"{size}_{name}", c, mesh) for name, mesh in MESHES.items()]
all222 = MESHES["all222"]
rows.append(row("large_all222_kept", LARGE, all222, remat=False))
rows.append(row("large_all222_unrolled", LARGE, all222, unroll=True))
rows.append(row("large_all222_step", LARGE, all222, what="step"))
if "--write" in sys.argv:
    with open(os.path.join(os.path.dirname(__file__), "figures.tsv"), "w") as f:
        f.write("\n".join(rows) + "\n")
