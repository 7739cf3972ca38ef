//! Models and their gradients: sharded data, sharded weights and both; attention, norms, losses,
//! and an optimizer.

use super::{GRID, LINE, Program, V, at, program};
use atmesh::prelude::*;

fn mlp(x: &Array, w1: &Array, w2: &Array) -> Array {
    x.dot(w1).relu().dot(w2)
}
fn mlp_grad(a: &V) -> V {
    let (l, (g1, g2)) = value_and_grad((&a[1], &a[2]), |(w1, w2)| mlp(&a[0], &w1, &w2).square().mean(..));
    vec![l, g1, g2]
}
fn attention(a: &V) -> V {
    // x [t, d], wq wk wv [d, h, k], wo [h, k, d]
    let (x, wq, wk, wv, wo) = (&a[0], &a[1], &a[2], &a[3], &a[4]);
    let q = einsum("td,dhk->thk", [x, wq]);
    let k = einsum("td,dhk->thk", [x, wk]);
    let v = einsum("td,dhk->thk", [x, wv]);
    let s = (einsum("thk,shk->hts", [&q, &k]) * 0.25).softmax(-1);
    let o = einsum("hts,shk->thk", [&s, &v]);
    vec![einsum("thk,hkd->td", [&o, wo])]
}
fn norm(x: &Array, g: &Array, b: &Array) -> Array {
    let m = x.mean(Dims::keep(-1));
    let c = x - m;
    let v = c.square().mean(Dims::keep(-1));
    c * (v + 1e-5).rsqrt() * g + b
}

