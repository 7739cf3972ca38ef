"""Writes oracle.txt: numbers of JAX, flax and optax for the functions of `atmesh::nn`.

Run it with jax 0.10.2, flax 0.12 and optax 0.2.8. Inputs are drawn from keys, which atmesh draws too.
A line has a name, and the elements of an array in row-major order.
"""
import jax, jax.numpy as jnp, numpy as np, optax, flax.linen as fl
from jax import nn, random
from jax.nn import initializers as init

out = open("oracle.txt", "w")


def put(name, x, digits=7):
    x = np.asarray(x, dtype=np.float64).ravel()
    print(name, *[np.format_float_positional(v, precision=digits, fractional=False, trim="-")
                  for v in x], file=out)


def key(i):
    return random.key(i)


def normal(i, *shape):
    return random.normal(key(i), shape)


x = normal(0, 4, 6)
w = normal(1, 4, 6)
scale, bias = normal(2, 6), normal(3, 6)


def both(name, f, *args, argnums=0):
    """The value, and the gradient of its product with fixed weights."""
    y = f(*args)
    put(name, y)
    ct = random.normal(key(99), y.shape)
    put(name + "'", jax.grad(lambda a: (f(a, *args[1:]) * ct).sum())(args[0]))


# norms
both("layer_norm", lambda x: fl.LayerNorm().apply({"params": {"scale": scale, "bias": bias}}, x), x)
both("rms_norm", lambda x: fl.RMSNorm().apply({"params": {"scale": scale}}, x), x)
both("group_norm", lambda x: fl.GroupNorm(num_groups=3, use_scale=False, use_bias=False).apply({}, x), normal(4, 2, 5, 6))
stats = {"mean": normal(5, 6), "var": jnp.exp(normal(6, 6))}
bn = lambda train: fl.BatchNorm(use_running_average=not train)
variables = {"params": {"scale": scale, "bias": bias}, "batch_stats": stats}
both("batch_norm", lambda x: bn(True).apply(variables, x, mutable=["batch_stats"])[0], x)
new = bn(True).apply(variables, x, mutable=["batch_stats"])[1]["batch_stats"]
put("batch_norm.mean", new["mean"])
put("batch_norm.var", new["var"])
both("batch_norm.eval", lambda x: bn(False).apply(variables, x), x)
# dropout
both("dropout", lambda x: jnp.where(random.bernoulli(key(7), 0.7, x.shape), x / 0.7, 0.0), x)
# activations
for name, f in [("elu", lambda x: nn.elu(x, 1.5)), ("selu", nn.selu), ("celu", lambda x: nn.celu(x, 1.5)),
                ("leaky_relu", lambda x: nn.leaky_relu(x, 0.1)), ("relu6", lambda x: nn.relu6(x)),
                ("hard_sigmoid", nn.hard_sigmoid), ("hard_silu", nn.hard_silu), ("hard_tanh", nn.hard_tanh),
                ("log_sigmoid", nn.log_sigmoid), ("soft_sign", nn.soft_sign), ("mish", nn.mish),
                ("squareplus", nn.squareplus), ("glu", nn.glu)]:
    both(name, f, 3 * x)
