//! Random programs on operands with random shardings, of which many are errors.

use crate::random::{Case, Dice, Said, case, changed, filled, mesh, placed, spec};
use crate::regions;
use atmesh::array::{Contraction, DimIndex, Index, IndexUpdate};
use atmesh::einsum_to;
use atmesh::prelude::*;

/// Returns an index into an array with two dimensions of size 8.
fn index(kinds: [usize; 2], at: [i32; 2], arrays: bool) -> Index {
    let pick = |(kind, at): (usize, i32)| match kind {
        0 if arrays => DimIndex::from(&Array::from(at)),
        0 => DimIndex::from(at),
        1 => DimIndex::from(at / 2..8),
        2 => DimIndex::from(0..4),
        3 => DimIndex::range(None, None, Some(2)),
        _ => DimIndex::from(..),
    };
    kinds.into_iter().zip(at).map(pick).collect::<Vec<_>>().into()
}

pub(crate) const KINDS: usize = 45 + regions::KINDS;

/// Returns indices into 8 positions, with one of these shapes.
fn indices(dice: &mut Dice, shapes: &[&[usize]]) -> Array {
    let shape = dice.choose(shapes);
    placed(dice, shape, false).astype(I32)
}

/// Returns the part of an array that an update changes, with the requested sharding of its result.
fn part(x: &Array, index: Index, said: &Said) -> IndexUpdate {
    match said.out {
        Some(out) => x.at(index).out_sharding(out),
        None => x.at(index),
    }
}

