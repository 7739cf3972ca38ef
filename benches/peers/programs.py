"""Whole programs in JAX: prints one JSON line per program, as `benches/programs.rs` does for its modes `one`.

usage: python programs.py [--only NAME,…] [--seconds S] [--cores N]
JAX has one device, with N cores (default: all). Each line is {"name", "seconds": median of the calls, "min", "runs", "value"}, where `value`
is the norm of an array of the result, which both sides must agree on. Needs `pip install jax==0.10.2 numpy`.
"""
import argparse, json, os, statistics, time

ap = argparse.ArgumentParser()
ap.add_argument("--only", default="")
ap.add_argument("--seconds", type=float, default=1.0)
ap.add_argument("--cores", type=int, default=0)
args = ap.parse_args()
if args.cores: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-args.cores:])

import numpy as np
import jax, jax.numpy as jnp
from jax import lax, random

ONLY = [n for n in args.only.split(",") if n]
jit, loop, pi = jax.jit, lax.fori_loop, np.pi

def program(name, f, *inputs, part=lambda y: y):
    if ONLY and name not in ONLY and name.split("/")[0] not in ONLY: return
    g, inputs = jit(f), jax.block_until_ready([jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in inputs])
    call = lambda: jax.block_until_ready(g(*inputs))
    value = float(np.linalg.norm(np.asarray(part(call()), np.float64)))
    call()
    runs, start = [], time.perf_counter()
    while len(runs) < 5 or (time.perf_counter() - start < args.seconds and len(runs) < 10_000):
        t = time.perf_counter(); call(); runs.append(time.perf_counter() - t)
    print(json.dumps({"name": name, "seconds": statistics.median(runs), "min": min(runs), "runs": len(runs), "value": value}), flush=True)

def wants(name): return not ONLY or any(n.split("/")[0] == name for n in ONLY)

def mixture():
    K, D, n = 6, 3, 1 << 20
    a, b, c = random.split(random.key(4), 3)
    centres = 6 * random.normal(a, (K, D))
    x = centres[random.randint(b, (n,), 0, K)] + random.normal(c, (n, D))
    start = (jnp.full(K, -np.log(K), jnp.float32), centres + 0.5, 4 * jnp.eye(D) + jnp.zeros((K, 1, 1)))
    def run(s, x):
        def step(_, c):
            (lw, mean, cov), _ = c
            l = jnp.linalg.cholesky(cov); inv = jnp.linalg.inv(l)
            ld = jnp.log(jnp.diagonal(l, axis1=1, axis2=2)).sum(-1)
            z = jnp.einsum("nj,kij->nki", x, inv) - jnp.einsum("kij,kj->ki", inv, mean)
            joint = lw - ld - 0.5 * D * np.log(2 * pi) - 0.5 * (z * z).sum(-1)
            norm = jax.nn.logsumexp(joint, -1); r = jnp.exp(joint - norm[:, None]); n = r.sum(0)
            mean = (r.T @ x) / n[:, None]
            cov = jnp.einsum("nk,ni,nj->kij", r, x, x) / n[:, None, None] - mean[:, :, None] * mean[:, None, :] + 1e-6 * jnp.eye(D)
            return (jnp.log(n / n.sum()), mean, cov), norm.sum() / n.sum()
        return loop(0, 5, step, (s, jnp.float32(0)))
    program("mixture/one", run, start, x, part=lambda y: y[0][2])

def pagerank():
    nodes, edges = 1 << 16, 1 << 20
    a, b = random.split(random.key(0))
    f = random.randint(a, (edges,), 0, nodes); t = (random.uniform(b, (edges,)) ** 2 * nodes).astype(jnp.int32)
    d = jnp.bincount(f, length=nodes).astype(jnp.float32)
    def run(f, t, d):
        def step(_, r):
            share = jnp.where(d > 0, r / jnp.maximum(d, 1), 0); lost = jnp.where(d == 0, r, 0).sum()
            return (0.15 + 0.85 * lost) / nodes + 0.85 * jax.ops.segment_sum(share[f], t, nodes)
        return loop(0, 20, step, jnp.full(nodes, 1 / nodes, jnp.float32))
    program("pagerank/one", run, f, t, d)

