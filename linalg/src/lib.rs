//! Factorisations, solutions and spectra of one dense matrix, based on `faer`.
//!
//! These are the kernels of the linear algebra operations of the crate `atmesh`. They form a
//! separate crate so that they are compiled once, and optimised even in debug builds.
//!
//! Matrices are slices in row-major order. All functions run on the calling thread and copy their
//! operands to memory with a fixed alignment, so the result bits depend neither on the caller nor
//! on the number of matrices. No function panics because of the values of elements: if there is no
//! result (the matrix is not positive definite, or an element is not finite), the result is NaN.
//!
//! ```
//! use atmesh_linalg::Real;
//! let l = f64::cholesky(&[4.0, 2.0, 2.0, 5.0], 2);
//! assert_eq!(l, [2.0, 0.0, 1.0, 2.0]);
//! ```

#![warn(missing_docs)]

mod copies;
mod lu;
mod spectra;
mod triangles;

/// The factors L and U in one matrix, as returned by [`Real::lu`].
#[derive(Clone, Debug, PartialEq)]
pub struct Lu<T> {
    /// L below the diagonal (its diagonal elements are 1), and U on and above the diagonal.
    pub factors: Vec<T>,
    /// The row exchanges: for each `i` in order, row `i` was exchanged with row `pivots[i]`.
    pub pivots: Vec<usize>,
    /// The row permutation: row `rows[i]` of the matrix is row `i` of the product of L and U.
    pub rows: Vec<usize>,
}

/// The properties of a triangular matrix, for [`Real::triangular_solve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Triangle {
    /// Whether the matrix is lower triangular, otherwise upper. The other elements are not read.
    pub lower: bool,
    /// Whether to use the transpose of the matrix.
    pub transposed: bool,
    /// Whether the diagonal is taken to be 1, regardless of its elements.
    pub unit: bool,
}

/// The element types, `f32` and `f64`. All matrices are in row-major order.
///
/// # Panics
/// All functions panic if the length of a slice does not match the sizes.
pub trait Real: Copy + Default + Send + Sync + 'static {
    /// Returns L with (a + aᵀ)/2 = LLᵀ, and zeros above the diagonal.
    /// The elements on and below the diagonal are NaN if the matrix is not positive definite.
    fn cholesky(a: &[Self], n: usize) -> Vec<Self>;
    /// Solves a·x = b, where b has k columns, or x·a = b if `right` is set, where b has k rows.
    fn triangular_solve(a: &[Self], n: usize, how: Triangle, right: bool, b: &[Self], k: usize) -> Vec<Self>;
    /// Returns the LU factorisation of an m×n matrix with partial pivoting.
    /// The pivot is the element with the maximum modulus; ties go to the first one.
    fn lu(a: &[Self], m: usize, n: usize) -> Lu<Self>;
    /// Solves a·x = b or aᵀ·x = b, where b has k columns. If a pivot is exactly
    /// 0, x has infinities or NaN.
    fn solve(a: &[Self], n: usize, transposed: bool, b: &[Self], k: usize) -> Vec<Self>;
    /// Returns the inverse. If a pivot is exactly 0, it has infinities or NaN.
    fn inv(a: &[Self], n: usize) -> Vec<Self>;
    /// Returns the determinant.
    fn det(a: &[Self], n: usize) -> Self;
    /// Returns the sign of the determinant and the logarithm of its modulus.
    /// For a singular matrix these are 0 and −∞.
    fn slogdet(a: &[Self], n: usize) -> (Self, Self);
    /// Returns the derivatives of the determinant with respect to the elements.
    /// The matrix may be singular.
    fn cofactors(a: &[Self], n: usize) -> Vec<Self>;
    /// Returns q (m×k) and r (k×n) of an m×n matrix; k is m if `full` is set, otherwise min(m, n).
    fn qr(a: &[Self], m: usize, n: usize, full: bool) -> (Vec<Self>, Vec<Self>);
    /// Returns the eigenvalues of (a + aᵀ)/2 in ascending order.
    fn eigvalsh(a: &[Self], n: usize) -> Vec<Self>;
    /// Returns the eigenvalues of (a + aᵀ)/2 in ascending order, and a matrix of eigenvectors.
    /// The eigenvectors are the columns of the matrix.
    fn eigh(a: &[Self], n: usize) -> (Vec<Self>, Vec<Self>);
    /// Returns the singular values of an m×n matrix in descending order.
    fn svdvals(a: &[Self], m: usize, n: usize) -> Vec<Self>;
    /// Returns u, the singular values and vᵀ of an m×n matrix.
    /// The sizes of u and vᵀ are m×m and n×n if `full` is set, otherwise m×k and k×n with
    /// `k = min(m, n)`.
    fn svd(a: &[Self], m: usize, n: usize, full: bool) -> (Vec<Self>, Vec<Self>, Vec<Self>);
    /// Returns the pseudo-inverse, which is an n×m matrix.
    /// Singular values of at most `tolerance` times the maximum count as 0.
    fn pinv(a: &[Self], m: usize, n: usize, tolerance: f64) -> Vec<Self>;
}

