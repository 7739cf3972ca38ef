//! Programs of partial values: those with a meaning, and those that must be errors.

use crate::error_checks::flaw;
use crate::{X, Y, mesh, near, placed_pair, read, to};
use atmesh::prelude::*;
use atmesh::{ErrorKind, ScanOptions, scan_with, type_of};

/// The arguments of programs: on a mesh, and once more replicated without a mesh.
#[derive(Clone, Tree)]
struct In {
    /// Unreduced over X.
    u: Array,
    /// Unreduced over X, with other elements.
    v: Array,
    /// Unreduced over X, sharded over Y.
    us: Array,
    /// Unreduced over X and Y.
    uu: Array,
    /// Unreduced over Y.
    w: Array,
    /// Reduced over X.
    r: Array,
    /// Sharded over X.
    s: Array,
    /// Replicated.
    p: Array,
    /// An integer scalar, unreduced over X.
    i: Array,
    /// Integers, unreduced over X.
    n: Array,
    /// A bool, replicated.
    b: Array,
}

type Program = fn(&In) -> Array;

/// Programs that are meaningful for partial values.
const ACCEPTED: &[(&str, Program)] = &[
    ("part as parts", |x| match x.p.sharding() {
        Ok(Some(_)) => {
            x.p.at(ix![0]).out_sharding(p!["X"; U: Y]).get().at(ix![0]).out_sharding(p![; U: X]).get() * &x.r
        }
        _ => x.p.slice(ix![0, 0]) * &x.r,
    }),
    ("sum", |x| &x.u + &x.v),
    ("difference", |x| &x.u - &x.v),
    ("negative", |x| -&x.u),
    ("times reduced", |x| &x.u * &x.r),
    ("summed", |x| x.u.sum(0)),
    ("summed, split", |x| x.us.sum(..)),
    ("summed of two axes", |x| x.uu.sum(1)),
    ("transposed", |x| x.us.t()),
    ("reshaped", |x| x.u.reshape([16])),
    ("part", |x| x.u.slice(ix![1..3, ..;2])),
    ("element", |x| x.u.slice(ix![1, -1])),
    ("padded", |x| x.u.pad(0, [(1, 1, 1), (0, 2, 0)])),
    ("joined", |x| concat([&x.u, &x.v], 0)),
    ("stacked", |x| stack([&x.u, &x.v], 1)),
    ("backwards", |x| x.u.flip(0)),
    ("rolled", |x| x.u.roll(1, 0)),
    ("repeated", |x| x.u.broadcast_to([2, 4, 4])),
    ("tiled", |x| x.u.tile([2, 1])),
    ("lower triangle", |x| x.u.tril(0)),
    ("to f64", |x| x.u.astype(F64)),
    ("part replaced", |x| x.u.at(ix![1..3]).set(x.v.slice(ix![..2]))),
    ("part added to", |x| x.u.at(ix![..;2]).add(x.v.slice(ix![..2]))),
    ("chosen", |x| x.p.gt(0.0).select(&x.u, &x.v)),
    ("split", |x| x.u.split([1, 3], 0).swap_remove(1)),
    ("made whole", |x| to(&x.u, p![]).cos()),
    ("scattered", |x| to(&x.u, p!["X"]).cos()),
    ("scattered otherwise", |x| to(&x.u, p!["Y", "X"]).cos()),
    ("more axes", |x| to(&x.u, p![; U: [X, Y]])),
    ("fewer axes", |x| to(&x.uu, p![; U: Y])),
    ("other axes", |x| to(&x.uu, p!["X"; U: Y])),
    ("reduced", |x| to(&x.u, p![; R: X])),
    ("traded", |x| to(&x.u, p![; U: Y, R: X])),
    ("new parts", |x| to(&x.p, p![; U: X]) + &x.u),
    ("new parts of reduced", |x| to(&x.r, p![; U: X]) + &x.u),
    ("partial sum", |x| match x.s.sharding() {
        Ok(Some(_)) => x.s.sum_to(0, p![; U: X]),
        _ => x.s.sum(0),
    }),
    ("partial product", |x| match x.s.sharding() {
        Ok(Some(_)) => x.s.t().dot_to(&x.s, p![; U: X]),
        _ => x.s.t().dot(&x.s),
    }),
    ("zeros like it", |x| x.u.zeros_like() + &x.u),
    ("reduced, any function", |x| x.r.cos().max(0) * 2.0),
    ("reduced times itself", |x| &x.r * &x.r),
    ("reduced product", |x| x.r.dot(&x.r)),
    ("split as parts", |x| to(&x.s, p![; U: X])),
    ("reduced scattered", |x| to(&x.r, p!["X"]) + &x.s),
    ("branch", |x| cond(&x.b, || x.u.clone(), || -&x.v)),
    ("loop", |x| fori_loop(0..3, &x.u, |_, c| c + &x.v)),
    ("loop that begins with zeros", |x| fori_loop(0..3, x.u.zeros_like(), |_, c| &c + &c + &x.v)),
    ("loop of no step", |x| fori_loop(0..0, &x.u, |_, c| c + &x.v)),
    ("loop over slices", |x| {
        let (sum, all) = scan(x.u.zeros_like().sum(0), &x.v, |c, row| (&c + &row, c - row));
        concat([&all, &sum.reshape([1, 4])], 0)
    }),
    ("while", |x| {
        let start = (Array::from(0), x.u.clone());
        while_loop(start, |(k, _)| k.lt(3), |(k, c)| (k + 1, c + &x.v)).1
    }),
    ("inner jit", |x| jit(|u: &Array, v: &Array| u + v).call((&x.u, &x.v)).unwrap()),
    ("kept", |x| checkpoint(&x.u, |u| &u + &x.v)),
    ("each row", |x| vmap(&x.u, |row| &row + &row.flip(0))),
    ("each row's sum", |x| vmap(&x.u, |row| row.sum(..))),
    ("each row with all", |x| vmap(&x.u, |row| x.v.sum(0) + row)),
    ("each row times reduced", |x| vmap((&x.u, &x.r), |(u, r)| u * r)),
    ("each row chosen", |x| vmap((&x.p, &x.u), |(p, u)| p.gt(0.0).select(&u, u.zeros_like()))),
    ("each row joined", |x| vmap(&x.u, |row| concat([&row, &x.v.sum(0)], 0))),
    ("auto inside", |x| match x.u.sharding() {
        Ok(Some(_)) => auto_axes(&x.u, p!["X"], |u| u.cos()),
        _ => x.u.cos(),
    }),
    ("auto inside, parts outside", |x| match x.u.sharding() {
        Ok(Some(_)) => auto_axes(&x.u, p![; U: X], |u| u.cos()),
        _ => x.u.cos(),
    }),
    ("tangent", |x| jvp((&x.u, &x.r), (&x.v, &x.r), |(u, r)| u * r).1),
    ("summed after padding", |x| x.u.pad(0, [(1, 1, 1), (0, 2, 0)]).sum(0)),
    ("summed after a part", |x| x.u.slice(ix![1.., ..;2]).sum(..)),
    ("summed backwards", |x| x.u.flip(1).sum(1)),
    ("summed after joining", |x| concat([&x.u, &x.v], 1).sum(1)),
    ("summed after choosing", |x| x.p.gt(0.0).select(&x.u, &x.v).sum(0)),
    ("slices of padded", |x| {
        scan(x.u.sum(0).zeros_like(), x.u.pad(0, [(1, 1, 0), (0, 0, 0)]), |c, row| (&c - &row, c + row)).1
    }),
    ("every other part replaced", |x| x.u.at(ix![..;2]).set(x.v.slice(ix![..2]))),
    ("slices the other way round", |x| {
        let back = ScanOptions::default().reversed();
        scan_with(x.u.zeros_like().sum(0), &x.us, |c, row| (&c + row.sum(..), row), back).1
    }),
    ("no derivative", |x| x.u.stop_gradient()),
];

