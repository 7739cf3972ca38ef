//! Products by other names: of the last dimensions, of all of them, of none.

use super::{Array, Contraction, Term, operand, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::ops::elementwise::Binary;
use crate::program::Call;
use crate::sharding::Spec;
use crate::trace::{Arg, apply1, carried, poison};
use crate::types::ArrayType;
use std::borrow::Borrow;

/// # Products of many dimensions, vectors, norms
impl Array {
    /// The product summed over the last `n` dimensions of this array and the first `n` of the other: the other dimensions of both, in order.
    /// Over other pairs: [`Array::dot_general`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, y) = (Array::ones([2, 3, 4]), Array::ones([3, 4, 5]));
    /// assert_eq!(x.tensordot(&y, 2).shape()?, [2, 5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn tensordot(&self, b: impl Borrow<Array>, n: usize) -> Array {
        self.tensordot_at(b.borrow(), n, None, Call::here("tensordot").twin("x.tensordot_to(&w, n, {})"))
    }
    /// [`Array::tensordot`], sharded (or left unreduced) as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let (x, y) = (Array::ones([4, 2]).put(&mesh, p![_, "X"]), Array::ones([2, 3]).put(&mesh, p!["X"]));
    /// assert_eq!(type_of(x.tensordot_to(&y, 1, p!["X"])), "float32[4@X,3]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn tensordot_to(&self, b: impl Borrow<Array>, n: usize, out: Spec) -> Array {
        self.tensordot_at(b.borrow(), n, Some(out), Call::here("tensordot_to"))
    }
    fn tensordot_at(&self, b: &Array, n: usize, out: Option<Spec>, call: Call<'_>) -> Array {
        self.paired(b, call, |ta, tb, call| {
            let (ra, rb) = (ta.rank(), tb.rank());
            if n > ra.min(rb) {
                let message = format!("it sums over {n} dimensions, but the arrays have {ra} and {rb}");
                let fault = Fault::new(ErrorKind::Shape, message);
                return Err(fault.help(format!("sum over {} at most", ra.min(rb))));
            }
            Ok(self.contracted(b, (0..n).map(|k| (ra - n + k, k)).collect(), out, call))
        })
    }
    /// The product summed over the last dimension of both: the other dimensions of this array, then those of the other.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, y) = (Array::from([[1, 2], [3, 4]]), Array::from([[10, 1]]));
    /// assert_eq!(x.inner(&y).to_vec::<i32>()?, [12, 34]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn inner(&self, b: impl Borrow<Array>) -> Array {
        self.inner_at(b.borrow(), None, Call::here("inner").twin("x.inner_to(&w, {})"))
    }
    /// [`Array::inner`], sharded (or left unreduced) as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4, 2]).put(&mesh, p![_, "X"]);
    /// assert_eq!(type_of(x.inner_to(&x, p![_, _; U: "X"])), "float32[4,4]{U:X}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn inner_to(&self, b: impl Borrow<Array>, out: Spec) -> Array {
        self.inner_at(b.borrow(), Some(out), Call::here("inner_to"))
    }
    fn inner_at(&self, b: &Array, out: Option<Spec>, call: Call<'_>) -> Array {
        self.paired(b, call, |ta, tb, call| match (ta.rank(), tb.rank()) {
            (0, _) | (_, 0) => {
                let message = "it takes arrays of rank 1 and more";
                Err(Fault::new(ErrorKind::Shape, message).help("multiply by a scalar: `a * b`"))
            }
            (ra, rb) => Ok(self.contracted(b, vec![(ra - 1, rb - 1)], out, call)),
        })
    }
    /// The sum of the products of all elements of two arrays of one shape. Of complex numbers this array's are conjugated.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.vdot(&x).item::<i32>()?, 30);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn vdot(&self, b: impl Borrow<Array>) -> Array {
        self.vdot_at(b.borrow(), None, Call::here("vdot").twin("x.vdot_to(&w, {})"))
    }
    /// [`Array::vdot`], all-reduced or left unreduced as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p!["X"]);
    /// assert_eq!(x.vdot_to(&x, p![]).item::<i32>()?, 14);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn vdot_to(&self, b: impl Borrow<Array>, out: Spec) -> Array {
        self.vdot_at(b.borrow(), Some(out), Call::here("vdot_to"))
    }
    fn vdot_at(&self, b: &Array, out: Option<Spec>, call: Call<'_>) -> Array {
        self.paired(b, call, |ta, tb, call| {
            if ta.shape != tb.shape {
                let message = format!(
                    "operand 0 has shape {}, but operand 1 {}: they have one shape",
                    ta.shape, tb.shape
                );
                return Err(Fault::new(ErrorKind::Shape, message).help("make them equal: `reshape`, `slice`"));
            }
            Ok(self.conj_at(call).contracted(b, (0..ta.rank()).map(|d| (d, d)).collect(), out, call))
        })
    }
    /// Each element of this vector times each of the other: rows are this one's. Other arrays are raveled first.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    /// let (x, y) = (Array::arange(0..2).put(&mesh, p!["X"]), Array::arange(0..4).put(&mesh, p!["Y"]));
    /// assert_eq!(type_of(x.outer(&y)), "int32[2@X,4@Y]");
    /// assert_eq!(x.outer(&y).to_vec::<i32>()?, [0, 0, 0, 0, 0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn outer(&self, b: impl Borrow<Array>) -> Array {
        let b = b.borrow();
        self.paired(b, Call::here("outer"), |ta, tb, call| {
            let raveled = |x: &Array, ty: &ArrayType| match ty.rank() {
                1 => x.clone(),
                _ => x.reshape_at([ty.shape.elements()].into(), None, call),
            };
            let rows = raveled(self, ta).new_dims(&[1], call);
            Ok(rows.with(Binary::Mul, raveled(b, tb).new_dims(&[0], call), call))
        })
    }
    /// Kronecker's product: this array, each element of it in place of a block, which is the other array times the element.
    ///
    /// A dimension that is sharded here stays so; the other array is unsharded (its elements are next to one another, or
    /// [`Array::kron_to`] says where they are to be).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, y) = (Array::from([1, 10]), Array::from([1, 2, 3]));
    /// assert_eq!(x.kron(&y).to_vec::<i32>()?, [1, 2, 3, 10, 20, 30]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn kron(&self, b: impl Borrow<Array>) -> Array {
        self.kron_at(b.borrow(), None, Call::here("kron").twin("x.kron_to(&w, {})"))
    }
    /// [`Array::kron`], sharded as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let (x, y) = (Array::from([1, 10]), Array::from([1, 2]).put(&mesh, p!["X"]));
    /// assert_eq!(type_of(x.kron_to(&y, p!["X"])), "int32[4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn kron_to(&self, b: impl Borrow<Array>, out: Spec) -> Array {
        self.kron_at(b.borrow(), Some(out), Call::here("kron_to"))
    }
    fn kron_at(&self, b: &Array, out: Option<Spec>, call: Call<'_>) -> Array {
        self.paired(b, call, |ta, tb, call| {
            let rank = ta.rank().max(tb.rank());
            let sized =
                |ty: &ArrayType, d: usize| (d + ty.rank()).checked_sub(rank).map_or(1, |d| ty.shape[d]);
            // [n, 1] and [1, m] for each dimension; those that an array lacks are new
            let spread = |x: &Array, ty: &ArrayType, first: bool| {
                let lead = rank - ty.rank();
                let new: Vec<usize> =
                    (0..2 * rank).filter(|e| e / 2 < lead || (e % 2 == 0) != first).collect();
                if new.is_empty() { x.clone() } else { x.new_dims(&new, call) }
            };
            let all = spread(self, ta, true).with(Binary::Mul, spread(b, tb, false), call);
            let sizes: Vec<usize> = (0..rank).map(|d| sized(ta, d).saturating_mul(sized(tb, d))).collect();
            Ok(all.reshape_at(sizes.into(), out, call))
        })
    }
    /// What `make` makes of the types of this array and another, or its refusal, told of the two.
    fn paired(
        &self,
        b: &Array,
        call: Call<'_>,
        make: impl FnOnce(&ArrayType, &ArrayType, Call<'_>) -> Result<Array, Fault>,
    ) -> Array {
        let (Ok(ta), Ok(tb)) = (self.type_ref(), b.type_ref()) else {
            return carried([self, b].into_iter()).map_or_else(|| self.clone(), poison);
        };
        let terms = [Term::from(self), Term::from(b)];
        make(ta, tb, call).unwrap_or_else(|fault| operand::refuse(fault, &terms, call))
    }
    fn contracted(&self, b: &Array, pairs: Vec<(usize, usize)>, out: Option<Spec>, call: Call<'_>) -> Array {
        let how = Contraction { contracting: pairs, batch: Vec::new() };
        apply1(prims::dot_general(&how, out, None), &[Arg::from(self), b.into()], call)
    }
}
