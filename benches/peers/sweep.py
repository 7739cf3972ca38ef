"""Single operations in JAX or PyTorch: prints one JSON line per operation, as `benches/sweep.rs` does.

usage: python sweep.py jax|torch [--only NAME,…] [--seconds S] [--size one|third|three|odd]
JAX has one device and compiles each operation; PyTorch's line is the better of eager and compiled (`torch.compile`).
Each line is {"name", "seconds": median of the calls, "min", "runs"}. Needs `pip install jax==0.10.2 numpy` or `pip install torch numpy`.
"""
import argparse, json, statistics, time

ap = argparse.ArgumentParser()
ap.add_argument("side", choices=["jax", "torch"])
ap.add_argument("--only", default="")
ap.add_argument("--seconds", type=float, default=0.5)
ap.add_argument("--size", choices=["one", "third", "three", "odd"], default="one")
ap.add_argument("--eager", action="store_true", help="PyTorch without torch.compile, which takes a minute per operation at first")
args = ap.parse_args()

import numpy as np

ONLY = [n for n in args.only.split(",") if n]
rng = np.random.default_rng(0)

def fixed(n): return n - 1 if args.size == "odd" and n >= 8 else n
def scaled(n): return {"one": n, "third": -(-n // 3), "three": 3 * n, "odd": fixed(n)}[args.size]
def wants(name): return not ONLY or name in ONLY or name.split("/")[0] in ONLY
def uniform(*shape): return rng.random(shape, dtype=np.float32) - np.float32(0.5)
def indices(n, m): return ((np.arange(n, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(m)).astype(np.int32)
def groups(x): return np.array([1, 0, 4, 2, 3, 1, 3, 2], np.int32) * (x.shape[0] // 16)

def measure(f):
    f(); f()
    runs, start = [], time.perf_counter()
    while len(runs) < 5 or (time.perf_counter() - start < args.seconds and len(runs) < 100_000):
        t = time.perf_counter(); f(); runs.append(time.perf_counter() - t)
    return {"seconds": statistics.median(runs), "min": min(runs), "runs": len(runs)}

if args.side == "jax":
    import jax, jax.numpy as jnp
    from jax import lax

    def run(name, f, inputs):
        if not wants(name): return
        with jax.enable_x64(name == "matmul/f64"):
            a = [jnp.asarray(x) for x in inputs()]; g = jax.jit(f)
            print(json.dumps({"name": name, **measure(lambda: jax.block_until_ready(g(*a)))}), flush=True)

    def conv(x, w, s=1, groups=1): return lax.conv_general_dilated(x, w, (s, s), "SAME", feature_group_count=groups)
    def pool(x, init, op): return lax.reduce_window(x, init, op, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    linalg, k = jnp.linalg, jax.random.key(7)
    bf16, f16 = lambda x: jnp.asarray(x, jnp.bfloat16), lambda x: jnp.asarray(x, jnp.float16)
    F = {
        "conv": conv, "gradient_image": lambda x, w: jax.grad(lambda x: (conv(x, w) ** 2).sum())(x),
        "gradient_filter": lambda x, w: jax.grad(lambda w: (conv(x, w) ** 2).sum())(w),
        "ragged": lambda x, w: lax.ragged_dot(x, w, jnp.asarray(groups(x))),
        "ragged_gradient": lambda x, w: jax.grad(lambda w: (lax.ragged_dot(x, w, jnp.asarray(groups(x))) ** 2).sum())(w),
        "matmul": jnp.matmul, "scores": lambda x, y: jnp.einsum("bhqd,bhkd->bhqk", x, y),
        "cholesky": linalg.cholesky, "solve": linalg.solve, "qr": linalg.qr, "svd": lambda x: linalg.svd(x, full_matrices=False),
        "eigh": linalg.eigh, "inv": linalg.inv,
        "gelu": lambda x: jax.nn.gelu(x, approximate=False), "exp": jnp.exp, "tanh": jnp.tanh, "log1p_exp": lambda x: jnp.log1p(jnp.exp(x)),
        "select": lambda x: jnp.maximum(jnp.where(x > 0, x * 2, x - 1), -0.9), "pow": jnp.power, "outer": lambda x, y: x[:, None] * y[None],
        "max": lambda x: x.max(1), "sum0": lambda x: x.sum(0), "sum": lambda x: x.sum(), "var": lambda x: x.var(1),
        "argmax": lambda x, d: jnp.argmax(x, d), "cumsum": lambda x, d: jnp.cumsum(x, d),
        "batch_norm": lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))), "distances": lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1),
        "cross_entropy": lambda x, i: (jax.nn.logsumexp(x, axis=1) - jnp.take_along_axis(x, i[:, None], 1)[:, 0]).mean(),
        "short": lambda z, s: ((z - s) ** 2).sum(-1), "max_pool": lambda x: pool(x, -jnp.inf, lax.max),
        "average_pool": lambda x: pool(x, 0.0, lax.add) / 4, "max_gradient": jax.grad(lambda x: pool(x, -jnp.inf, lax.max).sum()),
        "sort": lambda x, d: jnp.sort(x, axis=d), "argsort": lambda x: jnp.argsort(x, axis=0), "top_k": lambda x: lax.top_k(x, 50),
        "median": lambda x: jnp.median(x, axis=1), "transpose": lambda x, p: jnp.transpose(x, p) + 0.0, "concat": lambda x, y: jnp.concatenate([x, y], 1),
        "pad": lambda x: jnp.pad(x, 1), "flip_roll": lambda x: jnp.roll(jnp.flip(x, 1), 5, 0) + 0.0, "take": lambda x, i: jnp.take(x, i, axis=0),
        "scatter_add": lambda v, i: jnp.zeros((100_000, v.shape[1])).at[i].add(v), "bincount": lambda i: jnp.bincount(i, length=256),
        "fft": lambda x, d: jnp.fft.fft(x, axis=d), "fft2": jnp.fft.fft2, "rfft": lambda x: jnp.fft.rfft(x, axis=1),
        "normal": lambda k, n: jax.random.normal(k, (n,), jnp.float32), "uniform": lambda k, n: jax.random.uniform(k, (n,), jnp.float32),
    }
    def random(name, n): run("random/" + name, lambda k: F[name](k, n), lambda: [k])
else:
    import torch, torch.nn.functional as TF

    def tensor(x): return x if isinstance(x, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(x))

    def run(name, f, inputs):
        if not wants(name): return
        a = [tensor(x) for x in inputs()]
        if not name.startswith("matmul"): a = [x.long() if x.dtype == torch.int32 else x for x in a]
        best = None
        for compiled in ([False] if args.eager else [False, True]):
            try:
                torch._dynamo.reset(); g = torch.compile(f) if compiled else f
                m = measure(lambda: g(*a))
                if best is None or m["min"] < best["min"]: best = m
            except Exception: pass
        if best: print(json.dumps({"name": name, **best}), flush=True)

    def conv(x, w, s=1, groups=1): return TF.conv2d(x, w, stride=s, padding=w.shape[-1] // 2, groups=groups)
    def gradient(f, x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(f(x), x)
    def ragged(x, w): return torch.cat([x[e - n:e] @ m for n, e, m in zip(groups(x), groups(x).cumsum(), w)])
    linalg = torch.linalg
    bf16, f16 = lambda x: tensor(x).bfloat16(), lambda x: tensor(x).half()
    F = {
        "conv": conv, "gradient_image": lambda x, w: gradient(lambda x: (conv(x, w) ** 2).sum(), x),
        "gradient_filter": lambda x, w: gradient(lambda w: (conv(x, w) ** 2).sum(), w),
        "ragged": ragged, "ragged_gradient": lambda x, w: gradient(lambda w: (ragged(x, w) ** 2).sum(), w),
        "matmul": torch.matmul, "scores": lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y),
        "cholesky": linalg.cholesky, "solve": linalg.solve, "qr": linalg.qr, "svd": lambda x: linalg.svd(x, full_matrices=False),
        "eigh": linalg.eigh, "inv": linalg.inv,
        "gelu": TF.gelu, "exp": torch.exp, "tanh": torch.tanh, "log1p_exp": lambda x: torch.log1p(torch.exp(x)),
        "select": lambda x: torch.clamp(torch.where(x > 0, x * 2, x - 1), min=-0.9), "pow": torch.pow, "outer": lambda x, y: x[:, None] * y[None],
        "max": lambda x: x.max(1).values, "sum0": lambda x: x.sum(0), "sum": lambda x: x.sum(), "var": lambda x: x.var(1),
        "argmax": torch.argmax, "cumsum": torch.cumsum, "batch_norm": lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))),
        "distances": lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), "cross_entropy": TF.cross_entropy,
        "short": lambda z, s: ((z - s) ** 2).sum(-1), "max_pool": lambda x: TF.max_pool2d(x, 2), "average_pool": lambda x: TF.avg_pool2d(x, 2),
        "max_gradient": lambda x: gradient(lambda x: TF.max_pool2d(x, 2).sum(), x),
        "sort": lambda x, d: torch.sort(x, dim=d).values, "argsort": lambda x: torch.argsort(x, dim=0), "top_k": lambda x: torch.topk(x, 50),
        "median": lambda x: x.median(1).values, "transpose": lambda x, p: x.permute(p).contiguous(), "concat": lambda x, y: torch.cat([x, y], 1),
        "pad": lambda x: TF.pad(x, (1, 1, 1, 1)), "flip_roll": lambda x: torch.roll(torch.flip(x, [1]), 5, 0), "take": lambda x, i: x.index_select(0, i),
        "scatter_add": lambda v, i: torch.zeros(100_000, v.shape[1]).index_add_(0, i, v), "bincount": lambda i: torch.bincount(i, minlength=256),
        "fft": lambda x, d: torch.fft.fft(x, dim=d), "fft2": torch.fft.fft2, "rfft": lambda x: torch.fft.rfft(x, dim=1),
        "normal": torch.randn, "uniform": torch.rand,
    }
    def random(name, n): run("random/" + name, lambda: F[name](n), lambda: [])

