//! Diagonals of matrices.

use super::creation::plain;
use super::shapes::diagonal;
use super::{Array, Operand, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::ops::elementwise::Binary;
use crate::ops::reduce::Reduction;
use crate::program::{Call, Source};
use crate::trace::apply1;
use crate::types::{ArrayType, DType};

/// # Diagonals and triangles
impl Array {
    /// 1 on and below the k-th diagonal, 0 above; the sizes of the type are rows and columns.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::tri(I32.of([2, 3]), 0).to_vec::<i32>()?, [1, 0, 0, 1, 1, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn tri(ty: impl Into<ArrayType>, k: i64) -> Array {
        Array::by_diagonal(ty.into(), k, Binary::Ge, Call::here("tri"))
    }
    /// The k-th diagonal of the last two dimensions, as the last dimension: above the main one where k is positive.
    ///
    /// It is the sum over the rows of what is on the diagonal and of zeros elsewhere: sharded as the columns are, and where rows are
    /// sharded the devices add their parts up.
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
        self.told(Call::here("diagonal"), |call| self.diagonal_at(k, call))
    }
    fn diagonal_at(&self, k: i64, call: Call<'_>) -> Array {
        let on = self.on_diagonal(k, call);
        let Ok(ty) = on.type_ref() else { return on };
        let first = ty.rank() - 2;
        let (n, m) = (ty.shape[first] as i64, ty.shape[first + 1] as i64);
        let k = diagonal(k, &ty.shape[first..]);
        // the columns in which the diagonal is: all of them, or few of many rows
        let (low, high) = (k.max(0), (n + k).min(m).max(k.max(0)));
        let kind = if ty.dtype == DType::Bool { Reduction::Or } else { Reduction::Sum };
        let columns = apply1(prims::reduce(kind, &[first], None), &[(&on).into()], call);
        // the user's dimension of each that is left
        let dims: Vec<usize> = (0..=first + 1).filter(|d| *d != first).collect();
        let source = [Source { number: 0, ty: self.type_ref().ok(), dims: Some(&dims) }];
        let shown = || vec![self.type_ref().map(ArrayType::to_string).unwrap_or_default()];
        columns.part(first, low as usize, high as usize, call.on(&shown, &source))
    }
    /// The sum of the k-th diagonal of the last two dimensions.
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
        self.told(Call::here("trace"), |call| {
            let on = self.on_diagonal(k, call);
            let rank = on.type_ref().map_or(0, ArrayType::rank);
            if rank < 2 { on } else { on.sum_at([rank - 2, rank - 1].into(), None, call) }
        })
    }
    /// Of a vector the matrix with it on the k-th diagonal, and zeros elsewhere; of a matrix its k-th diagonal.
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
        self.told(Call::here("diag"), |call| {
            let Ok(ty) = self.type_ref() else { return self.clone() };
            match ty.rank() {
                1 => self.as_diagonal(k, call),
                2 => self.diagonal_at(k, call),
                rank => {
                    let message = format!("it takes a vector or a matrix, not an array of rank {rank}");
                    let help = "of stacks of matrices: `.diagonal(k)`";
                    self.refuse(Fault::new(ErrorKind::Shape, message).help(help), call)
                }
            }
        })
    }
    /// A vector on the k-th diagonal of a matrix.
    fn as_diagonal(&self, k: i64, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let (n, off) = (ty.shape[0], usize::try_from(k.unsigned_abs()).unwrap_or(usize::MAX));
        let size = n.saturating_add(off);
        let of = DType::I32.of([size, size]);
        if let Err(fault) = of.addressable() {
            return self.refuse(fault, call);
        }
        let off = off as i64;
        let (low, high) = if k > 0 { (off, 0) } else { (0, off) };
        // at the columns, or at the rows, where there are more of them
        let columns = match off {
            0 => self.clone(),
            _ => apply1(prims::pad(&[(low, high, 0)], self.zero()), &[self.into()], call),
        };
        let columns = columns.new_dims(&[0], call);
        let mask = Array::by_diagonal(DType::Bool.of([size, size]), k, Binary::Eq, call);
        mask.select_at((&columns).term(), self.zero_beside(call), call)
    }
    /// The array with zeros where the last two dimensions are not on the k-th diagonal.
    fn on_diagonal(&self, k: i64, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.rank() < 2 {
            let message = format!("an array of rank {} has no diagonal", ty.rank());
            let fault = Fault::new(ErrorKind::Shape, message);
            return self.refuse(fault.help("it takes (stacks of) matrices: `.reshape([n, m])`"), call);
        }
        let of = ArrayType { dtype: DType::I32, ..plain(ty) };
        let first = ty.rank() - 2;
        let index = |d| apply1(prims::iota(of.clone(), first + d), &[], call);
        let rows = index(0).with(Binary::Add, diagonal(k, &ty.shape[first..]), call);
        let mask = rows.with(Binary::Eq, index(1), call);
        mask.select_at(self.term(), self.zero_beside(call), call)
    }
    /// Of this type: 1 where row + k compares so with the column, else 0.
    pub(super) fn by_diagonal(ty: ArrayType, k: i64, compare: Binary, call: Call<'_>) -> Array {
        if ty.rank() != 2 {
            let fault = Fault::new(ErrorKind::Shape, format!("a matrix has 2 dimensions, not {}", ty.rank()))
                .help(format!("give both sizes: `Array::{}([n, n], 0)`", call.op));
            return super::creation::refuse(fault, &ty, call);
        }
        let of = ArrayType { dtype: DType::I32, ..ty.clone() };
        let rows = Array::iota_at(of.clone(), 0, call).with(Binary::Add, diagonal(k, &ty.shape), call);
        rows.with(compare, Array::iota_at(of, 1, call), call).astype_at(ty.dtype, call)
    }
}