macro_rules! real { ($($t:ty),*) => { $(
    impl Real for $t {
        fn cholesky(a: &[$t], n: usize) -> Vec<$t> {
            triangles::cholesky(a, n)
        }
        fn triangular_solve(a: &[$t], n: usize, how: Triangle, right: bool, b: &[$t], k: usize) -> Vec<$t> {
            triangles::solve(a, n, how, right, b, k)
        }
        fn lu(a: &[$t], m: usize, n: usize) -> Lu<$t> {
            lu::lu(a, m, n)
        }
        fn solve(a: &[$t], n: usize, transposed: bool, b: &[$t], k: usize) -> Vec<$t> {
            lu::solve(a, n, transposed, b, k)
        }
        fn inv(a: &[$t], n: usize) -> Vec<$t> {
            lu::inv(a, n)
        }
        fn det(a: &[$t], n: usize) -> $t {
            lu::det(&wide(a), n) as $t
        }
        fn slogdet(a: &[$t], n: usize) -> ($t, $t) {
            let (sign, log) = lu::slogdet(&wide(a), n);
            (sign as $t, log as $t)
        }
        fn cofactors(a: &[$t], n: usize) -> Vec<$t> {
            spectra::cofactors(&wide(a), n).into_iter().map(|x| x as $t).collect()
        }
        fn qr(a: &[$t], m: usize, n: usize, full: bool) -> (Vec<$t>, Vec<$t>) {
            triangles::qr(a, m, n, full)
        }
        fn eigvalsh(a: &[$t], n: usize) -> Vec<$t> {
            spectra::eigh(a, n, false).0
        }
        fn eigh(a: &[$t], n: usize) -> (Vec<$t>, Vec<$t>) {
            spectra::eigh(a, n, true)
        }
        fn svdvals(a: &[$t], m: usize, n: usize) -> Vec<$t> {
            spectra::svdvals(a, m, n)
        }
        fn svd(a: &[$t], m: usize, n: usize, full: bool) -> (Vec<$t>, Vec<$t>, Vec<$t>) {
            spectra::svd(a, m, n, full)
        }
        fn pinv(a: &[$t], m: usize, n: usize, tolerance: f64) -> Vec<$t> {
            spectra::pinv(a, m, n, tolerance as $t)
        }
    }
)* } }
real!(f32, f64);

/// The number of elements that loops handle side by side.
const LANES: usize = 16;

/// The operations on elements that the algorithms need.
trait Element: faer::traits::RealField + Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    fn finite(self) -> bool;
    fn not_a_number(self) -> bool;
    fn modulus(self) -> Self;
    fn half(self) -> Self;
}
macro_rules! element { ($($t:ident),*) => { $(
    impl Element for $t {
        const ZERO: $t = 0.0;
        const ONE: $t = 1.0;
        const NAN: $t = $t::NAN;
        fn finite(self) -> bool {
            self.is_finite()
        }
        fn not_a_number(self) -> bool {
            self.is_nan()
        }
        fn modulus(self) -> $t {
            self.abs()
        }
        fn half(self) -> $t {
            0.5 * self
        }
    }
)* } }
element!(f32, f64);

/// Converts elements to float64, since determinants are products that lose precision.
fn wide<T: Copy + Into<f64>>(a: &[T]) -> Vec<f64> {
    a.iter().map(|x| (*x).into()).collect()
}

/// Returns a list of NaN.
fn nan<T: Element>(elements: usize) -> Vec<T> {
    vec![T::NAN; elements]
}

/// Returns the index of the first element with the maximum modulus; 0 if there is no element.
/// NaN counts as greater than all other values.
#[inline(always)]
fn first_largest<T: Element>(x: &[T]) -> usize {
    let greater = |x: T, most: T| if x > most || x.not_a_number() { x } else { most };
    let mut lanes = [T::ZERO; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (most, x) in lanes.iter_mut().zip(chunk) {
            *most = greater(x.modulus(), *most);
        }
    }
    let most = rest.iter().map(|x| x.modulus()).chain(lanes).fold(T::ZERO, |most, x| greater(x, most));
    let is_most = |x: &T| x.modulus() == most || (x.not_a_number() && most.not_a_number());
    x.iter().position(is_most).unwrap_or(0)
}

fn finite<T: Element>(a: &[T]) -> bool {
    a.iter().all(|x| x.finite())
}
