//! Linear algebra on the matrices that the last two dimensions form: factorizations and solvers.
//!
//! Leading dimensions are batch dimensions and may be sharded in any way: each device computes the
//! matrices it holds. The last two dimensions must be unsharded. Elements are floats; 16-bit floats
//! are computed in float32. Without the feature `linalg` the methods return an error that names it.

use super::{Array, creation::fresh_type, errors::needs_unsharded_dim, operand, products::DotOptions};
use crate::api::trace::{apply, apply1, carried_errors, poison};
use crate::core::{ArrayType, Axes, DType, Fault, Scalar, Spec};
use crate::ir::ops::linalg::{
    Cholesky, Det, Eigh, Eigvalsh, Inv, Lu, Pinv, Qr, Slogdet, Solve, Svd, Svdvals, TriangularSolve,
};
use crate::ir::program::{CallSite, Primitive};
use crate::ir::{ops::elementwise::Binary, ops::reduce::Reduction, ops::shape::Transpose};
use std::borrow::Borrow;
use std::sync::Arc;

/// Options of [`Array::triangular_solve`]: the side, and how the triangular matrix is read.
///
/// ```
/// use atmesh::prelude::*;
/// let a = Array::from([[2.0f32, 0.0], [1.0, 1.0]]);
/// let b = Array::from([[2.0f32], [3.0]]);
/// let x = a.triangular_solve(&b, TriangularOptions::default().left_side().lower());
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TriangularOptions {
    /// True to solve a·x = b; false (the default) to solve x·a = b.
    pub left_side: bool,
    /// True to read the lower triangle; false (the default) to read the upper one.
    pub lower: bool,
    /// True to use the transpose of the matrix. Defaults to false.
    pub transpose_a: bool,
    /// True to assume a diagonal of ones without reading it. Defaults to false.
    pub unit_diagonal: bool,
}

impl TriangularOptions {
    setters! {
        /// Puts the triangular matrix on the left: a·x = b.
        ///
        /// ```
        /// use atmesh::{TriangularOptions, prelude::*};
        /// let how = TriangularOptions::default().left_side().lower();
        /// assert!(how.left_side && how.lower && !how.transpose_a);
        /// ```
        pub fn left_side() = left_side: true;
        /// Reads the lower triangle of the matrix.
        pub fn lower() = lower: true;
        /// Uses the transpose of the matrix.
        pub fn transpose_a() = transpose_a: true;
        /// Assumes a diagonal of ones, without reading it.
        pub fn unit_diagonal() = unit_diagonal: true;
    }
}

