//! Reductions over dimensions, and functions built on them such as means and softmax.
//!
//! Sums and products of narrow integers are computed in 32 bits, and means of 16-bit floats in
//! float32.

use super::{Array, Operand, Term, dims::Dims, prims};
use crate::api::trace::apply1;
use crate::core::{DType, Spec, util::small_sort};
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::ops::reduce::{Reduction, empty_dim_fault};
use crate::ir::program::CallSite;

/// Selects the maximum or the minimum.
#[derive(Clone, Copy)]
pub(super) enum Extreme {
    /// The maximum.
    Maximum,
    /// The minimum.
    Minimum,
}

/// # Reductions
///
/// Reductions take a list of [`Dims`]: negative dimensions count from the end, `..` means all
/// dimensions, and `Dims::keep(d)` keeps reduced dimensions with size 1. The variants `…_to` also
/// take the result's sharding.
impl Array {
    /// Reduces over dimensions.
    fn reduce(&self, kind: Reduction, dims: Dims, out: Option<Spec>, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let axes = ok_or_return!(dims.resolve(ty.rank()), |fault| self.reject(fault, call));
        let reduced = apply1(prims::reduce(kind, &axes, out), &[self.into()], call);
        if dims.keeps_dims() && !axes.is_empty() {
            let mut axes = axes;
            small_sort::sort(&mut axes);
            return reduced.expand_dims_at(&axes, call);
        }
        reduced
    }
    /// Converts to the type in which integers are accumulated: at least 32 bits wide.
    fn widen_for_sum(&self, call: CallSite<'_>) -> Array {
        let to = match self.type_ref().map(|t| t.dtype) {
            Ok(DType::Bool | DType::I8 | DType::I16) => DType::I32,
            Ok(DType::U8 | DType::U16) => DType::U32,
            _ => return self.clone(),
        };
        apply1(prims::convert(to), &[self.into()], call)
    }
    /// Returns the number of elements that are combined into one.
    fn reduced_count(&self, dims: &Dims) -> usize {
        let Ok(ty) = self.type_ref() else { return 1 };
        dims.resolve(ty.rank()).map_or(1, |axes| axes.iter().map(|d| ty.shape[*d]).product())
    }
    forward! {
        /// Sums over dimensions.
        ///
        /// Booleans and integers of fewer than 32 bits are summed in 32 bits. Convert first to sum
        /// in another type: `x.astype(F64).sum(..)`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::arange(0..6).reshape([2, 3]);
        /// assert_eq!(x.sum(0).to_vec::<i32>()?, [3, 5, 7]);
        /// assert_eq!(x.sum(Dims::keep(-1)).shape()?, [2, 1]);
        /// assert_eq!(x.sum(..).item::<i32>()?, 15);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn sum(dims: impl Into<Dims>) = sum_at(dims.into(), None), or "x.sum_to(dims, {})";
        /// Computes [`Array::sum`] with the result sharded (or left unreduced) as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
        /// assert_eq!(type_of(x.sum_to(1, p!["X"])), "float32[4@X]");
        /// assert_eq!(type_of(x.sum_to(1, p![_; U: "X"])), "float32[4]{U:X}");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn sum_to(dims: impl Into<Dims>, out: Spec) = sum_at(dims.into(), Some(out));
        /// Multiplies over dimensions.
        ///
        /// Booleans and integers of fewer than 32 bits are multiplied in 32 bits.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::arange(1..5).prod(..).item::<i32>()?, 24);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn prod(dims: impl Into<Dims>) = prod_at(dims.into());
        /// Returns the maximum over dimensions; NaN if any element is NaN.
        ///
        /// An empty dimension is an error.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[3, 1], [2, 4]]);
        /// assert_eq!((x.max(0).to_vec::<i32>()?, x.min(..).item::<i32>()?), (vec![3, 4], 1));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn max(dims: impl Into<Dims>) = extreme_at(dims.into(), Extreme::Maximum);
        /// Returns the minimum over dimensions; NaN if any element is NaN.
        ///
        /// An empty dimension is an error.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([[3, 1], [2, 4]]).min(1).to_vec::<i32>()?, [1, 2]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn min(dims: impl Into<Dims>) = extreme_at(dims.into(), Extreme::Minimum);
        /// Returns true where any element along the given dimensions is non-zero.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[0, 1], [0, 0]]);
        /// assert_eq!((x.any(1).to_vec::<bool>()?, x.all(..).item::<bool>()?),
        ///     (vec![true, false], false));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn any(dims: impl Into<Dims>) = any_at(dims.into());
        /// Returns true where all elements along the given dimensions are non-zero.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([[0, 1], [2, 3]]).all(1).to_vec::<bool>()?, [false, true]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn all(dims: impl Into<Dims>) = all_at(dims.into());
        /// Computes the bitwise and over dimensions of an integer or boolean array.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([0b110, 0b011]).bit_and(..).item::<i32>()?, 0b010);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn bit_and(dims: impl Into<Dims>) = reduce(Reduction::And, dims.into(), None);
        /// Computes the bitwise or over dimensions of an integer or boolean array.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([0b110, 0b011]).bit_or(..).item::<i32>()?, 0b111);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn bit_or(dims: impl Into<Dims>) = reduce(Reduction::Or, dims.into(), None);
        /// Computes the population variance over dimensions.
        ///
        /// The result type is that of [`mean`](Array::mean); for complex numbers it is real.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([1.0f32, 3.0, 5.0, 7.0]);
        /// assert_eq!((x.mean(..).item::<f32>()?, x.var(..).item::<f32>()?), (4.0, 5.0));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn var(dims: impl Into<Dims>) = var_at(dims.into(), 0);
        /// Computes the variance over dimensions with n − `ddof` degrees of freedom.
        ///
        /// `ddof` = 1 gives the unbiased estimate from a sample.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([1.0f32, 3.0, 5.0, 7.0, 9.0]);
        /// assert_eq!((x.var(..).item::<f32>()?, x.var_ddof(.., 1).item::<f32>()?), (8.0, 10.0));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn var_ddof(dims: impl Into<Dims>, ddof: usize) = var_at(dims.into(), ddof);
        /// Computes the population standard deviation over dimensions.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([2.0f32, 6.0]).std(..).item::<f32>()?, 2.0);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn std(dims: impl Into<Dims>) = std_at(dims.into(), 0);
        /// Computes the standard deviation over dimensions with n − `ddof` degrees of freedom.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([0.0f32, 0.0, 6.0, 6.0, 3.0]);
        /// assert_eq!(x.std_ddof(.., 1).item::<f32>()?, 3.0);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn std_ddof(dims: impl Into<Dims>, ddof: usize) = std_at(dims.into(), ddof);
    }
    /// Implements [`Array::sum`].
    pub(crate) fn sum_at(&self, dims: Dims, out: Option<Spec>, call: CallSite<'_>) -> Array {
        self.with_call_site(call, |call| self.widen_for_sum(call).reduce(Reduction::Sum, dims, out, call))
    }
    /// Implements [`Array::prod`].
    pub(super) fn prod_at(&self, dims: Dims, call: CallSite<'_>) -> Array {
        self.with_call_site(call, |call| self.widen_for_sum(call).reduce(Reduction::Prod, dims, None, call))
    }
    /// Implements [`Array::max`] and [`Array::min`].
    pub(super) fn extreme_at(&self, dims: Dims, which: Extreme, call: CallSite<'_>) -> Array {
        let kind = match (which, self.is_bool()) {
            (Extreme::Maximum, true) => Reduction::Or,
            (Extreme::Maximum, false) => Reduction::Max,
            (Extreme::Minimum, true) => Reduction::And,
            (Extreme::Minimum, false) => Reduction::Min,
        };
        self.empty_dim_error(&dims, call).unwrap_or_else(|| self.reduce(kind, dims, None, call))
    }
    /// Returns an array that carries an error if one of these dimensions is empty.
    fn empty_dim_error(&self, dims: &Dims, call: CallSite<'_>) -> Option<Array> {
        let ty = self.type_ref().ok()?;
        let d = dims.resolve(ty.rank()).ok()?.into_iter().find(|d| ty.shape[*d] == 0)?;
        Some(self.reject(empty_dim_fault(d), call))
    }
    /// Returns the maximum over dimensions; the lowest value of the type for empty dimensions.
    fn max_or_lowest(&self, dims: Dims, call: CallSite<'_>) -> Array {
        let kind = if self.is_bool() { Reduction::Or } else { Reduction::Max };
        self.reduce(kind, dims, None, call)
    }
    /// Implements [`Array::any`].
    pub(super) fn any_at(&self, dims: Dims, call: CallSite<'_>) -> Array {
        self.with_call_site(call, |call| {
            self.astype_at(DType::Bool, call).reduce(Reduction::Or, dims, None, call)
        })
    }
    /// Implements [`Array::all`].
    pub(super) fn all_at(&self, dims: Dims, call: CallSite<'_>) -> Array {
        self.with_call_site(call, |call| {
            self.astype_at(DType::Bool, call).reduce(Reduction::And, dims, None, call)
        })
    }
    fn is_bool(&self) -> bool {
        self.type_ref().is_ok_and(|t| t.dtype == DType::Bool)
    }
    /// Computes the mean over dimensions.
    ///
    /// Integers are averaged in float32 (64-bit integers in float64). 16-bit floats are accumulated
    /// in float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[1, 2], [5, 6]]).mean(0).to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn mean(&self, dims: impl Into<Dims>) -> Array {
        let dims = dims.into();
        let call = CallSite::here("mean").with_explicit_form("x.mean_to(dims, {})");
        self.with_call_site(call, |call| {
            self.to_mean_dtype(call).mean_at(dims, None, call).restore_dtype(self, call)
        })
    }
    /// Computes [`Array::mean`] with the result sharded (or left unreduced) as `out`.
    ///
    /// An unreduced mean leaves the sum over devices to a later operation, so that a loop over
    /// batches needs one sum instead of one for each batch. It is float32 for 16-bit floats, which
    /// are rounded after the sum.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
    /// assert_eq!(type_of(x.mean_to(1, p!["X"])), "float32[4@X]");
    /// let partial = x.mean_to(1, p![_; U: "X"]);
    /// assert_eq!(type_of(&partial), "float32[4]{U:X}");
    /// assert_eq!(partial.reshard(p![]).to_vec::<f32>()?, [1.0; 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn mean_to(&self, dims: impl Into<Dims>, out: Spec) -> Array {
        let dims = dims.into();
        self.with_call_site(CallSite::here("mean_to"), |call| {
            let x = self.to_mean_dtype(call);
            if out.unreduced_axes().is_empty() {
                return x.mean_at(dims, Some(out), call).restore_dtype(self, call);
            }
            // an unreduced value cannot be divided or rounded: each term is divided
            let n = self.reduced_count(&dims);
            x.binary_with(Binary::Div, n as f64, call).sum_at(dims, Some(out), call)
        })
    }
    /// Computes the mean of a floating-point array.
    pub(super) fn mean_at(&self, dims: Dims, out: Option<Spec>, call: CallSite<'_>) -> Array {
        let n = self.reduced_count(&dims);
        self.sum_at(dims, out, call).binary_with(Binary::Div, n as f64, call)
    }
    /// Implements [`Array::var`].
    fn var_at(&self, dims: Dims, ddof: usize, call: CallSite<'_>) -> Array {
        let n = self.reduced_count(&dims).saturating_sub(ddof);
        self.with_call_site(call, |call| {
            let x = self.to_mean_dtype(call);
            let off = x.binary_with(Binary::Sub, x.mean_at(Dims::keep(&dims), None, call), call);
            let sum = off.modulus(call).unary(Unary::Square, call).sum_at(dims, None, call);
            sum.binary_with(Binary::Div, n as f64, call).restore_dtype(self, call)
        })
    }
    /// Implements [`Array::std`].
    fn std_at(&self, dims: Dims, ddof: usize, call: CallSite<'_>) -> Array {
        self.with_call_site(call, |call| self.var_at(dims, ddof, call).unary(Unary::Sqrt, call))
    }
    /// Returns the modulus of complex numbers; real arrays are returned unchanged.
    pub(super) fn modulus(&self, call: CallSite<'_>) -> Array {
        match self.type_ref() {
            Ok(ty) if ty.dtype.is_complex() => self.unary(Unary::Abs, call),
            _ => self.clone(),
        }
    }
    /// Converts to the type in which means are computed.
    ///
    /// This is float64 for 64-bit integers, and float32 for other integers and 16-bit floats.
    /// [`Array::restore_dtype`] converts results back.
    pub(super) fn to_mean_dtype(&self, call: CallSite<'_>) -> Array {
        match self.type_ref().map(|t| t.dtype) {
            Ok(DType::F32 | DType::F64 | DType::C64 | DType::C128) | Err(_) => self.clone(),
            Ok(DType::I64 | DType::U64) => self.astype_at(DType::F64, call),
            Ok(_) => self.astype_at(DType::F32, call),
        }
    }
    /// Converts a result back to the element type of `x`, if that is a 16-bit float.
    pub(super) fn restore_dtype(&self, x: &Array, call: CallSite<'_>) -> Array {
        match x.type_ref().map(|t| t.dtype) {
            Ok(dtype @ (DType::F16 | DType::BF16)) => self.astype_at(dtype, call),
            _ => self.clone(),
        }
    }
    /// Computes log Σ eˣ over dimensions, without overflow.
    ///
    /// Integers are converted to float32 (64-bit integers to float64).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1000.0f32, f32::NEG_INFINITY]).logsumexp(..).item::<f32>()?,
    ///     1000.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn logsumexp(&self, dims: impl Into<Dims>) -> Array {
        self.with_call_site(CallSite::here("logsumexp"), |call| self.logsumexp_at(dims.into(), call))
    }
    /// Implements [`Array::logsumexp`].
    fn logsumexp_at(&self, dims: Dims, call: CallSite<'_>) -> Array {
        if self.type_ref().is_ok_and(|t| !t.dtype.is_inexact()) {
            return self.to_mean_dtype(call).logsumexp_at(dims, call);
        }
        let most = self.max_or_lowest(Dims::keep(&dims), call);
        let finite = most.unary(Unary::IsFinite, call);
        let most =
            finite.select_at(Term::from(&most), most.zero().term(), call).unary(Unary::StopGradient, call);
        let sum = self.binary_with(Binary::Sub, &most, call).unary(Unary::Exp, call);
        let sum = sum.sum_at(Dims::keep(&dims), None, call).unary(Unary::Log, call);
        let sum = sum.binary_with(Binary::Add, &most, call);
        if dims.keeps_dims() {
            return sum;
        }
        let Ok(ty) = self.type_ref() else { return sum };
        let axes = ok_or_return!(dims.resolve(ty.rank()), |_| sum);
        sum.squeeze_at(&axes, call)
    }
    /// Computes the softmax eˣ / Σ eˣ over dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[5.0f32, 5.0], [90.0, -90.0]]).softmax(1).to_vec::<f32>()?,
    ///     [0.5, 0.5, 1.0, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax(&self, dims: impl Into<Dims>) -> Array {
        let dims = Dims::keep(dims);
        self.with_call_site(CallSite::here("softmax"), |call| {
            let e = self.minus_max(&dims, call).unary(Unary::Exp, call);
            e.binary_with(Binary::Div, e.sum_at(dims, None, call), call)
        })
    }
    /// Returns x − max(x) over dimensions, with the maximum held constant for derivatives.
    fn minus_max(&self, dims: &Dims, call: CallSite<'_>) -> Array {
        self.binary_with(
            Binary::Sub,
            self.max_or_lowest(dims.clone(), call).unary(Unary::StopGradient, call),
            call,
        )
    }
    /// Computes x − log Σ eˣ over dimensions, the logarithm of [`softmax`](Array::softmax).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([0.5f32, 2.0, -1.0]);
    /// assert!(x.log_softmax(0).exp().allclose(&x.softmax(0))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn log_softmax(&self, dims: impl Into<Dims>) -> Array {
        let dims = Dims::keep(dims);
        self.with_call_site(CallSite::here("log_softmax"), |call| {
            let x = self.minus_max(&dims, call);
            let sum = x.unary(Unary::Exp, call).sum_at(dims, None, call);
            x.binary_with(Binary::Sub, sum.unary(Unary::Log, call), call)
        })
    }
}
