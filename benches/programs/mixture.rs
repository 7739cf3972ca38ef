//! A mixture of Gaussian distributions, fitted by expectation maximization: 5 steps on 2^20 points
//! in three dimensions, with 6 full covariances.

use super::Options;
use atmesh::prelude::*;
use std::f64::consts::PI;

const COMPONENTS: usize = 6;
const DIMS: usize = 3;
const POINTS: usize = 1 << 20;

#[derive(Clone, Debug, Tree)]
struct Mixture {
    log_weight: Array,
    mean: Array,
    covariance: Array,
}

/// Returns log(weight · density) of each point under each component.
fn log_joint(m: &Mixture, x: &Array) -> Array {
    let l = m.covariance.cholesky();
    let inverse = l.inv();
    let log_det = l.diagonal(0).log().sum(-1);
    let shift = einsum("kij,kj->ki", [&inverse, &m.mean]);
    let z = einsum("nj,kij->nki", [x, &inverse]) - shift;
    &m.log_weight - log_det - 0.5 * DIMS as f64 * (2.0 * PI).ln() - 0.5 * z.square().sum(-1)
}

/// Returns the next mixture and the mean log likelihood. Sums over points are all-reduced.
fn step(m: &Mixture, x: &Array) -> (Mixture, Array) {
    let joint = log_joint(m, x);
    let norm = joint.logsumexp(-1);
    let r = (&joint - norm.expand_dims(-1)).exp();
    let n = r.sum(0);
    let total = n.sum(..);
    let mean = r.t().dot_to(x, p![]) / n.expand_dims(1);
    let second = einsum_to("nk,ni,nj->kij", [&r, x, x], p![]);
    let covariance = second / n.reshape([COMPONENTS, 1, 1]) - mean.expand_dims(2) * mean.expand_dims(1);
    let covariance = covariance + 1e-6 * Array::eye([DIMS, DIMS], 0);
    (Mixture { log_weight: (&n / &total).log(), mean, covariance }, norm.sum(..) / total)
}

pub(crate) fn mixture(o: &Options) -> Result<()> {
    let [a, b, c] = Key::new(4).split();
    let centres = 6.0 * a.normal([COMPONENTS, DIMS]);
    let near = centres.take(&b.randint([POINTS], 0..COMPONENTS as i64), 0);
    let x = (near + c.normal([POINTS, DIMS])).ready()?;
    let start = Mixture {
        log_weight: Array::full([COMPONENTS], -(COMPONENTS as f32).ln()),
        mean: &centres + 0.5,
        covariance: 4.0 * Array::eye([DIMS, DIMS], 0) + Array::zeros([COMPONENTS, 1, 1]),
    };
    let fit = jit(|m: &Mixture, x: &Array| fori_loop(0..5, (m, 0.0f32), |_, (m, _)| step(&m, x)));
    let part = |fit: &(Mixture, Array)| fit.0.covariance.clone();
    o.program("mixture/one", &fit, (&start, &x), part)?;
    for (mode, mesh) in [("auto", Mesh::auto([("X", 8)])?), ("explicit", Mesh::new([("X", 8)])?)] {
        let (start, x) = (tree::put(&start, &mesh, p![]), x.put(&mesh, p!["X", _]));
        o.program(&format!("mixture/{mode}"), &fit, (&start, &x), part)?;
    }
    Ok(())
}
