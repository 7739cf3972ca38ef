//! Functions with derivative rules of their own, together with every other transformation.

mod refusals;

use atmesh::prelude::*;
use atmesh::{
    CheckpointPolicy, WhileOptions, checkpoint_with, custom_vjp_with, hvp, jacobian, linearize, vmap_with,
    while_loop_with,
};

/// x² with the derivative 3x instead of 2x, so that a test sees which one is used.
fn tripled(x: &Array) -> Array {
    custom_vjp(x, |x| (x.square(), x), |x, ct| ct * x * 3.0)
}

/// x² with the derivative 3x, by a rule for tangents.
fn tripled_forward(x: &Array) -> Array {
    custom_jvp(x, |x| x.square(), |x, dx| (x.square(), dx * &x * 3.0))
}

/// x² with the derivative 3x, by a rule with a loop over the tangent.
fn tripled_in_a_loop(x: &Array) -> Array {
    let rule = |x: Array, dx: Array| {
        let tangent = fori_loop(0..3, dx.zeros_like(), |_, sum| sum + &dx * &x);
        (x.square(), tangent)
    };
    custom_jvp(x, |x| x.square(), rule)
}

/// A function of one array, with a name.
type Named = (&'static str, fn(&Array) -> Array);

/// The forms of the rule.
const RULES: [Named; 3] =
    [("vjp", tripled), ("jvp", tripled_forward), ("jvp with a loop", tripled_in_a_loop)];

fn points() -> Array {
    Array::from([1.0, -2.0, 0.5, 3.0])
}

fn three_x(x: &Array) -> Array {
    x * 3.0
}

fn assert_close(got: &Array, want: &Array, what: &str) {
    assert!(got.allclose_with(want, 1e-12, 1e-12).unwrap(), "{what}: {got} instead of {want}");
}

#[test]
fn a_rule_replaces_the_derivative_but_not_the_result() {
    let x = points();
    for (name, f) in RULES {
        assert_close(&f(&x), &x.square(), name);
        assert_close(&grad(&x, |x| f(&x).sum(..)), &three_x(&x), name);
        let ((loss, y), g) = value_and_grad(&x, |x| (f(&x).sum(..), f(&x)));
        assert_close(&loss, &x.square().sum(..), name);
        assert_close(&y, &x.square(), name);
        assert_close(&g, &three_x(&x), name);
        let (y, dy) = jvp(&x, x.ones_like(), |x| f(&x));
        assert_close(&y, &x.square(), name);
        assert_close(&dy, &three_x(&x), name);
        let (y, push) = linearize(&x, |x| f(&x));
        assert_close(&y, &x.square(), name);
        assert_close(&push.call(&x), &(x.square() * 3.0), name);
        assert_close(&push.call(x.zeros_like()), &x.zeros_like(), name);
    }
}

#[test]
fn rules_hold_in_jit_and_vmap_and_twice() {
    let x = points();
    let rows = stack([x.clone(), &x * 2.0, &x + 1.0], 0);
    for (name, f) in RULES {
        let compiled = jit(|x: &Array| grad(x, |x| f(&x).sum(..)));
        assert_close(&compiled.call(&x).unwrap(), &three_x(&x), name);
        let each = vmap(&rows, |x| grad(&x, |x| f(&x).sum(..)));
        assert_close(&each, &three_x(&rows), name);
        let outside = grad(&rows, |rows| vmap(&rows, |x| f(&x)).sum(..));
        assert_close(&outside, &three_x(&rows), name);
        let tangents = jvp(&rows, rows.ones_like(), |rows| vmap(&rows, |x| f(&x))).1;
        assert_close(&tangents, &three_x(&rows), name);
        // the second derivative is that of the rule: 3
        let second = grad(&x, |x| grad(&x, |x| f(&x).sum(..)).sum(..));
        assert_close(&second, &(x.ones_like() * 3.0), name);
        let identity = Array::eye(F64.array_type([4, 4]), 0);
        assert_close(&hessian(&x, |x| f(&x).sum(..)), &(identity * 3.0), name);
        // d(x²·x) is 3x·x + x²
        let cubed = grad(&x, |x| (f(&x) * &x).sum(..));
        assert_close(&cubed, &(x.square() * 4.0), name);
    }
}

#[test]
fn rules_hold_in_loops_branches_and_checkpoints() {
    let x = points();
    for (name, f) in RULES {
        // y ← y²/4 twice: the rule's derivative is (3y/4)(3x/4)
        let y = x.square() / 4.0;
        let want = y * 0.75 * &x * 0.75;
        let scanned = grad(&x, |x| scan(&x, Array::zeros([2]), |x, _: Array| (f(&x) / 4.0, ())).0.sum(..));
        assert_close(&scanned, &want, name);
        let looped = grad(&x, |x| fori_loop(0..2, &x, |_, x| f(&x) / 4.0).sum(..));
        assert_close(&looped, &want, name);
        for policy in [CheckpointPolicy::SaveNothing, CheckpointPolicy::SaveDots] {
            let layer = |x: Array| f(&(f(&x) / 4.0)) / 4.0;
            let kept = grad(&x, |x| checkpoint_with(&x, policy.clone(), layer).sum(..));
            assert_close(&kept, &want, name);
        }
        let chosen = grad(&x, |x| cond(x.sum(..).gt(0.0), || f(&x), || x.clone()).sum(..));
        assert_close(&chosen, &three_x(&x), name);
        let twice =
            |x: Array| while_loop((x, Array::from(0)), |(_, n)| n.lt(2), |(x, n)| (f(&x) / 4.0, n + 1)).0;
        assert_close(&jvp(&x, x.ones_like(), twice).1, &want, name);
    }
}

#[test]
fn trees_of_arguments_results_and_residuals() {
    let (x, w) = (points(), Array::from([2.0, 0.5, -1.0, 4.0]));
    let f = |x: &Array, w: &Array, k: &Array| {
        custom_vjp(
            (x, w, k),
            |(x, w, k)| ((&x * &w, vec![x.sum(..)], k.clone()), (x, vec![w])),
            |(x, w), (ct, sum, _)| {
                let ones = &sum[0] * x.ones_like();
                (&ct * &w[0] + ones, ct * x * 10.0, Array::from(0))
            },
        )
    };
    let loss = |x: Array, w: Array| {
        let (y, sum, k) = f(&x, &w, &Array::from(7));
        (y.sum(..) + &sum[0] * 100.0, k)
    };
    let ((_, k), (gx, gw)) = value_and_grad((&x, &w), |(x, w)| loss(x, w));
    assert_eq!(k.item::<i32>().unwrap(), 7);
    assert_close(&gx, &(&w + 100.0), "x");
    assert_close(&gw, &(&x * 10.0), "w");
    // by one argument only
    assert_close(&grad(&w, |w| loss(x.clone(), w).0), &(&x * 10.0), "w alone");
    // an argument that all examples share: its cotangent is the sum over them
    let rows = stack([x.clone(), &x * 2.0], 0);
    let shared = grad(&w, |w| {
        vmap(&rows, |x| custom_vjp((&x, &w), |(x, w)| (&x * &w, (x, w)), |(x, w), ct| (&ct * w, ct * x)))
            .sum(..)
    });
    assert_close(&shared, &(&x * 3.0), "shared");
}

#[test]
fn a_rule_may_compute_the_result_in_another_way() {
    let f = |x: &Array| custom_vjp_with(x, |x| x.sin(), |x| (x.sin() + 100.0, x.cos()), |cos, ct| ct * cos);
    let x = points();
    assert_close(&f(&x), &x.sin(), "without a derivative");
    let ((y, _), g) = value_and_grad(&x, |x| (f(&x).sum(..), ()));
    assert_close(&y, &(x.sin() + 100.0).sum(..), "with a derivative");
    assert_close(&g, &x.cos(), "the derivative");
}

/// Compares the gradient of a rule that says what is true with finite differences.
#[test]
fn true_rules_agree_with_differences() {
    let softplus =
        |x: &Array| custom_vjp(x, |x| (x.exp().log1p(), x), |x, ct| ct * (1.0 - 1.0 / (1.0 + x.exp())));
    let norm = |x: &Array| {
        let f = |x: Array| x.square().sum(..).sqrt();
        custom_jvp(x, f, |x, dx| {
            let y = x.square().sum(..).sqrt();
            let dy = (x * dx).sum(..) / &y;
            (y, dy)
        })
    };
    let loss = |x: &Array| (softplus(x) * norm(&(x * 0.5))).sum(..) + norm(&softplus(x));
    let x = points();
    let gradient = grad(&x, |x| loss(&x)).to_vec::<f64>().unwrap();
    let second = hvp(&x, x.ones_like(), |x| loss(&x)).to_vec::<f64>().unwrap();
    for k in 0..4 {
        let mut step = [0.0; 4];
        step[k] = 1e-5;
        let step = Array::from(step);
        let at = |x: Array| loss(&x).item::<f64>().unwrap();
        let slope = (at(&x + &step) - at(&x - &step)) / 2e-5;
        assert!((slope - gradient[k]).abs() < 1e-8, "{slope} {}", gradient[k]);
        let along = |x: Array| grad(&x, |x| loss(&x)).sum(..).item::<f64>().unwrap();
        let curve = (along(&x + &step) - along(&x - &step)) / 2e-5;
        assert!((curve - second[k]).abs() < 1e-7, "{curve} {}", second[k]);
    }
}

#[test]
fn sharded_rules_compute_what_unsharded_ones_do() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let auto = Mesh::with_types([("X", 2, AxisType::Auto), ("Y", 2, AxisType::Auto)]).unwrap();
    let x = Array::from([[1.0, -2.0, 0.5, 3.0], [0.1, 0.2, 0.3, 0.4]]);
    for (name, f) in RULES {
        let train = jit(|x: &Array| (grad(x, |x| f(&x).sin().sum(..)), hvp(x, x, |x| f(&x).sin().sum(..))));
        let (g, h) = train.call(&x).unwrap();
        for mesh in [&mesh, &auto] {
            for spec in [p!["X", "Y"], p![_, ("Y", "X")], p![]] {
                let placed = x.put(mesh, spec);
                let (sharded_g, sharded_h) = train.call(&placed).unwrap();
                assert_close(&sharded_g, &g, name);
                assert_close(&sharded_h, &h, name);
                assert_eq!(sharded_g.ty().unwrap().spec, placed.ty().unwrap().spec, "{name}");
            }
        }
    }
}

