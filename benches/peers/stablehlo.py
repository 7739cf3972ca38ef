"""Writes the programs of `benches/stablehlo.rs` as JAX lowers them, for one device: `benches/peers/stablehlo/NAME.mlir`.

usage: python benches/peers/stablehlo.py        (needs `pip install jax==0.10.2`)
"""
import pathlib
import jax, jax.numpy as jnp
from jax import lax

FOLDER = pathlib.Path(__file__).parent / "stablehlo"


def spec(*shape): return jax.ShapeDtypeStruct(shape, jnp.float32)


def norm(x):
    y = x - x.mean(-1, keepdims=True)
    return y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)


def block(x, p):
    h, size = norm(x), p[0].shape[-1]
    q, k, v = (jnp.einsum("bsd,dhk->bshk", h, p[i]) for i in range(3))
    a = jax.nn.softmax(jnp.einsum("bshk,bthk->bhst", q, k) / size ** 0.5, -1)
    x = x + jnp.einsum("bshk,hkd->bsd", jnp.einsum("bhst,bthk->bshk", a, v), p[3])
    up = jnp.maximum(jnp.einsum("bsd,df->bsf", norm(x), p[4]), 0)
    return x + jnp.einsum("bsf,fd->bsd", up, p[5])


def descend(loss, w):
    g = jax.grad(loss)(w)
    return jax.tree.map(lambda w, g: w - 0.01 * g, w, g)


def transformer(dtype):
    def step(ws, x):
        def loss(ws):
            y = x.astype(dtype)
            for p in ws:
                y = block(y, [w.astype(dtype) for w in p])
            return jnp.mean((y.astype(jnp.float32) - jnp.roll(x, 1, 1)) ** 2)
        return descend(loss, ws)
    d, h, k, f = 256, 4, 64, 1024
    layer = [spec(d, h, k)] * 3 + [spec(h, k, d), spec(d, f), spec(f, d)]
    return step, [layer, layer], spec(4, 128, d)


def mlp(w, x, y):
    return descend(lambda w: jnp.mean((jax.nn.relu(x @ w[0]) @ w[1] - y) ** 2), w)


def convolution(w, x):
    def loss(w):
        y = lax.conv_general_dilated(x, w[0], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = lax.conv_general_dilated(jax.nn.relu(y), w[1], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.mean(y ** 2)
    return descend(loss, w)


PROGRAMS = {
    "softmax": (lambda x: jax.nn.softmax(x, -1), spec(2048, 1024)),
    "layernorm": (norm, spec(2048, 1024)),
    "mlp": (mlp, [spec(512, 2048), spec(2048, 512)], spec(512, 512), spec(512, 512)),
    "transformer": transformer(jnp.float32),
    "transformer_bf16": transformer(jnp.bfloat16),
    "convolution": (convolution, [spec(3, 3, 16, 32), spec(3, 3, 32, 32)], spec(16, 28, 28, 16)),
}

FOLDER.mkdir(exist_ok=True)
for name, (f, *arguments) in PROGRAMS.items():
    (FOLDER / f"{name}.mlir").write_text(jax.jit(f).lower(*arguments).as_text())