/// Programs that would read partial values instead of their sum.
const REJECTED: &[(&str, Program)] = &[
    ("function", |x| x.u.cos()),
    ("square", |x| x.u.square()),
    ("power", |x| x.u.powi(2)),
    ("absolute value", |x| x.u.abs()),
    ("greatest", |x| x.u.max(0)),
    ("product of elements", |x| x.u.prod(0)),
    ("product of two", |x| &x.u * &x.v),
    ("product with itself", |x| &x.u * &x.u),
    ("product with a whole", |x| &x.u * &x.p),
    ("product with one reduced over another axis", |x| &x.w * &x.r),
    ("product with one that is split", |x| &x.u * &x.s),
    ("plus a whole", |x| &x.u + &x.p),
    ("a whole plus", |x| &x.p + &x.u),
    ("plus reduced", |x| &x.u + &x.r),
    ("plus split", |x| &x.u + &x.s),
    ("plus other parts", |x| &x.u + &x.w),
    ("plus more parts", |x| &x.u + &x.uu),
    ("plus a number", |x| &x.u + 1.0),
    ("minus a number", |x| &x.u - 1.0),
    ("the greater", |x| x.u.maximum(&x.v)),
    ("compared", |x| x.u.gt(&x.v).astype(F32)),
    ("compared with a number", |x| x.u.gt(0.0).astype(F32)),
    ("divided", |x| &x.u / &x.v),
    ("a number divided by it", |x| 1.0 / &x.u),
    ("between", |x| x.u.clamp(-1.0, 1.0)),
    ("to whole numbers", |x| x.u.astype(I32)),
    ("to bool", |x| x.n.astype(Bool)),
    ("to fewer bits", |x| x.n.astype(I8)),
    ("to more bits", |x| x.n.astype(I64)),
    ("to floats", |x| x.n.astype(F32)),
    ("as bits", |x| x.u.bitcast(I32)),
    ("softmax", |x| x.u.softmax(1)),
    ("deviation", |x| x.u.var(1)),
    ("largest position", |x| x.u.argmax(0)),
    ("contracted", |x| x.u.dot(&x.p)),
    ("contracted with reduced", |x| x.u.dot(&x.r)),
    ("contracted with parts", |x| x.u.dot(&x.v)),
    ("padded by something", |x| x.u.pad(5.0, [(1, 1, 0), (0, 0, 0)])),
    ("joined with a whole", |x| concat([&x.u, &x.p], 0)),
    ("joined with a constant", |x| concat([x.u.clone(), Array::ones([1, 4])], 0)),
    ("part replaced by a number", |x| x.u.at(ix![0]).set(1.0)),
    ("part replaced by a whole", |x| x.u.at(ix![..2]).set(x.p.slice(ix![..2]))),
    ("part multiplied", |x| x.u.at(ix![0]).mul(2.0)),
    ("parts into a whole", |x| x.p.at(ix![..2]).set(x.u.slice(ix![..2]))),
    ("at a place in parts", |x| x.p.slice(ix![&x.i])),
    ("parts at a place in parts", |x| x.u.slice(ix![&x.i])),
    ("replaced at a place in parts", |x| x.u.at(ix![&x.i]).set(x.v.slice(ix![0]))),
    ("chosen by parts", |x| x.n.gt(0).select(&x.u, &x.v)),
    ("chosen by cast parts", |x| x.n.astype(Bool).select(&x.u, &x.v)),
    ("chosen with a whole", |x| x.p.gt(0.0).select(&x.u, &x.p)),
    ("chosen with a number", |x| x.p.gt(0.0).select(&x.u, 1.0)),
    ("truths in parts", |x| to(&x.p.gt(0.0), p![; U: X]).select(&x.u, &x.v)),
    ("truths in parts counted", |x| to(&x.p.gt(0.0), p![; U: X]).astype(F32)),
    ("ones like it", |x| x.u.ones_like() + &x.u),
    ("one hot", |x| x.n.one_hot(4)),
    ("repeated as parts", |x| match x.p.sharding() {
        Ok(Some(_)) => x.p.broadcast_in_dim_to([2, 4, 4], [1, 2], p![; U: X]),
        _ => x.p.broadcast_to([2, 4, 4]),
    }),
    ("reshaped as parts", |x| x.p.reshape_to([16], p![; U: X])),
    ("summed as parts", |x| x.p.sum_to(0, p![; U: X])),
    ("summed along another dimension as parts", |x| x.s.sum_to(1, p![; U: X])),
    ("multiplied as parts", |x| x.p.dot_to(&x.p, p![; U: X])),
    ("parts lost", |x| x.u.sum_to(0, p![])),
    ("which branch", |x| switch(&x.i, &[&|| x.p.clone(), &|| x.p.cos()])),
    ("whether", |x| cond(x.i.gt(0), || x.p.clone(), || x.p.cos())),
    ("whether, cast", |x| cond(x.i.astype(Bool), || x.p.clone(), || x.p.cos())),
    ("branches of parts and a whole", |x| cond(&x.b, || x.u.clone(), || x.p.clone())),
    ("branches of parts and a constant", |x| cond(&x.b, || x.u.clone(), || Array::ones([4, 4]))),
    ("branches of a constant and parts", |x| cond(&x.b, || Array::ones([4, 4]), || x.u.clone())),
    ("how often", |x| fori_loop(Array::from(0)..x.i.clone(), &x.p, |_, c| c * 2.0)),
    ("from where", |x| fori_loop(x.i.clone()..Array::from(3), &x.p, |_, c| c * 2.0)),
    ("while parts", |x| while_loop((x.i.clone(), x.p.clone()), |(i, _)| i.gt(0), |(i, c)| (i - 1, c)).1),
    ("carry that becomes parts", |x| fori_loop(0..3, &x.p, |_, c| c + &x.u)),
    ("constant that becomes parts", |x| fori_loop(0..3, Array::zeros([4, 4]), |_, _| x.u.clone())),
    ("carry that grows", |x| fori_loop(0..3, &x.u, |_, c| c.cos())),
    ("each row's function", |x| vmap(&x.u, |row| row.cos())),
    ("each row and a number", |x| vmap(&x.u, |row| row + 1.0)),
    ("each row chosen or a number", |x| vmap((&x.p, &x.u), |(p, u)| p.gt(0.0).select(&u, 1.0))),
    ("each row joined with a constant", |x| vmap(&x.u, |row| concat([row, Array::ones([1])], 0))),
    ("each row beside all", |x| vmap(&x.u, |row| row + x.p.sum(0))),
    ("each row's place", |x| vmap(&x.p, |row| row.slice(ix![&x.i]))),
    ("auto inside, captured", |x| auto_axes(&x.p, p![], |p| p + &x.u)),
    ("random", |x| Key::new(1).normal(x.u.ty().unwrap()) + &x.u),
    ("pull by a number", |x| vjp(&x.r, |r| r.sum(..)).1.call(1.0)),
];

