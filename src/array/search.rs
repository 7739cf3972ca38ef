//! Where elements are: among those of a vector that rises, between its steps, by a condition.

use super::indexing::{At, explicit, vectors};
use super::operand::{self, Operand};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::ops::elementwise::Binary;
use crate::ops::indexing::Places;
use crate::ops::lines::Running;
use crate::program::Call;
use crate::program::sentence::Beyond;
use crate::sharding::Spec;
use crate::trace::{apply1, carried, poison};
use crate::types::{ArrayType, DType, Scalar};

/// # Searching
impl Array {
    /// Where each of `x` belongs in this vector, which is in rising order: how many of its elements are less, int32. With `right` how many
    /// are not greater. NaN is greater than all. Both are of one type; the vector is unsharded, `x` may be sharded any way.
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
        let call = Call::here("searchsorted");
        match self.rising(&[x], call) {
            Ok(n) => self.found(x, n, right, call),
            Err(refused) => refused,
        }
    }
    /// How many elements this vector has, whose elements and those of these are of one type.
    fn rising(&self, others: &[&Array], call: Call<'_>) -> Result<usize, Array> {
        if let Some(error) = carried(std::iter::once(self).chain(others.iter().copied())) {
            return Err(poison(error));
        }
        let Ok(steps) = self.type_ref() else { return Err(self.clone()) };
        let terms: Vec<_> = std::iter::once(self).chain(others.iter().copied()).map(Into::into).collect();
        let refuse = |fault| Err(operand::refuse(fault, &terms, call));
        let [n] = steps.shape[..] else {
            let text = format!("the elements among which is searched are a vector, not {steps}");
            return refuse(Fault::new(ErrorKind::Shape, text).help("make it one: `.ravel()`"));
        };
        if explicit(steps, steps.spec).is_some_and(|spec| !spec.is_whole()) {
            let text = format!("the elements among which is searched are sharded: {steps}");
            let fault = Fault::new(ErrorKind::Sharding, text).dim(0, 0);
            return refuse(fault.help("reshard them: `.reshard(p![_])`"));
        }
        for (k, other) in others.iter().enumerate() {
            let Ok(ty) = other.type_ref() else { continue };
            if ty.dtype != steps.dtype {
                let text =
                    format!("operand {} is {}, and is searched among {}", k + 1, ty.dtype, steps.dtype);
                let fault = Fault::new(ErrorKind::Dtype, text);
                return refuse(fault.help(format!("convert it: `.astype({:?})`", steps.dtype)));
            }
        }
        Ok(n)
    }
    /// The elements of this vector at these numbers, which are there; placed as the numbers are.
    fn nearest(&self, at: &Array, call: Call<'_>) -> Array {
        let Ok(ty) = at.type_ref() else { return at.clone() };
        let out = explicit(ty, ty.spec).filter(|spec| !spec.is_whole());
        let places = Places::rows(1, 0, ty.rank(), Beyond::Clip);
        self.gathered(&At { places, numbers: vectors(std::slice::from_ref(at), call) }, out, call)
    }
    /// Of n steps how many are before each of `x`, by halves.
    fn found(&self, x: &Array, n: usize, right: bool, call: Call<'_>) -> Array {
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let float = ty.dtype.is_float();
        let nan = |x: &Array| x.with(Binary::Ne, x, call);
        let before = |e: &Array| {
            let less = e.with(if right { Binary::Le } else { Binary::Lt }, x, call);
            match (float, right) {
                (false, _) => less,
                (true, true) => less.with(Binary::Or, nan(x), call),
                (true, false) => {
                    let number = e.with(Binary::Eq, e, call);
                    less.with(Binary::Or, nan(x).with(Binary::And, number, call), call)
                }
            }
        };
        let ty = ArrayType { dtype: DType::I32, spec: Spec::of(ty.spec.dims().to_vec()), ..ty.clone() };
        let mut count = apply1(prims::full(ty, Scalar::Int(0)), &[], call);
        let mut step = n.checked_ilog2().map_or(0, |bits| 1usize << bits);
        while step > 0 {
            // so many more, if the last of them is before it
            let more = count.with(Binary::Add, step as i64, call);
            let last = more.with(Binary::Sub, 1, call).with(Binary::Min, n as i64 - 1, call);
            let fits = more.with(Binary::Le, n as i64, call);
            let takes = before(&self.nearest(&last, call)).with(Binary::And, fits, call);
            count = takes.select_at(more.term(), count.term(), call);
            step /= 2;
        }
        count
    }
    /// The values between points: at each element the line from the point `(xs, ys)` before it to the one behind; before the first and behind
    /// the last their own. All are of one float type, `xs` rises, `xs` and `ys` are unsharded vectors; this array may be sharded any way.
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
        let call = Call::here("interp");
        let refuse = |kind, text: String, help: &str| {
            let fault = Fault::new(kind, text).help(help);
            operand::refuse(fault, &[self.into(), xs.into(), ys.into()], call)
        };
        if let Some(error) = carried([self, xs, ys].into_iter()) {
            return poison(error);
        }
        let (Ok(ty), Ok(of), Ok(to)) = (self.type_ref(), xs.type_ref(), ys.type_ref()) else {
            return self.clone();
        };
        if of.rank() != 1 || of.shape != to.shape || of.shape[0] == 0 {
            let text = format!("points are two vectors of one size, of one point or more, not {of} and {to}");
            return refuse(ErrorKind::Shape, text, "give as many `xs` as `ys`");
        }
        if !ty.dtype.is_float() || of.dtype != ty.dtype || to.dtype != ty.dtype {
            let text = format!("values between points are of one float type, not {ty}, {of} and {to}");
            return refuse(ErrorKind::Dtype, text, "convert them: `.astype(F32)`");
        }
        let n = match xs.rising(&[self, ys], call).and_then(|n| ys.rising(&[], call).map(|_| n)) {
            Ok(n) => n,
            Err(refused) => return refused,
        };
        let behind = xs.found(self, n, true, call);
        let behind = behind.with(Binary::Min, n as i64 - 1, call).with(Binary::Max, (n > 1) as i64, call);
        let before = behind.with(Binary::Sub, (n > 1) as i64, call);
        let [x0, x1] = [&before, &behind].map(|at| xs.nearest(at, call));
        let [y0, y1] = [&before, &behind].map(|at| ys.nearest(at, call));
        let width = x1.with(Binary::Sub, &x0, call);
        let flat = width.with(Binary::Eq, 0.0, call);
        let width = flat.select_at(1.0.term(), width.term(), call);
        let part = self.with(Binary::Sub, &x0, call).with(Binary::Div, width, call);
        let between =
            y1.with(Binary::Sub, &y0, call).with(Binary::Mul, &part, call).with(Binary::Add, &y0, call);
        // beyond the ends
        let [least, most] =
            [Binary::Lt, Binary::Gt].map(|fun| (fun, if fun == Binary::Lt { &x0 } else { &x1 }));
        let [under, over] = [least, most].map(|(fun, x)| self.with(fun, x, call));
        let value = under.select_at(y0.term(), between.term(), call);
        over.select_at(y1.term(), value.term(), call)
    }
    /// The positions of the elements that are not zero (or false), in the flattened array, rising, int32: the first `size` of them. Where there are
    /// fewer the rest are the number of elements, which is the position of none: `take` gives nothing there, and updates drop it.
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
        let call = Call::here("flatnonzero");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let n = ty.shape.elements();
        if n > i32::MAX as usize {
            let fault = Fault::new(ErrorKind::Shape, format!("positions among {n} elements are no int32"));
            return self.refuse(fault.help("take parts of the array"), call);
        }
        self.told(call, |call| {
            let flat = self.reshape_at([n].into(), None, call);
            let there = match flat.type_ref() {
                Ok(ty) if ty.dtype == DType::Bool => flat.clone(),
                _ => flat.with(Binary::Ne, 0, call),
            };
            // the number of each among those that are there
            let ones = there.astype_at(DType::I32, call);
            let number = apply1(prims::scan(Running::Sum, 0, false), &[(&ones).into()], call);
            let number = number.with(Binary::Sub, 1, call);
            let to = there.select_at(number.term(), (-1).term(), call);
            let like = to.type_ref().map_or_else(|_| DType::I32.of([n]), Clone::clone);
            let base = ArrayType { shape: [size].into(), spec: Spec::whole(1), ..like.clone() };
            let base = apply1(prims::full(base, Scalar::Int(n as i128)), &[], call);
            let own = apply1(prims::iota(like, 0), &[], call);
            let places = Places::rows(1, 0, 1, Beyond::Nothing);
            let at = At { places, numbers: vectors(std::slice::from_ref(&to), call) };
            base.scattered(&at, &own, None, None, call)
        })
    }
}