/// Returns a program of this kind on operands with random shardings; many are errors.
pub(crate) fn program(kind: usize, dice: &mut Dice) -> Case {
    let square = |dice: &mut Dice| placed(dice, &[8, 8], true);
    let (x, y) = (square(dice), square(dice));
    let d = dice.below(2) as i32;
    let at = [dice.below(8) as i32, dice.below(8) as i32];
    let kinds = [dice.below(5), dice.below(5)];
    let one = |name: &str, x: &Array, f: fn(&Array, i32) -> Array| {
        case(name, vec![x.clone()], move |a, _| f(&a[0], d))
    };
    let two = |name: &str, f: fn(&Array, &Array, i32) -> Array| {
        case(name, vec![x.clone(), y.clone()], move |a, _| f(&a[0], &a[1], d))
    };
    match kind {
        0 => case(&format!("slice {kinds:?} {at:?}"), vec![x], move |a, said| match said.out {
            Some(out) => a[0].at(index(kinds, at, false)).out_sharding(out).get(),
            None => a[0].slice(index(kinds, at, said.arrays)),
        }),
        1 => case(&format!("at.get {kinds:?} {at:?}"), vec![x], move |a, said| match said.out {
            Some(out) => a[0].at(index(kinds, at, false)).out_sharding(out).get(),
            None => a[0].at(index(kinds, at, said.arrays)).get(),
        }),
        2 => case(&format!("at.set {kinds:?} {at:?} of 3"), vec![x], move |a, said| {
            let part = part(&a[0], index(kinds, at, said.arrays), said);
            said.number.map_or_else(
                || part.clone().set(3.0),
                |to| part.clone().set(Array::from(3f32).put(&mesh(), to)),
            )
        }),
        3 => case(&format!("at.add {kinds:?} {at:?} of 3"), vec![x], move |a, said| {
            let part = part(&a[0], index(kinds, at, said.arrays), said);
            said.number.map_or_else(
                || part.clone().add(3.0),
                |to| part.clone().add(Array::from(3f32).put(&mesh(), to)),
            )
        }),
        4 | 5 => {
            let plain = filled(&[8, 8], 0).slice(index(kinds, at, false));
            let value = placed(dice, &plain.shape().unwrap(), kind == 5);
            case(
                &format!("at.{} {kinds:?} {at:?}", if kind == 4 { "set" } else { "mul" }),
                vec![x, value],
                move |a, said| {
                    let part = part(&a[0], index(kinds, at, said.arrays), said);
                    if kind == 4 { part.set(&a[1]) } else { part.mul(&a[1]) }
                },
            )
        }
        6 => {
            let to = dice.choose(&[vec![64], vec![2, 32], vec![4, 2, 8], vec![16, 4], vec![8, 2, 4]]);
            case(&format!("reshape to {to:?}"), vec![x], move |a, said| match said.out {
                Some(out) => a[0].reshape_to(&to[..], out),
                None => a[0].reshape(&to[..]),
            })
        }
        7 => case("ravel", vec![x], |a, said| match said.out {
            Some(out) => a[0].reshape_to([64], out),
            None => a[0].ravel(),
        }),
        8 => {
            let reps = dice.choose(&[vec![2], vec![2, 1], vec![2, 2], vec![2, 1, 2], vec![1, 3]]);
            case(&format!("tile {reps:?}"), vec![x], move |a, _| a[0].tile(&reps))
        }
        9 => one("roll", &x, |x, d| x.roll(3, d)),
        10 => one("flip", &x, |x, d| x.flip(d)),
        11 => one("pad", &x, |x, _| x.pad(0.0, [(1, 2, 0), (0, 0, 1)])),
        12 => one("split", &x, |x, d| x.split([3, 5], d).swap_remove(1)),
        13 => one("unstack", &x, |x, d| x.unstack(d).swap_remove(5)),
        14 => one("softmax", &x, |x, d| x.softmax(d)),
        15 => one("logsumexp", &x, |x, d| x.logsumexp(d)),
        16 => one("argmax", &x, |x, d| x.argmax(d)),
        17 => one("max", &x, |x, d| x.max(d)),
        18 => one("mean and var", &x, |x, d| x.mean(d) + x.var(d)),
        19 => one("sum", &x, |x, d| x.sum(d)),
        20 => one("prod", &x, |x, d| x.prod(d)),
        21 => one("convert", &x, |x, _| x.astype(I32)),
        22 => one("one_hot", &x, |x, _| x.astype(I32).one_hot(4)),
        23 => one("triu", &x, |x, _| x.triu(1)),
        24 => two("add", |x, y, _| x + y),
        25 => case("add turned", vec![x.clone(), x.t()], |a, _| &a[0] + &a[1]),
        26 => two("mul", |x, y, _| x * y),
        27 => two("concat", |x, y, d| concat([x, y], d)),
        28 => two("stack", |x, y, d| stack([x, y], d)),
        29 => {
            let spec = dice.choose(&[
                "ij,jk->ik",
                "ij,jk->ki",
                "ij,ij->i",
                "ij,kj->ikj",
                "ij,jk->",
                "ij,ji->j",
                "ij,kl->ikjl",
            ]);
            case(&format!("einsum {spec}"), vec![x, y], move |a, said| match said.out {
                Some(out) => einsum_to(spec, a, out),
                None => einsum(spec, a),
            })
        }
        30 => case("dot", vec![x, y], |a, said| match said.out {
            Some(out) => a[0].dot_to(&a[1], out),
            None => a[0].dot(&a[1]),
        }),
        31 => {
            let (x, y) = (placed(dice, &[4, 8, 8], true), placed(dice, &[4, 8, 2], true));
            case("matmul", vec![x, y], |a, said| match said.out {
                Some(out) => a[0].matmul_to(&a[1], out),
                None => a[0].matmul(&a[1]),
            })
        }
        32 => case("dot_general", vec![x, y], |a, said| {
            let how = Contraction { contracting: vec![(1, 1)], batch: vec![(0, 0)] };
            match said.out {
                Some(out) => a[0].dot_general_to(&a[1], &how, None, out),
                None => a[0].dot_general(&a[1], &how, None),
            }
        }),
        33 => {
            let to = spec(dice, &[8, 8], false);
            case(&format!("constrain {to}"), vec![x], move |a, said| match said.alone {
                true => a[0].clone(),
                false => a[0].constrain(to),
            })
        }
        34 => {
            let to = spec(dice, &[4, 8, 8], false);
            case(&format!("broadcast as {to}"), vec![x], move |a, said| match said.alone {
                true => a[0].broadcast_to([4, 8, 8]),
                false => a[0].broadcast_as([4, 8, 8], to),
            })
        }
        35 => {
            let z = placed(dice, &[8], true);
            case("select with a row", vec![x, y, z], |a, _| a[0].gt(2.0).select(&a[1], &a[2]))
        }
        36 => {
            let body: fn(&Array) -> Array = dice.choose(&[
                |x| x.t(),
                |x| x.astype(F64),
                |x| x + x.max(0).expand_dims(0),
                |x| x.dot(x.t()) * 0.01,
            ]);
            let body_of = Some("fori_loop");
            let case = case("fori_loop", vec![x], move |a, said| {
                let end = said.end.clone();
                fori_loop(0..2, &a[0], move |_, x| changed(&body(&x), &end))
            });
            Case { body_of, ..case }
        }
        37 => {
            let case = case("scan", vec![x, y], |a, said| {
                let end = said.end.clone();
                let body = |c: Array, x: Array| (changed(&(&c + x.expand_dims(0)), &end), x);
                scan(&a[0], &a[1], body).0
            });
            Case { body_of: Some("scan"), ..case }
        }
        38 => case("cond", vec![x, y], |a, said| {
            let end = said.end.clone();
            let or = || changed(&a[1], &end);
            cond(Array::from(false), || a[0].clone(), or)
        }),
        39 => case("switch", vec![x, y], |a, said| {
            let end = said.end.clone();
            let or = || changed(&a[1], &end);
            switch(Array::from(1), &[&|| a[0].clone(), &or])
        }),
        40 => {
            let f: fn(&Array, &Array) -> Array =
                dice.choose(&[|x, y| x + y, |x, y| x.dot(y), |x, y| x.at(ix![1]).set(y.max(0))]);
            let case = case("vmap", vec![x, y], move |a, _| vmap((&a[0], &a[1]), |(x, y)| f(&x, &y)));
            Case { body_of: Some("vmap"), ..case }
        }
        41 => {
            let ids = indices(dice, &[&[4], &[2, 4]]);
            case("take", vec![x, ids], move |a, said| match said.out {
                Some(out) => a[0].take_to(&a[1], d, out),
                None => a[0].take(&a[1], d),
            })
        }
        42 => {
            let ids = indices(dice, &[&[4], &[4, 2]]);
            case("slice by an array", vec![x, ids], |a, said| match said.out {
                Some(out) => a[0].at(ix![&a[1]]).out_sharding(out).get(),
                None => a[0].slice(ix![&a[1]]),
            })
        }
        43 => {
            let ids = indices(dice, &[&[8, 8]]);
            case("take_along_axis", vec![x, ids], move |a, said| match said.out {
                Some(out) => a[0].take_along_axis_to(&a[1], d, out),
                None => a[0].take_along_axis(&a[1], d),
            })
        }
        45.. => regions::program(kind - 45, dice),
        _ => {
            let takes = spec(dice, &[8, 8], false);
            let case = case(&format!("shard_map of {takes}"), vec![x], move |a, said| {
                let body = |x: &Array| x * 2.0;
                let placed = a[0].ty().unwrap().spec;
                let done = if said.alone {
                    Ok(body(&a[0]))
                } else if said.inferred {
                    shard_map(&mesh(), Inferred, placed, body).call(&a[0])
                } else {
                    shard_map(&mesh(), takes, takes, body).call(&a[0])
                };
                done.unwrap_or_else(|e| Array::filled_with(&e))
            });
            Case { body_of: Some("shard_map"), ..case }
        }
    }
}