pub(crate) fn programs() -> Vec<Program> {
    vec![
        program(
            "mlp_dp",
            LINE,
            [at([64, 32], p!["x"]), at([32, 128], p![]), at([128, 32], p![])],
            [p![], p![], p![]],
            mlp_grad,
        ),
        program(
            "mlp_fsdp_b64",
            LINE,
            [at([64, 32], p!["x"]), at([32, 128], p!["x"]), at([128, 32], p!["x"])],
            [p![], p!["x"], p!["x"]],
            mlp_grad,
        ),
        program(
            "mlp_fsdp_b1024",
            LINE,
            [at([1024, 32], p!["x"]), at([32, 128], p!["x"]), at([128, 32], p!["x"])],
            [p![], p!["x"], p!["x"]],
            mlp_grad,
        ),
        program(
            "mlp_tp",
            LINE,
            [at([64, 32], p![]), at([32, 128], p![_, "x"]), at([128, 32], p!["x"])],
            [p![], p![_, "x"], p!["x"]],
            mlp_grad,
        ),
        program(
            "mlp_dp_tp",
            GRID,
            [at([64, 32], p!["x"]), at([32, 128], p![_, "y"]), at([128, 32], p!["y"])],
            [p![], p![_, "y"], p!["y"]],
            mlp_grad,
        ),
        program(
            "mlp_fsdp_tp",
            GRID,
            [at([64, 32], p!["x"]), at([32, 128], p!["x", "y"]), at([128, 32], p!["y", "x"])],
            [p![], p!["x", "y"], p!["y", "x"]],
            mlp_grad,
        ),
        program(
            "mlp_fsdp_tp_b1024",
            GRID,
            [at([1024, 32], p!["x"]), at([32, 128], p!["x", "y"]), at([128, 32], p!["y", "x"])],
            [p![], p!["x", "y"], p!["y", "x"]],
            mlp_grad,
        ),
        program(
            "attn_heads",
            LINE,
            [
                at([64, 32], p![]),
                at([32, 8, 8], p![_, "x"]),
                at([32, 8, 8], p![_, "x"]),
                at([32, 8, 8], p![_, "x"]),
                at([8, 8, 32], p!["x"]),
            ],
            [p![]],
            attention,
        ),
        program(
            "attn_seq",
            LINE,
            [
                at([64, 32], p!["x"]),
                at([32, 8, 8], p![]),
                at([32, 8, 8], p![]),
                at([32, 8, 8], p![]),
                at([8, 8, 32], p![]),
            ],
            [p!["x"]],
            attention,
        ),
        program(
            "attn_both",
            GRID,
            [
                at([64, 32], p!["x"]),
                at([32, 8, 8], p![_, "y"]),
                at([32, 8, 8], p![_, "y"]),
                at([32, 8, 8], p![_, "y"]),
                at([8, 8, 32], p!["y"]),
            ],
            [p!["x"]],
            attention,
        ),
        program(
            "attn_both_grad",
            GRID,
            [
                at([64, 32], p!["x"]),
                at([32, 8, 8], p![_, "y"]),
                at([32, 8, 8], p![_, "y"]),
                at([32, 8, 8], p![_, "y"]),
                at([8, 8, 32], p!["y"]),
            ],
            [p![_, "y"], p![_, "y"], p![_, "y"], p!["y"]],
            |a| {
                let (g1, g2, g3, g4) = grad((&a[1], &a[2], &a[3], &a[4]), |(q, k, v, o)| {
                    attention(&vec![a[0].clone(), q, k, v, o])[0].square().sum(..)
                });
                vec![g1, g2, g3, g4]
            },
        ),
        program(
            "layernorm_split",
            LINE,
            [at([64, 128], p![_, "x"]), at([128], p![]), at([128], p![])],
            [p![_, "x"]],
            |a| vec![norm(&a[0], &a[1], &a[2])],
        ),
        program(
            "layernorm_grad",
            LINE,
            [at([64, 128], p![_, "x"]), at([128], p![]), at([128], p![])],
            [p![_, "x"], p!["x"], p!["x"]],
            |a| {
                let (x, g, b) = grad((&a[0], &a[1], &a[2]), |(x, g, b)| norm(&x, &g, &b).square().sum(..));
                vec![x, g, b]
            },
        ),
        program("softmax_split", GRID, [at([64, 128], p!["x", "y"])], [p!["x", "y"]], |a| {
            vec![a[0].softmax(-1)]
        }),
        program(
            "residual_tp",
            GRID,
            [
                at([64, 32], p!["x"]),
                at([32, 128], p![_, "y"]),
                at([128, 32], p!["y"]),
                at([32], p![]),
                at([32], p![]),
            ],
            [p!["x"]],
            |a| {
                let mut x = a[0].clone();
                for _ in 0..3 {
                    x = &x + mlp(&norm(&x, &a[3], &a[4]), &a[1], &a[2])
                }
                vec![x]
            },
        ),
        program("embed_onehot", LINE, [at([64, 256], p!["x"]), at([256, 32], p!["x"])], [p!["x"]], |a| {
            vec![a[0].dot(&a[1]).tanh()]
        }),
        program(
            "lse_loss_grad",
            GRID,
            [at([64, 32], p!["x"]), at([32, 128], p![_, "y"]), at([64, 128], p!["x"])],
            [p![], p![_, "y"]],
            |a| {
                let (l, g) = value_and_grad(&a[1], |w| {
                    let z = a[0].dot(&w);
                    (z.logsumexp(-1) - (&z * &a[2]).sum(-1)).mean(..)
                });
                vec![l, g]
            },
        ),
        program(
            "scan_layers",
            GRID,
            [at([64, 32], p!["x"]), at([4, 32, 32], p![_, _, "y"])],
            [p!["x"]],
            |a| vec![scan(&a[0], &a[1], |c, w| (c.dot(&w).tanh(), ())).0],
        ),
        program(
            "scan_fsdp_grad",
            LINE,
            [at([256, 32], p!["x"]), at([4, 32, 32], p![_, "x"])],
            [p![_, "x"]],
            |a| vec![grad(&a[1], |w| scan(&a[0], &w, |c, w| (c.dot(&w).tanh(), ())).0.square().mean(..))],
        ),
        program(
            "adam_fsdp",
            LINE,
            [at([256, 32], p!["x"]), at([32, 64], p!["x"]), at([32, 64], p!["x"]), at([32, 64], p!["x"])],
            [p!["x"], p!["x"], p!["x"]],
            |a| {
                let g = grad(&a[1], |w| a[0].dot(&w).tanh().square().mean(..));
                let m = 0.9 * &a[2] + 0.1 * &g;
                let v = 0.99 * &a[3] + 0.01 * g.square();
                vec![&a[1] - 0.01 * (&m / (v.sqrt() + 1e-8)), m, v]
            },
        ),
        program("fsdp_transposed_w", LINE, [at([256, 32], p!["x"]), at([64, 32], p!["x"])], [p!["x"]], |a| {
            vec![grad(&a[1], |w| a[0].dot(w.t()).tanh().square().mean(..))]
        }),
        program("embed_ids", LINE, [at([64], p!["x"]), at([256, 32], p!["x"])], [p!["x"]], |a| {
            vec![a[0].astype(I32).one_hot(256).dot(&a[1]).tanh()]
        }),
        program(
            "vocab_loss_grad",
            GRID,
            [at([64, 32], p!["x"]), at([32, 256], p![_, "y"]), at([64], p!["x"])],
            [p!["x"], p![_, "y"]],
            |a| {
                let (x, w) = grad((&a[0], &a[1]), |(x, w)| {
                    let z = x.dot(&w);
                    (z.logsumexp(-1) - (&z * a[2].astype(I32).one_hot(256)).sum(-1)).mean(..)
                });
                vec![x, w]
            },
        ),
        program(
            "packed_qkv",
            GRID,
            [at([64, 32], p!["x"]), at([32, 192], p![_, "y"]), at([64, 32], p!["y"])],
            [p!["x"]],
            |a| {
                let h = a[0].dot(&a[1]).reshape([64, 8, 3, 8]);
                let (q, k, v) = (h.slice(ix![.., .., 0]), h.slice(ix![.., .., 1]), h.slice(ix![.., .., 2]));
                let s = (einsum("thk,shk->hts", [&q, &k]) * 0.25).softmax(-1);
                vec![einsum("hts,shk->thk", [&s, &v]).reshape([64, 64]).dot(&a[2])]
            },
        ),
        program(
            "seq_parallel",
            GRID,
            [
                at([64, 32], p![("x", "y")]),
                at([32, 128], p![_, "y"]),
                at([128, 32], p!["y"]),
                at([32], p![]),
                at([32], p![]),
            ],
            [p![("x", "y")]],
            |a| vec![&a[0] + mlp(&norm(&a[0], &a[3], &a[4]), &a[1], &a[2])],
        ),
        program(
            "batchnorm_grad",
            GRID,
            [at([64, 32], p!["x", "y"]), at([32], p!["y"])],
            [p!["x", "y"], p!["y"]],
            |a| {
                let (x, g) = grad((&a[0], &a[1]), |(x, g)| {
                    let c = &x - x.mean(0);
                    (&c * (c.square().mean(0) + 1e-5).rsqrt() * g).tanh().sum(..)
                });
                vec![x, g]
            },
        ),
        program(
            "attn_seq_grad",
            LINE,
            [
                at([64, 32], p!["x"]),
                at([32, 8, 8], p![]),
                at([32, 8, 8], p![]),
                at([32, 8, 8], p![]),
                at([8, 8, 32], p![]),
            ],
            [p!["x"]],
            |a| {
                vec![grad(&a[0], |x| {
                    attention(&vec![x, a[1].clone(), a[2].clone(), a[3].clone(), a[4].clone()])[0]
                        .square()
                        .sum(..)
                })]
            },
        ),
    ]
}