#[test]
fn rules_hold_in_shard_map() {
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let (x, w) = (points().put(&mesh, p!["X"]), Array::from(2.0).put(&mesh, p![]));
    // each device scales its block by a weight that all devices share
    let scale = |x: &Array, w: &Array| {
        custom_vjp(
            (x, w),
            |(x, w)| (&x * &w, (x, w)),
            |(x, w), ct| (&ct * w, (ct * x).sum(..).psum("X") * 10.0),
        )
    };
    let body = |x: &Array, w: &Array| scale(x, w);
    let mapped = atmesh::shard_map(&mesh, (p!["X"], p![]), p!["X"], body);
    let (gx, gw) = grad((&x, &w), |(x, w)| mapped.call((&x, &w)).unwrap().sum(..));
    assert_close(&gx, &(points().ones_like() * 2.0), "x");
    assert_close(&gw, &Array::from(25.0), "w");
    for (name, f) in RULES {
        let mapped = atmesh::shard_map(&mesh, p!["X"], p!["X"], |x: &Array| f(x));
        let g = grad(&x, |x| mapped.call(&x).unwrap().sum(..));
        assert_close(&g, &three_x(&points()), name);
        // in a branch that only some devices take
        let chosen = |x: &Array| cond(x.sum(..).gt(0.6), || f(x), || x.clone());
        let mapped = atmesh::shard_map(&mesh, p!["X"], p!["X"], chosen);
        let g = grad(&x, |x| mapped.call(&x).unwrap().sum(..));
        assert_close(&g, &Array::from([3.0, 1.0, 1.0, 9.0]), name);
    }
}

