//! Linear algebra: factors, solutions and spectra of the matrices that the last two dimensions are.

use super::Array;
use super::creation::plain;
use super::products::ProductOptions;
use crate::diagnostic::{ErrorKind, Fault};
use crate::ops::elementwise::Binary;
use crate::ops::linalg::{
    Cholesky, Det, Eigh, Eigvalsh, Inv, Lu, Pinv, Qr, Slogdet, Solve, Svd, Svdvals, TriangularSolve,
};
use crate::ops::reduce::Reduction;
use crate::ops::shape::Transpose;
use crate::program::{Call, Primitive};
use crate::trace::{apply, apply1, carried, poison};
use crate::types::{ArrayType, DType, Scalar};
use std::borrow::Borrow;
use std::sync::Arc;

/// How [`Array::triangular_solve`] reads the triangular matrix, and on which side it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TriangularOptions {
    /// Whether it is on the left, a·x = b; else x·a = b.
    pub left_side: bool,
    /// Whether its lower triangle is read; else the upper one.
    pub lower: bool,
    /// Whether its transpose takes its place.
    pub transpose_a: bool,
    /// Whether its diagonal is taken as 1.
    pub unit_diagonal: bool,
}

impl TriangularOptions {
    /// The same; the matrix is on the left: a·x = b.
    ///
    /// ```
    /// use atmesh::{TriangularOptions, prelude::*};
    /// let how = TriangularOptions::default().left_side().lower();
    /// assert!(how.left_side && how.lower && !how.transpose_a);
    /// ```
    pub fn left_side(self) -> TriangularOptions {
        TriangularOptions { left_side: true, ..self }
    }
    /// The same; the lower triangle is read.
    pub fn lower(self) -> TriangularOptions {
        TriangularOptions { lower: true, ..self }
    }
    /// The same of the transposed matrix.
    pub fn transpose_a(self) -> TriangularOptions {
        TriangularOptions { transpose_a: true, ..self }
    }
    /// The same; whatever is on the diagonal, it is taken as 1.
    pub fn unit_diagonal(self) -> TriangularOptions {
        TriangularOptions { unit_diagonal: true, ..self }
    }
}

