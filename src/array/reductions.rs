//! Reductions over dimensions, and what is made of them.

use super::dims::{Dims, dim};
use super::{Array, Operand, Term, prims};
use crate::ops::elementwise::{Binary, Unary};
use crate::ops::reduce::{Reduction, none_extreme};
use crate::program::Call;
use crate::sharding::Spec;
use crate::sorted;
use crate::trace::{apply1, build, poison};
use crate::types::DType;

/// Which of several elements.
#[derive(Clone, Copy)]
pub(super) enum Extreme {
    Greatest,
    Smallest,
}

/// # Reductions
///
/// Over dimensions, counted from the end where negative; `..` is all of them. `.._to(…, spec)` says how the result is sharded.
impl Array {
    /// Combines over dimensions; `Dims::keep(..)` leaves them with size 1.
    fn reduce(&self, kind: Reduction, dims: Dims, out: Option<Spec>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let axes = match dims.resolve(ty.rank()) {
            Ok(axes) => axes,
            Err(fault) => return self.refuse(fault, call),
        };
        let reduced = apply1(prims::reduce(kind, &axes, out), &[self.into()], call);
        if dims.keeps() && !axes.is_empty() {
            let mut axes = axes;
            sorted::sort(&mut axes);
            return reduced.new_dims(&axes, call);
        }
        reduced
    }
    /// In the element type that sums are made in: int32 or uint32 for narrower integers and bool.
    fn widened(&self, call: Call<'_>) -> Array {
        let to = match self.type_ref().map(|t| t.dtype) {
            Ok(DType::Bool | DType::I8 | DType::I16) => DType::I32,
            Ok(DType::U8 | DType::U16) => DType::U32,
            _ => return self.clone(),
        };
        apply1(prims::convert(to), &[self.into()], call)
    }
    /// How many elements are combined into one.
    fn count(&self, dims: &Dims) -> usize {
        let Ok(ty) = self.type_ref() else { return 1 };
        dims.resolve(ty.rank()).map_or(1, |axes| axes.iter().map(|d| ty.shape[*d]).product())
    }
    /// The sum over dimensions. bool and narrow integers are summed in 32 bits; in another element type: `x.astype(F64).sum(..)`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::arange(0..6).reshape([2, 3]);
    /// assert_eq!(x.sum(0).to_vec::<i32>()?, [3, 5, 7]);
    /// assert_eq!(x.sum(Dims::keep(-1)).shape()?, [2, 1]);
    /// assert_eq!(x.sum(..).item::<i32>()?, 15);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn sum(&self, dims: impl Into<Dims>) -> Array {
        self.sum_at(dims.into(), None, Call::here("sum").twin("x.sum_to(dims, {})"))
    }
    /// The sum over dimensions, sharded (or left unreduced) as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
    /// assert_eq!(type_of(x.sum_to(1, p!["X"])), "float32[4@X]");
    /// assert_eq!(type_of(x.sum_to(1, p![_; U: "X"])), "float32[4]{U:X}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn sum_to(&self, dims: impl Into<Dims>, out: Spec) -> Array {
        self.sum_at(dims.into(), Some(out), Call::here("sum_to"))
    }
    pub(crate) fn sum_at(&self, dims: Dims, out: Option<Spec>, call: Call<'_>) -> Array {
        self.told(call, |call| self.widened(call).reduce(Reduction::Sum, dims, out, call))
    }
    /// The product over dimensions. bool and narrow integers are multiplied in 32 bits.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(1..5).prod(..).item::<i32>()?, 24);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn prod(&self, dims: impl Into<Dims>) -> Array {
        self.prod_at(dims.into(), Call::here("prod"))
    }
    pub(super) fn prod_at(&self, dims: Dims, call: Call<'_>) -> Array {
        self.told(call, |call| self.widened(call).reduce(Reduction::Prod, dims, None, call))
    }
    /// The greatest element over dimensions, none of which is empty; NaN where any is.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[3, 1], [2, 4]]);
    /// assert_eq!((x.max(0).to_vec::<i32>()?, x.min(..).item::<i32>()?), (vec![3, 4], 1));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn max(&self, dims: impl Into<Dims>) -> Array {
        self.extreme_at(dims.into(), Extreme::Greatest, Call::here("max"))
    }
    /// The smallest element over dimensions, none of which is empty; NaN where any is.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[3, 1], [2, 4]]).min(1).to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn min(&self, dims: impl Into<Dims>) -> Array {
        self.extreme_at(dims.into(), Extreme::Smallest, Call::here("min"))
    }
    pub(super) fn extreme_at(&self, dims: Dims, which: Extreme, call: Call<'_>) -> Array {
        let kind = match (which, self.is_bool()) {
            (Extreme::Greatest, true) => Reduction::Or,
            (Extreme::Greatest, false) => Reduction::Max,
            (Extreme::Smallest, true) => Reduction::And,
            (Extreme::Smallest, false) => Reduction::Min,
        };
        self.some_along(&dims, call).unwrap_or_else(|| self.reduce(kind, dims, None, call))
    }
    /// The refusal where one of these dimensions is empty: no element is extreme.
    fn some_along(&self, dims: &Dims, call: Call<'_>) -> Option<Array> {
        let ty = self.type_ref().ok()?;
        let d = dims.resolve(ty.rank()).ok()?.into_iter().find(|d| ty.shape[*d] == 0)?;
        Some(self.refuse(none_extreme(d), call))
    }
    /// The greatest element; the least number of the type where there is none.
    fn most(&self, dims: Dims, call: Call<'_>) -> Array {
        let kind = if self.is_bool() { Reduction::Or } else { Reduction::Max };
        self.reduce(kind, dims, None, call)
    }
    /// Whether any element over dimensions is not zero.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[0, 1], [0, 0]]);
    /// assert_eq!((x.any(1).to_vec::<bool>()?, x.all(..).item::<bool>()?), (vec![true, false], false));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn any(&self, dims: impl Into<Dims>) -> Array {
        self.any_at(dims.into(), Call::here("any"))
    }
    pub(super) fn any_at(&self, dims: Dims, call: Call<'_>) -> Array {
        self.told(call, |call| self.astype_at(DType::Bool, call).reduce(Reduction::Or, dims, None, call))
    }
    /// Whether no element over dimensions is zero.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[0, 1], [2, 3]]).all(1).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn all(&self, dims: impl Into<Dims>) -> Array {
        self.all_at(dims.into(), Call::here("all"))
    }
    pub(super) fn all_at(&self, dims: Dims, call: Call<'_>) -> Array {
        self.told(call, |call| self.astype_at(DType::Bool, call).reduce(Reduction::And, dims, None, call))
    }
    /// Bitwise and over dimensions, of integers and bool.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([0b110, 0b011]).bit_and(..).item::<i32>()?, 0b010);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bit_and(&self, dims: impl Into<Dims>) -> Array {
        self.reduce(Reduction::And, dims.into(), None, Call::here("bit_and"))
    }
    /// Bitwise or over dimensions, of integers and bool.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([0b110, 0b011]).bit_or(..).item::<i32>()?, 0b111);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bit_or(&self, dims: impl Into<Dims>) -> Array {
        self.reduce(Reduction::Or, dims.into(), None, Call::here("bit_or"))
    }
    fn is_bool(&self) -> bool {
        self.type_ref().is_ok_and(|t| t.dtype == DType::Bool)
    }
    /// The mean over dimensions, of integers in float32 (64-bit ones in float64). 16-bit floats are summed in float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[1, 2], [5, 6]]).mean(0).to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn mean(&self, dims: impl Into<Dims>) -> Array {
        let dims = dims.into();
        self.told(Call::here("mean"), |call| self.in_float(call).mean_at(dims, call).back(self, call))
    }
    /// The mean of floats.
    pub(super) fn mean_at(&self, dims: Dims, call: Call<'_>) -> Array {
        let n = self.count(&dims);
        self.sum_at(dims, None, call).with(Binary::Div, n as f64, call)
    }
    /// The variance (of the population) over dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 3.0, 5.0, 7.0]);
    /// assert_eq!((x.mean(..).item::<f32>()?, x.var(..).item::<f32>()?), (4.0, 5.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn var(&self, dims: impl Into<Dims>) -> Array {
        self.var_at(dims.into(), 0, Call::here("var"))
    }
    /// The variance over dimensions, of n − `ddof` degrees of freedom: 1 estimates it from a sample.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 3.0, 5.0, 7.0, 9.0]);
    /// assert_eq!((x.var(..).item::<f32>()?, x.var_ddof(.., 1).item::<f32>()?), (8.0, 10.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn var_ddof(&self, dims: impl Into<Dims>, ddof: usize) -> Array {
        self.var_at(dims.into(), ddof, Call::here("var_ddof"))
    }
    fn var_at(&self, dims: Dims, ddof: usize, call: Call<'_>) -> Array {
        let n = self.count(&dims).saturating_sub(ddof);
        self.told(call, |call| {
            let x = self.in_float(call);
            let off = x.with(Binary::Sub, x.mean_at(Dims::keep(&dims), call), call);
            let sum = off.sized(call).unary(Unary::Square, call).sum_at(dims, None, call);
            sum.with(Binary::Div, n as f64, call).back(self, call)
        })
    }
    /// The standard deviation (of the population) over dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([2.0f32, 6.0]).std(..).item::<f32>()?, 2.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn std(&self, dims: impl Into<Dims>) -> Array {
        self.std_at(dims.into(), 0, Call::here("std"))
    }
    /// The standard deviation over dimensions, of n − `ddof` degrees of freedom.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([0.0f32, 0.0, 6.0, 6.0, 3.0]);
    /// assert_eq!(x.std_ddof(.., 1).item::<f32>()?, 3.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn std_ddof(&self, dims: impl Into<Dims>, ddof: usize) -> Array {
        self.std_at(dims.into(), ddof, Call::here("std_ddof"))
    }
    fn std_at(&self, dims: Dims, ddof: usize, call: Call<'_>) -> Array {
        self.told(call, |call| self.var_at(dims, ddof, call).unary(Unary::Sqrt, call))
    }
    /// The modulus of complex numbers; other numbers themselves.
    pub(super) fn sized(&self, call: Call<'_>) -> Array {
        match self.type_ref() {
            Ok(ty) if ty.dtype.is_complex() => self.unary(Unary::Abs, call),
            _ => self.clone(),
        }
    }
    /// What means are computed in: float64 of a 64-bit integer, float32 of another or of a 16-bit float, which the result goes [`back`](Array::back) to.
    pub(super) fn in_float(&self, call: Call<'_>) -> Array {
        match self.type_ref().map(|t| t.dtype) {
            Ok(DType::F32 | DType::F64 | DType::C64 | DType::C128) | Err(_) => self.clone(),
            Ok(DType::I64 | DType::U64) => self.astype_at(DType::F64, call),
            Ok(_) => self.astype_at(DType::F32, call),
        }
    }
    /// A result for `x`: of 16-bit floats again where `x` is.
    pub(super) fn back(&self, x: &Array, call: Call<'_>) -> Array {
        match x.type_ref().map(|t| t.dtype) {
            Ok(dtype @ (DType::F16 | DType::BF16)) => self.astype_at(dtype, call),
            _ => self.clone(),
        }
    }
    /// log Σ eˣ over dimensions, without overflow; of integers in float32 (64-bit ones in float64).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1000.0f32, f32::NEG_INFINITY]).logsumexp(..).item::<f32>()?, 1000.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn logsumexp(&self, dims: impl Into<Dims>) -> Array {
        self.told(Call::here("logsumexp"), |call| self.logsumexp_at(dims.into(), call))
    }
    fn logsumexp_at(&self, dims: Dims, call: Call<'_>) -> Array {
        if self.type_ref().is_ok_and(|t| !t.dtype.is_inexact()) {
            return self.in_float(call).logsumexp_at(dims, call);
        }
        let most = self.most(Dims::keep(&dims), call);
        let finite = most.unary(Unary::IsFinite, call);
        let most =
            finite.select_at(Term::from(&most), most.zero().term(), call).unary(Unary::StopGradient, call);
        let sum = self.with(Binary::Sub, &most, call).unary(Unary::Exp, call);
        let sum = sum.sum_at(Dims::keep(&dims), None, call).unary(Unary::Log, call);
        let sum = sum.with(Binary::Add, &most, call);
        if dims.keeps() {
            return sum;
        }
        let Ok(ty) = self.type_ref() else { return sum };
        match dims.resolve(ty.rank()) {
            Ok(axes) => sum.without(&axes, call),
            Err(_) => sum,
        }
    }
    /// eˣ / Σ eˣ along dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[5.0f32, 5.0], [90.0, -90.0]]).softmax(1).to_vec::<f32>()?, [0.5, 0.5, 1.0, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax(&self, dims: impl Into<Dims>) -> Array {
        let dims = Dims::keep(dims);
        self.told(Call::here("softmax"), |call| {
            let e = self.below(&dims, call).unary(Unary::Exp, call);
            e.with(Binary::Div, e.sum_at(dims, None, call), call)
        })
    }
    /// x − max(x).
    fn below(&self, dims: &Dims, call: Call<'_>) -> Array {
        self.with(Binary::Sub, self.most(dims.clone(), call).unary(Unary::StopGradient, call), call)
    }
    /// x − log Σ eˣ along dimensions.
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
        self.told(Call::here("log_softmax"), |call| {
            let x = self.below(&dims, call);
            let sum = x.unary(Unary::Exp, call).sum_at(dims, None, call);
            x.with(Binary::Sub, sum.unary(Unary::Log, call), call)
        })
    }
    /// The index (int32) of the first greatest element along a dimension; NaN counts as greatest. Complex numbers go by their real parts,
    /// then by their imaginary ones.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[2.0f32, 9.0, 9.0], [1.0, f32::NAN, 3.0]]);
    /// assert_eq!((x.argmax(1).to_vec::<i32>()?, x.argmin(1).to_vec::<i32>()?), (vec![1, 1], vec![0, 1]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn argmax(&self, d: i32) -> Array {
        self.first_extreme(d, Reduction::Max, Call::here("argmax"))
    }
    /// The index (int32) of the first smallest element along a dimension; NaN counts as smallest. Complex numbers as in [`argmax`](Self::argmax).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([4, 1, 1]).argmin(0).item::<i32>()?, 1);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn argmin(&self, d: i32) -> Array {
        self.first_extreme(d, Reduction::Min, Call::here("argmin"))
    }
    fn first_extreme(&self, d: i32, kind: Reduction, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = match dim(d.into(), ty.rank()) {
            Ok(at) => at,
            Err(fault) => return self.refuse(fault, call),
        };
        match build(std::slice::from_ref(self), call, |b, x| Ok(vec![b.arg_extreme(kind, &x[0], at)?])) {
            Ok(mut found) => found.swap_remove(0),
            Err(e) => poison(e),
        }
    }
}