fn inputs(mesh: &Mesh) -> Result<(In, In)> {
    let m = |dtype, spec, seed| placed_pair(mesh, &[4, 4], dtype, spec, seed);
    let (u, v) = (m(F32, p![; U: X], 1)?, m(F32, p![; U: X], 2)?);
    let (us, uu, w) = (m(F32, p![_, Y; U: X], 3)?, m(F32, p![; U: [X, Y]], 4)?, m(F32, p![; U: Y], 5)?);
    let (r, s, p) = (m(F32, p![; R: X], 6)?, m(F32, p![X], 7)?, m(F32, p![], 8)?);
    let i = placed_pair(mesh, &[], I32, p![; U: X], 2)?;
    let n = m(I32, p![; U: X], 9)?;
    let b = Array::from(true);
    let b = (b.put(mesh, p![]), b);
    let part = |k: usize| {
        let pick = |x: &(Array, Array)| if k == 0 { x.0.clone() } else { x.1.clone() };
        In {
            u: pick(&u),
            v: pick(&v),
            us: pick(&us),
            uu: pick(&uu),
            w: pick(&w),
            r: pick(&r),
            s: pick(&s),
            p: pick(&p),
            i: pick(&i),
            n: pick(&n),
            b: pick(&b),
        }
    };
    Ok((part(0), part(1)))
}

