//! Factors, solutions and spectra of one dense matrix, by `faer`: what the linear algebra of the crate `atmesh` computes of each matrix. It
//! is a crate of its own so that these functions are compiled once, and optimised in debug builds too.
//!
//! Matrices are slices in row-major order. Everything runs on the calling thread, and of memory of its own, which begins at the same
//! alignment each time: results are the same bits however many matrices there are and whoever asks. Nothing panics on the numbers that it
//! is given: where there is no answer (a matrix that is not positive definite, an element that is not finite) it is NaN.
//!
//! ```
//! use atmesh_linalg::Real;
//! let l = f64::cholesky(&[4.0, 2.0, 2.0, 5.0], 2);
//! assert_eq!(l, [2.0, 0.0, 1.0, 2.0]);
//! ```

#![warn(missing_docs)]

mod lu;
mod spectra;
mod triangles;

/// Factors L and U in one matrix, as [`Real::lu`] makes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Lu<T> {
    /// L below the diagonal, where its own elements are 1, and U.
    pub factors: Vec<T>,
    /// Row i was exchanged with row `pivots[i]`, for each i in order.
    pub pivots: Vec<usize>,
    /// Which row of the matrix is row i of the product of L and U.
    pub rows: Vec<usize>,
}

/// A triangular matrix as [`Real::triangular_solve`] reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Triangle {
    /// Whether its elements are those on and below the diagonal, else those on and above it. The others are not read.
    pub lower: bool,
    /// Whether the transpose takes its place.
    pub transposed: bool,
    /// Whether its diagonal is 1, whatever is there.
    pub unit: bool,
}

/// Elements: `f32` and `f64`. All matrices are in row-major order.
///
/// # Panics
/// All functions, if a slice has another length than its sizes say.
pub trait Real: Copy + Default + Send + Sync + 'static {
    /// L of (a + aᵀ)/2 = LLᵀ, zeros above the diagonal; NaN on and below it where that is not positive definite.
    fn cholesky(a: &[Self], n: usize) -> Vec<Self>;
    /// x of a·x = b, where b has k columns, or of x·a = b, where `right` and b has k rows.
    fn triangular_solve(a: &[Self], n: usize, how: Triangle, right: bool, b: &[Self], k: usize) -> Vec<Self>;
    /// Factors of an m×n matrix, with partial pivoting by the greatest modulus, the first of equal ones.
    fn lu(a: &[Self], m: usize, n: usize) -> Lu<Self>;
    /// x of a·x = b, or of aᵀ·x = b, where b has k columns. Of a singular matrix it is not finite.
    fn solve(a: &[Self], n: usize, transposed: bool, b: &[Self], k: usize) -> Vec<Self>;
    /// The inverse; of a singular matrix it is not finite.
    fn inv(a: &[Self], n: usize) -> Vec<Self>;
    /// The determinant.
    fn det(a: &[Self], n: usize) -> Self;
    /// The determinant's sign and the logarithm of its modulus: 0 and −∞ of a singular matrix.
    fn slogdet(a: &[Self], n: usize) -> (Self, Self);
    /// The derivatives of the determinant by the elements, of singular matrices too.
    fn cofactors(a: &[Self], n: usize) -> Vec<Self>;
    /// q and r of an m×n matrix: m×k and k×n, where k is m with `full`, else the lesser of both.
    fn qr(a: &[Self], m: usize, n: usize, full: bool) -> (Vec<Self>, Vec<Self>);
    /// Eigenvalues of (a + aᵀ)/2, rising.
    fn eigvalsh(a: &[Self], n: usize) -> Vec<Self>;
    /// The same, and eigenvectors in the columns of a matrix.
    fn eigh(a: &[Self], n: usize) -> (Vec<Self>, Vec<Self>);
    /// Singular values of an m×n matrix, falling.
    fn svdvals(a: &[Self], m: usize, n: usize) -> Vec<Self>;
    /// u, the singular values, and vᵀ: m×m and n×n with `full`, else m×k and k×n, where k is the lesser of both.
    fn svd(a: &[Self], m: usize, n: usize, full: bool) -> (Vec<Self>, Vec<Self>, Vec<Self>);
    /// The n×m matrix that is the inverse where there is one: singular values up to `tolerance` times the greatest count as 0.
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

/// What the algorithms need of elements.
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

/// The numbers in which determinants are computed: as products of many they lose digits.
fn wide<T: Copy + Into<f64>>(a: &[T]) -> Vec<f64> {
    a.iter().map(|x| (*x).into()).collect()
}

/// A slice as a matrix in memory of its own, where each column begins aligned.
fn matrix<T: Element>(a: &[T], m: usize, n: usize) -> faer::Mat<T> {
    assert_eq!(a.len(), m * n, "{m}×{n}");
    faer::Mat::from_fn(m, n, |i, j| a[i * n + j])
}

/// (a + aᵀ)/2
fn symmetric<T: Element>(a: &[T], n: usize) -> faer::Mat<T> {
    assert_eq!(a.len(), n * n, "{n}×{n}");
    // halves first: their sum does not overflow
    faer::Mat::from_fn(
        n,
        n,
        |i, j| if i == j { a[i * n + i] } else { a[i * n + j].half() + a[j * n + i].half() },
    )
}

/// The elements row by row.
fn rows<T: Element>(a: faer::MatRef<'_, T>) -> Vec<T> {
    let (m, n) = a.shape();
    let mut list = Vec::with_capacity(m * n);
    for i in 0..m {
        list.extend((0..n).map(|j| a[(i, j)]));
    }
    list
}

/// All of these elements NaN.
fn nan<T: Element>(elements: usize) -> Vec<T> {
    vec![T::NAN; elements]
}

fn finite<T: Element>(a: &[T]) -> bool {
    a.iter().all(|x| x.finite())
}
