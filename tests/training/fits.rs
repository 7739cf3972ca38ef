//! `minimize`, `least_squares`, `root` and `fixed_point`: SciPy's results (`scipy.json`, written by
//! `scipy_numbers.py`), sharding, and invalid input.

use crate::error_checks::Unquoted as _;
use atmesh::optim::{self, EndReason, FixedPoint, Lbfgs, LeastSquares, Minimizer, NonlinearCg, RootOptions};
use atmesh::prelude::*;
use serde_json::Value;
use std::sync::LazyLock;

static SCIPY: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("scipy.json")).expect("the file of numbers is JSON"));

fn assert_scipy(name: &str, x: &impl Tree) -> Result<()> {
    let want: Vec<f64> = SCIPY[name].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    let mut got: Vec<f64> = Vec::new();
    for a in tree::leaves(x) {
        got.extend(a.to_vec::<f64>()?);
    }
    let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(got.len() == want.len() && worst <= 1e-6, "{name} differs by {worst:e}: {got:?} {want:?}");
    Ok(())
}

fn range(n: usize) -> Array {
    Array::from((0..n).map(|k| k as f64).collect::<Vec<f64>>())
}

fn rosenbrock(x: Array) -> Array {
    let (a, b) = (x.slice(ix![..-1]), x.slice(ix![1..]));
    (100.0 * (b - a.square()).square() + (1.0 - &a).square()).sum(..)
}

fn logistic() -> impl Fn((Array, Array)) -> Array {
    let k = range(96);
    let features = (1.3 * &k + 0.2 * k.pow(1.5)).sin().reshape([24, 4]);
    let labels = (2.1 * range(24)).cos().gt(0.0).select(Array::ones(F64.array_type([24])), -1.0);
    move |(w, b)| {
        let margin = &labels * (features.dot(&w) + &b);
        (-margin).softplus().mean(..) + 0.05 * (w.square().sum(..) + b.square())
    }
}

#[test]
fn minimize_finds_the_points_of_scipy() -> Result<()> {
    let methods: [Minimizer; 2] =
        [Lbfgs::default().tolerance(1e-9).into(), NonlinearCg::default().tolerance(1e-9).into()];
    for method in methods {
        let start = Array::linspace_of(F64.array_type([8]), 0.5, 1.5, true);
        let found = optim::minimize(&start, method, rosenbrock);
        assert_scipy("rosenbrock", &found.clone().converged()?)?;
        assert!(found.value.item::<f64>()? < 1e-12, "{}", found.value);
        let start = (Array::zeros(F64.array_type([4])), Array::from(0.0f64));
        let found = optim::minimize(&start, method, logistic());
        println!("{} steps, {} evaluations", found.steps, found.evaluations);
        assert_scipy("logistic", &found.converged()?)?;
    }
    Ok(())
}

#[test]
fn minimize_runs_in_a_program_on_a_mesh() -> Result<()> {
    let start = Array::linspace_of(F64.array_type([8]), -1.0, 1.0, true);
    let fit = jit(|x: &Array, target: &Array| {
        optim::minimize(x, Lbfgs::default().tolerance(1e-9).memory(4), |x| {
            (&x - target).square().square().sum(..) + (x - target).square().sum(..)
        })
    });
    let target = range(8);
    let plain = fit.call((&start, &target))?;
    for mesh in [Mesh::new([("X", 4)])?, Mesh::auto([("X", 4)])?] {
        let put = |x: &Array| x.put(&mesh, p!["X"]);
        let found = fit.call((put(&start), put(&target)))?;
        assert_eq!(type_of(&found.x), type_of(put(&start)));
        let x = found.converged()?;
        assert!(x.allclose_with(&put(&target), 0.0, 1e-8)? && plain.x.allclose_with(&target, 0.0, 1e-8)?);
    }
    Ok(())
}

