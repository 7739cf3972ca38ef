//! Eigenvalues and singular values, and functions based on them.

use crate::copies::{matrix, rows, symmetric, transposed_rows};
use crate::{Element, finite, first_largest, lu, nan};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{
    ComputeEigenvectors, SelfAdjointEvdParams, self_adjoint_evd, self_adjoint_evd_scratch,
};
use faer::linalg::svd::{self as parts, ComputeSvdVectors, SvdParams};
use faer::{Accum, Auto, Mat, Par};

/// The sizes from which problems are divided in halves, which are 128 by default.
/// Smaller ones take sweeps of rotations, which are slower from these sizes on.
const DIVIDED_EIGH_SIZE: usize = 64;
const DIVIDED_SVD_SIZE: usize = 32;

pub(crate) fn eigh<T: Element>(a: &[T], n: usize, vectors: bool) -> (Vec<T>, Vec<T>) {
    let none = |vectors: usize| (nan(n), nan(vectors));
    let count = if vectors { n * n } else { 0 };
    if !finite(a) || n == 0 {
        return none(count);
    }
    let x = symmetric(a, n);
    let (mut w, mut v) = (faer::diag::Diag::zeros(n), vectors.then(|| Mat::zeros(n, n)));
    let asked = if vectors { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No };
    let mut params = <SelfAdjointEvdParams as Auto<T>>::auto();
    params.recursion_threshold = DIVIDED_EIGH_SIZE;
    let scratch = self_adjoint_evd_scratch::<T>(n, asked, Par::Seq, params.into());
    let done = self_adjoint_evd(
        x.as_ref(),
        w.as_mut(),
        v.as_mut().map(|v: &mut Mat<T>| v.as_mut()),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        params.into(),
    );
    match done {
        Err(_) => none(count),
        Ok(()) => {
            if let Some(v) = &mut v {
                for j in 0..n {
                    if points_back(v, j) {
                        turn(v, j);
                    }
                }
            }
            ((0..n).map(|i| w[i]).collect(), v.map_or(Vec::new(), |v| rows(&v)))
        }
    }
}

/// Returns true if the element of a column with the maximum modulus is negative.
/// Such vectors are negated, since the sign that the algorithm chooses depends on rounding errors.
fn points_back<T: Element>(v: &Mat<T>, j: usize) -> bool {
    let v = v.col_as_slice(j);
    v.get(first_largest(v)).is_some_and(|x| *x < T::ZERO)
}

fn turn<T: Element>(v: &mut Mat<T>, j: usize) {
    v.col_as_slice_mut(j).iter_mut().for_each(|x| *x = -*x);
}

/// The singular values, and the matrices u and v.
struct Parts<T> {
    u: Mat<T>,
    s: Vec<T>,
    v: Mat<T>,
}

fn by_parts<T: Element>(a: &[T], m: usize, n: usize, asked: ComputeSvdVectors) -> Option<Parts<T>> {
    if !finite(a) {
        return None;
    }
    let (x, k) = (matrix(a, m, n), m.min(n));
    let [left, right] = match asked {
        ComputeSvdVectors::No => [0, 0],
        ComputeSvdVectors::Thin => [k, k],
        ComputeSvdVectors::Full => [m, n],
    };
    let (mut u, mut s, mut v) = (Mat::zeros(m, left), faer::diag::Diag::zeros(k), Mat::zeros(n, right));
    let vectors = asked != ComputeSvdVectors::No;
    let mut params = <SvdParams as Auto<T>>::auto();
    params.recursion_threshold = DIVIDED_SVD_SIZE;
    let scratch = parts::svd_scratch::<T>(m, n, asked, asked, Par::Seq, params.into());
    parts::svd(
        x.as_ref(),
        s.as_mut(),
        vectors.then_some(u.as_mut()),
        vectors.then_some(v.as_mut()),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        params.into(),
    )
    .ok()?;
    for j in 0..if vectors { k } else { 0 } {
        if points_back(&v, j) {
            turn(&mut u, j);
            turn(&mut v, j);
        }
    }
    Some(Parts { u, s: (0..k).map(|i| s[i]).collect(), v })
}

pub(crate) fn svdvals<T: Element>(a: &[T], m: usize, n: usize) -> Vec<T> {
    by_parts(a, m, n, ComputeSvdVectors::No).map_or_else(|| nan(m.min(n)), |p| p.s)
}

pub(crate) fn svd<T: Element>(a: &[T], m: usize, n: usize, full: bool) -> (Vec<T>, Vec<T>, Vec<T>) {
    let asked = if full { ComputeSvdVectors::Full } else { ComputeSvdVectors::Thin };
    let k = m.min(n);
    let (left, right) = if full { (m, n) } else { (k, k) };
    match by_parts(a, m, n, asked) {
        None => (nan(m * left), nan(k), nan(right * n)),
        Some(p) => (rows(&p.u), p.s, transposed_rows(&p.v)),
    }
}

/// Returns u·diag(d)·vᵀ.
fn product<T: Element>(u: &Mat<T>, d: &[T], v: &Mat<T>) -> Mat<T> {
    let scaled = Mat::from_fn(u.nrows(), d.len(), |i, j| u[(i, j)] * d[j]);
    let mut made = Mat::zeros(u.nrows(), v.nrows());
    let v = v.as_ref().get(.., ..d.len()).transpose();
    faer::linalg::matmul::matmul(made.as_mut(), Accum::Replace, scaled.as_ref(), v, T::ONE, Par::Seq);
    made
}

pub(crate) fn pinv<T: Element>(a: &[T], m: usize, n: usize, tolerance: T) -> Vec<T> {
    let Some(p) = by_parts(a, m, n, ComputeSvdVectors::Thin) else { return nan(n * m) };
    let least = p.s.first().map_or(T::ZERO, |most| *most * tolerance);
    let turned: Vec<T> = p.s.iter().map(|s| if *s > least { T::ONE / *s } else { T::ZERO }).collect();
    rows(&product(&p.v, &turned, &p.u))
}

pub(crate) fn cofactors(a: &[f64], n: usize) -> Vec<f64> {
    let Some(p) = by_parts(a, n, n, ComputeSvdVectors::Thin) else { return nan(n * n) };
    // for each singular value, the product of the others
    let mut others = vec![1.0; n];
    let (mut before, mut behind) = (1.0, 1.0);
    for i in 0..n {
        others[i] *= before;
        before *= p.s[i];
        let back = n - 1 - i;
        others[back] *= behind;
        behind *= p.s[back];
    }
    // the sign of the determinant: u·vᵀ is a rotation or a reflection
    let turned = lu::diagonal(&rows(&p.u), n).0 != lu::diagonal(&rows(&p.v), n).0;
    let c = product(&p.u, &others, &p.v);
    rows(&c).into_iter().map(|x| if turned { -x } else { x }).collect()
}
