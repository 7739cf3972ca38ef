//! Cholesky factorisation and triangular solves.

use crate::copies::{Region, columns_mut, matrix, rows, rows_of, symmetric, transposed_rows};
use crate::{Element, Triangle, nan};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::householder::{
    apply_block_householder_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::qr::no_pivoting::factor as householder;
use faer::linalg::triangular_solve as by_triangle;
use faer::{Conj, Mat, MatRef, Par};

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
    if good {
        return rows_of(&l, n, Region::Lower);
    }
    (0..n * n).map(|k| if k % n <= k / n { T::NAN } else { T::ZERO }).collect()
}

pub(crate) fn solve<T: Element>(a: &[T], n: usize, how: Triangle, right: bool, b: &[T], k: usize) -> Vec<T> {
    assert_eq!(b.len(), n * k, "{n}×{k}");
    let a = matrix(a, n, n);
    // x·a = b is equivalent to aᵀ·xᵀ = bᵀ
    let mut x = if right { columns_of(b, n, k) } else { matrix(b, n, k) };
    let turned = how.transposed != right;
    let t = if turned { a.as_ref().transpose() } else { a.as_ref() };
    let y = x.as_mut();
    match (how.lower != turned, how.unit) {
        (true, false) => by_triangle::solve_lower_triangular_in_place(t, y, Par::Seq),
        (true, true) => by_triangle::solve_unit_lower_triangular_in_place(t, y, Par::Seq),
        (false, false) => by_triangle::solve_upper_triangular_in_place(t, y, Par::Seq),
        (false, true) => by_triangle::solve_unit_upper_triangular_in_place(t, y, Par::Seq),
    }
    if right { transposed_rows(&x) } else { rows(&x) }
}

/// Copies a slice in column-major order to an n×k matrix.
fn columns_of<T: Element>(b: &[T], n: usize, k: usize) -> Mat<T> {
    let mut x = Mat::zeros(n, k);
    for (x, b) in columns_mut(x.as_mut()).zip(b.chunks_exact(n.max(1))) {
        x.copy_from_slice(b);
    }
    x
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
    let q = orthogonal(&x, coefficients.as_ref(), k);
    (rows(&q), rows_of(&x, k, Region::Upper))
}

/// Returns the first k columns of the product of the reflections below the diagonal of `x`.
fn orthogonal<T: Element>(x: &Mat<T>, coefficients: MatRef<'_, T>, k: usize) -> Mat<T> {
    let (m, block) = (x.nrows(), coefficients.nrows());
    let mut q = Mat::identity(m, k);
    let mut scratch = MemBuffer::new(apply_scratch::<T>(m, block, k));
    // A block of reflections changes only the rows from its first one on. Before it is applied, the
    // columns to the left of the block are those of the identity, which it does not change there.
    for j in (0..coefficients.ncols()).step_by(block).rev() {
        let end = coefficients.ncols().min(j + block);
        apply(
            x.as_ref().get(j.., j..end),
            coefficients.get(..end - j, j..end),
            Conj::No,
            q.as_mut().get_mut(j.., j..),
            Par::Seq,
            MemStack::new(&mut scratch),
        );
    }
    q
}