#[test]
fn programs_of_values_in_parts() -> Result<()> {
    let mesh = mesh();
    let (x, whole) = inputs(&mesh)?;
    let mut wrong = Vec::new();
    for (name, f) in ACCEPTED {
        let want = read(&f(&whole))?;
        let mut check = |how: &str, got: Result<Array>| match got.and_then(|y| Ok((read(&y)?, y))) {
            Ok((got, y)) if !near(&got, &want, F32) => {
                wrong.push(format!("{name} {how} ({}): {got:?}, not {want:?}", type_of(&y)))
            }
            Ok(_) => {}
            Err(e) => wrong.push(format!("{name} {how}: {e}")),
        };
        check("at once", f(&x).ready());
        for engine in [Lockstep, Threads, EngineKind::Reference] {
            check(&engine.to_string(), jit(|x: &In| f(x)).on(&mesh).engine(engine).call(&x));
        }
    }
    for (name, f) in REJECTED {
        for (how, got) in [("at once", f(&x).ready()), ("traced", jit(|x: &In| f(x)).on(&mesh).call(&x))] {
            match got {
                Ok(y) => wrong.push(format!(
                    "{name} {how} is accepted: {}, {:?}, not {:?}",
                    type_of(&y),
                    read(&y),
                    read(&f(&whole))
                )),
                Err(e) if !matches!(e.kind(), ErrorKind::Sharding | ErrorKind::Varying) => {
                    wrong.push(format!("{name} {how}: {e}"))
                }
                Err(e) => wrong.extend(flaw(&e)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
