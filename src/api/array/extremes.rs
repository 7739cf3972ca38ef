//! Positions of the largest and smallest elements: `argmax` and `argmin`.

use super::{Array, Operand, dims::Dims, prims, reductions::Extreme};
use crate::api::trace::{apply1, build, poison};
use crate::core::{ArrayType, DType, ErrorKind, Fault};
use crate::ir::ops::reduce::{Reduction, empty_dim_fault};
use crate::ir::{ops::elementwise::Binary, program::CallSite};

/// # Positions of extremes
impl Array {
    forward! {
        /// Returns the int32 index of the first maximum along a dimension; NaN counts as largest.
        ///
        /// `..` searches all elements, and returns the index in the flattened array.
        ///
        /// Complex numbers are compared by their real parts, then by their imaginary parts.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[2.0f32, 9.0, 9.0], [1.0, f32::NAN, 3.0]]);
        /// assert_eq!((x.argmax(1).to_vec::<i32>()?, x.argmin(1).to_vec::<i32>()?),
        ///     (vec![1, 1], vec![0, 1]));
        /// assert_eq!(x.argmax(..).item::<i32>()?, 4);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn argmax(dims: impl Into<Dims>) = first_extreme(dims.into(), Extreme::Maximum);
        /// Returns the int32 index of the first minimum along a dimension; NaN counts as smallest.
        ///
        /// `..` searches all elements, as in [`argmax`](Self::argmax).
        ///
        /// Complex numbers are compared as in [`argmax`](Self::argmax).
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([4, 1, 1]).argmin(0).item::<i32>()?, 1);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn argmin(dims: impl Into<Dims>) = first_extreme(dims.into(), Extreme::Minimum);
    }
    /// Implements [`Array::argmax`] and [`Array::argmin`].
    fn first_extreme(&self, dims: Dims, which: Extreme, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let axes = ok_or_return!(dims.resolve(ty.rank()), |fault| self.reject(fault, call));
        let found = match axes[..] {
            [at] => self.index_of_extreme(at, which, call),
            _ if axes.len() == ty.rank() => self.flat_index_of_extreme(which, call),
            _ => {
                let message = format!("it takes one dimension or all of them, not {}", axes.len());
                let help = "for the index among all elements: `..`";
                return self.reject(Fault::new(ErrorKind::Shape, message).help(help), call);
            }
        };
        if dims.keeps_dims() && !axes.is_empty() { found.expand_dims_at(&axes, call) } else { found }
    }
    /// Returns the index of the first extreme along dimension `at`.
    fn index_of_extreme(&self, at: usize, which: Extreme, call: CallSite<'_>) -> Array {
        let kind = match which {
            Extreme::Maximum => Reduction::Max,
            Extreme::Minimum => Reduction::Min,
        };
        match build(std::slice::from_ref(self), call, |b, x| Ok(vec![b.arg_extreme(kind, &x[0], at)?])) {
            Ok(mut found) => found.swap_remove(0),
            Err(e) => poison(e),
        }
    }
    /// Returns the index of the first extreme in the flattened array.
    fn flat_index_of_extreme(&self, which: Extreme, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let n = ty.shape.num_elements();
        if let Some(d) = (0..ty.rank()).find(|d| ty.shape[*d] == 0) {
            return self.reject(empty_dim_fault(d), call);
        }
        if i32::try_from(n).is_err() {
            let fault = fault!(Shape, "positions among {n} elements do not fit into int32");
            return self.reject(fault.help("search along one dimension after the other"), call);
        }
        self.with_call_site(call, |call| {
            if ty.dtype.is_complex() || (0..ty.rank()).all(|d| ty.spec.dim(d).is_empty()) {
                return self.reshape_at([n].into(), None, call).index_of_extreme(0, which, call);
            }
            // a sharded array is not flattened: the least index of the elements that equal the extreme
            let best = self.extreme_at((..).into(), which, call);
            let mut found = self.binary_with(Binary::Eq, best, call);
            if ty.dtype.is_float() {
                found = found.binary_with(Binary::Or, self.binary_with(Binary::Ne, self, call), call);
            }
            let of = ArrayType { dtype: DType::I32, ..super::creation::fresh_type(ty) };
            let stride = |d: usize| ty.shape[d + 1..].iter().product::<usize>();
            let along = |d: usize| {
                let index = apply1(prims::iota(of.clone(), d), &[], call);
                index.binary_with(Binary::Mul, stride(d), call)
            };
            let index = (1..ty.rank()).fold(along(0), |sum, d| sum.binary_with(Binary::Add, along(d), call));
            let first = found.select_at(index.term(), i32::MAX.term(), call);
            first.extreme_at((..).into(), Extreme::Minimum, call)
        })
    }
}