# losses
labels = jnp.array([5, 0, 3, 3])
both("sce_int", optax.softmax_cross_entropy_with_integer_labels, x, labels)
put("sce_int.out", optax.softmax_cross_entropy_with_integer_labels(x, jnp.array([6, -1, -7, 2])))
both("sce", optax.softmax_cross_entropy, x, jax.nn.softmax(w))
both("bce", optax.sigmoid_binary_cross_entropy, x, jax.nn.sigmoid(w))
both("huber", lambda x: optax.huber_loss(x, w, delta=0.7), x)
both("l2", optax.l2_loss, x, w)
# attention
q, k, v = normal(10, 2, 5, 4, 8), normal(11, 2, 5, 2, 8), normal(12, 2, 5, 2, 8)
k4, v4 = normal(13, 2, 5, 4, 8), normal(14, 2, 5, 4, 8)
dpa = nn.dot_product_attention
mask = random.bernoulli(key(15), 0.6, (2, 4, 5, 5)) | jnp.eye(5, dtype=bool)
b = normal(16, 1, 4, 5, 5)
lengths = jnp.array([3, 5])
both("attention", lambda q: dpa(q, k4, v4), q)
both("attention.causal", lambda q: dpa(q, k, v, is_causal=True), q)
both("attention.causal.k", lambda k: dpa(q, k, v, is_causal=True), k)
both("attention.mask", lambda q: dpa(q, k, v, b, mask, scale=0.5), q)
both("attention.lengths", lambda q: dpa(q, k, v, key_value_seq_lengths=lengths, query_seq_lengths=jnp.array([4, 5])), q)
both("attention.window", lambda q: dpa(q, k, v, local_window_size=(1, 2)), q)
both("attention.unbatched", lambda q: dpa(q, k[0], v[0], is_causal=True), q[0])


# rotary embeddings, as in Hugging Face's Llama and in GPT-J
def rope(x, first, interleaved):
    n = x.shape[-1]
    freq = 1.0 / (10000.0 ** (np.arange(0, n, 2) / n))
    a = (first + np.arange(x.shape[1]))[:, None] * freq
    c, s = jnp.cos(a)[:, None], jnp.sin(a)[:, None]
    p, r = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., : n // 2], x[..., n // 2:])
    y = [p * c - r * s, r * c + p * s]
    return jnp.stack(y, -1).reshape(x.shape) if interleaved else jnp.concatenate(y, -1)


both("rope.halves", lambda q: rope(q, 3, False), q)
both("rope.interleaved", lambda q: rope(q, 3, True), q)
# initializers
for name in ["lecun_normal", "lecun_uniform", "he_normal", "he_uniform", "glorot_normal", "glorot_uniform"]:
    put("init." + name, getattr(init, name)()(key(20), (3, 4)), 9)
put("init.normal", init.normal(0.02)(key(20), (3, 4)), 9)
put("init.uniform", init.uniform(0.5)(key(20), (3, 4)), 9)
put("init.truncated_normal", init.truncated_normal(0.1)(key(20), (3, 4)), 9)
put("init.orthogonal", init.orthogonal(2.0)(key(20), (2, 2, 3)), 9)
put("init.orthogonal.wide", init.orthogonal()(key(20), (2, 5)), 9)
put("init.conv", init.he_normal()(key(20), (3, 3, 2, 4)), 9)
put("init.heads", init.variance_scaling(1.0, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))(key(20), (4, 2, 3)), 9)
# samplers
put("gamma", random.gamma(key(30), jnp.array([0.1, 0.5, 1.0, 3.0, 40.0]), (6, 5)), 9)
put("loggamma", random.loggamma(key(31), 0.05, (20,)), 9)
put("beta", random.beta(key(32), 0.5, jnp.array([0.5, 2.0, 8.0]), (6, 3)), 9)
put("dirichlet", random.dirichlet(key(33), jnp.array([0.3, 1.0, 5.0]), (6,)), 9)
put("poisson", random.poisson(key(34), jnp.array([0.0, 0.5, 4.0, 9.9, 10.0, 30.0, 1000.0]), (20, 7)))
xs = jnp.arange(10, 30)
p = jax.nn.softmax(normal(35, 20))
put("choice", random.choice(key(36), xs, (4, 5)))
put("choice.rows", random.choice(key(36), xs.reshape(5, 4), (3,), axis=1))
put("choice.without", random.choice(key(36), xs, (7,), replace=False))
put("choice.p", random.choice(key(36), xs, (12,), p=p))
put("choice.p.without", random.choice(key(36), xs, (7,), replace=False, p=p))
put("choice.rows.without", random.choice(key(36), xs.reshape(10, 2), (3,), replace=False))
put("truncated_normal", random.truncated_normal(key(37), -0.5, 2.0, (20,)), 9)
