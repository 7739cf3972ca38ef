"""Writes draws.npy: sums over blocks of a million draws of each of JAX's samplers by rejection.

Run it with jax 0.10.2. A row has a sampler, an element the sum over 1000 draws: of their logarithms, or of
Poisson counts, times weights from 1 to 5. A draw that differs changes the sum of its block.
"""
import jax.numpy as jnp, numpy as np
from jax import random

N, BLOCK = 1_000_000, 1000


def sums(x):
    x = np.asarray(x, dtype=np.float64).ravel() * np.tile([1, 2, 3, 4, 5], N // 5)
    return x.reshape(-1, BLOCK).sum(1)


def logs(x):
    return np.log(np.asarray(x, dtype=np.float64))


def cycle(*values):
    return jnp.tile(jnp.array(values, jnp.float32), N // len(values))


np.save("draws.npy", np.stack([
    sums(logs(random.gamma(random.key(40), cycle(0.3, 0.5, 1.0, 3.0, 40.0)))),
    sums(logs(random.beta(random.key(41), 0.5, cycle(0.5, 1.0, 2.0, 8.0)))),
    sums(logs(random.dirichlet(random.key(42), cycle(0.3, 1.0, 2.0, 5.0).reshape(-1, 4)))),
    sums(random.poisson(random.key(43), cycle(0.5, 4.0, 9.9, 10.0, 1000.0))),
]))
