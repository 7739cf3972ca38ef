"""Trains the model of `examples/char_gpt.rs` with JAX and optax, and prints the losses that
`tests/safetensors/char_gpt.rs` compares: `python char_gpt_jax.py`. Needs jax and optax."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

D, HEADS, LAYERS, T, BATCH, STEPS, RATE = 64, 4, 2, 64, 16, 300, 0.1

text = (pathlib.Path(__file__).parents[2] / "examples/data/book.txt").read_text()
chars = sorted(set(text))
ids = np.array([chars.index(c) for c in text], np.int32)
print(f"{len(ids)} characters of {len(chars)} kinds")


def init(key, vocab):
    def norm():
        return jnp.ones(D), jnp.zeros(D)

    def block(key):
        a, b, c, d = jax.random.split(key, 4)
        small = 0.02 / np.sqrt(2 * LAYERS)
        return dict(
            norms=[norm(), norm()],
            qkv=jax.random.normal(a, (D, 3, HEADS, D // HEADS)) * 0.02,
            out=jax.random.normal(b, (HEADS, D // HEADS, D)) * small,
            up=(jax.random.normal(c, (D, 4 * D)) * 0.02, jnp.zeros(4 * D)),
            down=(jax.random.normal(d, (4 * D, D)) * small, jnp.zeros(D)),
        )

    a, b, c = jax.random.split(key, 3)
    return dict(
        words=jax.random.normal(a, (vocab, D)) * 0.02,
        places=jax.random.normal(b, (T, D)) * 0.02,
        blocks=[block(key) for key in jax.random.split(c, LAYERS)],
        norm=norm(),
    )


def layer_norm(x, norm):
    c = x - x.mean(-1, keepdims=True)
    return c * jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * norm[0] + norm[1]


def dropout(key, x):
    return jnp.where(jax.random.bernoulli(key, 1 - RATE, x.shape), x / (1 - RATE), 0.0)


def block(x, w, key):
    a, b, c = jax.random.split(key, 3)
    q, k, v = jnp.einsum("btd,dchk->cbhtk", layer_norm(x, w["norms"][0]), w["qkv"])
    scores = jnp.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(D // HEADS)
    weights = jax.nn.softmax(jnp.where(jnp.tri(T, dtype=bool), scores, -1e9))
    y = jnp.einsum("bhts,bhsk->bthk", dropout(a, weights), v)
    x = x + dropout(b, jnp.einsum("bthk,hkd->btd", y, w["out"]))
    y = jax.nn.gelu(layer_norm(x, w["norms"][1]) @ w["up"][0] + w["up"][1])
    return x + dropout(c, y @ w["down"][0] + w["down"][1])


def loss(m, ids, following, key):
    keys = jax.random.split(key, LAYERS + 1)
    x = dropout(keys[LAYERS], m["words"][ids] + m["places"])
    for w, key in zip(m["blocks"], keys):
        x = block(x, w, key)
    logits = layer_norm(x, m["norm"]) @ m["words"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, following).mean()


rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 30, STEPS, 3e-4)
matrices = lambda params: jax.tree.map(lambda w: w.ndim >= 2, params)
adamw = optax.adamw(rate, 0.9, 0.99, weight_decay=0.1, mask=matrices)
opt = optax.chain(optax.clip_by_global_norm(1.0), adamw)


@jax.jit
def step(m, state, i, ids, following):
    key = jax.random.fold_in(jax.random.key(1), i)
    value, g = jax.value_and_grad(loss)(m, ids, following, key)
    updates, state = opt.update(g, state, m)
    return optax.apply_updates(m, updates), state, value


def batch(i):
    key = jax.random.fold_in(jax.random.key(77), i)
    at = jax.random.randint(key, (BATCH, 1), 0, len(ids) - T - 1) + jnp.arange(T + 1)
    rows = ids[np.asarray(at)]
    return rows[:, :-1], rows[:, 1:]


m = init(jax.random.key(0), len(chars))
state = opt.init(m)
for i in range(STEPS):
    m, state, value = step(m, state, i, *batch(i))
    if i < 8 or i % 25 == 0 or i == STEPS - 1:
        print(f"step {i:3}  loss {value:.4f}")