#[test]
fn least_squares_finds_the_points_of_scipy() -> Result<()> {
    let t = range(12) / 4.0;
    let y = 2.5 * (-1.3 * &t).exp() + 0.5 + 0.05 * (9.0 * &t).sin();
    let angle = range(10);
    let points = (
        3.0 + 2.0 * angle.cos() + 0.1 * (5.0 * &angle).sin(),
        -1.0 + 2.0 * angle.sin() + 0.1 * (3.0 * &angle).cos(),
    );
    let decay = |(a, b, c): (Array, Array, Array)| a * (-b * &t).exp() + c - &y;
    let circle = |(center, radius): (Array, Array)| {
        let (x, y) = (&points.0 - center.slice(ix![0]), &points.1 - center.slice(ix![1]));
        (x.square() + y.square()).sqrt() - radius
    };
    let number = |x: f64| Array::from(x);
    for options in [LeastSquares::default(), LeastSquares::default().gauss_newton()] {
        let options = options.gradient_tolerance(1e-10).step_tolerance(1e-12);
        let found = optim::least_squares((number(1.0), number(0.5), number(0.0)), options, decay);
        assert_scipy("decay", &found.converged()?)?;
        let found = optim::least_squares((Array::zeros(F64.array_type([2])), number(1.0)), options, circle);
        assert_scipy("circle", &found.converged()?)?;
    }
    // several arrays of residuals
    let both = |x: Array| (&x - 1.0, vec![2.0 * (&x - 4.0)]);
    let found = optim::least_squares(number(0.0), LeastSquares::default(), both);
    assert!((found.x.item::<f64>()? - 3.4).abs() < 1e-7, "{}", found.x);
    assert!((found.value.item::<f64>()? - 0.5 * (2.4 * 2.4 + 1.2 * 1.2)).abs() < 1e-7);
    Ok(())
}

fn bratu(u: Array) -> Array {
    let (left, right) = (u.shift(1, 0, 0.0), u.shift(-1, 0, 0.0));
    256.0 * (left - 2.0 * &u + right) + u.exp()
}

#[test]
fn root_finds_the_points_of_scipy() -> Result<()> {
    let options = RootOptions::default().tolerance(1e-10);
    let pair = |(x, y): (Array, Array), ()| {
        let cube = 0.5 * (&x - &y).powi(3);
        (&x + &cube - 1.0, y - cube)
    };
    let found = optim::root((Array::from(0.0f64), Array::from(0.0f64)), (), options, pair);
    assert_scipy("pair", &found.converged()?)?;
    let found = optim::root(Array::zeros(F64.array_type([15])), (), options, |u: Array, ()| bratu(u));
    assert_scipy("bratu", &found.converged()?)?;
    let none = optim::root(Array::from(0.5f64), (), options, |x: Array, ()| x.square() + 1.0);
    assert_ne!(none.reason()?, EndReason::Converged);
    assert!(none.converged().unwrap_err().unquoted().contains("the fit did not converge"));
    Ok(())
}

#[test]
fn fixed_point_finds_the_points_of_scipy() -> Result<()> {
    let options = FixedPoint::default().tolerance(1e-12);
    let (a, b) = (Array::from([10.0f64, 12.0]), Array::from([3.0f64, 5.0]));
    let f = |x: Array, (a, b): (Array, Array)| (a / (x + b)).sqrt();
    let found = optim::fixed_point(Array::from([1.2f64, 1.3]), (&a, &b), options, f);
    assert_scipy("fraction", &found.converged()?)?;
    let w = 0.3 * range(16).sin().reshape([4, 4]);
    let layer = |x: Array, w: Array| (w.dot(&x) + range(4).cos()).tanh();
    let found = optim::fixed_point(Array::zeros(F64.array_type([4])), &w, options, layer);
    assert_scipy("layer", &found.converged()?)?;
    let away = optim::fixed_point(2.0, (), FixedPoint::default(), |x: Array, ()| x.square());
    assert_eq!(away.reason()?, EndReason::NotFinite);
    Ok(())
}

/// Compares a gradient of a scalar function of a vector with central differences.
fn assert_differences(x: &Array, f: impl Fn(Array) -> Array) -> Result<()> {
    let g = grad(x, &f).to_vec::<f64>()?;
    let at = x.to_vec::<f64>()?;
    for (k, g) in g.iter().enumerate() {
        let near = |by: f64| -> Result<f64> {
            let mut at = at.clone();
            at[k] += by;
            f(Array::from(at)).item::<f64>()
        };
        let difference = (near(1e-5)? - near(-1e-5)?) / 2e-5;
        assert!((g - difference).abs() < 1e-6, "{k}: {g} {difference}");
    }
    Ok(())
}

