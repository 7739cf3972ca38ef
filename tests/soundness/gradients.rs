//! Gradients with respect to values of all types equal those of the same loss of unsharded values,
//! and have the types of cotangents.

use crate::error_checks::flaw;
use crate::{X, Y, mesh, near, placed_pair, read, to};
use atmesh::prelude::*;
use atmesh::program::typing::cotangent_type;
use atmesh::{Axes, ConvOptions, ErrorKind, Padding, WindowOptions, type_of};

/// The arguments of a loss.
#[derive(Clone, Tree)]
struct In {
    /// The value with respect to which it is differentiated.
    u: Array,
    /// A value of the same type.
    v: Array,
    /// A value that can be combined with it: of the same type, but reduced where that one is
    /// unreduced.
    p: Array,
    /// A second value of that type, with other elements.
    s: Array,
    /// An index.
    k: Array,
    /// A bool.
    b: Array,
}

type Loss = fn(&In) -> Array;

/// Losses whose gradients with respect to values of all types equal those of the same loss of
/// unsharded values.
const LOSSES: &[(&str, Loss)] = &[
    ("square", |x| x.u.square().sum(..)),
    ("slope of a sum", |x| to(&(&x.u + &x.v), p![]).cos().sum(..)),
    ("product with what is summed", |x| (&x.u * &x.p).sum(..)),
    ("contracted", |x| (x.s.dot(&x.u) * &x.p).sum(..)),
    ("contracted from the left", |x| (x.u.dot(&x.s) * &x.p).sum(..)),
    ("contracted split", |x| summed(&x.s, &x.u).cos().sum(..)),
    ("transposed part", |x| (x.u.t().slice(ix![1..3]) * x.p.slice(ix![..2])).sum(..)),
    ("padded", |x| (x.u.pad(0, [(1, 1, 1), (0, 0, 0)]).slice(ix![1..5]) * &x.p).sum(..)),
    ("padded by something", |x| x.u.pad(0.5, [(1, 0, 0), (0, 0, 0)]).square().sum(..)),
    ("joined", |x| (concat([&x.u, &x.u], 0).reshape([2, 4, 4]).sum(0) * &x.p).sum(..)),
    ("stacked", |x| stack([&x.u, &x.u], 1).square().sum(..)),
    ("rolled", |x| (x.u.roll(1, 1) * &x.p).sum(..)),
    ("backwards", |x| (x.u.flip(0) * &x.p).sum(..)),
    ("repeated", |x| (x.u.broadcast_to([3, 4, 4]).sum(0) * &x.p).sum(..)),
    ("reshaped", |x| (x.u.reshape([2, 8]).sum(0) * x.p.reshape([2, 8]).sum(0)).sum(..)),
    ("rounded", |x| (x.u.astype(BF16).astype(F32) * &x.p).sum(..)),
    ("chosen", |x| x.p.gt(0.0).select(&x.u, x.u.zeros_like()).square().sum(..)),
    ("chosen by itself", |x| x.u.gt(0.0).select(&x.u, 0.0).sum(..)),
    ("greatest", |x| x.u.max(1).sum(..)),
    ("mean and deviation", |x| (x.u.mean(0) * x.u.var(0)).sum(..)),
    ("softmax", |x| (x.u.softmax(1) * &x.p).sum(..)),
    ("divided", |x| (&x.u / (x.u.square() + 1.0)).sum(..)),
    ("minus", |x| (&x.u - &x.u * 0.5).square().sum(..)),
    ("part replaced", |x| (x.u.at(ix![1..3]).set(0.0) * &x.p).sum(..)),
    ("at a place", |x| x.u.slice(ix![&x.k]).square().sum(..)),
    ("made whole", |x| to(&x.u, p![]).cos().sum(..)),
    ("made split", |x| to(&x.u, p![X]).cos().sum(..)),
    ("made split both ways", |x| to(&x.u, p![Y, X]).cos().sum(..)),
    ("made reduced", |x| to(&x.u, p![; R: X]).cos().sum(..)),
    ("made reduced of both", |x| to(&x.u, p![; R: [X, Y]]).square().sum(..)),
    ("made split and reduced", |x| to(&x.u, p![X; R: Y]).cos().sum(..)),
    ("made parts", |x| to(&to(&x.u, p![; U: X]), p![]).cos().sum(..)),
    ("made parts of both", |x| to(&to(&x.u, p![; U: [X, Y]]), p![Y]).cos().sum(..)),
    ("partial sum", |x| parts(&to(&x.u, p![X])).square().sum(..)),
    ("loop", |x| fori_loop(0..3, &x.u, |_, c| c.sin() + &x.u).sum(..)),
    ("loop that reads it", |x| fori_loop(0..3, &x.p, |_, c| c.sin().dot(&x.u)).sum(..)),
    ("loop over slices", |x| {
        scan(x.u.sum(0), &x.u, |c, row| ((&c * &row).sin(), c - row)).1.square().sum(..)
    }),
    ("loop over slices that reads it", |x| {
        scan(x.p.sum(0), &x.p, |c, row| ((&c * &row).dot(&x.u), row)).0.sum(..)
    }),
    ("branch", |x| cond(&x.b, || x.u.sin(), || x.u.cos()).sum(..)),
    ("kept", |x| checkpoint(&x.u, |u| u.sin().exp()).sum(..)),
    ("each row", |x| vmap(&x.u, |row| (&row * row.sum(..)).sum(..)).sum(..)),
    ("each row with all", |x| vmap(&x.p, |row| x.u.dot(&row)).square().sum(..)),
    ("each row's slope", |x| vmap(&x.p, |row| grad(&x.u, |u| u.dot(&row).square().sum(..))).sum(..)),
    ("slope of the slope", |x| grad(&x.u, |u| (&u * &u * u).sum(..)).square().sum(..)),
    ("sums of windows", |x| (x.u.window_sum_with([3, 1], wide()) * &x.p).sum(..)),
    ("sums of windows apart", |x| {
        (x.u.window_sum_with([3, 1], wide().strides([2, 1])) * x.p.slice(ix![..2])).sum(..)
    }),
    ("greatest of windows", |x| x.u.window_max_with([3, 1], wide().strides([2, 1])).square().sum(..)),
    ("means of windows", |x| x.u.avg_pool_with([3, 1], wide().strides([1, 1])).square().sum(..)),
    ("convolved", |x| convolved(&x.u, &Array::full([1, 1, 3, 3], 0.25)).square().sum(..)),
    ("convolved by it", |x| convolved(&x.p, &x.u.expand_dims([0, 1])).square().sum(..)),
    ("not at all", |x| x.p.sum(..)),
];

