//! Operations along one dimension: cumulative reductions, recurrences, sorts and quantiles.
//!
//! The dimension must be unsharded; other dimensions may be sharded in any way.

use super::{Array, Term, concat::concat_at, dims::resolve_dim, errors::needs_unsharded_dim, prims};
use crate::api::trace::{ArrayOrLiteral, apply, apply1};
use crate::core::{Axes, ErrorKind, Fault, Spec};
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::program::{CallSite, Prim};
use crate::ir::{ops::along_axis::CumulativeOp, ops::reduce::empty_dim_fault};
use std::borrow::Borrow;

macro_rules! running { ($($(#[$doc:meta])* $name:ident $back:ident $kind:ident $back_doc:literal;)*) => {
    impl Array {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, d: i32) -> Array {
            self.scan_dim(CumulativeOp::$kind, d, false, CallSite::here(stringify!($name)))
        }
        #[doc = $back_doc]
        #[track_caller]
        pub fn $back(&self, d: i32) -> Array {
            self.scan_dim(CumulativeOp::$kind, d, true, CallSite::here(stringify!($back)))
        }
    )*}
} }

running! {
    /// Returns the cumulative sum along dimension `d`, of the operand's type.
    ///
    /// The dimension must be unsharded; other dimensions may be sharded in any way.
    ///
    /// The order of addition depends on the size of the dimension only: groups of 16 elements, then
    /// blocks of 2¹⁶. Results are therefore bitwise equal on every engine, mesh and number of
    /// workers. 16-bit floats are accumulated in float32. (In auto mode the dimension may be
    /// sharded: each device sums its block, and only the blocks' totals are exchanged.)
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.cumsum(1).to_vec::<i32>()?, [1, 3, 6, 4, 9, 15]);
    /// assert_eq!(x.cumsum(0).to_vec::<i32>()?, [1, 2, 3, 5, 7, 9]);
    ///
    /// let g = grad(Array::from([1.0, 2.0, 3.0]), |x| x.cumsum(0).sum(..));
    /// assert_eq!(g.to_vec::<f64>()?, [3.0, 2.0, 1.0]);
    ///
    /// let mesh = Mesh::new([("X", 3)])?;
    /// let e = x.put(&mesh, p![_, "X"]).cumsum(1).ty().unwrap_err();
    /// assert_eq!(e.kind(), atmesh::ErrorKind::Sharding);
    /// assert_eq!(type_of(x.put(&mesh, p![_, "X"]).cumsum(0)), "int32[2,3@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cumsum cumsum_reverse Sum "Returns the cumulative sum along dimension `d`, starting at the end.\n\nEach result is the sum of an element and all elements after it; otherwise like [`cumsum`](Array::cumsum).\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 2, 3]).cumsum_reverse(0).to_vec::<i32>()?, [6, 5, 3]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// Returns the cumulative product along dimension `d`, which must be unsharded.
    ///
    /// The order of multiplication is as in [`cumsum`](Array::cumsum). The derivative is exact even
    /// where elements are zero.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2, 3, 4]).cumprod(0).to_vec::<i32>()?, [1, 2, 6, 24]);
    /// let g = grad(Array::from([2.0, 0.0, 5.0]), |x| x.cumprod(0).sum(..));
    /// assert_eq!(g.to_vec::<f64>()?, [1.0, 12.0, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cumprod cumprod_reverse Prod "Returns the cumulative product along dimension `d`, starting at the end.\n\nOtherwise it is like [`cumprod`](Array::cumprod).\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 2, 3]).cumprod_reverse(0).to_vec::<i32>()?, [6, 6, 3]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// Returns the cumulative maximum along dimension `d`, which must be unsharded.
    ///
    /// After a NaN all results are NaN. Elements are real numbers or booleans. Ties: the gradient
    /// goes to the first of the equal elements.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 3, 2, 5]).cummax(0).to_vec::<i32>()?, [1, 3, 3, 5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "maximum.accumulate")]
    cummax cummax_reverse Max "Returns the cumulative maximum along dimension `d`, starting at the end.\n\nOtherwise it is like [`cummax`](Array::cummax).\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 3, 2]).cummax_reverse(0).to_vec::<i32>()?, [3, 3, 2]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// Returns the cumulative minimum along dimension `d`, which must be unsharded.
    ///
    /// After a NaN all results are NaN. Elements are real numbers or booleans. Ties: the gradient
    /// goes to the first of the equal elements.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([4, 3, 5, 1]).cummin(0).to_vec::<i32>()?, [4, 3, 3, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "minimum.accumulate")]
    cummin cummin_reverse Min "Returns the cumulative minimum along dimension `d`, starting at the end.\n\nOtherwise it is like [`cummin`](Array::cummin).\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 3, 2]).cummin_reverse(0).to_vec::<i32>()?, [1, 2, 2]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// Returns the cumulative log Σ eˣ along dimension `d`, without overflow.
    ///
    /// The dimension must be unsharded. Elements are floats. The order of the operations is as in
    /// [`cumsum`](Array::cumsum).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([f64::NEG_INFINITY, 1000.0, 1000.0]).cumlogsumexp(0);
    /// assert_eq!(x.to_vec::<f64>()?, [f64::NEG_INFINITY, 1000.0, 1000.0 + 2f64.ln()]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cumlogsumexp cumlogsumexp_reverse LogSumExp "Returns the cumulative log Σ eˣ along dimension `d`, starting at the end.\n\nOtherwise it is like [`cumlogsumexp`](Array::cumlogsumexp).\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([0.0, 0.0]).cumlogsumexp_reverse(0).to_vec::<f64>()?, [2f64.ln(), 0.0]);\n# Ok::<(), atmesh::Error>(())\n```";
}

