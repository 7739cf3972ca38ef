//! Stencils, loops of stencils, and other reads of neighbours.

use super::{GRID, LINE, Program, at, program};
use atmesh::prelude::*;

fn roll5(u: &Array) -> Array {
    0.5 * u + 0.25 * (u.roll(1, 0) + u.roll(-1, 0))
}
fn lap(u: &Array) -> Array {
    u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4.0 * u
}
fn heat_cat(u: &Array) -> Array {
    let (a, b, c) = (u.slice(ix![2..]), u.slice(ix![1..-1]), u.slice(ix![..-2]));
    let mid = &b + 0.1 * (a - 2.0 * &b + c);
    concat([u.slice(ix![..1]), mid, u.slice(ix![-1..])], 0)
}
fn heat_set(x: &Array) -> Array {
    let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
    x.at(ix![1..-1]).set(inner)
}
fn heat_set2(x: &Array) -> Array {
    let c = x.slice(ix![1..-1, 1..-1]);
    let inner = &c
        + 0.1
            * (x.slice(ix![..-2, 1..-1])
                + x.slice(ix![2.., 1..-1])
                + x.slice(ix![1..-1, ..-2])
                + x.slice(ix![1..-1, 2..])
                - 4.0 * &c);
    x.at(ix![1..-1, 1..-1]).set(inner)
}

pub(crate) fn programs() -> Vec<Program> {
    vec![
        program("roll_1d_loop", LINE, [at([1024], p!["x"])], [p!["x"]], |a| {
            vec![fori_loop(0..10, &a[0], |_, u: Array| roll5(&u))]
        }),
        program("roll_2d_loop", GRID, [at([64, 64], p!["x", "y"])], [p!["x", "y"]], |a| {
            vec![fori_loop(0..10, &a[0], |_, u: Array| &u + 0.1 * lap(&u))]
        }),
        program("heat_concat_loop", LINE, [at([1024], p!["x"])], [p!["x"]], |a| {
            vec![fori_loop(0..10, &a[0], |_, u: Array| heat_cat(&u))]
        }),
        program("heat_set_loop", LINE, [at([1024], p!["x"])], [p!["x"]], |a| {
            vec![fori_loop(0..10, &a[0], |_, u: Array| heat_set(&u))]
        }),
        program("heat_set_grad", LINE, [at([1024], p!["x"])], [p!["x"]], |a| {
            vec![grad(&a[0], |u| fori_loop(0..10, &u, |_, u: Array| heat_set(&u)).square().sum(..))]
        }),
        program("heat_set_2d_loop", GRID, [at([64, 64], p!["x", "y"])], [p!["x", "y"]], |a| {
            vec![fori_loop(0..10, &a[0], |_, u: Array| heat_set2(&u))]
        }),
        program("conv_taps", LINE, [at([256, 16], p!["x"]), at([3, 16, 16], p![])], [p!["x"]], |a| {
            let xp = a[0].pad(0, [(1, 1, 0), (0, 0, 0)]);
            let w = a[1].unstack(0);
            vec![
                xp.slice(ix![..-2]).dot(&w[0])
                    + xp.slice(ix![1..-1]).dot(&w[1])
                    + xp.slice(ix![2..]).dot(&w[2]),
            ]
        }),
        program("uneven_diff", LINE, [at([64, 16], p!["x"])], [p![_, "x"]], |a| {
            let d = a[0].slice(ix![1..]) - a[0].slice(ix![..-1]);
            vec![d.square() + 1.0]
        }),
        program("at_set_updates", LINE, [at([256], p!["x"]), at([64], p!["x"])], [p!["x"]], |a| {
            let x = a[0].at(ix![10..74]).set(&a[1]);
            let x = x.at(ix![100..164]).add(&a[1] * 2.0);
            vec![x.at(ix![..8]).set(0.0) + 1.0]
        }),
        program(
            "cg_step",
            GRID,
            [at([64, 64], p!["x", "y"]), at([64, 64], p!["x", "y"])],
            [p!["x", "y"]],
            |a| {
                let (x, r, _) = fori_loop(
                    0..10,
                    (&a[1].zeros_like(), &a[1], &a[1]),
                    |_, (x, r, p): (Array, Array, Array)| {
                        let ap = 4.1 * &p - (p.roll(1, 0) + p.roll(-1, 0) + p.roll(1, 1) + p.roll(-1, 1));
                        let rr = r.square().sum(..);
                        let al = &rr / (&p * &ap).sum(..);
                        let (x, r) = (x + &al * &p, &r - &al * &ap);
                        let p = &r + r.square().sum(..) / rr * p;
                        (x, r, p)
                    },
                );
                vec![x + r]
            },
        ),
        program("conv2d", GRID, [at([32, 32, 8], p!["x", "y"]), at([9, 8, 16], p![])], [p!["x", "y"]], |a| {
            let xp = a[0].pad(0, [(1, 1, 0), (1, 1, 0), (0, 0, 0)]);
            let mut sum = None;
            for (k, w) in a[1].unstack(0).iter().enumerate() {
                let (i, j) = ((k / 3) as i32, (k % 3) as i32);
                let t = xp.slice(ix![i..i + 32, j..j + 32]).matmul(w);
                sum = Some(match sum {
                    None => t,
                    Some(s) => s + t,
                });
            }
            vec![sum.unwrap()]
        }),
        program("pool_reshape", GRID, [at([64, 64], p!["x", "y"])], [p!["x", "y"]], |a| {
            vec![a[0].reshape([16, 4, 16, 4]).mean([1, 3])]
        }),
    ]
}