s, n = scaled, fixed
image = lambda b, c, size: uniform(s(b), c, n(size), n(size))
weights = lambda out, c, size: uniform(out, c, size, size)
run("conv/3x3", F["conv"], lambda: [image(32, 64, 56), weights(64, 64, 3)])
run("conv/7x7_stride2", lambda x, w: F["conv"](x, w, 2), lambda: [image(8, 3, 224), weights(64, 3, 7)])
run("conv/1x1", F["conv"], lambda: [image(32, 256, 14), weights(256, 256, 1)])
run("conv/depthwise", lambda x, w: F["conv"](x, w, 1, 128), lambda: [image(8, 128, 56), weights(128, 1, 3)])
for which in ("image", "filter"):
    run(f"conv/gradient_{which}", F[f"gradient_{which}"], lambda: [image(8, 64, 28), weights(64, 64, 3)])

same = lambda x: x
for name, rows, size, dtype in (("f32", 2048, 2048, same), ("f64", 1024, 1024, lambda x: x.astype(np.float64)),
                                ("bf16", 1024, 1024, bf16), ("f16", 1024, 1024, f16), ("thin", 8, 4096, same)):
    run("matmul/" + name, F["matmul"], lambda: [dtype(uniform(s(rows), n(size))), dtype(uniform(n(size), n(size)))])
