//! Cholesky factorisation and triangular solves.

use crate::{Element, Triangle, matrix, nan, rows, symmetric};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::qr::no_pivoting::factor as householder;
use faer::linalg::triangular_solve as by_triangle;
use faer::{Conj, Mat, Par};

pub(crate) fn cholesky<T: Element>(a: &[T], n: usize) -> Vec<T> {
    let mut l = symmetric(a, n);
    let scratch = llt::factor::cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default());
    let done = llt::factor::cholesky_in_place(
        l.as_mut(),
        Default::default(),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    );
    let good = done.is_ok() && (0..n).all(|i| l[(i, i)].finite());
    let at = |i: usize, j: usize| match j <= i {
        false => T::ZERO,
        true if good => l[(i, j)],
        true => T::NAN,
    };
    (0..n * n).map(|k| at(k / n, k % n)).collect()
}

pub(crate) fn solve<T: Element>(a: &[T], n: usize, how: Triangle, right: bool, b: &[T], k: usize) -> Vec<T> {
    assert_eq!(b.len(), n * k, "{n}×{k}");
    let a = matrix(a, n, n);
    // x·a = b is equivalent to aᵀ·xᵀ = bᵀ
    let mut x = if right { Mat::from_fn(n, k, |i, j| b[j * n + i]) } else { matrix(b, n, k) };
    let turned = how.transposed != right;
    let t = if turned { a.as_ref().transpose() } else { a.as_ref() };
    let y = x.as_mut();
    match (how.lower != turned, how.unit) {
        (true, false) => by_triangle::solve_lower_triangular_in_place(t, y, Par::Seq),
        (true, true) => by_triangle::solve_unit_lower_triangular_in_place(t, y, Par::Seq),
        (false, false) => by_triangle::solve_upper_triangular_in_place(t, y, Par::Seq),
        (false, true) => by_triangle::solve_unit_upper_triangular_in_place(t, y, Par::Seq),
    }
    rows(if right { x.as_ref().transpose() } else { x.as_ref() })
}

pub(crate) fn qr<T: Element>(a: &[T], m: usize, n: usize, full: bool) -> (Vec<T>, Vec<T>) {
    let least = m.min(n);
    let k = if full { m } else { least };
    if !crate::finite(a) {
        let r = (0..k * n).map(|at| if at % n < at / n { T::ZERO } else { T::NAN });
        return (nan(m * k), r.collect());
    }
    let mut x = matrix(a, m, n);
    let block = householder::recommended_block_size::<T>(m, n).max(1);
    let mut coefficients = Mat::zeros(block, least);
    let scratch = householder::qr_in_place_scratch::<T>(m, n, block, Par::Seq, Default::default());
    householder::qr_in_place(
        x.as_mut(),
        coefficients.as_mut(),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    );
    let mut q = Mat::identity(m, k);
    apply(
        x.as_ref().get(.., ..least),
        coefficients.as_ref(),
        Conj::No,
        q.as_mut(),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(apply_scratch::<T>(m, block, k))),
    );
    let r = Mat::from_fn(k, n, |i, j| if i <= j { x[(i, j)] } else { T::ZERO });
    (rows(q.as_ref()), rows(r.as_ref()))
}
