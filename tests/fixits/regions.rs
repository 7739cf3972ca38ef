//! Random operations along a dimension, and random programs with derivatives, branches in loops,
//! donated arguments and device code.

use crate::random::{Case, Dice, Said, case, changed, filled, mesh, placed, spec};
use atmesh::nd::ArrayViewD;
use atmesh::prelude::*;
use atmesh::{Axis, jvp, vjp};

/// The number of kinds of programs.
pub(crate) const KINDS: usize = 15;

/// Returns a program of this kind.
pub(crate) fn program(kind: usize, dice: &mut Dice) -> Case {
    let square = |dice: &mut Dice| placed(dice, &[8, 8], true);
    let (x, y) = (square(dice), square(dice));
    let d = dice.below(2) as i32 - dice.below(2) as i32;
    match kind {
        0 => case(&format!("cumsum {d}"), vec![x], move |a, _| a[0].cumsum(d)),
        1 => case(&format!("cummax {d}"), vec![x], move |a, _| a[0].cummax_reverse(d)),
        2 => case(&format!("sort {d}"), vec![x], move |a, _| a[0].sort(d)),
        3 => case(&format!("argsort {d}"), vec![x], move |a, _| a[0].argsort(d)),
        4 => case(&format!("top_k 3 {d}"), vec![x], move |a, _| a[0].top_k(3, d).0),
        5 => case(&format!("median {d}"), vec![x], move |a, _| a[0].median(d)),
        6 => case(&format!("quantile {d}"), vec![x], move |a, _| a[0].quantile(0.25, d)),
        7 => case("grad of a product", vec![x, y], |a, said| {
            grad(&a[0], |x| match said.out {
                Some(out) => (x.dot_to(&a[1], out).reshard(p![_, _])).sum(..),
                None => x.dot(&a[1]).sum(..),
            })
        }),
        8 => case("jvp", vec![x, y], |a, said| jvp(&a[0], &a[1], |x| twice(&x, said)).1),
        9 => case("vjp", vec![x, y], |a, said| vjp(&a[0], |x| twice(&x, said)).1.call(&a[1])),
        10 => case("donated", vec![x, y], |a, _| {
            let f = jit(|x: &Array, y: &Array| x - y).donate(0);
            // the donated argument is a new array, because each run of the program donates one
            f.call((&-&a[0], &a[1])).unwrap_or_else(|e| Array::filled_with(&e))
        }),
        11 => {
            let case = case("cond in a loop", vec![x], |a, said| {
                let end = said.end.clone();
                fori_loop(0..2, &a[0], move |i, x| {
                    let turned = || changed(&x.t(), &end);
                    cond(i.lt(1), || x.clone(), turned)
                })
            });
            Case { body_of: Some("cond"), ..case }
        }
        12 => per_device(dice, "cond in a shard_map", |said, [x, y]| {
            cond(true, || changed(&x, &said.first_end), || changed(&y, &said.end))
        }),
        13 => per_device(dice, "jvp in a shard_map", |said, [x, t]| {
            jvp(changed(&x, &said.point), &t, |x: Array| x * 2.0).1
        }),
        _ => {
            let takes = spec(dice, &[8, 8], false);
            case(&format!("spmd of {takes}"), vec![x], move |a, said| {
                if said.alone {
                    return &a[0] * 2.0;
                }
                let code = |_: &Device, x: ArrayViewD<f32>| Ok(x.mapv(|v| 2.0 * v));
                let made = spmd(&mesh(), takes, takes, code).call(&a[0]);
                made.unwrap_or_else(|e| Array::filled_with(&e))
            })
        }
    }
}

/// Returns twice the array; the number is placed if a help said so.
fn twice(x: &Array, said: &Said) -> Array {
    match said.number {
        Some(to) => x * Array::from(2f32).put(&mesh(), to),
        None => x * 2.0,
    }
}

/// Returns a program that runs `f` on each device, with two values that vary over random axes, and
/// adds the results of all devices.
fn per_device(dice: &mut Dice, name: &str, f: fn(&Said, [Array; 2]) -> Array) -> Case {
    let axes = [(); 2].map(|()| dice.choose(&[&["X"][..], &["Y"], &["X", "Y"], &[]]));
    let x = filled(&[4], dice.below(5));
    case(&format!("{name}, over {axes:?}"), vec![x], move |a, said| {
        let body = |x: &Array| {
            let values = axes.map(|axes| axes.iter().fold(x.clone(), |x, axis| x.pvary(*axis)));
            let result = f(said, values);
            let missing = |axis: &&str| result.ty().is_ok_and(|ty| !ty.varying.contains(Axis::from(*axis)));
            let open = ["X", "Y"].into_iter().filter(missing);
            open.fold(result.clone(), |x, axis| x.pvary(axis)).psum(["X", "Y"])
        };
        if said.alone {
            return f(said, [a[0].clone(), a[0].clone()]) * 8.0;
        }
        shard_map(&mesh(), p![], p![], body).call(&a[0]).unwrap_or_else(|e| Array::filled_with(&e))
    })
}