/// # Sorting and operations along a dimension
impl Array {
    /// Applies a cumulative reduction along dimension `d`; `reverse` starts at the end.
    fn scan_dim(&self, kind: CumulativeOp, d: i32, reverse: bool, call: CallSite<'_>) -> Array {
        let island = |spec, _| (format!("{}({d})", call.op), spec);
        self.apply_along(d, call, |axis| prims::scan(kind, axis, reverse), island).swap_remove(0)
    }
    /// Computes the linear recurrence hᵢ = decayᵢ·hᵢ₋₁ + xᵢ along dimension `d`, with h₋₁ = 0.
    ///
    /// Both arrays have the same type, and the dimension must be unsharded. 16-bit floats are
    /// computed in float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, decay) = (Array::from([1.0, 1.0, 1.0]), Array::from([0.0, 0.5, 0.5]));
    /// assert_eq!(x.recurrence(&decay, 0).to_vec::<f64>()?, [1.0, 1.5, 1.75]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("linear_scan", "ema"))]
    #[track_caller]
    pub fn recurrence(&self, decay: &Array, d: i32) -> Array {
        let call = CallSite::here("recurrence");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let axis = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| self.reject(fault, call));
        apply1(prims::recurrence(axis, false), &[decay.into(), self.into()], call)
    }
    /// Sorts the elements along dimension `d` in ascending order; the sort is stable.
    ///
    /// NaN comes last, and −0 equals 0. Complex numbers are ordered by their real parts, then by
    /// their imaginary parts. The dimension must be unsharded; other dimensions may be sharded in
    /// any way.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[3.0, f64::NAN, 1.0], [2.0, 0.0, -1.0]]);
    /// assert_eq!(x.sort(1).to_string(), "[[ 1.  3. nan]\n [-1.  0.  2.]]");
    /// let g = grad(Array::from([3.0, 1.0, 2.0]),
    ///     |x| (x.sort(0) * Array::from([1.0, 10.0, 100.0])).sum(..));
    /// assert_eq!(g.to_vec::<f64>()?, [100.0, 1.0, 10.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(&self, d: i32) -> Array {
        let call = CallSite::here("sort");
        if self.is_complex() {
            self.with_call_site(call, |call| sort_all(std::slice::from_ref(self), 1, d, call).swap_remove(0))
        } else {
            let island = |spec, _| (format!("sort({d})"), spec);
            self.apply_along(d, call, |axis| prims::sort(axis, 1), island).swap_remove(0)
        }
    }
    /// Returns the int32 indices that would sort the array along dimension `d`; the sort is stable.
    ///
    /// The order is that of [`sort`](Array::sort).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([30, 10, 20, 10]).argsort(0).to_vec::<i32>()?, [1, 3, 2, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort(&self, d: i32) -> Array {
        let call = CallSite::here("argsort");
        let island = |spec, _| (format!("argsort({d})"), spec);
        let Ok(axis) = resolve_dim(d.into(), self.type_ref().map_or(0, |ty| ty.rank())) else {
            return self.apply_along(d, call, prims::argsort, island).swap_remove(0);
        };
        match self.is_complex() {
            true => self.with_call_site(call, |call| {
                let [re, im] = self.real_imag(call);
                apply1(prims::argsort_by(axis, 2), &[re.into(), im.into()], call)
            }),
            false => self.apply_along(d, call, prims::argsort, island).swap_remove(0),
        }
    }
    /// Returns the k largest elements along dimension `d`, in descending order, and their indices.
    ///
    /// The indices are int32. NaN counts as largest; equal elements stay in their order. The
    /// dimension must be unsharded, and has at least k elements.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (best, at) = Array::from([3, 9, 1, 9, 4]).top_k(3, 0);
    /// assert_eq!(best.to_vec::<i32>()?, [9, 9, 4]);
    /// assert_eq!(at.to_vec::<i32>()?, [1, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn top_k(&self, k: usize, d: i32) -> (Array, Array) {
        let island = |spec: Spec, axis| (format!("top_k({k}, {d})"), spec.with_dim(axis, &Axes::none()));
        let made = self.apply_along(d, CallSite::here("top_k"), |axis| prims::top_k(k, axis), island);
        let mut both = made.into_iter();
        let best = both.next().unwrap_or_else(|| self.clone());
        let at = both.next().unwrap_or_else(|| best.clone());
        (best, at)
    }
    forward! {
        /// Returns the median along dimension `d`, which is removed.
        ///
        /// The median of an even number of elements is the mean of the middle two. Elements are
        /// floats. The median of elements that include a NaN is NaN. The dimension must be
        /// unsharded.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([[3.0, 1.0, 2.0], [9.0, 8.0, 0.0]]).median(1).to_vec::<f64>()?,
        ///     [2.0, 8.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn median(d: i32) = quantile_at(0.5, d);
        /// Returns the `q`-quantile along dimension `d`, which is removed.
        ///
        /// `q` is between 0 and 1. Positions between two elements are interpolated linearly.
        /// Elements are floats; the quantile of elements that include a NaN is NaN. The dimension
        /// must be unsharded.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([1.0, 2.0, 4.0, 8.0]).quantile(0.75, 0).item::<f64>()?, 5.0);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn quantile(q: f64, d: i32) = quantile_at(q, d);
    }
    /// Returns the `q`-th percentile along dimension `d`: [`Array::quantile`] of `q / 100`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0, 2.0, 4.0, 8.0]).percentile(75.0, 0).item::<f64>()?, 5.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn percentile(&self, q: f64, d: i32) -> Array {
        let call = CallSite::here("percentile");
        if !(0.0..=100.0).contains(&q) {
            let fault = fault!(Shape, "{q} is not a percentage");
            return self.reject(fault.help("give a number from 0 to 100"), call);
        }
        self.quantile_at(q / 100.0, d, call)
    }
    /// Implements [`Array::quantile`] and [`Array::median`].
    fn quantile_at(&self, q: f64, d: i32, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let axis = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| self.reject(fault, call));
        let n = ty.shape[axis];
        let fault = match () {
            () if !ty.dtype.is_float() => {
                let text = format!(
                    "a {} may be a value between two elements, so elements must be floats, not {}",
                    call.op, ty.dtype
                );
                Some(Fault::new(ErrorKind::Dtype, text).help("convert it first: `.astype(F32)`"))
            }
            () if !(0.0..=1.0).contains(&q) => {
                Some(fault!(Shape, "{q} is not a fraction").help("give a number from 0 to 1"))
            }
            () if n == 0 => Some(empty_dim_fault(axis)),
            () => None,
        };
        if let Some(fault) = fault {
            return self.reject(fault, call);
        }
        self.with_call_site(call, |call| {
            let island = |spec: Spec, axis: usize| {
                let code = match call.op {
                    "median" => format!("median({d})"),
                    "percentile" => format!("percentile({:?}, {d})", q * 100.0),
                    _ => format!("quantile({q:?}, {d})"),
                };
                let mut dims = spec.dims().to_vec();
                dims.remove(axis);
                (code, Spec::from_dims(dims))
            };
            let sorted = self.apply_along(d, call, |axis| prims::sort(axis, 1), island).swap_remove(0);
            let place = q * (n - 1) as f64;
            let at = |k: usize| sorted.slice_dim(axis, k, k + 1, call).squeeze_at(&[axis], call);
            let (low, high, part) = (place.floor() as usize, place.ceil() as usize, place.fract());
            let below = at(low);
            let value = if low == high {
                below
            } else {
                let above = at(high).binary_with(Binary::Mul, part, call);
                below.binary_with(Binary::Mul, 1.0 - part, call).binary_with(Binary::Add, &above, call)
            };
            // NaN sorts last: if the last element is NaN, so is the result
            let last = at(n - 1);
            last.binary_with(Binary::Ne, &last, call).select_at(Term::from(&last), Term::from(&value), call)
        })
    }
    /// Returns the distinct elements of a vector, ascending, as a vector of static size `size`.
    ///
    /// If there are fewer, the smallest element fills the rest; if there are more, the largest are
    /// omitted. All NaNs count as one element. The vector must be unsharded and not empty.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([3, 1, 3, 2, 1]);
    /// assert_eq!(x.unique(3).to_vec::<i32>()?, [1, 2, 3]);
    /// assert_eq!(x.unique(5).to_vec::<i32>()?, [1, 2, 3, 1, 1]);
    /// assert_eq!(x.unique(2).to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn unique(&self, size: usize) -> Array {
        let call = CallSite::here("unique");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let [n] = ty.shape[..] else {
            let text = format!("`unique` needs a vector, not {ty}");
            return self.reject(Fault::new(ErrorKind::Shape, text).help("make it one: `.ravel()`"), call);
        };
        if n == 0 {
            return self.reject(empty_dim_fault(0), call);
        }
        self.with_call_site(call, |call| {
            let sorted = apply1(prims::sort(0, 1), &[self.into()], call);
            let (last, next) = (sorted.slice_dim(0, 0, n - 1, call), sorted.slice_dim(0, 1, n, call));
            // mark repeated elements; NaNs sort last, and count as equal here
            let nan = last.binary_with(Binary::Ne, &last, call).binary_with(
                Binary::And,
                next.binary_with(Binary::Ne, &next, call),
                call,
            );
            let again = last.binary_with(Binary::Eq, &next, call).binary_with(Binary::Or, &nan, call);
            let first = sorted.slice_dim(0, 0, 1, call);
            let again = concat_at(
                &[first.binary_with(Binary::Ne, &first, call).binary_with(Binary::And, false, call), again],
                0,
                call,
            );
            let both: Vec<Array> = apply(prims::sort(0, 1), &[(&again).into(), (&sorted).into()], call);
            let [again, sorted] = &both[..] else { return both[0].clone() };
            let filled = again.select_at(Term::from(&first.repeat_single(n, call)), Term::from(sorted), call);
            match size <= n {
                true => filled.slice_dim(0, 0, size, call),
                false => concat_at(&[filled, first.repeat_single(size - n, call)], 0, call),
            }
        })
    }
    /// Repeats the element of a vector of size 1 `n` times.
    fn repeat_single(&self, n: usize, call: CallSite<'_>) -> Array {
        apply1(prims::broadcast(&[n].into(), &[0], None), &[self.into()], call)
    }
    /// Returns every `step`-th element of the range `from..to` along dimension `axis`.
    pub(crate) fn strided(
        &self,
        axis: usize,
        from: usize,
        to: usize,
        step: usize,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let mut bounds: Vec<(usize, usize, usize)> = ty.shape.iter().map(|n| (0, *n, 1)).collect();
        bounds[axis] = (from, to, step);
        apply1(prims::slice(&bounds), &[self.into()], call)
    }
    /// Reverses the elements along dimension `axis`.
    pub(crate) fn reversed(&self, axis: usize, call: CallSite<'_>) -> Array {
        apply1(prims::rev(&[axis]), &[self.into()], call)
    }
    /// Concatenates this array and another along dimension `axis`.
    pub(crate) fn concat_with(&self, other: &Array, axis: usize, call: CallSite<'_>) -> Array {
        concat_at(&[self.clone(), other.clone()], axis, call)
    }
    /// Interleaves two arrays along dimension `axis`, starting with this one.
    ///
    /// This array has the same size as the other along `axis`, or one element more, which comes
    /// last.
    pub(crate) fn interleave(&self, other: &Array, axis: usize, call: CallSite<'_>) -> Array {
        let (Ok(x), Ok(y)) = (self.type_ref(), other.type_ref()) else { return self.clone() };
        let (n, m) = (x.shape[axis], y.shape[axis]);
        let mut shape = y.shape.clone();
        shape.sizes_mut()[axis] = 2 * m;
        let beside = |x: &Array| x.strided(axis, 0, m, 1, call).expand_dims_at(&[axis + 1], call);
        let both = concat_at(&[beside(self), beside(other)], axis + 1, call).reshape_at(shape, None, call);
        if n == m { both } else { both.concat_with(&self.strided(axis, m, n, 1, call), axis, call) }
    }
    fn is_complex(&self) -> bool {
        self.type_ref().is_ok_and(|ty| ty.dtype.is_complex())
    }
    /// Returns the real and the imaginary part.
    fn real_imag(&self, call: CallSite<'_>) -> [Array; 2] {
        [Unary::Real, Unary::Imag].map(|part| self.unary(part, call))
    }
    /// Applies a primitive along dimension `d`.
    ///
    /// If there is no such dimension, or it is sharded, returns one array that carries the error.
    /// For this error, `island` returns the call, and the spec of the results on auto axes, for the
    /// operand's spec and the dimension.
    fn apply_along(
        &self,
        d: i32,
        call: CallSite<'_>,
        prim: impl Fn(usize) -> Prim,
        island: impl Fn(Spec, usize) -> (String, Spec),
    ) -> Vec<Array> {
        let Ok(ty) = self.type_ref() else { return vec![self.clone()] };
        let axis = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| vec![self.reject(fault, call)]);
        let sharded = needs_unsharded_dim(ty, axis, |spec| {
            let (code, out) = island(spec, axis);
            (code, out.to_string())
        });
        let Some(fault) = sharded else { return apply(prim(axis), &[self.into()], call) };
        vec![self.reject(fault, call)]
    }
}

