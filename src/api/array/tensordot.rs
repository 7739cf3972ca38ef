//! Products under their NumPy names: `tensordot`, `inner`, `vdot`, `outer` and `kron`.
//!
//! `outer` and `kron` multiply broadcast arrays; the others apply one `dot_general`.

use super::{Array, Contraction, Term, operand, prims};
use crate::api::trace::{ArrayOrLiteral, apply1};
use crate::core::{ArrayType, ErrorKind, Fault, Spec};
use crate::ir::{ops::elementwise::Binary, program::CallSite};
use std::borrow::Borrow;

/// # Products over several dimensions
impl Array {
    forward! {
        /// Sums products over the last `n` dimensions of this array and the first `n` of the other.
        ///
        /// The result has the remaining dimensions of this array, then those of the other. For
        /// other pairs of dimensions use [`Array::dot_general`].
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let (x, y) = (Array::ones([2, 3, 4]), Array::ones([3, 4, 5]));
        /// assert_eq!(x.tensordot(&y, 2).shape()?, [2, 5]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn tensordot(b: impl Borrow<Array>, n: usize)
            = tensordot_at(b.borrow(), n, None), or "x.tensordot_to(&w, n, {})";
        /// Computes [`Array::tensordot`] with the result sharded (or left unreduced) as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let (x, y) = (Array::ones([4, 2]).put(&mesh, p![_, "X"]),
        ///     Array::ones([2, 3]).put(&mesh, p!["X"]));
        /// assert_eq!(type_of(x.tensordot_to(&y, 1, p!["X"])), "float32[4@X,3]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn tensordot_to(b: impl Borrow<Array>, n: usize, out: Spec)
            = tensordot_at(b.borrow(), n, Some(out));
        /// Sums products over the last dimension of both arrays.
        ///
        /// The result has the remaining dimensions of this array, then those of the other.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let (x, y) = (Array::from([[1, 2], [3, 4]]), Array::from([[10, 1]]));
        /// assert_eq!(x.inner(&y).to_vec::<i32>()?, [12, 34]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn inner(b: impl Borrow<Array>) = inner_at(b.borrow(), None), or "x.inner_to(&w, {})";
        /// Computes [`Array::inner`] with the result sharded (or left unreduced) as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::ones([4, 2]).put(&mesh, p![_, "X"]);
        /// assert_eq!(type_of(x.inner_to(&x, p![_, _; U: "X"])), "float32[4,4]{U:X}");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn inner_to(b: impl Borrow<Array>, out: Spec) = inner_at(b.borrow(), Some(out));
        /// Sums the products of all elements of two arrays of equal shape.
        ///
        /// The elements of this array are conjugated if they are complex.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1, 2], [3, 4]]);
        /// assert_eq!(x.vdot(&x).item::<i32>()?, 30);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn vdot(b: impl Borrow<Array>) = vdot_at(b.borrow(), None), or "x.vdot_to(&w, {})";
        /// Computes [`Array::vdot`] with the result all-reduced or left unreduced, as `out` says.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::arange(0..4).put(&mesh, p!["X"]);
        /// assert_eq!(x.vdot_to(&x, p![]).item::<i32>()?, 14);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn vdot_to(b: impl Borrow<Array>, out: Spec) = vdot_at(b.borrow(), Some(out));
        /// Computes the Kronecker product: each element of this array times the other array, as
        /// blocks.
        ///
        /// A dimension of this array that is sharded stays sharded. The other array must be
        /// unsharded; otherwise use [`Array::kron_to`] to give the result's sharding.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let (x, y) = (Array::from([1, 10]), Array::from([1, 2, 3]));
        /// assert_eq!(x.kron(&y).to_vec::<i32>()?, [1, 2, 3, 10, 20, 30]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn kron(b: impl Borrow<Array>) = kron_at(b.borrow(), None), or "x.kron_to(&w, {})";
        /// Computes [`Array::kron`] with the result sharded as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let (x, y) = (Array::from([1, 10]), Array::from([1, 2]).put(&mesh, p!["X"]));
        /// assert_eq!(type_of(x.kron_to(&y, p!["X"])), "int32[4@X]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn kron_to(b: impl Borrow<Array>, out: Spec) = kron_at(b.borrow(), Some(out));
    }
    /// Implements [`Array::tensordot`].
    fn tensordot_at(&self, b: &Array, n: usize, out: Option<Spec>, call: CallSite<'_>) -> Array {
        self.with_both_types(b, call, |ta, tb, call| {
            let (ra, rb) = (ta.rank(), tb.rank());
            if n > ra.min(rb) {
                let fault = fault!(Shape, "it sums over {n} dimensions, but the arrays have {ra} and {rb}");
                return Err(fault.help(format!("sum over {} at most", ra.min(rb))));
            }
            Ok(self.contract_pairs(b, (0..n).map(|k| (ra - n + k, k)).collect(), out, call))
        })
    }
    /// Implements [`Array::inner`].
    fn inner_at(&self, b: &Array, out: Option<Spec>, call: CallSite<'_>) -> Array {
        self.with_both_types(b, call, |ta, tb, call| match (ta.rank(), tb.rank()) {
            (0, _) | (_, 0) => {
                let message = "it takes arrays of rank 1 and more";
                Err(Fault::new(ErrorKind::Shape, message).help("multiply by a scalar: `a * b`"))
            }
            (ra, rb) => Ok(self.contract_pairs(b, vec![(ra - 1, rb - 1)], out, call)),
        })
    }
    /// Implements [`Array::vdot`].
    fn vdot_at(&self, b: &Array, out: Option<Spec>, call: CallSite<'_>) -> Array {
        self.with_both_types(b, call, |ta, tb, call| {
            if ta.shape != tb.shape {
                let message = format!(
                    "operand 0 has shape {}, but operand 1 {}: they have one shape",
                    ta.shape, tb.shape
                );
                return Err(Fault::new(ErrorKind::Shape, message).help("make them equal: `reshape`, `slice`"));
            }
            Ok(self.conj_at(call).contract_pairs(b, (0..ta.rank()).map(|d| (d, d)).collect(), out, call))
        })
    }
    /// Computes the outer product of two vectors as a matrix; other arrays are flattened first.
    ///
    /// Rows correspond to the elements of this array.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    /// let (x, y) = (Array::arange(0..2).put(&mesh, p!["X"]),
    ///     Array::arange(0..4).put(&mesh, p!["Y"]));
    /// assert_eq!(type_of(x.outer(&y)), "int32[2@X,4@Y]");
    /// assert_eq!(x.outer(&y).to_vec::<i32>()?, [0, 0, 0, 0, 0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn outer(&self, b: impl Borrow<Array>) -> Array {
        let b = b.borrow();
        self.with_both_types(b, CallSite::here("outer"), |ta, tb, call| {
            let raveled = |x: &Array, ty: &ArrayType| match ty.rank() {
                1 => x.clone(),
                _ => x.reshape_at([ty.shape.num_elements()].into(), None, call),
            };
            let rows = raveled(self, ta).expand_dims_at(&[1], call);
            Ok(rows.binary_with(Binary::Mul, raveled(b, tb).expand_dims_at(&[0], call), call))
        })
    }
    /// Implements [`Array::kron`].
    fn kron_at(&self, b: &Array, out: Option<Spec>, call: CallSite<'_>) -> Array {
        self.with_both_types(b, call, |ta, tb, call| {
            let rank = ta.rank().max(tb.rank());
            let sized =
                |ty: &ArrayType, d: usize| (d + ty.rank()).checked_sub(rank).map_or(1, |d| ty.shape[d]);
            // shape [n, 1] and [1, m] per dimension; dimensions that an array lacks are inserted
            let spread = |x: &Array, ty: &ArrayType, first: bool| {
                let lead = rank - ty.rank();
                let new: Vec<usize> =
                    (0..2 * rank).filter(|e| e / 2 < lead || (e % 2 == 0) != first).collect();
                if new.is_empty() { x.clone() } else { x.expand_dims_at(&new, call) }
            };
            let all = spread(self, ta, true).binary_with(Binary::Mul, spread(b, tb, false), call);
            let sizes: Vec<usize> = (0..rank).map(|d| sized(ta, d).saturating_mul(sized(tb, d))).collect();
            Ok(all.reshape_at(sizes.into(), out, call))
        })
    }
    /// Calls `make` with the types of both arrays; its errors refer to these two operands.
    fn with_both_types(
        &self,
        b: &Array,
        call: CallSite<'_>,
        make: impl FnOnce(&ArrayType, &ArrayType, CallSite<'_>) -> Result<Array, Fault>,
    ) -> Array {
        let [ta, tb] = ok_or_return!(operand::types([self, b]));
        let terms = [Term::from(self), Term::from(b)];
        make(ta, tb, call).unwrap_or_else(|fault| operand::reject(fault, &terms, call))
    }
    /// Contracts pairs of dimensions with `dot_general`.
    fn contract_pairs(
        &self,
        b: &Array,
        pairs: Vec<(usize, usize)>,
        out: Option<Spec>,
        call: CallSite<'_>,
    ) -> Array {
        let how = Contraction { contracting: pairs, batch: Vec::new() };
        apply1(prims::dot_general(&how, out, None, None), &[ArrayOrLiteral::from(self), b.into()], call)
    }
}
