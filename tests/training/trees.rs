//! Functions of trees, and generic structs that are trees.

use crate::error_checks::Unquoted as _;
use atmesh::ErrorKind;
use atmesh::prelude::*;
use std::collections::BTreeMap;

/// The text of the error that the first array of a tree carries.
fn error_of(t: &impl Tree) -> String {
    tree::leaves(t)[0].ty().unwrap_err().unquoted()
}

/// A state of parameters of any type, which derives `Tree` without attributes.
#[derive(Clone, Debug, Tree)]
struct Generic<P> {
    count: Array,
    slots: BTreeMap<String, P>,
    last: Option<P>,
}

fn descend<P: tree::Params>(params: &P, xs: &Array, loss: impl Fn(P, &Array) -> Array) -> Generic<P> {
    let start = Generic { count: Array::from(0), slots: BTreeMap::new(), last: None };
    let zeros = tree::zeros_like(params);
    let start =
        Generic { slots: BTreeMap::from([("sum".into(), zeros)]), last: Some(params.clone()), ..start };
    let step = |s: Generic<P>, x: Array| {
        let p = s.last.clone().expect("set at the start");
        let g = grad(&p, |p| loss(p, &x));
        let sum = tree::map2(&s.slots["sum"], &g, |a, b| a + b);
        let next = tree::map2(&p, &g, |p, g| p - 0.5 * g);
        (Generic { count: s.count + 1, slots: BTreeMap::from([("sum".into(), sum)]), last: Some(next) }, ())
    };
    scan(&start, xs, step).0
}

#[test]
fn generic_states_are_trees() -> Result<()> {
    let p = (Array::from(1.0f32), vec![Array::from(2.0f32)]);
    let end = descend(&p, &Array::from([1.0f32, 2.0]), |(a, b), x| &a * x + b[0].square() * 0.5);
    assert_eq!(tree::paths(&end), ["count", "slots.sum.0", "slots.sum.1.0", "last.0", "last.1.0"]);
    assert_eq!(end.count.item::<i32>()?, 2);
    assert_eq!(end.slots["sum"].0.item::<f32>()?, 3.0);
    let jitted = jit(|s: &Generic<(Array, Vec<Array>)>| tree::norm(s)).call(&end)?;
    assert!(jitted.item::<f32>()? > 0.0);
    Ok(())
}

#[test]
fn functions_of_trees() -> Result<()> {
    let t = (Array::from([3.0f64, 0.0]), vec![Array::from(4.0f64)]);
    assert_eq!(tree::norm(&t).item::<f64>()?, 5.0);
    assert_eq!(tree::vdot(&t, &t).item::<f64>()?, 25.0);
    // a number at the start of a fold takes the type that the function needs
    let sum = |t: &(Array, Vec<Array>)| tree::fold(t, 0.0, |s, a| s + a.sum(..));
    assert_eq!(sum(&t).item::<f64>()?, 7.0);
    assert_eq!(jit(|t: &(Array, Vec<Array>)| sum(t)).call(&t)?.item::<f64>()?, 7.0);
    let half = tree::cast(&t, BF16);
    assert_eq!(type_of(&half), "(bfloat16[2], (bfloat16[]))");
    assert_eq!(type_of(sum(&half)), "bfloat16[]");
    let wide = |t: &(Array, Vec<Array>)| tree::fold(t, 0.0, |s, a| s + a.astype(F32).sum(..));
    assert_eq!(jit(|t: &(Array, Vec<Array>)| wide(t)).call(&half)?.item::<f32>()?, 7.0);
    assert!(tree::fold(&t, true, |all, a| all & a.is_finite().all(..)).item::<bool>()?);
    let wrong = tree::fold(&t, 0.0, |s, a| s + a.astype(I32).sum(..));
    assert_eq!(wrong.ty().unwrap_err().kind(), ErrorKind::Dtype);

    let [a, b, c] = tree::map_all([&t, &t, &t], |[x, y, z]| [x + y, x * z, z.clone()]);
    assert_eq!(
        (a.0.to_vec::<f64>()?, b.1[0].item::<f64>()?, c.1[0].item::<f64>()?),
        (vec![6.0, 0.0], 16.0, 4.0)
    );
    let longer = (t.0.clone(), vec![t.0.clone(), t.0.clone()]);
    let [wrong] = tree::map_all([&t, &longer], |[x, _]| [x.clone()]);
    assert!(error_of(&wrong).contains("`1` has 1 entries in one and 2 in the other"), "{}", error_of(&wrong));
    let chosen = tree::select(&Array::from(false), &t, &tree::zeros_like(&t));
    assert_eq!(tree::norm(&chosen).item::<f64>()?, 0.0);
    assert!(error_of(&tree::cast(&t, I32)).contains("int32 is not a float"));
    Ok(())
}
