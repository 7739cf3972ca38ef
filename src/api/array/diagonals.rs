//! Extracts, builds and sums diagonals of matrices.
//!
//! A mask that compares row and column indices selects the diagonal, so that a sharded matrix need
//! not be gathered.

use super::{Array, Operand, creation::fresh_type, prims, shapes::clamp_diagonal};
use crate::api::trace::apply1;
use crate::core::{ArrayType, DType, ErrorKind, Fault};
use crate::ir::program::{CallSite, UserOperand};
use crate::ir::{ops::elementwise::Binary, ops::reduce::Reduction};

/// # Diagonals and triangles
impl Array {
    /// Returns a matrix with ones on and below the `k`-th diagonal and zeros above it.
    ///
    /// The type must have rank 2. Positive `k` are diagonals above the main one.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::tri(I32.array_type([2, 3]), 0).to_vec::<i32>()?, [1, 0, 0, 1, 1, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn tri(ty: impl Into<ArrayType>, k: i64) -> Array {
        Array::compare_with_diagonal(ty.into(), k, Binary::Ge, CallSite::here("tri"))
    }
    /// Returns the `k`-th diagonal of the last two dimensions, as the last dimension of the result.
    ///
    /// Positive `k` are diagonals above the main one. The result is sharded like the columns. If
    /// rows are sharded, the devices' contributions are added (all-reduce).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::arange(0..6).reshape([2, 3]);
    /// assert_eq!(x.diagonal(0).to_vec::<i32>()?, [0, 4]);
    /// assert_eq!(x.diagonal(-1).to_vec::<i32>()?, [3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn diagonal(&self, k: i64) -> Array {
        self.with_call_site(CallSite::here("diagonal"), |call| self.diagonal_at(k, call))
    }
    /// Implements [`Array::diagonal`].
    fn diagonal_at(&self, k: i64, call: CallSite<'_>) -> Array {
        let on = self.mask_off_diagonal(k, call);
        let Ok(ty) = on.type_ref() else { return on };
        let first = ty.rank() - 2;
        let (n, m) = (ty.shape[first] as i64, ty.shape[first + 1] as i64);
        let k = clamp_diagonal(k, &ty.shape[first..]);
        // the range of columns that the diagonal crosses
        let (low, high) = (k.max(0), (n + k).min(m).max(k.max(0)));
        let kind = if ty.dtype == DType::Bool { Reduction::Or } else { Reduction::Sum };
        let columns = apply1(prims::reduce(kind, &[first], None), &[(&on).into()], call);
        // the user's dimension for each remaining dimension, for error messages
        let dims: Vec<usize> = (0..=first + 1).filter(|d| *d != first).collect();
        let source = [UserOperand { index: 0, ty: self.type_ref().ok(), dims: Some(&dims) }];
        let shown = || vec![self.type_ref().map(ArrayType::to_string).unwrap_or_default()];
        columns.slice_dim(first, low as usize, high as usize, call.with_operands(&shown, &source))
    }
    /// Returns the sum of the `k`-th diagonal of the last two dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    /// let x = Array::arange(0..16).reshape([4, 4]).put(&mesh, p!["X", "Y"]);
    /// assert_eq!(x.trace(0).item::<i32>()?, 30);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn trace(&self, k: i64) -> Array {
        self.with_call_site(CallSite::here("trace"), |call| {
            let on = self.mask_off_diagonal(k, call);
            let rank = on.type_ref().map_or(0, ArrayType::rank);
            if rank < 2 { on } else { on.sum_at([rank - 2, rank - 1].into(), None, call) }
        })
    }
    /// Builds a matrix with this vector on the `k`-th diagonal, or extracts a matrix's diagonal.
    ///
    /// A vector of n elements gives a square matrix of size n + |k| with zeros off the diagonal; a
    /// matrix gives its `k`-th diagonal. Other ranks are an error.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([5, 7]);
    /// assert_eq!(x.diag(0).to_vec::<i32>()?, [5, 0, 0, 7]);
    /// assert_eq!(x.diag(1).shape()?, [3, 3]);
    /// assert_eq!(x.diag(-1).diag(-1).to_vec::<i32>()?, [5, 7]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn diag(&self, k: i64) -> Array {
        self.with_call_site(CallSite::here("diag"), |call| {
            let Ok(ty) = self.type_ref() else { return self.clone() };
            match ty.rank() {
                1 => self.embed_diagonal(k, call),
                2 => self.diagonal_at(k, call),
                rank => {
                    let message = format!("it takes a vector or a matrix, not an array of rank {rank}");
                    let help = "for stacks of matrices use `.diagonal(k)`";
                    self.reject(Fault::new(ErrorKind::Shape, message).help(help), call)
                }
            }
        })
    }
    /// Returns a square matrix with this vector on its `k`-th diagonal.
    fn embed_diagonal(&self, k: i64, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let (n, off) = (ty.shape[0], usize::try_from(k.unsigned_abs()).unwrap_or(usize::MAX));
        let size = n.saturating_add(off);
        let of = DType::I32.array_type([size, size]);
        if let Err(fault) = of.check_addressable() {
            return self.reject(fault, call);
        }
        let off = off as i64;
        let (low, high) = if k > 0 { (off, 0) } else { (0, off) };
        // pad the vector so that element i is in the column (or row) of its diagonal entry
        let columns = match off {
            0 => self.clone(),
            _ => apply1(prims::pad(&[(low, high, 0)], self.zero()), &[self.into()], call),
        };
        let columns = columns.expand_dims_at(&[0], call);
        let mask = Array::compare_with_diagonal(DType::Bool.array_type([size, size]), k, Binary::Eq, call);
        mask.select_at((&columns).term(), self.zero_operand(call), call)
    }
    /// Replaces the elements off the `k`-th diagonal of the last two dimensions by zeros.
    fn mask_off_diagonal(&self, k: i64, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.rank() < 2 {
            let fault = fault!(Shape, "an array of rank {} has no diagonal", ty.rank());
            return self.reject(fault.help("it takes (stacks of) matrices: `.reshape([n, m])`"), call);
        }
        let of = ArrayType { dtype: DType::I32, ..fresh_type(ty) };
        let first = ty.rank() - 2;
        let index = |d| apply1(prims::iota(of.clone(), first + d), &[], call);
        let rows = index(0).binary_with(Binary::Add, clamp_diagonal(k, &ty.shape[first..]), call);
        let mask = rows.binary_with(Binary::Eq, index(1), call);
        mask.select_at(self.term(), self.zero_operand(call), call)
    }
    /// Returns a matrix of 1 where `compare` holds for `row + k` and the column index, 0 elsewhere.
    pub(super) fn compare_with_diagonal(ty: ArrayType, k: i64, compare: Binary, call: CallSite<'_>) -> Array {
        if ty.rank() != 2 {
            let fault = fault!(Shape, "a matrix has 2 dimensions, not {}", ty.rank())
                .help(format!("give both sizes: `Array::{}([n, n], 0)`", call.op));
            return super::creation::reject_type(fault, &ty, call);
        }
        let of = ArrayType { dtype: DType::I32, ..ty.clone() };
        let rows =
            Array::iota_at(of.clone(), 0, call).binary_with(Binary::Add, clamp_diagonal(k, &ty.shape), call);
        rows.binary_with(compare, Array::iota_at(of, 1, call), call).astype_at(ty.dtype, call)
    }
}