def problem():
    n = 1024
    x = jnp.arange(n, dtype=jnp.float32) / n
    rhs = -(2 * pi) ** 2 * 34 * jnp.sin(2 * pi * 3 * x)[:, None] * jnp.cos(2 * pi * 5 * x)[None]
    k = jnp.fft.fftfreq(n, 1 / n) * 2 * pi
    return rhs, -(k[:, None] ** 2 + k[None] ** 2)

def poisson():
    program("poisson/one", lambda rhs, k2: jnp.fft.ifft2(jnp.where(k2 == 0, 0, jnp.fft.fft2(rhs) / k2)).real, *problem())

def poisson_real():
    def half(rhs, k2):
        q = k2[:, :k2.shape[1] // 2 + 1]
        return jnp.fft.irfft2(jnp.where(q == 0, 0, jnp.fft.rfft2(rhs) / q))
    program("poisson_real/one", half, *problem())

def shallow_water(name, ny, nx, steps):
    dx, g, depth, f0, beta = 5e3, 9.81, 100.0, 2e-4, 2e-11
    visc, dt = 1e-3 * f0 * dx * dx, 0.125 * dx / np.sqrt(g * depth)
    x, y = (np.arange(nx) - 1.0)[None] * dx, (np.arange(ny) - 1.0)[:, None] * dx
    lx, ly = (nx - 3.0) * dx, (ny - 3.0) * dx
    cor = f0 + y * beta + 0 * x
    u = (10 * np.exp(-((y - 0.5 * ly) ** 2) / (0.02 * lx) ** 2) + 0 * x).astype(np.float32)
    geo = np.cumsum(-dx * u.astype(np.float64) * cor / g, 0)
    h = (depth + geo - geo.mean() + 0.2 * np.sin(x / lx * 10 * pi) * np.cos(y / ly * 8 * pi)).astype(np.float32)
    z = np.zeros_like(h)
    def at(a, y, x): return a[1 + y:ny - 1 + y, 1 + x:nx - 1 + x]
    def put(a, b): return a.at[1:-1, 1:-1].set(b)
    def walls(x, grid):
        x = x.at[:, -1].set(x[:, 1]); x = x.at[:, 0].set(x[:, -2])
        return x.at[-2].set(0.0) if grid == "v" else x
    def extend(h): return h.at[0].set(h[1]).at[-1].set(h[-2])
    def c(a): return at(a, 0, 0)
    def divergence(e, n): return (c(e) - at(e, 0, -1)) / dx + (c(n) - at(n, -1, 0)) / dx
    def step(s, cor, first):
        h, u, v, dh, du, dv = s
        hc = walls(extend(h), "h"); zero = jnp.zeros_like(u)
        fe = walls(put(zero, 0.5 * (c(hc) + at(hc, 0, 1)) * c(u)), "u")
        fn = walls(put(zero, 0.5 * (c(hc) + at(hc, 1, 0)) * c(v)), "v")
        dh_new = put(dh, -divergence(fe, fn))
        q = c(cor) + ((at(v, 0, 1) - c(v)) / dx - (at(u, 1, 0) - c(u)) / dx)
        q = walls(put(zero, q * (1.0 / (0.25 * (c(hc) + at(hc, 0, 1) + at(hc, 1, 0) + at(hc, 1, 1))))), "h")
        du_new = -g * (at(h, 0, 1) - c(h)) / dx + 0.5 * (c(q) * 0.5 * (c(fn) + at(fn, 0, 1)) + at(q, -1, 0) * 0.5 * (at(fn, -1, 0) + at(fn, -1, 1)))
        dv_new = -g * (at(h, 1, 0) - c(h)) / dx - 0.5 * (c(q) * 0.5 * (c(fe) + at(fe, 1, 0)) + at(q, 0, -1) * 0.5 * (at(fe, 0, -1) + at(fe, 1, -1)))
        ke = 0.5 * (0.5 * (c(u) ** 2 + at(u, 0, -1) ** 2) + 0.5 * (c(v) ** 2 + at(v, -1, 0) ** 2))
        ke = walls(put(zero, ke), "h")
        du_new = put(du, du_new - (at(ke, 0, 1) - c(ke)) / dx); dv_new = put(dv, dv_new - (at(ke, 1, 0) - c(ke)) / dx)
        def ahead(x, new, old): return put(x, c(x) + (dt * c(new) if first else dt * (1.6 * c(new) - 0.6 * c(old))))
        h, u, v = walls(ahead(h, dh_new, dh), "h"), walls(ahead(u, du_new, du), "u"), walls(ahead(v, dv_new, dv), "v")
        def friction(w, u):
            e = walls(put(fe, visc * (at(w, 0, 1) - c(u)) / dx), "u"); n = walls(put(fn, visc * (at(w, 1, 0) - c(u)) / dx), "v")
            return put(w, c(w) + dt * divergence(e, n))
        u = friction(u, u); v = friction(v, u)
        return h, u, v, dh_new, du_new, dv_new
    def run(s, cor): return loop(0, steps - 1, lambda _, s: step(s, cor, False), step(s, cor, True))
    start = tuple(jnp.asarray(a) for a in (walls(jnp.asarray(h), "h"), walls(jnp.asarray(u), "u"), walls(jnp.asarray(z), "v"), z, z, z))
    program(name + "/one", run, start, cor.astype(np.float32), part=lambda s: s[1])

def pulse():
    x = jnp.linspace(-8, 8, 1024)
    return jnp.exp(-(x[:, None] ** 2 + x ** 2))

def fdtd():
    ez = pulse(); z = jnp.zeros_like(ez)
    def step(_, s):
        ez, hx, hy = s
        hx = hx.at[:, :-1].add(-0.5 * (ez[:, 1:] - ez[:, :-1])); hy = hy.at[:-1].add(0.5 * (ez[1:] - ez[:-1]))
        curl = hy[1:-1, 1:-1] - hy[:-2, 1:-1] - hx[1:-1, 1:-1] + hx[1:-1, :-2]
        return ez.at[1:-1, 1:-1].add(0.5 * curl), hx, hy
    program("fdtd/one", lambda s: loop(0, 50, step, s), (ez, z, z), part=lambda s: s[0])

def wave():
    def step(_, s):
        u, old = s; mid = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return u.at[1:-1, 1:-1].set(2 * mid - old[1:-1, 1:-1] + 0.25 * (around - 4 * mid)), u
    program("wave/one", lambda u: loop(0, 50, step, (u, u))[0], pulse())

def bodies():
    n = 4096
    a, b, c = random.split(random.key(6), 3)
    x, v, m = random.normal(a, (n, 3)), 0.1 * random.normal(b, (n, 3)), random.uniform(c, (n,)) / n
    def pull(x, y, m):
        d = y[None] - x[:, None]; r2 = (d * d).sum(2) + 1e-2
        return jnp.einsum("nk,nkd->nd", m / (r2 * jnp.sqrt(r2)), d)
    def run(x, v, m):
        def step(_, c):
            x, v = c; v = v + 1e-3 * pull(x, x, m)
            return x + 1e-3 * v, v
        return loop(0, 2, step, (x, v))
    program("bodies/one", run, x, v, m, part=lambda s: s[1])

ALL = {
    "mixture": mixture, "pagerank": pagerank, "poisson": poisson, "poisson_real": poisson_real,
    "shallow_water": lambda: shallow_water("shallow_water", 182, 362, 50), "shallow_water_large": lambda: shallow_water("shallow_water_large", 722, 1442, 20),
    "fdtd": fdtd, "wave": wave, "bodies": bodies,
}
for name, run in ALL.items():
    if wants(name): run()
