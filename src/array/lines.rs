//! Along a dimension: running sums and their kin, sorts.

use super::dims::dim;
use super::joins::join;
use super::{Array, Term, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::ops::elementwise::{Binary, Unary};
use crate::ops::lines::Running;
use crate::ops::reduce::none_extreme;
use crate::program::{Call, Prim};
use crate::trace::{Arg, apply, apply1};
use std::borrow::Borrow;

macro_rules! running { ($($(#[$doc:meta])* $name:ident $back:ident $kind:ident $back_doc:literal;)*) => {
    impl Array {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, d: i32) -> Array {
            self.running(Running::$kind, d, false, Call::here(stringify!($name)))
        }
        #[doc = $back_doc]
        #[track_caller]
        pub fn $back(&self, d: i32) -> Array {
            self.running(Running::$kind, d, true, Call::here(stringify!($back)))
        }
    )*}
} }

running! {
    /// The sum of what came so far along a dimension, which is unsharded; of the operand's type. Another dimension may be sharded any way.
    ///
    /// The order of addition goes by the length of the dimension alone: groups of 16, blocks of 2¹⁶. So results are the same bits on
    /// any engine, mesh and number of workers; 16-bit floats are added in float32. (In auto mode the dimension may be sharded: then
    /// each device adds up its block, and hears of the others' their totals only.)
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
    cumsum cumsum_from_end Sum "As [`cumsum`](Array::cumsum), from the end: each element and all behind it.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 2, 3]).cumsum_from_end(0).to_vec::<i32>()?, [6, 5, 3]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// The product of what came so far along a dimension, which is unsharded; in the order of [`cumsum`](Array::cumsum). Its derivative is
    /// exact where elements are zero, too.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2, 3, 4]).cumprod(0).to_vec::<i32>()?, [1, 2, 6, 24]);
    /// let g = grad(Array::from([2.0, 0.0, 5.0]), |x| x.cumprod(0).sum(..));
    /// assert_eq!(g.to_vec::<f64>()?, [1.0, 12.0, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cumprod cumprod_from_end Prod "As [`cumprod`](Array::cumprod), from the end.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 2, 3]).cumprod_from_end(0).to_vec::<i32>()?, [6, 6, 3]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// The greatest of what came so far along a dimension, which is unsharded; NaN from the first NaN on. Of numbers and bool. Of equal
    /// elements the first one has the derivative.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 3, 2, 5]).cummax(0).to_vec::<i32>()?, [1, 3, 3, 5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "maximum.accumulate")]
    cummax cummax_from_end Max "As [`cummax`](Array::cummax), from the end.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 3, 2]).cummax_from_end(0).to_vec::<i32>()?, [3, 3, 2]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// The least of what came so far along a dimension, which is unsharded; NaN from the first NaN on. Of numbers and bool. Of equal
    /// elements the first one has the derivative.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([4, 3, 5, 1]).cummin(0).to_vec::<i32>()?, [4, 3, 3, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "minimum.accumulate")]
    cummin cummin_from_end Min "As [`cummin`](Array::cummin), from the end.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 3, 2]).cummin_from_end(0).to_vec::<i32>()?, [1, 2, 2]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// log Σ eˣ of what came so far along a dimension, which is unsharded, without overflow; of floats. In the order of
    /// [`cumsum`](Array::cumsum).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([f64::NEG_INFINITY, 1000.0, 1000.0]).cumlogsumexp(0);
    /// assert_eq!(x.to_vec::<f64>()?, [f64::NEG_INFINITY, 1000.0, 1000.0 + 2f64.ln()]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cumlogsumexp cumlogsumexp_from_end LogSumExp "As [`cumlogsumexp`](Array::cumlogsumexp), from the end.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([0.0, 0.0]).cumlogsumexp_from_end(0).to_vec::<f64>()?, [2f64.ln(), 0.0]);\n# Ok::<(), atmesh::Error>(())\n```";
}

/// # Order, and sums along a dimension
impl Array {
    fn running(&self, kind: Running, d: i32, reverse: bool, call: Call<'_>) -> Array {
        self.along(d, call, |axis| prims::scan(kind, axis, reverse)).swap_remove(0)
    }
    /// hᵢ = decayᵢ·hᵢ₋₁ + xᵢ along a dimension, which is unsharded; h before the first element is 0. Both are of one type; 16-bit floats are
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
        let call = Call::here("recurrence");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dim(d.into(), ty.rank()) {
            Ok(axis) => apply1(prims::recurrence(axis, false), &[decay.into(), self.into()], call),
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// The elements along a dimension in rising order; NaN comes last, and of −0 and 0, which are equal, the one that came first. The
    /// dimension is unsharded, others may be sharded any way. Of numbers and bool; complex numbers go by their real parts, those of which these are
    /// equal by their imaginary parts.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[3.0, f64::NAN, 1.0], [2.0, 0.0, -1.0]]);
    /// assert_eq!(x.sort(1).to_string(), "[[ 1.  3. nan]\n [-1.  0.  2.]]");
    /// let g = grad(Array::from([3.0, 1.0, 2.0]), |x| (x.sort(0) * Array::from([1.0, 10.0, 100.0])).sum(..));
    /// assert_eq!(g.to_vec::<f64>()?, [100.0, 1.0, 10.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(&self, d: i32) -> Array {
        let call = Call::here("sort");
        match self.is_complex() {
            true => self.told(call, |call| sorted(std::slice::from_ref(self), 1, d, call).swap_remove(0)),
            false => self.along(d, call, |axis| prims::sort(axis, 1)).swap_remove(0),
        }
    }
    /// Where the elements of [`sort`](Array::sort) come from along a dimension, int32; equal elements stay in order.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([30, 10, 20, 10]).argsort(0).to_vec::<i32>()?, [1, 3, 2, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort(&self, d: i32) -> Array {
        let call = Call::here("argsort");
        let Ok(axis) = dim(d.into(), self.type_ref().map_or(0, |ty| ty.rank())) else {
            return self.along(d, call, prims::argsort).swap_remove(0);
        };
        match self.is_complex() {
            true => self.told(call, |call| {
                let [re, im] = self.parts(call);
                apply1(prims::argsort_by(axis, 2), &[re.into(), im.into()], call)
            }),
            false => self.along(d, call, prims::argsort).swap_remove(0),
        }
    }
    /// The k greatest elements along a dimension, the greatest first, and where they are, int32. NaN is greater than all; of equal elements
    /// the first comes first. The dimension is unsharded and has at least k elements.
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
        let mut both = self.along(d, Call::here("top_k"), |axis| prims::top_k(k, axis)).into_iter();
        let best = both.next().unwrap_or_else(|| self.clone());
        let at = both.next().unwrap_or_else(|| best.clone());
        (best, at)
    }
    /// The median along a dimension, which goes: the middle element, or the mean of both; of floats. NaN where any is.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([[3.0, 1.0, 2.0], [9.0, 8.0, 0.0]]).median(1).to_vec::<f64>()?, [2.0, 8.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn median(&self, d: i32) -> Array {
        self.quantile_at(0.5, d, Call::here("median"))
    }
    /// The value below which a part `q` of a dimension is, which goes; between two elements, in proportion. Of floats; NaN where any is.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0, 2.0, 4.0, 8.0]).quantile(0.75, 0).item::<f64>()?, 5.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn quantile(&self, q: f64, d: i32) -> Array {
        self.quantile_at(q, d, Call::here("quantile"))
    }
    /// [`Array::quantile`] of a part that is given in percent.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1.0, 2.0, 4.0, 8.0]).percentile(75.0, 0).item::<f64>()?, 5.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn percentile(&self, q: f64, d: i32) -> Array {
        let call = Call::here("percentile");
        if !(0.0..=100.0).contains(&q) {
            let fault = Fault::new(ErrorKind::Shape, format!("{q} are not so many of a hundred parts"));
            return self.refuse(fault.help("give a number from 0 to 100"), call);
        }
        self.quantile_at(q / 100.0, d, call)
    }
    fn quantile_at(&self, q: f64, d: i32, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let axis = match dim(d.into(), ty.rank()) {
            Ok(axis) => axis,
            Err(fault) => return self.refuse(fault, call),
        };
        let n = ty.shape[axis];
        let fault = match () {
            () if !ty.dtype.is_float() => {
                let text = format!("a {} may be between two elements, and these are {}", call.op, ty.dtype);
                Some(Fault::new(ErrorKind::Dtype, text).help("convert it first: `.astype(F32)`"))
            }
            () if !(0.0..=1.0).contains(&q) => {
                let text = format!("{q} is no part of a whole");
                Some(Fault::new(ErrorKind::Shape, text).help("give a number from 0 to 1"))
            }
            () if n == 0 => Some(none_extreme(axis)),
            () => None,
        };
        if let Some(fault) = fault {
            return self.refuse(fault, call);
        }
        self.told(call, |call| {
            let sorted = self.along(d, call, |axis| prims::sort(axis, 1)).swap_remove(0);
            let place = q * (n - 1) as f64;
            let at = |k: usize| sorted.part(axis, k, k + 1, call).without(&[axis], call);
            let (low, high, part) = (place.floor() as usize, place.ceil() as usize, place.fract());
            let below = at(low);
            let value = match low == high {
                true => below,
                false => {
                    let above = at(high).with(Binary::Mul, part, call);
                    below.with(Binary::Mul, 1.0 - part, call).with(Binary::Add, &above, call)
                }
            };
            // NaN comes last
            let last = at(n - 1);
            last.with(Binary::Ne, &last, call).select_at(Term::from(&last), Term::from(&value), call)
        })
    }
    /// The different elements of a vector in rising order, of which there are at most `size`; where there are fewer the least one fills it
    /// up, where there are more the greatest are left out. Every NaN is one. The vector is unsharded and not empty.
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
        let call = Call::here("unique");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let [n] = ty.shape[..] else {
            let text = format!("different elements are those of a vector, not of {ty}");
            return self.refuse(Fault::new(ErrorKind::Shape, text).help("make it one: `.ravel()`"), call);
        };
        if n == 0 {
            return self.refuse(none_extreme(0), call);
        }
        self.told(call, |call| {
            let sorted = apply1(prims::sort(0, 1), &[self.into()], call);
            let (last, next) = (sorted.part(0, 0, n - 1, call), sorted.part(0, 1, n, call));
            // of equal ones all but the first; NaN come last, and are equal here
            let nan = last.with(Binary::Ne, &last, call).with(
                Binary::And,
                next.with(Binary::Ne, &next, call),
                call,
            );
            let again = last.with(Binary::Eq, &next, call).with(Binary::Or, &nan, call);
            let first = sorted.part(0, 0, 1, call);
            let again =
                join(&[first.with(Binary::Ne, &first, call).with(Binary::And, false, call), again], 0, call);
            let both: Vec<Array> = apply(prims::sort(0, 1), &[(&again).into(), (&sorted).into()], call);
            let [again, sorted] = &both[..] else { return both[0].clone() };
            let filled = again.select_at(Term::from(&first.broadcast_at(n, call)), Term::from(sorted), call);
            match size <= n {
                true => filled.part(0, 0, size, call),
                false => join(&[filled, first.broadcast_at(size - n, call)], 0, call),
            }
        })
    }
    /// A vector of one element, so many times.
    fn broadcast_at(&self, n: usize, call: Call<'_>) -> Array {
        apply1(prims::broadcast(&[n].into(), &[0], None), &[self.into()], call)
    }
    /// Along a dimension every `step`-th element of `from..to`.
    pub(crate) fn every(&self, axis: usize, from: usize, to: usize, step: usize, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let mut bounds: Vec<(usize, usize, usize)> = ty.shape.iter().map(|n| (0, *n, 1)).collect();
        bounds[axis] = (from, to, step);
        apply1(prims::slice(&bounds), &[self.into()], call)
    }
    /// From the last element along a dimension to the first.
    pub(crate) fn turned(&self, axis: usize, call: Call<'_>) -> Array {
        apply1(prims::rev(&[axis]), &[self.into()], call)
    }
    /// This, then another one along a dimension.
    pub(crate) fn followed_by(&self, other: &Array, axis: usize, call: Call<'_>) -> Array {
        join(&[self.clone(), other.clone()], axis, call)
    }
    /// Along a dimension the first of this, the first of the other, the second of this, and so on; this may have one more at the end.
    pub(crate) fn interleaved(&self, other: &Array, axis: usize, call: Call<'_>) -> Array {
        let (Ok(x), Ok(y)) = (self.type_ref(), other.type_ref()) else { return self.clone() };
        let (n, m) = (x.shape[axis], y.shape[axis]);
        let mut shape = y.shape.clone();
        shape.sizes_mut()[axis] = 2 * m;
        let beside = |x: &Array| x.every(axis, 0, m, 1, call).new_dims(&[axis + 1], call);
        let both = join(&[beside(self), beside(other)], axis + 1, call).reshape_at(shape, None, call);
        if n == m { both } else { both.followed_by(&self.every(axis, m, n, 1, call), axis, call) }
    }
    fn is_complex(&self) -> bool {
        self.type_ref().is_ok_and(|ty| ty.dtype.is_complex())
    }
    /// The real and the imaginary part.
    fn parts(&self, call: Call<'_>) -> [Array; 2] {
        [Unary::Real, Unary::Imag].map(|part| self.unary(part, call))
    }
    /// What this primitive makes along a dimension; where there is no such dimension, one array that carries the refusal.
    fn along(&self, d: i32, call: Call<'_>, prim: impl Fn(usize) -> Prim) -> Vec<Array> {
        let Ok(ty) = self.type_ref() else { return vec![self.clone()] };
        match dim(d.into(), ty.rank()) {
            Ok(axis) => apply(prim(axis), &[self.into()], call),
            Err(fault) => vec![self.refuse(fault, call)],
        }
    }
}