/// # Linear algebra
impl Array {
    fn of_matrices<const N: usize>(&self, prim: impl Primitive, call: Call<'_>) -> [Array; N] {
        let mut made = apply(Arc::new(prim), &[self.into()], call).into_iter();
        // a refusal is one array
        let first = made.next().unwrap_or_else(|| self.clone());
        std::array::from_fn(
            |k| if k == 0 { first.clone() } else { made.next().unwrap_or_else(|| first.clone()) },
        )
    }
    /// The lower triangular L of (a + aᵀ)/2 = L·Lᵀ, for the matrices of the last two dimensions; NaN on and below the diagonal where they
    /// are not positive definite.
    ///
    /// As of all linear algebra here: of floats (16-bit ones are computed in float32); leading dimensions are a batch, sharded any way, each
    /// device computes its own matrices; the last two dimensions are unsharded.
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
        let [l] = self.of_matrices(Cholesky, Call::here("cholesky"));
        l
    }
    /// The upper triangular U of (a + aᵀ)/2 = Uᵀ·U; as [`cholesky`](Array::cholesky).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let a = Array::from([[4.0, 2.0], [2.0, 5.0]]);
    /// assert_eq!(a.cholesky_upper().to_vec::<f64>()?, [2.0, 1.0, 0.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky_upper(&self) -> Array {
        self.told(Call::here("cholesky_upper"), |call| {
            let [l] = self.of_matrices(Cholesky, call);
            let Ok(ty) = l.type_ref() else { return l };
            let mut permutation: Vec<usize> = (0..ty.rank()).collect();
            permutation.swap(ty.rank() - 2, ty.rank() - 1);
            apply1(Arc::new(Transpose { permutation }), &[(&l).into()], call)
        })
    }
    /// x of x·a = b, where a is this triangular matrix: of it only the triangle is read that the options name. With `left_side` of a·x = b.
    ///
    /// Batches of both are sharded alike. Unsharded are a's dimension that is summed over (its rows, its columns with `left_side`, the other
    /// one with `transpose_a`) and b's of that size; the result has a's other sharding there.
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
    pub fn triangular_solve(&self, b: impl Borrow<Array>, how: TriangularOptions) -> Array {
        let TriangularOptions { left_side, lower, transpose_a, unit_diagonal } = how;
        let prim = TriangularSolve { left_side, lower, transpose_a, unit_diagonal };
        apply1(Arc::new(prim), &[self.into(), b.borrow().into()], Call::here("triangular_solve"))
    }
    /// x of a·x = b, where a is this; b has matrices too, as many, or is one vector beside one matrix. By factors with pivots. Of a singular
    /// matrix x is not finite.
    ///
    /// Batches of both are sharded alike, the matrices' dimensions are unsharded; see [`cholesky`](Array::cholesky).
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
        let (call, b) = (Call::here("solve"), b.borrow());
        let (Ok(ta), Ok(tb)) = (self.type_ref(), b.type_ref()) else {
            return carried([self, b].into_iter()).map_or_else(|| self.clone(), poison);
        };
        let prim = Arc::new(Solve { transposed: false });
        if ta.rank() != 2 || tb.rank() != 1 {
            return apply1(prim, &[self.into(), b.into()], call);
        }
        self.told(call, |call| {
            let column = b.new_dims(&[1], call);
            apply1(prim, &[self.into(), column.into()], call).without(&[1], call)
        })
    }
    /// Inverses of square matrices, not finite where there are none; see [`cholesky`](Array::cholesky). To solve a system,
    /// [`solve`](Array::solve) is quicker and more exact.
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
        let [y] = self.of_matrices(Inv, Call::here("inv"));
        y
    }
    /// Determinants of square matrices; the dimensions of these go. The derivative is right of singular matrices too. See
    /// [`cholesky`](Array::cholesky).
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
        let [y] = self.of_matrices(Det, Call::here("det"));
        y
    }
    /// The determinants' signs and the logarithms of their moduli, which do not overflow: 0 and −∞ of singular matrices. See
    /// [`cholesky`](Array::cholesky).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (sign, log) = Array::from([[0.0, 1.0], [1.0, 0.0]]).slogdet();
    /// assert_eq!((sign.item::<f64>()?, log.item::<f64>()?), (-1.0, 0.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn slogdet(&self) -> (Array, Array) {
        let [sign, log] = self.of_matrices(Slogdet, Call::here("slogdet"));
        (sign, log)
    }
    /// Factors of m×n matrices with partial pivoting, by the greatest modulus: L (below the diagonal; its own diagonal is 1) and U in one
    /// matrix; the pivots, int32: row i was exchanged with row `pivots[i]`; and the permutation that they make, int32: row i of L·U is row
    /// `permutation[i]`. See [`cholesky`](Array::cholesky).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (lu, pivots, permutation) = Array::from([[1.0, 2.0], [2.0, 2.0]]).lu();
    /// assert_eq!(lu.to_vec::<f64>()?, [2.0, 2.0, 0.5, 1.0]);
    /// assert_eq!((pivots.to_vec::<i32>()?, permutation.to_vec::<i32>()?), (vec![1, 1], vec![1, 0]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn lu(&self) -> (Array, Array, Array) {
        let [lu, pivots, permutation] = self.of_matrices(Lu, Call::here("lu"));
        (lu, pivots, permutation)
    }
    /// q, whose columns are orthonormal, and r, which is 0 below the diagonal, of m×n matrices: m×m and m×n with `full_matrices`, else m×k
    /// and k×n, where k is the lesser of both. Signs are as they come. See [`cholesky`](Array::cholesky).
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
        let [q, r] = self.of_matrices(Qr { full_matrices }, Call::here("qr"));
        (q, r)
    }
    /// Eigenvalues of the symmetric matrices (a + aᵀ)/2, rising, and eigenvectors, in the columns of matrices, of each the greatest
    /// element positive. Where eigenvalues are equal the vectors are some of many, and have no derivative. See [`cholesky`](Array::cholesky).
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
        let [w, v] = self.of_matrices(Eigh, Call::here("eigh"));
        (w, v)
    }
    /// The eigenvalues of [`eigh`](Array::eigh) alone.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[3.0, 0.0], [0.0, 1.0]]).eigvalsh().to_vec::<f64>()?, [1.0, 3.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn eigvalsh(&self) -> Array {
        let [w] = self.of_matrices(Eigvalsh, Call::here("eigvalsh"));
        w
    }
    /// u, the singular values s, falling, and vᵀ, of m×n matrices: a = u·diag(s)·vᵀ. u and v are square with `full_matrices`, else they have
    /// as many columns as there are singular values. The greatest element of each row of vᵀ is positive. See [`cholesky`](Array::cholesky).
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
        let [u, s, vt] = self.of_matrices(Svd { full_matrices }, Call::here("svd"));
        (u, s, vt)
    }
    /// The singular values of [`svd`](Array::svd) alone.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[0.0, 2.0], [3.0, 0.0]]).svdvals().to_vec::<f64>()?, [3.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn svdvals(&self) -> Array {
        let [s] = self.of_matrices(Svdvals, Call::here("svdvals"));
        s
    }
    /// Powers of square matrices: products, as few as possible; of the inverse where `n` is negative. The 0th is the unit matrix, unsharded.
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
        let call = Call::here("matrix_power");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let square = |m: usize, n: usize| m == n;
        match ty.shape[..] {
            [.., rows, columns] if square(rows, columns) => {}
            _ => {
                let fault =
                    Fault::new(ErrorKind::Shape, format!("powers are of square matrices, not of {ty}"));
                return self.refuse(
                    fault.help("make the last two sizes equal: `slice`, `pad`, `.reshape(…)`"),
                    call,
                );
            }
        }
        self.told(call, |call| match n {
            0 => self.unit_matrices(ty, call),
            1 => self.clone(),
            _ if n < 0 => {
                let [inverse] = self.of_matrices(Inv, call);
                inverse.power_at(n.unsigned_abs(), call)
            }
            _ => self.power_at(n.unsigned_abs(), call),
        })
    }
    fn power_at(&self, mut n: u64, call: Call<'_>) -> Array {
        let product = |x: &Array, y: &Array| x.matmul_at(y, ProductOptions::default(), call);
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
    /// As many unit matrices, unsharded.
    fn unit_matrices(&self, ty: &ArrayType, call: Call<'_>) -> Array {
        let whole = crate::sharding::Spec::whole(ty.rank());
        let of = ArrayType { dtype: DType::I32, spec: whole, ..plain(ty) };
        let index = |d| Array::iota_at(of.clone(), d, call);
        let (rows, columns) = (index(ty.rank() - 2), index(ty.rank() - 1));
        rows.with(Binary::Eq, &columns, call).astype_at(ty.dtype, call)
    }
    /// The inverses, after Moore and Penrose, of m×n matrices that may have none; singular values up to `tolerance` times the greatest count
    /// as 0, by default 10 · the greater size · the distance from 1 to the next number. See [`cholesky`](Array::cholesky).
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
        self.pinv_at(tolerance, 10.0, Call::here("pinv"))
    }
    fn pinv_at(&self, tolerance: Option<f64>, times: f64, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let tolerance = Scalar::Float(tolerance.unwrap_or_else(|| times * rounding(ty)));
        let [p] = self.of_matrices(Pinv { tolerance }, call);
        p
    }
    /// How many singular values are greater than `tolerance` times the greatest, int32; by default the greater size · the distance from 1 to
    /// the next number. See [`cholesky`](Array::cholesky).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[1.0, 2.0], [2.0, 4.0]]).matrix_rank(None).item::<i32>()?, 1);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matrix_rank(&self, tolerance: Option<f64>) -> Array {
        self.told(Call::here("matrix_rank"), |call| {
            let Ok(ty) = self.type_ref() else { return self.clone() };
            let tolerance = tolerance.unwrap_or_else(|| rounding(ty));
            let [s] = self.of_matrices(Svdvals, call);
            let Ok(values) = s.type_ref() else { return s };
            let last = values.rank() - 1;
            if values.shape[last] == 0 {
                return s.astype_at(DType::I32, call).sum_at([last].into(), None, call);
            }
            let greatest = s.part(last, 0, 1, call).with(Binary::Mul, tolerance, call);
            let counts = s.with(Binary::Gt, &greatest, call).astype_at(DType::I32, call);
            apply1(super::prims::reduce(Reduction::Sum, &[last], None), &[(&counts).into()], call)
        })
    }
    /// The x for which a·x is nearest to b, in the sum of squares, and of these the shortest; a is this, m×n. b is as for
    /// [`solve`](Array::solve). Singular values up to `tolerance` times the greatest count as 0, by default the greater size · the distance
    /// from 1 to the next number.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// // a line through (0, 1), (1, 3), (2, 5)
    /// let a = Array::from([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]);
    /// let x = a.lstsq(Array::from([1.0, 3.0, 5.0]), None);
    /// assert!((x - Array::from([1.0, 2.0])).abs().max(..).item::<f64>()? < 1e-12);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("least_squares", "polyfit"))]
    #[track_caller]
    pub fn lstsq(&self, b: impl Borrow<Array>, tolerance: Option<f64>) -> Array {
        let b = b.borrow();
        self.told(Call::here("lstsq"), |call| {
            let p = self.pinv_at(tolerance, 1.0, call);
            match carried([&p, b].into_iter()) {
                Some(error) => poison(error),
                None => p.matmul_at(b, ProductOptions::default(), call),
            }
        })
    }
}

/// The greater size of matrices times the distance from 1 to the next number.
fn rounding(ty: &ArrayType) -> f64 {
    let size = ty.shape.iter().rev().take(2).copied().max().unwrap_or(0) as f64;
    size * match ty.dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => f64::from(half::f16::EPSILON),
        DType::BF16 => f64::from(half::bf16::EPSILON),
        _ => f64::from(f32::EPSILON),
    }
}
