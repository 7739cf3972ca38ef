"""Writes two tiny models with random weights in the layout of Hugging Face's libraries, and their logits.

`llama`: bfloat16, two files and an index, grouped heads, rotary positions, RMSNorm, SwiGLU, its own output layer.
`gpt2`: float32, layers `[inputs, outputs]`, one layer for q, k and v, a tied embedding, and a buffer that no layer needs.
The logits are computed in float64. Needs numpy, ml_dtypes and safetensors: `python make.py` in this folder.
"""

import json
import os

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

rng = np.random.default_rng(0)
BATCH, TOKENS = 8, 6


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v, scale):
    scores = q @ k.transpose(0, 1, 3, 2) / scale
    scores = np.where(np.tri(q.shape[2], dtype=bool), scores, -1e30)
    out = (softmax(scores) @ v).transpose(0, 2, 1, 3)
    return out.reshape(out.shape[0], out.shape[1], -1)


def heads(x, n):
    return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(0, 2, 1, 3)


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def write_results(folder, ids, logits):
    np.save(f"{folder}/ids.npy", ids.astype(np.int32))
    np.save(f"{folder}/logits.npy", logits.astype(np.float32))


def llama():
    D, H, KV, F, L, V, EPS, THETA = 32, 8, 4, 48, 2, 64, 1e-5, 10000.0
    K = D // H
    os.makedirs("llama", exist_ok=True)

    def weight(*shape):
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(ml_dtypes.bfloat16)

    def scale():
        return (1 + 0.1 * rng.normal(size=D)).astype(ml_dtypes.bfloat16)

    w = {"model.embed_tokens.weight": weight(V, D), "model.norm.weight": scale(), "lm_head.weight": weight(V, D)}
    for i in range(L):
        p = f"model.layers.{i}."
        w |= {
            p + "input_layernorm.weight": scale(),
            p + "self_attn.q_proj.weight": weight(H * K, D),
            p + "self_attn.k_proj.weight": weight(KV * K, D),
            p + "self_attn.v_proj.weight": weight(KV * K, D),
            p + "self_attn.o_proj.weight": weight(D, H * K),
            p + "post_attention_layernorm.weight": scale(),
            p + "mlp.gate_proj.weight": weight(F, D),
            p + "mlp.up_proj.weight": weight(F, D),
            p + "mlp.down_proj.weight": weight(D, F),
        }
    names = sorted(w)
    half = len(names) // 2
    index = {"metadata": {"total_size": sum(x.nbytes for x in w.values())}, "weight_map": {}}
    for k, part in enumerate([names[:half], names[half:]]):
        file = f"model-{k + 1:05d}-of-00002.safetensors"
        save_file({x: w[x] for x in part}, f"llama/{file}", metadata={"format": "pt"})
        index["weight_map"] |= {x: file for x in part}
    write_json("llama/model.safetensors.index.json", index)
    write_json(
        "llama/config.json",
        {
            "model_type": "llama",
            "hidden_size": D,
            "num_attention_heads": H,
            "num_key_value_heads": KV,
            "intermediate_size": F,
            "num_hidden_layers": L,
            "vocab_size": V,
            "rms_norm_eps": EPS,
            "rope_theta": THETA,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        },
    )
    g = {k: v.astype(np.float64) for k, v in w.items()}

    def rms(x, s):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * s

    def rope(x):
        t = np.arange(x.shape[2])[:, None] / THETA ** (np.arange(0, K, 2) / K)[None]
        c, s = np.cos(np.concatenate([t, t], -1)), np.sin(np.concatenate([t, t], -1))
        return x * c + np.concatenate([-x[..., K // 2 :], x[..., : K // 2]], -1) * s

    ids = rng.integers(0, V, size=(BATCH, TOKENS))
    x = g["model.embed_tokens.weight"][ids]
    for i in range(L):
        p = f"model.layers.{i}."
        h = rms(x, g[p + "input_layernorm.weight"])
        q, k, v = [h @ g[p + f"self_attn.{n}_proj.weight"].T for n in "qkv"]
        k, v = rope(heads(k, KV)), heads(v, KV)
        o = attend(rope(heads(q, H)), np.repeat(k, H // KV, 1), np.repeat(v, H // KV, 1), np.sqrt(K))
        x = x + o @ g[p + "self_attn.o_proj.weight"].T
        h = rms(x, g[p + "post_attention_layernorm.weight"])
        a = h @ g[p + "mlp.gate_proj.weight"].T
        x = x + ((a / (1 + np.exp(-a))) * (h @ g[p + "mlp.up_proj.weight"].T)) @ g[p + "mlp.down_proj.weight"].T
    write_results("llama", ids, rms(x, g["model.norm.weight"]) @ g["lm_head.weight"].T)


def gpt2():
    D, H, L, V, POSITIONS = 32, 4, 2, 64, 16
    os.makedirs("gpt2", exist_ok=True)

    def weight(*shape):
        return (rng.normal(size=shape) * 0.1).astype(np.float32)

    w = {"wte.weight": weight(V, D), "wpe.weight": weight(POSITIONS, D)}
    w |= {"ln_f.weight": 1 + weight(D), "ln_f.bias": weight(D)}
    for i in range(L):
        p = f"h.{i}."
        for norm in ["ln_1", "ln_2"]:
            w |= {f"{p}{norm}.weight": 1 + weight(D), f"{p}{norm}.bias": weight(D)}
        for layer, n, m in [("attn.c_attn", D, 3 * D), ("attn.c_proj", D, D), ("mlp.c_fc", D, 4 * D), ("mlp.c_proj", 4 * D, D)]:
            w |= {f"{p}{layer}.weight": weight(n, m), f"{p}{layer}.bias": weight(m)}
        w[p + "attn.bias"] = np.tri(POSITIONS, dtype=np.float32)[None, None]
    save_file(w, "gpt2/model.safetensors", metadata={"format": "pt"})
    g = {k: v.astype(np.float64) for k, v in w.items()}

    def norm(x, name):
        c = x - x.mean(-1, keepdims=True)
        return c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g[name + ".weight"] + g[name + ".bias"]

    def layer(x, name):
        return x @ g[name + ".weight"] + g[name + ".bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    ids = rng.integers(0, V, size=(BATCH, TOKENS))
    x = g["wte.weight"][ids] + g["wpe.weight"][:TOKENS]
    for i in range(L):
        p = f"h.{i}."
        q, k, v = [heads(a, H) for a in np.split(layer(norm(x, p + "ln_1"), p + "attn.c_attn"), 3, -1)]
        x = x + layer(attend(q, k, v, np.sqrt(D // H)), p + "attn.c_proj")
        x = x + layer(gelu(layer(norm(x, p + "ln_2"), p + "mlp.c_fc")), p + "mlp.c_proj")
    write_results("gpt2", ids, norm(x, "ln_f") @ g["wte.weight"].T)


llama()
gpt2()