/// In a branch that devices choose for themselves, all values vary: so does a shared argument, and
/// its cotangent is summed outside of the branch.
#[test]
fn rules_hold_where_devices_choose() {
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let (x, w) = (points().put(&mesh, p!["X"]), Array::from(2.0).put(&mesh, p![]));
    let by_cotangents = |x: &Array, w: &Array| {
        custom_vjp((x, w), |(x, w)| (&x * &w, (x, w)), |(x, w), ct| (&ct * w, (ct * x).sum(..) * 10.0))
    };
    let by_tangents = |x: &Array, w: &Array| {
        let rule = |(x, w): (Array, Array), (dx, dw): (Array, Array)| (&x * &w, dx * w + dw * x * 10.0);
        custom_jvp((x, w), |(x, w)| x * w, rule)
    };
    type Rule<'a> = &'a dyn Fn(&Array, &Array) -> Array;
    let rules: [Rule<'_>; 2] = [&by_cotangents, &by_tangents];
    for f in rules {
        let chosen = |x: &Array, w: &Array| cond(x.sum(..).gt(0.6), || f(x, w), || x.clone());
        let mapped = atmesh::shard_map(&mesh, (p!["X"], p![]), p!["X"], chosen);
        let (gx, gw) = grad((&x, &w), |(x, w)| mapped.call((&x, &w)).map(|y| y.sum(..)));
        assert_close(&gx, &Array::from([2.0, 1.0, 1.0, 2.0]), "x");
        assert_close(&gw, &Array::from(40.0), "w");
        let (_, tangent) = jvp((&x, &w), (&x, &w), |(x, w)| mapped.call((&x, &w)));
        assert_close(&tangent, &Array::from([22.0, -2.0, 0.5, 66.0]), "tangent");
    }
}

#[test]
fn examples_may_be_sharded() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let (x, w) = (points(), Array::from([2.0, 0.5, -1.0, 4.0]));
    let rows = stack([x.clone(), &x * 2.0], 0);
    let f =
        |x: &Array, w: &Array| custom_vjp((x, w), |(x, w)| (&x * &w, (x, w)), |(x, w), ct| (&ct * w, ct * x));
    let train = jit(|rows: &Array, w: &Array| grad(w, |w| vmap(rows, |x| f(&x, &w)).sum(..)));
    let whole = train.call((&rows, &w)).unwrap();
    let sharded = train.call((rows.put(&mesh, p!["X"]), w.put(&mesh, p![]))).unwrap();
    assert_close(&sharded, &whole, "the sum over examples");
}