#[test]
fn derivatives_of_solutions_are_implicit() -> Result<()> {
    let roots = RootOptions::default().tolerance(1e-13);
    // x + y^3 = a, y - b x = c
    let pair = |(x, y): (Array, Array), p: Array| {
        let [a, b, c] = [0, 1, 2].map(|k| p.slice(ix![k]));
        (&x + y.powi(3) - a, y - b * x - c)
    };
    let start = || (Array::from(0.5f64), Array::from(0.5f64));
    let loss = |p: Array| {
        let (x, y) = optim::root(start(), p, roots, pair).x;
        x.square() + y * 3.0
    };
    let p = Array::from([1.0f64, 0.5, 0.25]);
    assert_differences(&p, loss)?;
    let layer =
        |x: Array, (w, count): (Array, Array)| (0.3 * w.reshape([2, 2]).dot(&x) + count.astype(F64)).tanh();
    let points = FixedPoint::default().tolerance(1e-14);
    let loss = |w: Array| {
        let found = optim::fixed_point(Array::zeros(F64.array_type([2])), (w, Array::from(1)), points, layer);
        found.x.square().sum(..)
    };
    assert_differences(&Array::from([0.5f64, -1.0, 0.25, 0.75]), loss)?;
    // the same under `jit`, and on a mesh
    let mesh = Mesh::new([("X", 2)])?;
    let scale = |x: Array, a: Array| 0.5 * x.cos() * a;
    let step = jit(|a: &Array| grad(a, |a| optim::fixed_point(&a, &a, points, scale).x.sum(..)));
    let a = Array::from([0.5f64, 1.0]);
    let (plain, sharded) = (step.call(&a)?, step.call(a.put(&mesh, p!["X"]))?);
    assert!(plain.allclose_with(&sharded, 0.0, 1e-12)?);
    assert_differences(&a, |a| optim::fixed_point(a.zeros_like(), a, points, scale).x.sum(..))
}

#[test]
fn wrong_problems_are_errors() -> Result<()> {
    let text = |a: &Array| a.ty().unwrap_err().unquoted();
    let found = optim::minimize(Array::from([1, 2]), Lbfgs::default(), |x| x.astype(F32).sum(..));
    assert!(text(&found.x).contains("the starting point has int32[2], but a fit varies floats"));
    let found = optim::minimize(Array::from([1.0f32, 2.0]), Lbfgs::default(), |x| x.square());
    assert!(text(&found.x).contains("`grad` needs a scalar loss"), "{}", text(&found.x));
    assert!(found.reason().is_err());
    // no steps, no parameters, and values that are not finite
    let zero = optim::minimize(Array::from(1.0f32), Lbfgs::default().max_steps(0), |x| x.square());
    assert_eq!((zero.x.item::<f32>()?, zero.reason()?), (1.0, EndReason::MaxSteps));
    let none = optim::minimize(Vec::<Array>::new(), Lbfgs::default(), |_: Vec<Array>| Array::from(2.0f32));
    assert_eq!((none.value.item::<f32>()?, none.reason()?), (2.0, EndReason::Converged));
    for method in [Minimizer::from(Lbfgs::default()), NonlinearCg::default().into()] {
        let nan = optim::minimize(Array::from(-1.0f32), method, |x| x.sqrt());
        assert_eq!(nan.reason()?, EndReason::NotFinite);
        // no minimum: the search walks to the end of the floats, or of its steps
        let open = optim::minimize(Array::from(1.0f32), method, |x| -x);
        assert_ne!(open.reason()?, EndReason::Converged);
    }
    let found = optim::least_squares(Array::from(f32::NAN), LeastSquares::default(), |x| x);
    assert_eq!(found.reason()?, EndReason::NotFinite);
    let other =
        optim::fixed_point(vec![Array::from(1.0f32)], (), FixedPoint::default(), |x: Vec<Array>, ()| {
            vec![x[0].clone(), x[0].clone()]
        });
    assert!(text(&other.x[0]).contains("differ in structure"), "{}", text(&other.x[0]));
    Ok(())
}