/// Sorts several arrays together along dimension `d`, by the first `keys` of them.
///
/// The first array is the primary key, the next ones break ties; the sort is stable. The arrays
/// have the same shape and sharding, and the dimension must be unsharded. The order of keys is that
/// of [`Array::sort`]. Returns the sorted arrays in the same order.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::sort_by_keys;
/// let (year, name) = (Array::from([1990, 1970, 1980]), Array::from([1, 2, 3]));
/// let sorted = sort_by_keys([&year, &name], 1, 0);
/// assert_eq!(sorted[0].to_vec::<i32>()?, [1970, 1980, 1990]);
/// assert_eq!(sorted[1].to_vec::<i32>()?, [2, 3, 1]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("sort_by_key", "lexsort", "num_keys"))]
#[track_caller]
pub fn sort_by_keys<A: Borrow<Array>>(
    arrays: impl IntoIterator<Item = A>,
    keys: usize,
    d: i32,
) -> Vec<Array> {
    let call = CallSite::here("sort_by_keys");
    let arrays: Vec<Array> = arrays.into_iter().map(|a| a.borrow().clone()).collect();
    sort_all(&arrays, keys, d, call)
}

/// Implements [`sort_by_keys`]; complex arrays are sorted as their real and imaginary parts.
fn sort_all(arrays: &[Array], keys: usize, d: i32, call: CallSite<'_>) -> Vec<Array> {
    let reject = |a: Array| vec![a; arrays.len().max(1)];
    let rank = match arrays.first().map(Array::type_ref) {
        Some(Ok(ty)) => ty.rank(),
        Some(Err(_)) => return reject(arrays[0].clone()),
        None => 1,
    };
    let axis = ok_or_return!(resolve_dim(d.into(), rank), |fault| reject(arrays[0].reject(fault, call)));
    let complex: Vec<bool> = arrays.iter().map(Array::is_complex).collect();
    let part = |a: &Array| if a.is_complex() { a.real_imag(call).to_vec() } else { vec![a.clone()] };
    let parts: Vec<Array> = arrays.iter().flat_map(part).collect();
    let args: Vec<ArrayOrLiteral> = parts.iter().map(Into::into).collect();
    let more = complex.iter().take(keys).filter(|c| **c).count();
    let mut made = apply(prims::sort(axis, keys + more), &args, call);
    if made.len() < parts.len() {
        return reject(made.swap_remove(0));
    }
    let mut made = made.into_iter();
    let mut next = || made.next().expect("the sort returns one result for each operand");
    let each = complex
        .into_iter()
        .map(|complex| if complex { next().binary_with(Binary::Complex, next(), call) } else { next() });
    each.collect()
}
