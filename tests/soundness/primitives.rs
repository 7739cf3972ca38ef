//! Tests every primitive on operands with every sharding.

use crate::error_checks::flaw;
use crate::{X, Y, mesh, near, placed_pair, read};
use atmesh::array::Term;
use atmesh::ops::PRIMITIVES;
use atmesh::prelude::*;
use atmesh::types::ArrayType;
use atmesh::{Axes, type_of};

/// Returns the shardings of an operand of this shape.
fn specs(mesh: &Mesh, shape: &[usize], number: bool) -> Vec<Spec> {
    let rank = shape.len();
    let whole = Spec::replicated(rank);
    let mut all = vec![
        whole,
        whole.unreduced(X),
        whole.unreduced([X, Y]),
        whole.reduced(X),
        whole.reduced([X, Y]),
        whole.unreduced(X).reduced(Y),
    ];
    for d in 0..rank {
        let at = |axes: Axes| {
            Spec::from_dims((0..rank).map(|k| if k == d { axes.clone() } else { Axes::none() }).collect())
        };
        all.push(at(X.into()));
        all.push(at(Y.into()).unreduced(X));
        all.push(at(Y.into()).reduced(X));
    }
    all.retain(|s| Sharding::new(mesh, *s, shape).is_ok() && (number || s.unreduced_axes().is_empty()));
    all
}

/// Returns every choice of one entry from each list.
fn choices<T: Clone>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |all, list| {
        let with = |x: &T| all.iter().map(|c| [&c[..], std::slice::from_ref(x)].concat()).collect::<Vec<_>>();
        list.iter().flat_map(with).collect()
    })
}

#[test]
fn primitives_of_values_in_parts() -> Result<()> {
    let mesh = mesh();
    let mut wrong = Vec::new();
    let (mut accepted, mut rejected) = (0, 0);
    let dtypes = [None, Some(I32), Some(I8), Some(Bool), Some(BF16)];
    let entries = PRIMITIVES.iter().filter(|e| !matches!(e.family, "collective" | "random"));
    for (entry, dtype) in entries.flat_map(|e| dtypes.map(|d| (e, d))) {
        let (prim, types) = (entry.example)();
        let of = |ty: &ArrayType| dtype.filter(|_| ty.dtype == F32).unwrap_or(ty.dtype);
        let mut lists = Vec::new();
        for (k, ty) in types.iter().enumerate() {
            let specs = specs(&mesh, &ty.shape, of(ty).is_number());
            let each = specs.iter().map(|s| placed_pair(&mesh, &ty.shape, of(ty), *s, 3 * k));
            lists.push(each.collect::<Result<Vec<_>>>()?);
        }
        for pairs in choices(&lists) {
            let ins: Vec<String> = pairs.iter().map(|x| type_of(&x.0).to_string()).collect();
            if !ins.iter().any(|ty| ty.contains('{')) {
                continue;
            }
            let terms = |whole: bool| -> Vec<Term> {
                pairs.iter().map(|x| Term::from(if whole { &x.1 } else { &x.0 })).collect()
            };
            let results = Array::apply(prim.clone(), &terms(false));
            if let Err(e) = results[0].ty() {
                wrong.extend(flaw(&e));
                rejected += 1;
                continue;
            }
            accepted += 1;
            for (got, want) in results.iter().zip(Array::apply(prim.clone(), &terms(true))) {
                if !near(&read(got)?, &read(&want)?, want.dtype()?) {
                    wrong.push(format!("{} of {ins:?}: {}", prim.key(), type_of(got.clone())));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(accepted > 1000 && rejected > 10_000, "{accepted} accepted, {rejected} rejected");
    Ok(())
}