#[test]
fn programs_show_the_rule_and_run_the_function() {
    let program = jit(|x: &Array| tripled(x)).trace(points()).unwrap().program().to_string();
    assert!(program.contains("custom_vjp"), "{program}");
    // the rule multiplies by 3; the placed program does not have it any more
    assert!(program.contains("3"), "{program}");
    let lowered = jit(|x: &Array| tripled(x)).lower(points()).unwrap();
    assert!(lowered.collectives().is_empty());
}

#[test]
fn jacobians_of_trees() {
    let (x, a) = (points(), Array::from(2.0));
    let f = |(x, a): (Array, Array)| x.sin() * a;
    let (by_x, by_a) = jacobian((&x, &a), f);
    let (forward_x, forward_a) = jacfwd((&x, &a), f);
    assert_close(&by_x, &forward_x, "x");
    assert_close(&by_a, &forward_a, "a");
    assert_close(&by_a, &x.sin(), "a");
    assert_eq!(by_x.shape().unwrap(), [4, 4]);
    let h = hessian(&x, |x| (x.sin() * &x).sum(..));
    let v = Array::from([1.0, 0.5, -1.0, 2.0]);
    assert_close(&hvp(&x, &v, |x| (x.sin() * &x).sum(..)), &h.dot(&v), "hvp");
    let of_tree = hvp((&x, &a), (&v, Array::from(0.0)), |(x, a)| (x.sin() * &a).sum(..));
    assert_close(&of_tree.1, &(x.cos() * v).sum(..), "hvp of a tree");
}

