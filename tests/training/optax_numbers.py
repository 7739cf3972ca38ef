"""Writes optax.json: parameters after 3 and 20 steps of each optimizer, and values of schedules, by optax.

    python tests/training/optax_numbers.py > tests/training/optax.json   (JAX 0.10.2, optax 0.2.8)

Everything is computed in float64. The parameters are three leaves, of 4 x 3, 3 and no dimensions; element k of all
16 elements starts at sin(k + 1), and its gradient in step t is cos(0.7 k + 0.3 t) + 0.1 * parameter.
"""
import json

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import optax

SHAPES = {"b": (3,), "s": (), "w": (4, 3)}
SIZES = {"b": 3, "s": 1, "w": 12}


def tree(f):
    out, at = {}, 0
    for name, shape in SHAPES.items():
        k = jnp.arange(at, at + SIZES[name], dtype=jnp.float64)
        out[name] = f(k).reshape(shape)
        at += SIZES[name]
    return out


def gradients(t, params):
    waves = tree(lambda k: jnp.cos(0.7 * k + 0.3 * t))
    return jax.tree.map(lambda c, p: c + 0.1 * p, waves, params)


matrices = lambda tree: jax.tree.map(lambda p: p.ndim >= 2, tree)
constant = 0.01
warmup = optax.warmup_cosine_decay_schedule(0.0, 0.02, 5, 15, 0.002)
OPTIMIZERS = {
    "sgd": optax.sgd(constant),
    "sgd_momentum": optax.sgd(constant, momentum=0.9),
    "sgd_nesterov": optax.sgd(constant, momentum=0.9, nesterov=True),
    "adam": optax.adam(constant),
    "adam_options": optax.adam(constant, b1=0.8, b2=0.95, eps=1e-6, eps_root=1e-5),
    "nadam": optax.nadam(constant),
    "adamw": optax.adamw(constant, weight_decay=0.1, mask=matrices),
    "adamw_schedule": optax.adamw(warmup),
    "lion": optax.lion(constant),
    "rmsprop": optax.rmsprop(constant),
    "rmsprop_momentum": optax.rmsprop(constant, decay=0.8, initial_scale=1.0, eps_in_sqrt=False, momentum=0.9, nesterov=True),
    "rmsprop_centered": optax.rmsprop(constant, centered=True, eps=1e-3, bias_correction=True),
    "lamb": optax.lamb(constant, weight_decay=0.01),
    "adafactor": optax.adafactor(constant, min_dim_size_to_factor=2),
    "adafactor_whole": optax.adafactor(constant, momentum=0.9, weight_decay_rate=0.01),
    "clip": optax.chain(optax.clip(0.5), optax.sgd(constant)),
    "clip_by_global_norm": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(constant)),
    "clip_by_block_rms": optax.chain(optax.clip_by_block_rms(0.3), optax.sgd(constant)),
    "add_decayed_weights": optax.chain(optax.add_decayed_weights(0.2, mask=matrices), optax.sgd(constant)),
    "ema": optax.chain(optax.ema(0.9), optax.sgd(constant)),
    "ema_twice": optax.chain(optax.ema(0.9, debias=False), optax.ema(0.5), optax.scale(-0.01)),
    "masked": optax.chain(optax.masked(optax.scale_by_adam(), matrices), optax.scale(-0.01)),
    "partition": optax.partition(
        {"adam": optax.adam(constant), "sgd": optax.sgd(0.1), "none": optax.set_to_zero()},
        {"b": "sgd", "s": "none", "w": "adam"},
    ),
    "scale_by_schedule": optax.chain(optax.scale_by_lion(), optax.scale_by_schedule(optax.linear_schedule(-0.1, -0.01, 10))),
    "apply_if_finite": optax.apply_if_finite(optax.adam(optax.exponential_decay(0.01, 4, 0.5)), 2),
}
SCHEDULES = {
    "constant": optax.constant_schedule(0.3),
    "linear": optax.linear_schedule(1.0, 0.1, 10),
    "polynomial": optax.polynomial_schedule(1.0, 0.1, 2.5, 12),
    "cosine": optax.cosine_decay_schedule(2.0, 10, 0.1),
    "warmup_cosine": warmup,
    "exponential": optax.exponential_decay(1.0, 4, 0.5),
    "exponential_staircase": optax.exponential_decay(1.0, 4, 0.5, transition_begin=3, staircase=True, end_value=0.2),
    "warmup_exponential": optax.warmup_exponential_decay_schedule(0.0, 1.0, 5, 4, 0.5),
    "piecewise": optax.piecewise_constant_schedule(1.0, {5: 0.5, 10: 0.1}),
    "joined": optax.join_schedules([optax.linear_schedule(0.0, 1.0, 4), optax.cosine_decay_schedule(1.0, 8), optax.constant_schedule(0.25)], [4, 14]),
}


def numbers(tree):
    return [float(f"{x:.9g}") for name in SHAPES for x in tree[name].reshape(-1)]


def run(name, opt):
    params = tree(lambda k: jnp.sin(k + 1))
    state, out = opt.init(params), []
    for t in range(20):
        g = gradients(t, params)
        if name == "apply_if_finite" and t in (1, 7, 8, 9):
            g["b"] = g["b"].at[1].set(jnp.nan if t < 9 else 2.0)
        updates, state = opt.update(g, state, params)
        params = optax.apply_updates(params, updates)
        if t in (2, 19):
            out.append(numbers(params))
    return out


optimizers = {name: run(name, opt) for name, opt in OPTIMIZERS.items()}
schedules = {name: [float(f"{float(s(jnp.asarray(t))):.9g}") for t in range(20)] for name, s in SCHEDULES.items()}
lines = [json.dumps(name) + ":" + json.dumps(v, separators=(",", ":")) for part in (optimizers, schedules) for name, v in part.items()]
split = len(optimizers)
print('{"optimizers":{\n' + ",\n".join(lines[:split]) + '\n},"schedules":{\n' + ",\n".join(lines[split:]) + "\n}}")
