//! Search in sorted vectors, linear interpolation, and positions of non-zero elements.
//!
//! The binary search is vectorized: each step gathers one element per query, for any sharding of
//! the queries.

use super::operand::{self, Operand};
use super::take::{GatherIndices, explicit_spec, index_vectors};
use super::{Array, prims};
use crate::api::trace::{apply1, carried_errors, poison};
use crate::core::{ArrayType, DType, ErrorKind, Fault, Scalar, Spec};
use crate::ir::program::{CallSite, OutOfBounds};
use crate::ir::{ops::along_axis::CumulativeOp, ops::elementwise::Binary, ops::indexing::GatherDims};

/// # Searching
impl Array {
    /// Returns the int32 positions at which to insert the elements of `x` into this sorted vector.
    ///
    /// The position is the number of elements less than x; with `right`, less than or equal to x.
    /// NaN counts as largest. Both arrays have the same element type. The vector must be ascending
    /// and unsharded; `x` may be sharded in any way.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let steps = Array::from([1, 3, 3, 7]);
    /// let x = Array::from([0, 3, 8]);
    /// assert_eq!(steps.searchsorted(&x, false).to_vec::<i32>()?, [0, 1, 4]);
    /// assert_eq!(steps.searchsorted(&x, true).to_vec::<i32>()?, [0, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("digitize", "lower_bound"))]
    #[track_caller]
    pub fn searchsorted(&self, x: &Array, right: bool) -> Array {
        self.searchsorted_at(x, right, CallSite::here("searchsorted"))
    }
    /// Implements [`Array::searchsorted`].
    pub(super) fn searchsorted_at(&self, x: &Array, right: bool, call: CallSite<'_>) -> Array {
        let n = ok_or_return!(self.check_sorted_vector(&[x], call));
        self.count_before(x, n, right, call)
    }
    /// Checks that this is an unsharded vector, and that all arrays have one element type.
    ///
    /// Returns the size of the vector.
    fn check_sorted_vector(&self, others: &[&Array], call: CallSite<'_>) -> Result<usize, Array> {
        if let Some(error) = carried_errors(std::iter::once(self).chain(others.iter().copied())) {
            return Err(poison(error));
        }
        let Ok(steps) = self.type_ref() else { return Err(self.clone()) };
        let terms: Vec<_> = std::iter::once(self).chain(others.iter().copied()).map(Into::into).collect();
        let reject = |fault| Err(operand::reject(fault, &terms, call));
        let [n] = steps.shape[..] else {
            let text = format!("the array to search in must be a vector, not {steps}");
            return reject(Fault::new(ErrorKind::Shape, text).help("make it one: `.ravel()`"));
        };
        if explicit_spec(steps, steps.spec).is_some_and(|spec| !spec.is_replicated()) {
            let text = format!("the vector to search in must be unsharded, but it is {steps}");
            let fault = Fault::new(ErrorKind::Sharding, text).highlight_dim(0, 0);
            return reject(fault.help("reshard them: `.reshard(p![_])`"));
        }
        for (k, other) in others.iter().enumerate() {
            let Ok(ty) = other.type_ref() else { continue };
            if ty.dtype != steps.dtype {
                let text = format!(
                    "operand {} is {}, but the vector to search in is {}",
                    k + 1,
                    ty.dtype,
                    steps.dtype
                );
                let fault = Fault::new(ErrorKind::Dtype, text);
                return reject(fault.help(format!("convert it: `.astype({:?})`", steps.dtype)));
            }
        }
        Ok(n)
    }
    /// Gathers elements of this vector at in-bounds indices, and shards them like the indices.
    fn take_clipped(&self, at: &Array, call: CallSite<'_>) -> Array {
        let Ok(ty) = at.type_ref() else { return at.clone() };
        let out = explicit_spec(ty, ty.spec).filter(|spec| !spec.is_replicated());
        let places = GatherDims::rows(1, 0, ty.rank(), OutOfBounds::Clip);
        self.gather_windows(
            &GatherIndices { dims: places, indices: index_vectors(std::slice::from_ref(at), call) },
            out,
            call,
        )
    }
    /// Returns, for each element of `x`, the number of this vector's n sorted elements that precede
    /// it.
    ///
    /// This is a vectorized binary search. With `right`, equal elements precede too.
    fn count_before(&self, x: &Array, n: usize, right: bool, call: CallSite<'_>) -> Array {
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let float = ty.dtype.is_float();
        let nan = |x: &Array| x.binary_with(Binary::Ne, x, call);
        let before = |e: &Array| {
            let less = e.binary_with(if right { Binary::Le } else { Binary::Lt }, x, call);
            match (float, right) {
                (false, _) => less,
                (true, true) => less.binary_with(Binary::Or, nan(x), call),
                (true, false) => {
                    let number = e.binary_with(Binary::Eq, e, call);
                    less.binary_with(Binary::Or, nan(x).binary_with(Binary::And, number, call), call)
                }
            }
        };
        let ty =
            ArrayType { dtype: DType::I32, spec: Spec::from_dims(ty.spec.dims().to_vec()), ..ty.clone() };
        let mut count = apply1(prims::full(ty, Scalar::Int(0)), &[], call);
        let mut step = n.checked_ilog2().map_or(0, |bits| 1usize << bits);
        while step > 0 {
            // advance by `step` if the last of these elements precedes x
            let more = count.binary_with(Binary::Add, step as i64, call);
            let last = more.binary_with(Binary::Sub, 1, call).binary_with(Binary::Min, n as i64 - 1, call);
            let fits = more.binary_with(Binary::Le, n as i64, call);
            let takes = before(&self.take_clipped(&last, call)).binary_with(Binary::And, fits, call);
            count = takes.select_at(more.term(), count.term(), call);
            step /= 2;
        }
        count
    }
    /// Interpolates linearly between the points `(xs, ys)`, evaluated at each element.
    ///
    /// Outside of `[xs[0], xs[n-1]]` the result is the nearest end value. All arrays have the same
    /// float type. `xs` and `ys` are unsharded vectors of equal size, and `xs` is ascending; this
    /// array may be sharded in any way.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (xs, ys) = (Array::from([0.0, 1.0, 3.0]), Array::from([10.0, 20.0, 0.0]));
    /// let y = Array::from([-1.0, 0.5, 2.0, 9.0]).interp(&xs, &ys);
    /// assert_eq!(y.to_vec::<f64>()?, [10.0, 15.0, 10.0, 0.0]);
    /// let slope = grad(Array::from(2.0f64), |x| x.interp(&xs, &ys));
    /// assert_eq!(slope.item::<f64>()?, -10.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn interp(&self, xs: &Array, ys: &Array) -> Array {
        let call = CallSite::here("interp");
        let reject = |kind, text: String, help: &str| {
            let fault = Fault::new(kind, text).help(help);
            operand::reject(fault, &[self.into(), xs.into(), ys.into()], call)
        };
        let [ty, of, to] = ok_or_return!(operand::types([self, xs, ys]));
        if of.rank() != 1 || of.shape != to.shape || of.shape[0] == 0 {
            let text = format!("`xs` and `ys` must be vectors of equal, non-zero size, not {of} and {to}");
            return reject(ErrorKind::Shape, text, "give as many `xs` as `ys`");
        }
        if !ty.dtype.is_float() || of.dtype != ty.dtype || to.dtype != ty.dtype {
            let text = format!("all operands must have one float type, not {ty}, {of} and {to}");
            return reject(ErrorKind::Dtype, text, "convert them: `.astype(F32)`");
        }
        let n = ok_or_return!(
            xs.check_sorted_vector(&[self, ys], call)
                .and_then(|n| ys.check_sorted_vector(&[], call).map(|_| n))
        );
        let after = xs.count_before(self, n, true, call);
        let after =
            after.binary_with(Binary::Min, n as i64 - 1, call).binary_with(Binary::Max, (n > 1) as i64, call);
        let before = after.binary_with(Binary::Sub, (n > 1) as i64, call);
        let [x0, x1] = [&before, &after].map(|at| xs.take_clipped(at, call));
        let [y0, y1] = [&before, &after].map(|at| ys.take_clipped(at, call));
        let width = x1.binary_with(Binary::Sub, &x0, call);
        let flat = width.binary_with(Binary::Eq, 0.0, call);
        let width = flat.select_at(1.0.term(), width.term(), call);
        let part = self.binary_with(Binary::Sub, &x0, call).binary_with(Binary::Div, width, call);
        let between = y1
            .binary_with(Binary::Sub, &y0, call)
            .binary_with(Binary::Mul, &part, call)
            .binary_with(Binary::Add, &y0, call);
        // elements outside of the range of `xs`
        let [least, most] =
            [Binary::Lt, Binary::Gt].map(|fun| (fun, if fun == Binary::Lt { &x0 } else { &x1 }));
        let [under, over] = [least, most].map(|(fun, x)| self.binary_with(fun, x, call));
        let value = under.select_at(y0.term(), between.term(), call);
        over.select_at(y1.term(), value.term(), call)
    }
    /// Returns the first `size` int32 positions of non-zero elements in the flattened array.
    ///
    /// Positions are ascending. If there are fewer than `size`, the rest equal the number of
    /// elements, which is out of bounds: [`take`](Array::take) reads a fill value there, and
    /// updates are dropped.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[0, 5, 0], [7, 0, 9]]);
    /// let at = x.flatnonzero(4);
    /// assert_eq!(at.to_vec::<i32>()?, [1, 3, 5, 6]);
    /// assert_eq!(x.ravel().at(ix![&at]).set(1).to_vec::<i32>()?, [0, 1, 0, 1, 0, 1]);
    /// assert_eq!(x.gt(6).flatnonzero(2).to_vec::<i32>()?, [3, 5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("nonzero", "argwhere", "where"))]
    #[track_caller]
    pub fn flatnonzero(&self, size: usize) -> Array {
        let call = CallSite::here("flatnonzero");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let n = ty.shape.num_elements();
        if n > i32::MAX as usize {
            let fault = fault!(Shape, "positions among {n} elements do not fit into int32");
            return self.reject(fault.help("search slices of the array"), call);
        }
        self.with_call_site(call, |call| {
            let flat = self.reshape_at([n].into(), None, call);
            let there = match flat.type_ref() {
                Ok(ty) if ty.dtype == DType::Bool => flat.clone(),
                _ => flat.binary_with(Binary::Ne, 0, call),
            };
            // the index of each non-zero element among the non-zero elements
            let ones = there.astype_at(DType::I32, call);
            let number = apply1(prims::scan(CumulativeOp::Sum, 0, false), &[(&ones).into()], call);
            let number = number.binary_with(Binary::Sub, 1, call);
            let to = there.select_at(number.term(), (-1).term(), call);
            let like = to.type_ref().map_or_else(|_| DType::I32.array_type([n]), Clone::clone);
            let base = ArrayType { shape: [size].into(), spec: Spec::replicated(1), ..like.clone() };
            let base = apply1(prims::full(base, Scalar::Int(n as i128)), &[], call);
            let own = apply1(prims::iota(like, 0), &[], call);
            let places = GatherDims::rows(1, 0, 1, OutOfBounds::Drop);
            let at = GatherIndices { dims: places, indices: index_vectors(std::slice::from_ref(&to), call) };
            base.scatter_windows(&at, &own, None, None, call)
        })
    }
}