/// Newton's method for the square root of each element.
fn newton(a: &Array, max: usize) -> Array {
    let options = WhileOptions::default().max_steps(max);
    let far = |x: &Array| (x.square() - a).abs().max(..).gt(1e-12);
    while_loop_with(a.ones_like(), far, |x| (&x + a / &x) / 2.0, options)
}

#[test]
fn reverse_mode_goes_through_bounded_loops() {
    let a = Array::from([2.0, 9.0, 0.25]);
    let slope = 0.5 / a.sqrt();
    for max in [20, 30, 1000] {
        let root = newton(&a, max);
        assert!(root.allclose_with(&a.sqrt(), 1e-10, 1e-10).unwrap());
        let g = grad(&a, |a| newton(&a, max).sum(..));
        assert!(g.allclose_with(&slope, 1e-6, 1e-6).unwrap(), "{g}");
        let forward = jvp(&a, a.ones_like(), |a| newton(&a, max)).1;
        assert!(forward.allclose_with(&slope, 1e-6, 1e-6).unwrap(), "{forward}");
    }
    let rows = stack([a.clone(), &a * 3.0], 0);
    let g = vmap(&rows, |a| grad(&a, |a| newton(&a, 30).sum(..)));
    assert!(g.allclose_with(&(0.5 / rows.sqrt()), 1e-6, 1e-6).unwrap(), "{g}");
    let all = vmap_with(&rows, |a| newton(&a, 30), VmapOptions::default());
    assert!(all.allclose_with(&rows.sqrt(), 1e-10, 1e-10).unwrap());
}

#[test]
fn a_bounded_loop_ends_by_its_condition_or_its_maximum() {
    let count = |x: &Array, max: usize| {
        let options = WhileOptions::default().max_steps(max);
        while_loop_with(x, |x| x.lt(100.0), |x| x * 2.0, options)
    };
    let x = Array::from(1.0);
    // 2⁷ ≥ 100
    for (max, steps) in [(0, 0), (1, 1), (3, 3), (4, 4), (6, 6), (7, 7), (8, 7), (50, 7)] {
        let power = Array::from(f64::from(1 << steps));
        assert_close(&count(&x, max), &power, "result");
        assert_close(&grad(&x, |x| count(&x, max)), &power, "gradient");
        let second = grad(&x, |x| grad(&x, |x| count(&x, max).square()));
        assert_close(&second, &(power.square() * 2.0), "second derivative");
    }
    let unbounded = while_loop_with(&x, |x| x.lt(100.0), |x| x * 2.0, WhileOptions::default());
    assert_close(&unbounded, &Array::from(128.0), "no maximum");
}

#[test]
fn bounded_loops_save_the_carries_of_few_steps() {
    let saved = |max: usize| -> usize {
        let x = Array::from([1.0, 2.0]);
        let options = WhileOptions::default().max_steps(max);
        let (_, pull) = vjp(&x, |x| while_loop_with(&x, |x| x.sum(..).lt(9.0), |x| x.sin() + &x, options));
        pull.residuals().iter().filter(|ty| ty.dtype == F64).map(|ty| ty.shape.num_elements()).sum()
    };
    assert!(saved(100) <= 2 * 2 * 10 + 10, "{}", saved(100));
    assert!(saved(10_000) <= 2 * 2 * 100 + 10, "{}", saved(10_000));
}