/// # Linear algebra
impl Array {
    /// Applies a primitive with `N` results to this array's matrices.
    fn apply_linalg<const N: usize>(&self, prim: impl Primitive, call: CallSite<'_>) -> [Array; N] {
        let mut made = apply(Arc::new(prim), &[self.into()], call).into_iter();
        // an error is returned as a single array: repeat it for all results
        let first = made.next().unwrap_or_else(|| self.clone());
        std::array::from_fn(
            |k| if k == 0 { first.clone() } else { made.next().unwrap_or_else(|| first.clone()) },
        )
    }
    /// Returns the lower Cholesky factor L, with L·Lᵀ = (a + aᵀ)/2.
    ///
    /// For matrices that are not positive definite, the lower triangle of the result is NaN.
    ///
    /// All linear algebra methods need the feature `linalg` of this crate. Elements are floats
    /// (16-bit floats are computed in float32). Leading dimensions are batch dimensions with any
    /// sharding; each device computes the matrices it holds. The last two dimensions must be
    /// unsharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[4.0, 2.0], [2.0, 5.0]]);
    /// assert_eq!(a.cholesky().to_vec::<f64>()?, [2.0, 0.0, 1.0, 2.0]);
    ///
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let many = Array::ones([4, 3, 3]);
    /// assert_eq!(type_of(many.put(&mesh, p!["X"]).cholesky()), "float32[4@X,3,3]");
    /// let e = Array::ones([4, 4]).put(&mesh, p!["X"]).cholesky().ty().unwrap_err();
    /// assert!(e.to_string().contains(".reshard(p![_, _])"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky(&self) -> Array {
        let [l] = self.apply_linalg(Cholesky, CallSite::here("cholesky"));
        l
    }
    /// Returns the upper Cholesky factor U, with Uᵀ·U = (a + aᵀ)/2.
    ///
    /// See [`cholesky`](Array::cholesky) for element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[4.0, 2.0], [2.0, 5.0]]);
    /// assert_eq!(a.cholesky_upper().to_vec::<f64>()?, [2.0, 1.0, 0.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky_upper(&self) -> Array {
        self.with_call_site(CallSite::here("cholesky_upper"), |call| {
            let [l] = self.apply_linalg(Cholesky, call);
            let Ok(ty) = l.type_ref() else { return l };
            let mut permutation: Vec<usize> = (0..ty.rank()).collect();
            permutation.swap(ty.rank() - 2, ty.rank() - 1);
            apply1(Arc::new(Transpose { permutation }), &[(&l).into()], call)
        })
    }
    /// Solves x·a = b for x (a·x = b with `left_side`); this array is the triangular matrix a.
    ///
    /// Only the triangle that the options select is read. Batch dimensions of both arrays must be
    /// sharded the same way. The dimension of a that the product a·x or x·a sums over must be
    /// unsharded, and so must the corresponding dimension of b. By default this is the second to
    /// last dimension of a, with `left_side` the last one; `transpose_a` swaps the two. The result
    /// takes the sharding of a's other dimension.
    ///
    /// ```
    /// use atmesh::{TriangularOptions, prelude::*};
    /// let l = Array::from([[2.0, 0.0], [1.0, 4.0]]);
    /// let b = Array::from([[2.0], [9.0]]);
    /// let how = TriangularOptions::default().left_side().lower();
    /// assert_eq!(l.triangular_solve(&b, how).to_vec::<f64>()?, [1.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("solve_triangular", "trsm"))]
    #[track_caller]
    pub fn triangular_solve(&self, b: impl Borrow<Array>, options: TriangularOptions) -> Array {
        let TriangularOptions { left_side, lower, transpose_a, unit_diagonal } = options;
        let prim = TriangularSolve { left_side, lower, transpose_a, unit_diagonal };
        apply1(Arc::new(prim), &[self.into(), b.borrow().into()], CallSite::here("triangular_solve"))
    }
    /// Solves a·x = b for x, where this array is a, by LU factorization with partial pivoting.
    ///
    /// b has the same batch dimensions; for a single matrix it may also be a vector. If a
    /// pivot of a is exactly 0, x has infinities or NaN. Batch dimensions of both arrays must be
    /// sharded the same way; see [`cholesky`](Array::cholesky).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[2.0, 1.0], [0.0, 4.0]]);
    /// assert_eq!(a.solve(Array::from([4.0, 8.0])).to_vec::<f64>()?, [1.0, 2.0]);
    /// let g = grad(Array::from([4.0, 8.0]), |b| a.solve(b).sum(..));
    /// assert_eq!(g.to_vec::<f64>()?, [0.5, 0.125]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn solve(&self, b: impl Borrow<Array>) -> Array {
        let (call, b) = (CallSite::here("solve"), b.borrow());
        let [ta, tb] = ok_or_return!(operand::types([self, b]));
        let prim = Arc::new(Solve { transposed: false });
        if ta.rank() != 2 || tb.rank() != 1 {
            return apply1(prim, &[self.into(), b.into()], call);
        }
        self.with_call_site(call, |call| {
            let column = b.expand_dims_at(&[1], call);
            apply1(prim, &[self.into(), column.into()], call).squeeze_at(&[1], call)
        })
    }
    /// Returns the inverses of square matrices.
    ///
    /// If a pivot is exactly 0, the result has infinities or NaN. Rounding can hide that a matrix
    /// is singular; then the elements are finite and large.
    ///
    /// To solve a linear system, [`solve`](Array::solve) is faster and more accurate. See
    /// [`cholesky`](Array::cholesky) for element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[2.0, 0.0], [0.0, 4.0]]);
    /// assert_eq!(a.inv().to_vec::<f64>()?, [0.5, 0.0, 0.0, 0.25]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "inverse")]
    #[track_caller]
    pub fn inv(&self) -> Array {
        let [y] = self.apply_linalg(Inv, CallSite::here("inv"));
        y
    }
    /// Returns the determinants of square matrices, whose dimensions are removed.
    ///
    /// The derivative is correct for singular matrices too. See [`cholesky`](Array::cholesky) for
    /// element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(a.det().item::<f64>()?, -2.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "determinant")]
    #[track_caller]
    pub fn det(&self) -> Array {
        let [y] = self.apply_linalg(Det, CallSite::here("det"));
        y
    }
    /// Returns the sign of each determinant and the logarithm of its absolute value.
    ///
    /// Unlike [`det`](Array::det) this does not overflow. A singular matrix gives 0 and −∞. See
    /// [`cholesky`](Array::cholesky) for element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (sign, log) = Array::from([[0.0, 1.0], [1.0, 0.0]]).slogdet();
    /// assert_eq!((sign.item::<f64>()?, log.item::<f64>()?), (-1.0, 0.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn slogdet(&self) -> (Array, Array) {
        let [sign, log] = self.apply_linalg(Slogdet, CallSite::here("slogdet"));
        (sign, log)
    }
    /// Returns the LU factorization of m×n matrices with partial pivoting.
    ///
    /// The results are `(lu, pivots, permutation)`. `lu` holds U in its upper triangle and, below
    /// the diagonal, L without its diagonal of ones. `pivots` (int32) are the row exchanges: row i
    /// was exchanged with row `pivots[i]`. `permutation` (int32) is their product: row i of L·U is
    /// row `permutation[i]` of the matrix. See [`cholesky`](Array::cholesky) for element types and
    /// shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (lu, pivots, permutation) = Array::from([[1.0, 2.0], [2.0, 2.0]]).lu();
    /// assert_eq!(lu.to_vec::<f64>()?, [2.0, 2.0, 0.5, 1.0]);
    /// assert_eq!((pivots.to_vec::<i32>()?, permutation.to_vec::<i32>()?),
    ///     (vec![1, 1], vec![1, 0]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn lu(&self) -> (Array, Array, Array) {
        let [lu, pivots, permutation] = self.apply_linalg(Lu, CallSite::here("lu"));
        (lu, pivots, permutation)
    }
    /// Returns the QR factorization of m×n matrices: orthonormal columns q, upper triangular r.
    ///
    /// The shapes are m×m and m×n with `full_matrices`, otherwise m×k and k×n with k = min(m, n).
    /// Signs are not normalized. See [`cholesky`](Array::cholesky) for element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[3.0, 1.0], [4.0, 2.0]]);
    /// let (q, r) = a.qr(false);
    /// assert!((q.dot(&r) - a).abs().max(..).item::<f64>()? < 1e-12);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn qr(&self, full_matrices: bool) -> (Array, Array) {
        let call = CallSite::here("qr");
        if let Some(error) = self.sharded_rows_error(full_matrices, call) {
            return (error.clone(), error);
        }
        let [q, r] = self.apply_linalg(Qr { full_matrices }, call);
        (q, r)
    }
    /// Returns the error of [`qr`](Array::qr) for matrices whose rows are sharded.
    fn sharded_rows_error(&self, full_matrices: bool, call: CallSite<'_>) -> Option<Array> {
        let ty = self.type_ref().ok().filter(|ty| ty.rank() >= 2)?;
        let [rows, columns] = [ty.rank() - 2, ty.rank() - 1];
        if !ty.spec.padded(ty.rank()).dim(columns).is_empty() {
            return None; // both dimensions must be unsharded
        }
        let island = |spec: Spec| {
            let r = spec.with_dim(rows, &Axes::none());
            (format!("qr({full_matrices})"), format!("({spec}, {r})"))
        };
        needs_unsharded_dim(ty, rows, island).map(|fault| self.reject(fault, call))
    }
    /// Returns the eigenvalues, ascending, and eigenvectors of the symmetric matrices (a + aᵀ)/2.
    ///
    /// Eigenvectors are the columns of the second result, with signs such that the element of
    /// largest absolute value is positive. Eigenvectors of equal eigenvalues are not unique, and
    /// have no derivative. See [`cholesky`](Array::cholesky) for element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[2.0, 1.0], [1.0, 2.0]]);
    /// let (w, v) = a.eigh();
    /// let near = |x: &Array, y: &Array| (x - y).abs().max(..).item::<f64>().map(|d| d < 1e-12);
    /// assert!(near(&w, &Array::from([1.0, 3.0]))?);
    /// assert!(near(&a.dot(&v), &(&v * &w))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn eigh(&self) -> (Array, Array) {
        let [w, v] = self.apply_linalg(Eigh, CallSite::here("eigh"));
        (w, v)
    }
    /// Returns the eigenvalues of [`eigh`](Array::eigh) only.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[3.0, 0.0], [0.0, 1.0]]).eigvalsh().to_vec::<f64>()?, [1.0, 3.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn eigvalsh(&self) -> Array {
        let [w] = self.apply_linalg(Eigvalsh, CallSite::here("eigvalsh"));
        w
    }
    /// Returns the singular value decomposition a = u·diag(s)·vᵀ of m×n matrices, as `(u, s, vᵀ)`.
    ///
    /// The singular values s are descending. u and v are square with `full_matrices`; otherwise
    /// they have min(m, n) columns. In each row of vᵀ the element of largest absolute value is
    /// positive. See [`cholesky`](Array::cholesky) for element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]]);
    /// let (u, s, vt) = a.svd(false);
    /// assert!(((u * s).dot(&vt) - a).abs().max(..).item::<f64>()? < 1e-12);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn svd(&self, full_matrices: bool) -> (Array, Array, Array) {
        let [u, s, vt] = self.apply_linalg(Svd { full_matrices }, CallSite::here("svd"));
        (u, s, vt)
    }
    /// Returns the singular values of [`svd`](Array::svd) only, in descending order.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[0.0, 2.0], [3.0, 0.0]]).svdvals().to_vec::<f64>()?, [3.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "compute_uv")]
    #[track_caller]
    pub fn svdvals(&self) -> Array {
        let [s] = self.apply_linalg(Svdvals, CallSite::here("svdvals"));
        s
    }
    /// Raises square matrices to an integer power, by repeated squaring.
    ///
    /// A negative `n` uses the inverse. The power 0 is the identity matrix, unsharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[1.0, 1.0], [0.0, 1.0]]);
    /// assert_eq!(a.matrix_power(5).to_vec::<f64>()?, [1.0, 5.0, 0.0, 1.0]);
    /// assert_eq!(a.matrix_power(-1).to_vec::<f64>()?, [1.0, -1.0, 0.0, 1.0]);
    /// assert_eq!(a.matrix_power(0).to_vec::<f64>()?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matrix_power(&self, n: i64) -> Array {
        let call = CallSite::here("matrix_power");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if let Some(fault) = not_square("powers", ty) {
            return self.reject(fault, call);
        }
        self.with_call_site(call, |call| match n {
            0 => self.identity_like(ty, call),
            1 => self.clone(),
            _ if n < 0 => {
                let [inverse] = self.apply_linalg(Inv, call);
                inverse.power_at(n.unsigned_abs(), call)
            }
            _ => self.power_at(n.unsigned_abs(), call),
        })
    }
    /// Computes the `n`-th power, for n ≥ 1.
    fn power_at(&self, mut n: u64, call: CallSite<'_>) -> Array {
        let product = |x: &Array, y: &Array| x.matmul_at(y, DotOptions::default(), call);
        let (mut square, mut power) = (self.clone(), None);
        loop {
            if n & 1 == 1 {
                power = Some(power.map_or_else(|| square.clone(), |p| product(&p, &square)));
            }
            n >>= 1;
            match (n, power) {
                (0, Some(power)) => return power,
                (_, rest) => power = rest,
            }
            square = product(&square, &square);
        }
    }
    /// Returns identity matrices of this type, unsharded.
    pub(super) fn identity_like(&self, ty: &ArrayType, call: CallSite<'_>) -> Array {
        let replicated = crate::core::sharding::Spec::replicated(ty.rank());
        let of = ArrayType { dtype: DType::I32, spec: replicated, ..fresh_type(ty) };
        let index = |d| Array::iota_at(of.clone(), d, call);
        let (rows, columns) = (index(ty.rank() - 2), index(ty.rank() - 1));
        rows.binary_with(Binary::Eq, &columns, call).astype_at(ty.dtype, call)
    }
    /// Returns the Moore–Penrose pseudoinverses of m×n matrices.
    ///
    /// Singular values up to `tolerance` times the largest one count as 0. The default tolerance is
    /// 10 · max(m, n) · ε, where ε is the machine epsilon of the element type. See
    /// [`cholesky`](Array::cholesky) for element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let p = Array::from([[3.0], [4.0]]).pinv(None);
    /// assert_eq!(p.shape()?, [1, 2]);
    /// assert!((p - Array::from([[0.12, 0.16]])).abs().max(..).item::<f64>()? < 1e-12);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pinv(&self, tolerance: Option<f64>) -> Array {
        self.pinv_at(tolerance, 10.0, CallSite::here("pinv"))
    }
    /// Implements [`Array::pinv`]; the default tolerance is `times` · max(m, n) · ε.
    fn pinv_at(&self, tolerance: Option<f64>, times: f64, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let tolerance = Scalar::Float(tolerance.unwrap_or_else(|| times * default_tolerance(ty)));
        let [p] = self.apply_linalg(Pinv { tolerance }, call);
        p
    }
    /// Returns the ranks of m×n matrices, as int32.
    ///
    /// The rank is the number of singular values greater than `tolerance` times the largest one.
    /// The default tolerance is max(m, n) · ε, where ε is the machine epsilon of the element type.
    /// See [`cholesky`](Array::cholesky) for element types and shardings.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[1.0, 2.0], [2.0, 4.0]]).matrix_rank(None).item::<i32>()?, 1);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matrix_rank(&self, tolerance: Option<f64>) -> Array {
        self.with_call_site(CallSite::here("matrix_rank"), |call| {
            let Ok(ty) = self.type_ref() else { return self.clone() };
            let tolerance = tolerance.unwrap_or_else(|| default_tolerance(ty));
            let [s] = self.apply_linalg(Svdvals, call);
            let Ok(values) = s.type_ref() else { return s };
            let last = values.rank() - 1;
            if values.shape[last] == 0 {
                return s.astype_at(DType::I32, call).sum_at([last].into(), None, call);
            }
            let greatest = s.slice_dim(last, 0, 1, call).binary_with(Binary::Mul, tolerance, call);
            let counts = s.binary_with(Binary::Gt, &greatest, call).astype_at(DType::I32, call);
            apply1(super::prims::reduce(Reduction::Sum, &[last], None), &[(&counts).into()], call)
        })
    }
    /// Returns the least-squares solution x of a·x = b of minimum norm, where this m×n array is a.
    ///
    /// b is as for [`solve`](Array::solve). Singular values up to `tolerance` times the largest one
    /// count as 0. The default tolerance is max(m, n) · ε, where ε is the machine epsilon of the
    /// element type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// // fit a line through (0, 1), (1, 3), (2, 5)
    /// let a = Array::from([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]);
    /// let x = a.lstsq(Array::from([1.0, 3.0, 5.0]), None);
    /// assert!((x - Array::from([1.0, 2.0])).abs().max(..).item::<f64>()? < 1e-12);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("least_squares", "polyfit"))]
    #[track_caller]
    pub fn lstsq(&self, b: impl Borrow<Array>, tolerance: Option<f64>) -> Array {
        let b = b.borrow();
        self.with_call_site(CallSite::here("lstsq"), |call| {
            let p = self.pinv_at(tolerance, 1.0, call);
            match carried_errors([&p, b].into_iter()) {
                Some(error) => poison(error),
                None => p.matmul_at(b, DotOptions::default(), call),
            }
        })
    }
}

/// Returns the error of a function of square matrices for an array of another shape.
pub(super) fn not_square(what: &str, ty: &ArrayType) -> Option<Fault> {
    if matches!(ty.shape[..], [.., rows, columns] if rows == columns) {
        return None;
    }
    let fault = fault!(Shape, "{what} are of square matrices, not of {ty}");
    Some(fault.help("make the last two sizes equal: `slice`, `pad`, `.reshape(…)`"))
}

/// Returns max(m, n) times the machine epsilon of the element type.
fn default_tolerance(ty: &ArrayType) -> f64 {
    let size = ty.shape.iter().rev().take(2).copied().max().unwrap_or(0) as f64;
    size * match ty.dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => f64::from(half::f16::EPSILON),
        DType::BF16 => f64::from(half::bf16::EPSILON),
        _ => f64::from(f32::EPSILON),
    }
}