integers = lambda rows, columns, below: indices(rows * columns, below).reshape(rows, columns)
run("matmul/i32", F["matmul"], lambda: [integers(s(512), n(512), 9), integers(n(512), n(512), 7)])
run("matmul/batched", F["matmul"], lambda: [uniform(s(64), n(256), n(64)), uniform(s(64), n(64), n(256))])
for name in ("ragged", "ragged_gradient"):
    run("matmul/" + name, F[name], lambda: [uniform(s(2048), n(512)), uniform(8, n(512), n(512))])
run("matmul/scores", F["scores"], lambda: [uniform(s(8), 8, n(256), n(64)), uniform(s(8), 8, n(256), n(64))])

def definite(n):
    a = uniform(n, n)
    return (a @ a.T + np.eye(n, dtype=np.float32) * n).astype(np.float32)
large, small = s(512), s(256)
run("linalg/cholesky", F["cholesky"], lambda: [definite(large)])
run("linalg/solve", F["solve"], lambda: [definite(large), uniform(large, 16)])
run("linalg/qr", F["qr"], lambda: [uniform(large, large)])
run("linalg/svd", F["svd"], lambda: [uniform(small, small)])
run("linalg/eigh", F["eigh"], lambda: [definite(small)])
run("linalg/inv_batched", F["inv"], lambda: [uniform(s(1000), 8, 8)])

for name in ("gelu", "exp", "tanh", "log1p_exp", "select"):
    run("elementwise/" + name, F[name], lambda: [uniform(s(4096), n(4096))])
run("elementwise/pow", F["pow"], lambda: [uniform(s(2048), n(2048)) + np.float32(1), uniform(s(2048), n(2048))])
run("elementwise/outer", F["outer"], lambda: [uniform(s(4096)), uniform(n(4096))])
random("normal", s(1 << 22))
random("uniform", s(1 << 22))

