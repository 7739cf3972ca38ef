//! Statistics: NaN-ignoring reductions, norms, weighted means and covariance.
//!
//! Reductions that ignore NaN replace it by a neutral element. `nanmean` and `nanvar` divide by the
//! number of remaining elements.

use super::{Array, Contraction, Operand, Term, dims::Dims, operand, prims, reductions::Extreme};
use crate::api::trace::apply1;
use crate::core::{DType, ErrorKind, Fault, Scalar, Spec};
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::program::{CallSite, UserOperand};
use std::borrow::Borrow;

/// # Statistics
impl Array {
    /// Returns true for elements that are NaN; false for all integers.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN]).is_nan().to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "isnan")]
    #[track_caller]
    pub fn is_nan(&self) -> Array {
        self.with_call_site(CallSite::here("is_nan"), |call| self.nan_mask(call))
    }
    /// Returns the mask of NaN elements.
    fn nan_mask(&self, call: CallSite<'_>) -> Array {
        self.binary_with(Binary::Ne, self, call)
    }
    /// Returns true for elements that are infinite; false for all integers.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NEG_INFINITY]).is_inf().to_vec::<bool>()?,
    ///     [false, true]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "isinf")]
    #[track_caller]
    pub fn is_inf(&self) -> Array {
        self.with_call_site(CallSite::here("is_inf"), |call| match self.type_ref() {
            Ok(ty) if ty.dtype.is_inexact() => {
                self.unary(Unary::Abs, call).binary_with(Binary::Eq, f64::INFINITY, call)
            }
            _ => self.binary_with(Binary::Ne, self, call),
        })
    }
    /// Replaces NaN by a number.
    pub(super) fn replace_nan(&self, number: f64, call: CallSite<'_>) -> Array {
        match self.type_ref() {
            Ok(ty) if ty.dtype.is_inexact() => {
                self.nan_mask(call).select_at(Term::Number(Scalar::Float(number)), self.term(), call)
            }
            _ => self.clone(),
        }
    }
    /// Counts the elements that are not NaN, in the element type of `like`.
    fn count_non_nan(&self, dims: &Dims, like: &Array, call: CallSite<'_>) -> Array {
        let dtype = like.type_ref().map_or(DType::F32, |ty| ty.dtype);
        self.binary_with(Binary::Eq, self, call).astype_at(dtype, call).sum_at(dims.clone(), None, call)
    }
    /// Sums over dimensions, ignoring NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN, 2.0]).nansum(..).item::<f32>()?, 3.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nansum(&self, dims: impl Into<Dims>) -> Array {
        self.with_call_site(CallSite::here("nansum"), |call| {
            self.replace_nan(0.0, call).sum_at(dims.into(), None, call)
        })
    }
    /// Multiplies over dimensions, ignoring NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([3.0f32, f32::NAN, 2.0]).nanprod(..).item::<f32>()?, 6.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanprod(&self, dims: impl Into<Dims>) -> Array {
        self.with_call_site(CallSite::here("nanprod"), |call| {
            self.replace_nan(1.0, call).prod_at(dims.into(), call)
        })
    }
    /// Returns the maximum over dimensions, ignoring NaN; NaN if all elements are NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[3.0f32, f32::NAN], [5.0, f32::NAN]]);
    /// assert_eq!(x.nanmax(0).to_string(), "[ 5. nan]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmax(&self, dims: impl Into<Dims>) -> Array {
        self.with_call_site(CallSite::here("nanmax"), |call| {
            self.nan_extreme(dims.into(), Extreme::Maximum, call)
        })
    }
    /// Returns the minimum over dimensions, ignoring NaN; NaN if all elements are NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([3.0f32, f32::NAN, 5.0]).nanmin(0).item::<f32>()?, 3.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmin(&self, dims: impl Into<Dims>) -> Array {
        self.with_call_site(CallSite::here("nanmin"), |call| {
            self.nan_extreme(dims.into(), Extreme::Minimum, call)
        })
    }
    /// Implements [`Array::nanmax`] and [`Array::nanmin`].
    fn nan_extreme(&self, dims: Dims, which: Extreme, call: CallSite<'_>) -> Array {
        let last = match which {
            Extreme::Maximum => f64::NEG_INFINITY,
            Extreme::Minimum => f64::INFINITY,
        };
        let found = self.replace_nan(last, call).extreme_at(dims.clone(), which, call);
        if !self.type_ref().is_ok_and(|ty| ty.dtype.is_float()) {
            return found;
        }
        let none = self.nan_mask(call).all_at(dims, call);
        none.select_at(Term::Number(Scalar::Float(f64::NAN)), found.term(), call)
    }
    /// Computes the mean over dimensions, ignoring NaN; NaN if all elements are NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN, 2.0]).nanmean(..).item::<f32>()?, 1.5);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmean(&self, dims: impl Into<Dims>) -> Array {
        let dims = dims.into();
        self.with_call_site(CallSite::here("nanmean"), |call| {
            self.to_mean_dtype(call).nanmean_at(dims, call).restore_dtype(self, call)
        })
    }
    /// Implements [`Array::nanmean`].
    fn nanmean_at(&self, dims: Dims, call: CallSite<'_>) -> Array {
        let count = self.count_non_nan(&dims, self, call);
        self.replace_nan(0.0, call).sum_at(dims, None, call).binary_with(Binary::Div, count, call)
    }
    forward! {
        /// Computes the population variance over dimensions, ignoring NaN; NaN if all elements are
        /// NaN.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([1.0f32, f32::NAN, 3.0]).nanvar(..).item::<f32>()?, 1.0);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn nanvar(dims: impl Into<Dims>) = nanvar_at(dims.into());
        /// Computes the covariance matrix of the rows of a matrix; for a vector its variance.
        ///
        /// Each row is a variable, each column an observation. The divisor is n − 1.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1.0f32, 2.0, 3.0], [2.0, 4.0, 6.0]]);
        /// assert_eq!(x.cov().to_vec::<f32>()?, [1.0, 2.0, 2.0, 4.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn cov() = cov_at(None), or "x.cov_to({})";
        /// Computes [`Array::cov`] with the result sharded (or left unreduced) as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::arange(0..8).astype(F32).reshape([2, 4]).put(&mesh, p![_, "X"]);
        /// assert_eq!(type_of(x.cov_to(p!["X"])), "float32[2@X,2]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn cov_to(out: Spec) = cov_at(Some(out));
        /// Computes the correlation coefficients of the rows of a matrix; for a vector it is 1.
        ///
        /// Each row is a variable, each column an observation. Rows without variance give NaN.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1.0f64, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 3.0, 0.0]]);
        /// let r = x.corrcoef();
        /// assert!(r.slice(ix![0, 1]).allclose(&Array::from(1.0))?);
        /// assert!(r.slice(ix![0, 2]).allclose(&Array::from(-(3.0f64.sqrt()) / 2.0))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn corrcoef() = corrcoef_at(None), or "x.corrcoef_to({})";
        /// Computes [`Array::corrcoef`] with the result sharded as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::arange(0..8).astype(F32).reshape([2, 4]).put(&mesh, p![_, "X"]);
        /// assert_eq!(type_of(x.corrcoef_to(p!["X"])), "float32[2@X,2]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn corrcoef_to(out: Spec) = corrcoef_at(Some(out));
    }
    /// Implements [`Array::nanvar`].
    fn nanvar_at(&self, dims: Dims, call: CallSite<'_>) -> Array {
        self.with_call_site(call, |call| {
            let x = self.to_mean_dtype(call);
            let off = x.binary_with(Binary::Sub, x.nanmean_at(Dims::keep(&dims), call), call);
            // mask by NaN elements only: an infinite deviation must not be dropped
            let off = x.nan_mask(call).select_at(Term::Number(Scalar::Float(0.0)), off.term(), call);
            let squares = off.modulus(call).unary(Unary::Square, call);
            let count = x.count_non_nan(&dims, &x, call);
            squares.sum_at(dims, None, call).binary_with(Binary::Div, count, call).restore_dtype(self, call)
        })
    }
    /// Computes the population standard deviation over dimensions, ignoring NaN.
    ///
    /// The result is NaN if all elements are NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN, 5.0]).nanstd(..).item::<f32>()?, 2.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanstd(&self, dims: impl Into<Dims>) -> Array {
        let dims = dims.into();
        self.with_call_site(CallSite::here("nanstd"), |call| {
            self.nanvar_at(dims, call).unary(Unary::Sqrt, call)
        })
    }
    /// Counts the non-zero elements (or `true` elements) over dimensions, as int32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[3, 0], [1, 2]]).count_nonzero(1).to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn count_nonzero(&self, dims: impl Into<Dims>) -> Array {
        self.with_call_site(CallSite::here("count_nonzero"), |call| {
            let some = match self.type_ref() {
                Ok(ty) if ty.dtype == DType::Bool => self.clone(),
                _ => self.binary_with(Binary::Ne, 0, call),
            };
            some.astype_at(DType::I32, call).sum_at(dims.into(), None, call)
        })
    }
    /// Computes the Euclidean norm √Σx² over dimensions; for a matrix the Frobenius norm.
    ///
    /// Integers are converted to float32 (64-bit integers to float64). The 1-norm is
    /// `x.abs().sum(d)`, the maximum norm `x.abs().max(d)`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[3.0f32, 4.0], [0.0, 2.0]]).norm(1).to_vec::<f32>()?, [5.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "ord")]
    #[track_caller]
    pub fn norm(&self, dims: impl Into<Dims>) -> Array {
        let dims = dims.into();
        self.with_call_site(CallSite::here("norm"), |call| {
            let squares = self.to_mean_dtype(call).modulus(call).unary(Unary::Square, call);
            squares.sum_at(dims, None, call).unary(Unary::Sqrt, call).restore_dtype(self, call)
        })
    }
    /// Computes the weighted mean over dimensions.
    ///
    /// `weights` has the array's shape, or for a single dimension is a vector of its size.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, w) = (Array::from([[1.0f32, 5.0], [2.0, 4.0]]), Array::from([3.0f32, 1.0]));
    /// assert_eq!(x.average(&w, 1).to_vec::<f32>()?, [2.0, 2.5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn average(&self, weights: impl Borrow<Array>, dims: impl Into<Dims>) -> Array {
        let (weights, dims, call) = (weights.borrow(), dims.into(), CallSite::here("average"));
        let [ty, wt] = ok_or_return!(operand::types([self, weights]));
        let terms = [Term::from(self), Term::from(weights)];
        let reject = |fault| operand::reject(fault, &terms, call);
        let axes = ok_or_return!(dims.resolve(ty.rank()), |fault| reject(fault));
        let along = match axes[..] {
            [d] if wt.rank() == 1 && ty.rank() > 1 && wt.shape[0] == ty.shape[d] => Some(d),
            _ if wt.shape == ty.shape => None,
            _ => {
                let message =
                    format!("weights of shape {} do not match an array of shape {}", wt.shape, ty.shape);
                let help = "give weights of the array's shape, or for one dimension a vector of its size";
                return reject(Fault::new(ErrorKind::Shape, message).help(help));
            }
        };
        // the dimension of the user's weights for each dimension: a broadcast vector has only one
        let own: Vec<usize> = (0..ty.rank()).map(|d| if along.is_some() { 0 } else { d }).collect();
        let source = |number, ty, dims| UserOperand { index: number, ty: Some(ty), dims };
        let shown = || operand::describe_all(&terms);
        let sources = [source(0, ty, None), source(1, wt, Some(&own[..]))];
        let call = call.with_operands(&shown, &sources);
        let x = self.to_mean_dtype(call);
        let dtype = x.type_ref().map_or(DType::F32, |ty| ty.dtype);
        let w = weights.astype_at(dtype, call);
        let spread = match along {
            Some(d) => w.expand_dims_at(&(0..ty.rank()).filter(|e| *e != d).collect::<Vec<_>>(), call),
            None => w,
        };
        let sum = x.binary_with(Binary::Mul, &spread, call).sum_at(dims.clone(), None, call);
        let all = spread.sum_at(dims, None, call);
        sum.binary_with(Binary::Div, all, call).restore_dtype(self, call)
    }
    /// Implements [`Array::cov`].
    fn cov_at(&self, out: Option<Spec>, call: CallSite<'_>) -> Array {
        let n = self.type_ref().ok().and_then(|ty| ty.shape.last()).map_or(0.0, |n| *n as f64);
        self.with_rows(call, |off, last, call| {
            off.row_products(last, out, call).binary_with(Binary::Div, n - 1.0, call)
        })
    }
    /// Calls `make` with the deviations of each row from its mean, and the last dimension.
    ///
    /// The array must be a vector or a matrix.
    fn with_rows(
        &self,
        call: CallSite<'_>,
        make: impl FnOnce(&Array, usize, CallSite<'_>) -> Array,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if !(1..=2).contains(&ty.rank()) {
            let message = format!("it takes a matrix, not an array of rank {}", ty.rank());
            let help = "a row for each variable: `.reshape([variables, n])`";
            return self.reject(Fault::new(ErrorKind::Shape, message).help(help), call);
        }
        let terms = [Term::from(self)];
        let shown = || operand::describe_all(&terms);
        let source = || UserOperand { index: 0, ty: Some(ty), dims: None };
        let sources = [source(), source()];
        let call = call.with_operands(&shown, &sources);
        let last = ty.rank() - 1;
        let x = self.to_mean_dtype(call);
        let off = x.binary_with(Binary::Sub, x.mean_at(Dims::keep(last), None, call), call);
        make(&off, last, call).restore_dtype(self, call)
    }
    /// Returns the products of all pairs of rows, summed over dimension `last`.
    fn row_products(&self, last: usize, out: Option<Spec>, call: CallSite<'_>) -> Array {
        let how = Contraction { contracting: vec![(last, last)], batch: Vec::new() };
        let args = [self.into(), (&self.conj_at(call)).into()];
        apply1(prims::dot_general(&how, out, None, None), &args, call)
    }
    /// Implements [`Array::corrcoef`].
    fn corrcoef_at(&self, out: Option<Spec>, call: CallSite<'_>) -> Array {
        self.with_rows(call, |off, last, call| {
            let squares = off.modulus(call).unary(Unary::Square, call);
            let norm = squares.sum_at(Dims::keep(last), None, call).unary(Unary::Sqrt, call);
            let norm = norm.astype_at(off.type_ref().map_or(DType::F32, |ty| ty.dtype), call);
            let rows = off.binary_with(Binary::Div, norm, call);
            let products = rows.row_products(last, out, call);
            // rounding must not leave the range of correlations
            match products.type_ref() {
                Ok(ty) if ty.dtype.is_float() => {
                    products.binary_with(Binary::Min, 1.0, call).binary_with(Binary::Max, -1.0, call)
                }
                _ => products,
            }
        })
    }
    /// Returns true for elements that are equal to one of `values`.
    ///
    /// Every element is compared with every value; for many values a search in a sorted list
    /// ([`searchsorted`](Array::searchsorted)) is faster.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2, 3, 4]).isin(&Array::from([4, 2])).to_vec::<bool>()?,
    ///     [false, true, false, true]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn isin(&self, values: impl Borrow<Array>) -> Array {
        let (values, call) = (values.borrow(), CallSite::here("isin"));
        let [ty, vt] = ok_or_return!(operand::types([self, values]));
        let terms = [Term::from(self), Term::from(values)];
        let shown = || operand::describe_all(&terms);
        let (rank, more) = (ty.rank(), vt.rank());
        let [own, other]: [Vec<usize>; 2] = [(0..rank).collect(), (0..more).collect()];
        let sources = [
            UserOperand { index: 0, ty: Some(ty), dims: Some(&own) },
            UserOperand { index: 1, ty: Some(vt), dims: Some(&other) },
        ];
        let call = call.with_operands(&shown, &sources);
        let x = if more == 0 {
            self.clone()
        } else {
            self.expand_dims_at(&(rank..rank + more).collect::<Vec<_>>(), call)
        };
        let same = x.binary_with(Binary::Eq, values, call);
        if more == 0 { same } else { same.any_at((rank..rank + more).collect::<Vec<_>>().into(), call) }
    }
}
