//! Fits a heat equation to measurements: how well the two halves of a rod conduct, where it was
//! heated, and then its whole temperature at the start. The rod is sharded over 8 devices.
use atmesh::optim::{self, Lbfgs, LeastSquares};
use atmesh::prelude::*;

const CELLS: usize = 64;
const STEPS: i32 = 40;

// ANCHOR: model
/// The temperatures after some steps of `u' = (c u')'`, with insulated ends.
fn heat(c: &Array, u: &Array) -> Array {
    fori_loop(0..STEPS, u, |_, u| {
        let flow = c * (&u - u.shift(1, 0, 0.0)); // through the left face of each cell
        &u + flow.shift(-1, 0, 0.0) - flow
    })
}

/// The unknowns: how well each half conducts, and the position of the heat.
#[derive(Clone, Tree)]
struct Rod<T = Array> {
    left: T,
    right: T,
    heated: T,
}

/// Returns how well each face conducts. Nothing flows through the left end.
fn conducts(rod: &Rod, at: &Array) -> Array {
    let c = at.lt(0.5).select(&rod.left, &rod.right);
    at.gt(0.0).select(c, 0.0)
}
fn start(rod: &Rod, at: &Array) -> Array {
    (-((at - &rod.heated) / 0.15).square()).exp()
}
fn residuals(rod: &Rod, at: &Array, measured: &Array) -> Array {
    heat(&conducts(rod, at), &start(rod, at)) - measured
}
// ANCHOR_END: model

fn rod(mesh: &Mesh, [left, right, heated]: [f64; 3]) -> Rod {
    let [left, right, heated] = [left, right, heated].map(|x| Array::from(x).put(mesh, p![]));
    Rod { left, right, heated }
}

/// Fits the rod on a number of devices, and returns its three numbers.
fn fit(devices: usize) -> Result<[f64; 3]> {
    let mesh = Mesh::new([("x", devices)])?;
    let at = Array::linspace_of(F64.array_type([CELLS]).on(&mesh, p!["x"]), 0.0, 1.0, false);
    let truth = rod(&mesh, [0.1, 0.3, 0.4]);
    let measured =
        jit(|at: &Array, rod: &Rod| heat(&conducts(rod, at), &start(rod, at))).call((&at, &truth))?;

    // ANCHOR: fit
    let search = jit(|rod: &Rod, at: &Array, measured: &Array| {
        optim::least_squares(rod, LeastSquares::default(), |rod| residuals(&rod, at, measured))
    });
    let found = search.call((rod(&mesh, [0.2, 0.2, 0.5]), &at, &measured))?;
    // ANCHOR_END: fit
    println!("{mesh}: {} steps, {:?}", found.steps, found.reason()?);
    let found = found.converged()?;
    if devices == 1 {
        return Ok([found.left.item()?, found.right.item()?, found.heated.item()?]);
    }
    let gradient = jit(|rod: &Rod, at: &Array, measured: &Array| {
        grad(rod, |rod| residuals(&rod, at, measured).square().sum(..))
    });
    println!("{}", gradient.lower((&found, &at, &measured))?.collectives());

    // ANCHOR: field
    // the temperature of each cell at the start, without a formula for it
    let whole = jit(|u: &Array, c: &Array, measured: &Array| {
        optim::minimize(u, Lbfgs::default().tolerance(1e-6), |u| {
            (heat(c, &u) - measured).square().sum(..) + 1e-6 * (&u - u.shift(1, 0, 0.0)).square().sum(..)
        })
    });
    let u = whole.call((at.zeros_like(), conducts(&found, &at), &measured))?;
    // ANCHOR_END: field
    let error = (u.x - start(&truth, &at)).abs().max(..).item::<f64>()?;
    println!("{CELLS} temperatures at the start, within {error:.3}");
    assert!(error < 0.05);
    Ok([found.left.item()?, found.right.item()?, found.heated.item()?])
}

fn main() -> Result<()> {
    let found = fit(8)?;
    println!("left {:.4}, right {:.4}, heated at {:.4}", found[0], found[1], found[2]);
    assert!(found.iter().zip([0.1, 0.3, 0.4]).all(|(a, b)| (a - b).abs() < 1e-6));
    let same = found.iter().zip(fit(1)?).all(|(a, b)| (a - b).abs() < 1e-8);
    println!("on one device, the same numbers: {same}");
    Ok(())
}