/// Returns the sum over rows, unreduced if these are sharded.
fn parts(x: &Array) -> Array {
    match x.sharding() {
        Ok(Some(_)) => to(&x.sum_to(0, p![; U: X]), p![]),
        _ => x.sum(0),
    }
}

/// Returns windows of three rows with padding of one.
fn wide() -> WindowOptions {
    WindowOptions::default().padding([(1, 1), (0, 0)])
}

/// Computes a convolution with unchanged sizes.
fn convolved(x: &Array, w: &Array) -> Array {
    x.expand_dims([0, 1]).conv_with(w, ConvOptions::default().padding(Padding::Same))
}

/// Computes a product with a sum over rows, however they are sharded.
fn summed(a: &Array, b: &Array) -> Array {
    match a.sharding() {
        Ok(Some(_)) => a.t().dot_to(b, p![]),
        _ => a.t().dot(b),
    }
}

#[test]
fn gradients_by_values_of_all_types() -> Result<()> {
    let mesh = mesh();
    let (mut wrong, mut accepted) = (Vec::new(), Vec::new());
    let specs = [
        p![],
        p![X],
        p![_, Y],
        p![X, Y],
        p![; R: X],
        p![; R: [X, Y]],
        p![Y; R: X],
        p![_, Y; R: X],
        p![; U: X],
        p![Y; U: X],
        p![; U: Y, R: X],
    ];
    for spec in specs {
        let u = spec.unreduced_axes();
        let beside = if u.is_empty() { spec } else { spec.unreduced(Axes::none()).reduced(u) };
        let m = |spec, seed| placed_pair(&mesh, &[4, 4], F32, spec, seed);
        let values = [m(spec, 1)?, m(spec, 2)?, m(beside, 3)?, m(beside, 4)?];
        let [x, whole] = [0, 1].map(|k| {
            let [u, v, p, s] = values.each_ref().map(|x| if k == 0 { x.0.clone() } else { x.1.clone() });
            In { u, v, p, s, k: Array::from(2), b: Array::from(true) }
        });
        let ct = cotangent_type(&x.u.ty()?).to_string();
        let mut good = 0;
        for (name, f) in LOSSES {
            let slope = |x: &In| grad(&x.u, |u| f(&In { u, ..x.clone() }));
            let want = read(&slope(&whole))?;
            match jit(slope).on(&mesh).call(&x).and_then(|g| Ok((read(&g)?, g))) {
                Ok((got, g)) if type_of(&g).to_string() != ct || !near(&got, &want, BF16) => {
                    wrong.push(format!("{name} by {}: {} {got:?}, not {want:?}", type_of(&x.u), type_of(&g)));
                }
                Ok(_) => good += 1,
                // Losses that the types reject are skipped here.
                Err(e) if e.kind() == ErrorKind::Sharding => wrong.extend(flaw(&e)),
                Err(e) => wrong.push(format!("{name} by {}: {e}", type_of(&x.u))),
            }
        }
        accepted.push(good);
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(accepted.iter().all(|n| *n >= 5), "{accepted:?} losses were differentiated");
    Ok(())
}
