//! What is told of many numbers: means that pass over NaN, norms, covariances, counts, members.

use super::dims::Dims;
use super::reductions::Extreme;
use super::{Array, Contraction, Operand, Term, operand, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::ops::elementwise::{Binary, Unary};
use crate::program::{Call, Source};
use crate::sharding::Spec;
use crate::trace::{apply1, carried, poison};
use crate::types::{DType, Scalar};
use std::borrow::Borrow;

/// # Statistics
impl Array {
    /// Where it is not a number; nowhere in integers.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN]).is_nan().to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "isnan")]
    #[track_caller]
    pub fn is_nan(&self) -> Array {
        self.told(Call::here("is_nan"), |call| self.nan(call))
    }
    fn nan(&self, call: Call<'_>) -> Array {
        self.with(Binary::Ne, self, call)
    }
    /// Where it is infinite; nowhere in integers.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NEG_INFINITY]).is_inf().to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "isinf")]
    #[track_caller]
    pub fn is_inf(&self) -> Array {
        self.told(Call::here("is_inf"), |call| match self.type_ref() {
            Ok(ty) if ty.dtype.is_inexact() => {
                self.unary(Unary::Abs, call).with(Binary::Eq, f64::INFINITY, call)
            }
            _ => self.with(Binary::Ne, self, call),
        })
    }
    /// The array with this number where it is NaN.
    fn but_nan(&self, number: f64, call: Call<'_>) -> Array {
        match self.type_ref() {
            Ok(ty) if ty.dtype.is_inexact() => {
                self.nan(call).select_at(Term::Number(Scalar::Float(number)), self.term(), call)
            }
            _ => self.clone(),
        }
    }
    /// How many are numbers, in the element type of `like`.
    fn numbers_in(&self, dims: &Dims, like: &Array, call: Call<'_>) -> Array {
        let dtype = like.type_ref().map_or(DType::F32, |ty| ty.dtype);
        self.with(Binary::Eq, self, call).astype_at(dtype, call).sum_at(dims.clone(), None, call)
    }
    /// The sum over dimensions of what is not NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN, 2.0]).nansum(..).item::<f32>()?, 3.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nansum(&self, dims: impl Into<Dims>) -> Array {
        self.told(Call::here("nansum"), |call| self.but_nan(0.0, call).sum_at(dims.into(), None, call))
    }
    /// The product over dimensions of what is not NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([3.0f32, f32::NAN, 2.0]).nanprod(..).item::<f32>()?, 6.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanprod(&self, dims: impl Into<Dims>) -> Array {
        self.told(Call::here("nanprod"), |call| self.but_nan(1.0, call).prod_at(dims.into(), call))
    }
    /// The greatest over dimensions of what is not NaN; NaN where all are.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[3.0f32, f32::NAN], [5.0, f32::NAN]]);
    /// assert_eq!(x.nanmax(0).to_string(), "[ 5. nan]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmax(&self, dims: impl Into<Dims>) -> Array {
        self.told(Call::here("nanmax"), |call| self.nan_extreme(dims.into(), Extreme::Greatest, call))
    }
    /// The smallest over dimensions of what is not NaN; NaN where all are.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([3.0f32, f32::NAN, 5.0]).nanmin(0).item::<f32>()?, 3.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmin(&self, dims: impl Into<Dims>) -> Array {
        self.told(Call::here("nanmin"), |call| self.nan_extreme(dims.into(), Extreme::Smallest, call))
    }
    fn nan_extreme(&self, dims: Dims, which: Extreme, call: Call<'_>) -> Array {
        let last = match which {
            Extreme::Greatest => f64::NEG_INFINITY,
            Extreme::Smallest => f64::INFINITY,
        };
        let found = self.but_nan(last, call).extreme_at(dims.clone(), which, call);
        if !self.type_ref().is_ok_and(|ty| ty.dtype.is_float()) {
            return found;
        }
        let none = self.nan(call).all_at(dims, call);
        none.select_at(Term::Number(Scalar::Float(f64::NAN)), found.term(), call)
    }
    /// The mean over dimensions of what is not NaN; NaN where all are.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN, 2.0]).nanmean(..).item::<f32>()?, 1.5);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmean(&self, dims: impl Into<Dims>) -> Array {
        let dims = dims.into();
        self.told(Call::here("nanmean"), |call| self.in_float(call).nanmean_at(dims, call).back(self, call))
    }
    fn nanmean_at(&self, dims: Dims, call: Call<'_>) -> Array {
        let count = self.numbers_in(&dims, self, call);
        self.but_nan(0.0, call).sum_at(dims, None, call).with(Binary::Div, count, call)
    }
    /// The variance (of the population) over dimensions of what is not NaN; NaN where all are.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN, 3.0]).nanvar(..).item::<f32>()?, 1.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanvar(&self, dims: impl Into<Dims>) -> Array {
        self.nanvar_at(dims.into(), Call::here("nanvar"))
    }
    fn nanvar_at(&self, dims: Dims, call: Call<'_>) -> Array {
        self.told(call, |call| {
            let x = self.in_float(call);
            let off = x.with(Binary::Sub, x.nanmean_at(Dims::keep(&dims), call), call);
            // what is NaN is left out, and not what is infinitely far off
            let off = x.nan(call).select_at(Term::Number(Scalar::Float(0.0)), off.term(), call);
            let squares = off.sized(call).unary(Unary::Square, call);
            let count = x.numbers_in(&dims, &x, call);
            squares.sum_at(dims, None, call).with(Binary::Div, count, call).back(self, call)
        })
    }
    /// The standard deviation (of the population) over dimensions of what is not NaN; NaN where all are.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0f32, f32::NAN, 5.0]).nanstd(..).item::<f32>()?, 2.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nanstd(&self, dims: impl Into<Dims>) -> Array {
        let dims = dims.into();
        self.told(Call::here("nanstd"), |call| self.nanvar_at(dims, call).unary(Unary::Sqrt, call))
    }
    /// How many elements over dimensions are not 0 (int32); of bools how many are true.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[3, 0], [1, 2]]).count_nonzero(1).to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn count_nonzero(&self, dims: impl Into<Dims>) -> Array {
        self.told(Call::here("count_nonzero"), |call| {
            let some = match self.type_ref() {
                Ok(ty) if ty.dtype == DType::Bool => self.clone(),
                _ => self.with(Binary::Ne, 0, call),
            };
            some.astype_at(DType::I32, call).sum_at(dims.into(), None, call)
        })
    }
    /// √Σx² over dimensions: the length of a vector, Frobenius' norm of a matrix. Of integers in float32 (64-bit ones in float64).
    ///
    /// Others are as short: `x.abs().sum(d)`, `x.abs().max(d)`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[3.0f32, 4.0], [0.0, 2.0]]).norm(1).to_vec::<f32>()?, [5.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn norm(&self, dims: impl Into<Dims>) -> Array {
        let dims = dims.into();
        self.told(Call::here("norm"), |call| {
            let squares = self.in_float(call).sized(call).unary(Unary::Square, call);
            squares.sum_at(dims, None, call).unary(Unary::Sqrt, call).back(self, call)
        })
    }
    /// The mean over dimensions, each element counted as often as its weight says. Weights have the array's shape; or, for one dimension, its
    /// size.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, w) = (Array::from([[1.0f32, 5.0], [2.0, 4.0]]), Array::from([3.0f32, 1.0]));
    /// assert_eq!(x.average(&w, 1).to_vec::<f32>()?, [2.0, 2.5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn average(&self, weights: impl Borrow<Array>, dims: impl Into<Dims>) -> Array {
        let (weights, dims, call) = (weights.borrow(), dims.into(), Call::here("average"));
        let (Ok(ty), Ok(wt)) = (self.type_ref(), weights.type_ref()) else {
            return carried([self, weights].into_iter()).map_or_else(|| self.clone(), poison);
        };
        let terms = [Term::from(self), Term::from(weights)];
        let refuse = |fault| operand::refuse(fault, &terms, call);
        let axes = match dims.resolve(ty.rank()) {
            Ok(axes) => axes,
            Err(fault) => return refuse(fault),
        };
        let along = match axes[..] {
            [d] if wt.rank() == 1 && ty.rank() > 1 && wt.shape[0] == ty.shape[d] => Some(d),
            _ if wt.shape == ty.shape => None,
            _ => {
                let message =
                    format!("weights of shape {} do not fit to an array of shape {}", wt.shape, ty.shape);
                let help = "give weights of the array's shape; or, for one dimension, as many as its size";
                return refuse(Fault::new(ErrorKind::Shape, message).help(help));
            }
        };
        // the weights' dimensions, as the user gave them: of a vector that is spread out its only one
        let own: Vec<usize> = (0..ty.rank()).map(|d| if along.is_some() { 0 } else { d }).collect();
        let source = |number, ty, dims| Source { number, ty: Some(ty), dims };
        let shown = || operand::described(&terms);
        let sources = [source(0, ty, None), source(1, wt, Some(&own[..]))];
        let call = call.on(&shown, &sources);
        let x = self.in_float(call);
        let dtype = x.type_ref().map_or(DType::F32, |ty| ty.dtype);
        let w = weights.astype_at(dtype, call);
        let spread = match along {
            Some(d) => w.new_dims(&(0..ty.rank()).filter(|e| *e != d).collect::<Vec<_>>(), call),
            None => w,
        };
        let sum = x.with(Binary::Mul, &spread, call).sum_at(dims.clone(), None, call);
        let all = spread.sum_at(dims, None, call);
        sum.with(Binary::Div, all, call).back(self, call)
    }
    /// How the rows of a matrix vary together: the covariance of each two, estimated from the columns (n − 1 degrees of freedom). Of a
    /// vector its variance.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1.0f32, 2.0, 3.0], [2.0, 4.0, 6.0]]);
    /// assert_eq!(x.cov().to_vec::<f32>()?, [1.0, 2.0, 2.0, 4.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cov(&self) -> Array {
        self.cov_at(None, Call::here("cov").twin("x.cov_to({})"))
    }
    /// [`Array::cov`], sharded (or left unreduced) as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..8).astype(F32).reshape([2, 4]).put(&mesh, p![_, "X"]);
    /// assert_eq!(type_of(x.cov_to(p!["X"])), "float32[2@X,2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cov_to(&self, out: Spec) -> Array {
        self.cov_at(Some(out), Call::here("cov_to"))
    }
    fn cov_at(&self, out: Option<Spec>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if !(1..=2).contains(&ty.rank()) {
            let message = format!("it takes a matrix, not an array of rank {}", ty.rank());
            let help = "a row for each variable: `.reshape([variables, n])`";
            return self.refuse(Fault::new(ErrorKind::Shape, message).help(help), call);
        }
        let terms = [Term::from(self)];
        let shown = || operand::described(&terms);
        let source = || Source { number: 0, ty: Some(ty), dims: None };
        let sources = [source(), source()];
        let call = call.on(&shown, &sources);
        let last = ty.rank() - 1;
        let x = self.in_float(call);
        let off = x.with(Binary::Sub, x.mean_at(Dims::keep(last), call), call);
        let how = Contraction { contracting: vec![(last, last)], batch: Vec::new() };
        let args = [(&off).into(), (&off.conj_at(call)).into()];
        let sums = apply1(prims::dot_general(&how, out, None), &args, call);
        let n = ty.shape[last] as f64 - 1.0;
        sums.with(Binary::Div, n, call).back(self, call)
    }
    /// Where the element is one of these values.
    ///
    /// Each element is compared with each value: of many values a sorted list is quicker.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2, 3, 4]).isin(&Array::from([4, 2])).to_vec::<bool>()?, [false, true, false, true]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn isin(&self, values: impl Borrow<Array>) -> Array {
        let (values, call) = (values.borrow(), Call::here("isin"));
        let (Ok(ty), Ok(vt)) = (self.type_ref(), values.type_ref()) else {
            return carried([self, values].into_iter()).map_or_else(|| self.clone(), poison);
        };
        let terms = [Term::from(self), Term::from(values)];
        let shown = || operand::described(&terms);
        let (rank, more) = (ty.rank(), vt.rank());
        let [own, other]: [Vec<usize>; 2] = [(0..rank).collect(), (0..more).collect()];
        let sources = [
            Source { number: 0, ty: Some(ty), dims: Some(&own) },
            Source { number: 1, ty: Some(vt), dims: Some(&other) },
        ];
        let call = call.on(&shown, &sources);
        let x = if more == 0 {
            self.clone()
        } else {
            self.new_dims(&(rank..rank + more).collect::<Vec<_>>(), call)
        };
        let same = x.with(Binary::Eq, values, call);
        if more == 0 { same } else { same.any_at((rank..rank + more).collect::<Vec<_>>().into(), call) }
    }
}