/// Arrays of one shape and sharding, sorted together along a dimension: in the rising order of the first `keys` of them, the first of
/// these first. Where keys are equal, elements stay in order. The dimension is unsharded; keys are as for [`Array::sort`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::sort_together;
/// let (year, name) = (Array::from([1990, 1970, 1980]), Array::from([1, 2, 3]));
/// let sorted = sort_together([&year, &name], 1, 0);
/// assert_eq!(sorted[0].to_vec::<i32>()?, [1970, 1980, 1990]);
/// assert_eq!(sorted[1].to_vec::<i32>()?, [2, 3, 1]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("sort_by_key", "lexsort"))]
#[track_caller]
pub fn sort_together<A: Borrow<Array>>(
    arrays: impl IntoIterator<Item = A>,
    keys: usize,
    d: i32,
) -> Vec<Array> {
    let call = Call::here("sort_together");
    let arrays: Vec<Array> = arrays.into_iter().map(|a| a.borrow().clone()).collect();
    sorted(&arrays, keys, d, call)
}

/// Sorted together; complex numbers as their two parts.
fn sorted(arrays: &[Array], keys: usize, d: i32, call: Call<'_>) -> Vec<Array> {
    let refused = |a: Array| vec![a; arrays.len().max(1)];
    let rank = match arrays.first().map(Array::type_ref) {
        Some(Ok(ty)) => ty.rank(),
        Some(Err(_)) => return refused(arrays[0].clone()),
        None => 1,
    };
    let axis = match dim(d.into(), rank) {
        Ok(axis) => axis,
        Err(fault) => return refused(arrays[0].refuse(fault, call)),
    };
    let complex: Vec<bool> = arrays.iter().map(Array::is_complex).collect();
    let part = |a: &Array| if a.is_complex() { a.parts(call).to_vec() } else { vec![a.clone()] };
    let parts: Vec<Array> = arrays.iter().flat_map(part).collect();
    let args: Vec<Arg> = parts.iter().map(Into::into).collect();
    let more = complex.iter().take(keys).filter(|c| **c).count();
    let mut made = apply(prims::sort(axis, keys + more), &args, call);
    if made.len() < parts.len() {
        return refused(made.swap_remove(0));
    }
    let mut made = made.into_iter();
    let mut next = || made.next().expect("one for each part");
    let each = complex.into_iter().map(|complex| match complex {
        true => next().with(Binary::Complex, next(), call),
        false => next(),
    });
    each.collect()
}
