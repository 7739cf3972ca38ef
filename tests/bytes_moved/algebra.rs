//! Chained products, transposes, reshapes, sums and iterations.

use super::{GRID, LINE, Program, at, program};
use atmesh::prelude::*;

pub(crate) fn programs() -> Vec<Program> {
    vec![
        program("transposes", LINE, [at([64, 64], p!["x"]), at([64, 64], p!["x"])], [p!["x"]], |a| {
            let s = &a[0] + a[0].t();
            vec![s.t().dot(&a[1]).t() * 2.0 + &a[0]]
        }),
        program("reshape_transpose", GRID, [at([64, 64], p!["x", "y"])], [p!["x", "y"]], |a| {
            let t = a[0].reshape([8, 8, 64]).transpose([1, 0, 2]).exp();
            vec![t.reshape([64, 64]) * 2.0]
        }),
        program(
            "chain3",
            LINE,
            [at([64, 128], p!["x"]), at([128, 64], p![_, "x"]), at([64, 32], p!["x"])],
            [p!["x"]],
            |a| vec![a[0].dot(&a[1]).dot(&a[2])],
        ),
        program(
            "chain5",
            GRID,
            [
                at([64, 64], p!["x", "y"]),
                at([64, 64], p!["x", "y"]),
                at([64, 64], p!["y", "x"]),
                at([64, 64], p!["x"]),
                at([64, 64], p![_, "y"]),
            ],
            [p!["x", "y"]],
            |a| vec![a[0].dot(&a[1]).dot(&a[2]).dot(&a[3]).dot(&a[4])],
        ),
        program(
            "einsum_batch",
            GRID,
            [at([8, 32, 64], p!["x", _, "y"]), at([8, 64, 32], p![_, "y", "x"])],
            [p!["x", "y"]],
            |a| vec![einsum("bij,bjk->bik", [&a[0], &a[1]])],
        ),
        program(
            "gnn_2d",
            GRID,
            [at([128, 128], p!["x", "y"]), at([128, 16], p!["x"]), at([16, 16], p![]), at([16, 16], p![])],
            [p!["x"]],
            |a| {
                let h = a[0].dot(a[1].dot(&a[2])).relu();
                vec![a[0].dot(h.dot(&a[3]))]
            },
        ),
        program(
            "scalars",
            GRID,
            [at([64, 64], p!["x", "y"]), at([64, 64], p!["x", "y"])],
            [p![], p![], p![], p![]],
            |a| vec![a[0].mean(..), a[0].max(..), (&a[0] * &a[1]).sum(..), a[0].square().sum(..).sqrt()],
        ),
        program("power_iter", LINE, [at([128, 128], p!["x"]), at([128], p![])], [p![]], |a| {
            vec![fori_loop(0..10, &a[1], |_, v: Array| {
                let w = a[0].dot(&v);
                &w / w.square().sum(..).sqrt()
            })]
        }),
        program("kmeans", LINE, [at([256, 16], p!["x"]), at([8, 16], p![])], [p![]], |a| {
            let x = &a[0];
            vec![fori_loop(0..5, &a[1], |_, c: Array| {
                let d = x.square().sum(Dims::keep(-1)) - 2.0 * x.dot(c.t()) + c.square().sum(-1);
                let m = d.argmin(-1).one_hot(8);
                m.t().dot(x) / (m.sum(0).expand_dims(-1) + 1e-6)
            })]
        }),
        program("conflict_sum0", LINE, [at([64, 64], p!["x"]), at([64, 64], p![_, "x"])], [p!["x"]], |a| {
            vec![(&a[0] + &a[1]).sum(0)]
        }),
        program("conflict_same_dim", GRID, [at([64, 64], p!["x"]), at([64, 64], p!["y"])], [p!["x"]], |a| {
            vec![(&a[0] + &a[1]).tanh()]
        }),
        program("gram_cov", LINE, [at([512, 32], p!["x"])], [p![]], |a| {
            let c = &a[0] - a[0].mean(0);
            vec![c.t().dot(&c)]
        }),
        program("cumsum_tril", LINE, [at([64, 16], p!["x"])], [p!["x"]], |a| {
            vec![Array::ones([64, 64]).tril(0).dot(&a[0])]
        }),
        program("scan_leading", LINE, [at([64, 32], p![]), at([8, 32, 32], p!["x"])], [p![]], |a| {
            vec![scan(&a[0], &a[1], |c, w| (c.dot(&w).tanh(), ())).0]
        }),
        program("scan_ys", LINE, [at([64], p!["x"]), at([16, 64], p![_, "x"])], [p![_, "x"]], |a| {
            vec![
                scan(&a[0], &a[1], |c, r| {
                    let c = 0.9 * c + r;
                    (c.clone(), c)
                })
                .1,
            ]
        }),
        program("pairwise", LINE, [at([128, 16], p!["x"])], [p!["x"]], |a| {
            vec![(a[0].expand_dims(1) - a[0].expand_dims(0)).square().sum(-1)]
        }),
        program("mgs", LINE, [at([128, 8], p!["x"])], [p!["x"]], |a| {
            let mut q: Vec<Array> = Vec::new();
            for j in 0..4i32 {
                let mut v = a[0].slice(ix![.., j]);
                for u in &q {
                    v = &v - (u * &v).sum(..) * u
                }
                q.push(&v / v.square().sum(..).sqrt());
            }
            vec![stack(&q, 1)]
        }),
        program("mixed_reduce", GRID, [at([64, 64], p!["x", "y"])], [p!["x"], p!["y"], p![]], |a| {
            vec![a[0].sum(1), a[0].max(0), (&a[0] - a[0].max(Dims::keep(1))).exp().sum(..)]
        }),
        program(
            "fft_like",
            LINE,
            [at([64, 64], p!["x"]), at([64, 64], p![]), at([64, 64], p![])],
            [p!["x"]],
            |a| vec![a[1].dot(a[0].dot(&a[2]))],
        ),
    ]
}
