//! Samplers against JAX's draws.

use super::{agrees, agrees_within, numbers};
use crate::error_checks::Unquoted as _;
use crate::soak;
use atmesh::prelude::*;
use atmesh::random::ChoiceOptions;

#[test]
fn gamma_and_its_kin() {
    let a = Array::from([0.1f32, 0.5, 1.0, 3.0, 40.0]);
    agrees_within("gamma", &Key::new(30).gamma([6, 5], &a), 1e-5);
    agrees_within("loggamma", &Key::new(31).loggamma([20], 0.05), 1e-5);
    agrees_within("beta", &Key::new(32).beta([6, 3], 0.5, Array::from([0.5f32, 2.0, 8.0])), 1e-5);
    let alpha = Array::from([0.3f32, 1.0, 5.0]).broadcast_to([6, 3]);
    agrees_within("dirichlet", &Key::new(33).dirichlet(&alpha), 1e-5);
    agrees_within("truncated_normal", &Key::new(37).truncated_normal([20], -0.5, 2.0), 1e-5);
}

#[test]
fn poisson() {
    let lam = Array::from([0.0f32, 0.5, 4.0, 9.9, 10.0, 30.0, 1000.0]);
    agrees_within("poisson", &Key::new(34).poisson([20, 7], &lam), 0.0);
}

/// `draws.npy` has sums over blocks of 1000 of a million draws of JAX.
///
/// Logarithms differ by rounding, and a block of them by less than 0.002. Another draw changes the
/// sum of its block by more, and a Poisson count by 1. One of a million draws may differ:
/// when this was written, none did. Without `ATMESH_SOAK` the first blocks are compared, but not of
/// `poisson`, whose draws depend on their number.
#[test]
fn a_million_draws() -> Result<()> {
    const BLOCK: usize = 1000;
    let expected = Array::load_npy("tests/training/nn/draws.npy")?;
    let blocks = if soak::runs_all() { 1000 } else { 5 };
    let n = blocks * BLOCK;
    let cycle = |values: &[f32]| Array::from(values).tile([n / values.len()]);
    let alpha = cycle(&[0.3, 1.0, 2.0, 5.0]).reshape([n / 4, 4]);
    let draws = [
        Key::new(40).gamma([n], cycle(&[0.3, 0.5, 1.0, 3.0, 40.0])).astype(F64).log(),
        Key::new(41).beta([n], 0.5, cycle(&[0.5, 1.0, 2.0, 8.0])).astype(F64).log(),
        Key::new(42).dirichlet(&alpha).reshape([n]).astype(F64).log(),
        Key::new(43).poisson([n], cycle(&[0.5, 4.0, 9.9, 10.0, 1000.0])).astype(F64),
    ];
    let weights = Array::arange(1..6).tile([n / 5]).astype(F64);
    let names = ["gamma", "beta", "dirichlet", "poisson"];
    let samplers = if soak::runs_all() { 4 } else { 3 };
    for (i, (name, x)) in names.into_iter().zip(draws).enumerate().take(samplers) {
        let sums = (x * &weights).reshape([blocks, BLOCK]).sum(1);
        let difference = (sums - expected.slice(ix![i, ..blocks])).abs();
        let tolerance = if name == "poisson" { 0.5 } else { 2e-3 };
        let different = difference.gt(tolerance).astype(I32).sum(..).item::<i32>()?;
        assert!(different <= 1, "{different} blocks of {name} differ: {difference}");
    }
    Ok(())
}

#[test]
fn choice() {
    let x = Array::arange(10..30);
    let p = Key::new(35).normal([20]).softmax(0);
    let key = Key::new(36);
    let default = ChoiceOptions::default;
    agrees("choice", &key.choice(&x, [4, 5]));
    agrees("choice.rows", &key.choice_with(&x.reshape([5, 4]), [3], default().dim(1)));
    agrees("choice.without", &key.choice_with(&x, [7], default().without_replacement()));
    agrees("choice.p", &key.choice_with(&x, [12], default().p(&p)));
    agrees("choice.p.without", &key.choice_with(&x, [7], default().p(&p).without_replacement()));
    let rows = key.choice_with(&x.reshape([10, 2]), [3], default().without_replacement());
    agrees("choice.rows.without", &rows);
}

/// Samples do not depend on the mesh, on `jit`, or on `vmap` over keys.
#[test]
fn samples_do_not_depend_on_the_mesh() {
    for axes in [Mesh::new([("x", 2)]), Mesh::auto([("x", 2)])] {
        let mesh = axes.unwrap();
        let on = F32.array_type([6, 4]).on(&mesh, p!["x"]);
        let counts = I32.array_type([6, 4]).on(&mesh, p!["x"]);
        let key = Key::new(0);
        assert_eq!(numbers(&key.gamma(on.clone(), 0.7)), numbers(&key.gamma([6, 4], 0.7)));
        assert_eq!(numbers(&key.beta(on.clone(), 0.7, 2.0)), numbers(&key.beta([6, 4], 0.7, 2.0)));
        let (small, large) = (key.poisson(counts.clone(), 3.0), key.poisson(counts, 30.0));
        assert_eq!(numbers(&small), numbers(&key.poisson([6, 4], 3.0)));
        assert_eq!(numbers(&large), numbers(&key.poisson([6, 4], 30.0)));
    }
    let draw = |key: Key| key.gamma([3], 0.7);
    let all = vmap(Key::new(5).split_array([2]), |k| draw(Key::from_array(k)));
    let [a, b] = Key::new(5).split();
    assert_eq!(numbers(&all), [numbers(&draw(a)), numbers(&draw(b))].concat());
    let jitted = jit(|key: Key| draw(key)).call(Key::new(6)).unwrap();
    assert_eq!(numbers(&jitted), numbers(&draw(Key::new(6))));
}

#[test]
fn wrong_arguments() {
    let key = Key::new(0);
    let x = Array::arange(0..3);
    for (y, words) in [
        (key.gamma(I32.array_type([2]), 1.0), ["gamma", "float"]),
        (key.poisson(F32.array_type([2]), 1.0), ["poisson", "integers"]),
        (key.dirichlet(&Array::from(1.0f32)), ["dirichlet", "concentrations"]),
        (key.choice_with(&x, [4], ChoiceOptions::default().without_replacement()), ["choice_with", "4 of 3"]),
        (
            key.choice_with(&x, [2], ChoiceOptions::default().p(&Array::ones([2]))),
            ["choice_with", "vector of 3"],
        ),
        (key.choice_with(&x, [2], ChoiceOptions::default().dim(1)), ["choice_with", "no dimension 1"]),
        (key.gamma([2], Array::ones([3])), ["full", "float32[3]"]),
    ] {
        let error = y.ty().unwrap_err().unquoted();
        assert!(words.iter().all(|w| error.contains(w)), "{words:?}: {error}");
    }
}
