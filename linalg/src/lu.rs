//! LU factorisation with pivoting, and solutions, inverses and determinants based on it.

use crate::copies::{columns_mut, matrix, rows};
use crate::{Element, Lu, first_largest};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve as by_triangle;
use faer::prelude::{Reborrow, ReborrowMut};
use faer::traits::pulp::{Arch, Simd, WithSimd};
use faer::{Accum, Mat, MatMut, Par};

/// The maximum number of columns that are factored one by one.
const NARROW_COLUMNS: usize = 16;

/// Factors a matrix as LAPACK's `getrf` does: a column of zeros gets the pivot 0.
/// Factoring then continues. faer's own function would divide by the pivot, so that a singular
/// matrix would have no determinant.
fn factor<T: Element>(mut a: MatMut<'_, T>, pivots: &mut [usize]) {
    let (m, n) = a.shape();
    let least = m.min(n);
    if least == 0 {
        return;
    }
    if n <= NARROW_COLUMNS {
        return narrow(a, pivots);
    }
    let half = if n > m { least } else { (n / 2).next_multiple_of(NARROW_COLUMNS.min(n / 2)).min(least) };
    let (left, right) = pivots.split_at_mut(half);
    if n > m && half <= NARROW_COLUMNS {
        narrow(a.rb_mut().get_mut(.., ..half), left);
    } else {
        factor(a.rb_mut().get_mut(.., ..half), left);
    }
    exchange(a.rb_mut().get_mut(.., half..), left);
    {
        let (a00, mut a01, a10, mut a11) = a.rb_mut().split_at_mut(half, half);
        by_triangle::solve_unit_lower_triangular_in_place(a00.rb(), a01.rb_mut(), Par::Seq);
        if a11.nrows() > 0 {
            matmul(a11.rb_mut(), Accum::Add, a10.rb(), a01.rb(), -T::ONE, Par::Seq);
            factor(a11, right);
        }
    }
    exchange(a.get_mut(half.., ..half), right);
    right.iter_mut().for_each(|p| *p += half);
}

/// Factors a matrix of at most [`NARROW_COLUMNS`] columns.
fn narrow<T: Element>(a: MatMut<'_, T>, pivots: &mut [usize]) {
    let (m, n) = a.shape();
    let mut columns: [&mut [T]; NARROW_COLUMNS] = Default::default();
    columns.iter_mut().zip(columns_mut(a)).for_each(|(to, x)| *to = x);
    Arch::new().dispatch(Elimination { columns: &mut columns[..n], rows: m, pivots });
}

/// Factors a matrix column by column.
struct Elimination<'a, 'b, T> {
    /// The columns of the matrix.
    columns: &'a mut [&'b mut [T]],
    /// The number of rows of the matrix.
    rows: usize,
    /// The row exchanges, to be written.
    pivots: &'a mut [usize],
}

impl<T: Element> WithSimd for Elimination<'_, '_, T> {
    type Output = ();
    /// Factors the matrix by the vector instructions that [`Arch::dispatch`] has chosen. They are
    /// used only in code that is inlined here.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Elimination { columns, rows, pivots } = self;
        for k in 0..rows.min(columns.len()) {
            let best = k + first_largest(&columns[k][k..]);
            pivots[k] = best;
            if best != k {
                columns.iter_mut().for_each(|x| x.swap(k, best));
            }
            let (done, rest) = columns.split_at_mut(k + 1);
            let (head, l) = done[k].split_at_mut(k + 1);
            let pivot = head[k];
            if pivot != T::ZERO {
                l.iter_mut().for_each(|x| *x /= pivot);
            }
            for x in rest {
                let y = x[k];
                if y != T::ZERO {
                    x[k + 1..].iter_mut().zip(&*l).for_each(|(x, l)| *x -= *l * y);
                }
            }
        }
    }
}

/// Exchanges rows in order.
fn exchange<T: Element>(a: MatMut<'_, T>, pivots: &[usize]) {
    // a matrix whose diagonal dominates has no exchanges
    if pivots.iter().enumerate().all(|(i, p)| i == *p) {
        return;
    }
    for x in columns_mut(a) {
        for (i, p) in pivots.iter().enumerate().filter(|(i, p)| *i != **p) {
            x.swap(i, *p);
        }
    }
}

fn factored<T: Element>(a: &[T], m: usize, n: usize) -> (Mat<T>, Vec<usize>) {
    let (mut x, mut pivots) = (matrix(a, m, n), vec![0; m.min(n)]);
    factor(x.as_mut(), &mut pivots);
    (x, pivots)
}

pub(crate) fn lu<T: Element>(a: &[T], m: usize, n: usize) -> Lu<T> {
    let (x, pivots) = factored(a, m, n);
    let mut order: Vec<usize> = (0..m).collect();
    for (i, p) in pivots.iter().enumerate() {
        order.swap(i, *p);
    }
    Lu { factors: rows(&x), pivots, rows: order }
}

fn by_factors<T: Element>(a: &[T], n: usize, transposed: bool, mut x: Mat<T>) -> Vec<T> {
    let (lu, pivots) = factored(a, n, n);
    let (t, mut y) = (lu.as_ref(), x.as_mut());
    if transposed {
        by_triangle::solve_lower_triangular_in_place(t.transpose(), y.rb_mut(), Par::Seq);
        by_triangle::solve_unit_upper_triangular_in_place(t.transpose(), y.rb_mut(), Par::Seq);
        for x in columns_mut(y) {
            pivots.iter().enumerate().rev().for_each(|(i, p)| x.swap(i, *p));
        }
    } else {
        exchange(y.rb_mut(), &pivots);
        by_triangle::solve_unit_lower_triangular_in_place(t, y.rb_mut(), Par::Seq);
        by_triangle::solve_upper_triangular_in_place(t, y, Par::Seq);
    }
    rows(&x)
}

pub(crate) fn solve<T: Element>(a: &[T], n: usize, transposed: bool, b: &[T], k: usize) -> Vec<T> {
    by_factors(a, n, transposed, matrix(b, n, k))
}

pub(crate) fn inv<T: Element>(a: &[T], n: usize) -> Vec<T> {
    by_factors(a, n, false, Mat::identity(n, n))
}

/// Returns whether the number of sign changes is odd, and the moduli on U's diagonal.
pub(crate) fn diagonal(a: &[f64], n: usize) -> (bool, Vec<f64>) {
    let (lu, pivots) = factored(a, n, n);
    let exchanged = pivots.iter().enumerate().filter(|(i, p)| *i != **p).count();
    let negative = (0..n).filter(|i| lu[(*i, *i)] < 0.0).count();
    ((exchanged + negative) % 2 == 1, (0..n).map(|i| lu[(i, i)].modulus()).collect())
}

pub(crate) fn det(a: &[f64], n: usize) -> f64 {
    let (negative, moduli) = diagonal(a, n);
    let product: f64 = moduli.into_iter().product();
    if negative { -product } else { product }
}

pub(crate) fn slogdet(a: &[f64], n: usize) -> (f64, f64) {
    let (negative, moduli) = diagonal(a, n);
    let sign = match () {
        () if moduli.iter().any(|x| x.is_nan()) => f64::NAN,
        () if moduli.contains(&0.0) => return (0.0, f64::NEG_INFINITY),
        () if negative => -1.0,
        () => 1.0,
    };
    (sign, moduli.iter().map(|x| x.ln()).sum())
}