matrix = lambda rows, columns: [uniform(s(rows), n(columns))]
run("reduce/max_rows", F["max"], lambda: matrix(4096, 4096))
run("reduce/sum_columns", F["sum0"], lambda: matrix(4096, 4096))
run("reduce/sum_all", F["sum"], lambda: [uniform(s(1 << 24))])
run("reduce/var_rows", F["var"], lambda: matrix(4096, 4096))
run("reduce/argmax_rows", lambda x: F["argmax"](x, 1), lambda: matrix(4096, 1024))
run("reduce/argmax_columns", lambda x: F["argmax"](x, 0), lambda: matrix(4096, 1024))
run("reduce/cumsum_rows", lambda x: F["cumsum"](x, 1), lambda: matrix(1024, 4096))
run("reduce/cumsum_columns", lambda x: F["cumsum"](x, 0), lambda: matrix(4096, 1024))
run("reduce/batch_norm", F["batch_norm"], lambda: [image(32, 64, 56)])
run("reduce/distances", F["distances"], lambda: [uniform(s(2048), n(32)), uniform(n(2048), n(32))])
run("reduce/cross_entropy", F["cross_entropy"], lambda: [*matrix(4096, 32000), indices(s(4096), n(32000))])
for rows, m, k in ((1 << 20, 6, 3), (1 << 20, 3, 6), (1 << 18, 6, 12), (1 << 20, 18, 1), (104_857, 60, 3), (1 << 20, 1, 18)):
    run(f"short/{m}x{k}", F["short"], lambda: [uniform(s(rows), m, k), uniform(m, k)])
run("pool/max", F["max_pool"], lambda: [image(32, 64, 56)])
run("pool/average", F["average_pool"], lambda: [image(32, 64, 56)])
run("pool/max_small", F["max_pool"], lambda: [image(64, 8, 16)])
run("pool/max_gradient", F["max_gradient"], lambda: [image(64, 8, 16)])

run("sort/long", lambda x: F["sort"](x, 0), lambda: [uniform(s(1 << 20))])
run("sort/rows", lambda x: F["sort"](x, 1), lambda: matrix(4096, 256))
run("sort/argsort", F["argsort"], lambda: [uniform(s(1 << 20))])
run("sort/top_k", F["top_k"], lambda: matrix(256, 32000))
run("sort/median", F["median"], lambda: matrix(4096, 256))
run("copy/transpose", lambda x: F["transpose"](x, (1, 0)), lambda: matrix(4096, 4096))
run("copy/transpose_heads", lambda x: F["transpose"](x, (0, 2, 1, 3)), lambda: [uniform(s(64), n(128), 16, n(64))])
run("copy/concat", F["concat"], lambda: [*matrix(4096, 1024), *matrix(4096, 1024)])
run("copy/pad", F["pad"], lambda: matrix(4096, 4096))
run("copy/flip_roll", F["flip_roll"], lambda: matrix(4096, 4096))
scalars = s(1 << 20)
run("index/take_rows", F["take"], lambda: [uniform(100_000, n(128)), indices(s(65_536), 100_000)])
run("index/take_scalars", F["take"], lambda: [uniform(scalars), indices(scalars, scalars)])
run("index/scatter_add", F["scatter_add"], lambda: [*matrix(65_536, 128), indices(s(65_536), 100_000)])
run("index/bincount", F["bincount"], lambda: [indices(scalars, 256)])

def complexes(*shape): return uniform(*shape) + 1j * uniform(*shape)
square = lambda: [complexes(s(1024), n(1024)).astype(np.complex64)]
run("fft/rows", lambda x: F["fft"](x, 1), square)
run("fft/columns", lambda x: F["fft"](x, 0), square)
run("fft/matrix", F["fft2"], square)
run("fft/real_rows", F["rfft"], lambda: matrix(1024, 1024))
run("fft/short", lambda x: F["fft"](x, 1), lambda: [complexes(s(1 << 18), 4).astype(np.complex64)])
run("fft/composite", lambda x: F["fft"](x, 1), lambda: [complexes(s(1024), 1050).astype(np.complex64)])
run("fft/prime", lambda x: F["fft"](x, 1), lambda: [complexes(s(1024), 1021).astype(np.complex64)])
run("fft/long", lambda x: F["fft"](x, 0), lambda: [complexes(s(1 << 20)).astype(np.complex64)])
