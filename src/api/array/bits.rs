//! Reinterpretation of bits as another element type, of the same or of another width.
//!
//! Elements of different widths are converted by shifts, so that devices keep their blocks.

use super::{Array, errors, prims};
use crate::api::trace::{ArrayOrLiteral, apply1};
use crate::core::{ArrayType, DType, ErrorKind, Fault};
use crate::ir::{ops::elementwise::Binary, program::CallSite};

/// Returns the unsigned integer type of this size in bytes.
fn unsigned(size: usize) -> DType {
    match size {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// Returns the error if the last dimension is not one element of the wider type `dtype`.
fn not_joinable(ty: &ArrayType, dtype: DType) -> Option<Fault> {
    let count = dtype.size() / ty.dtype.size();
    let Some(last) = ty.rank().checked_sub(1).filter(|d| ty.shape[*d] == count) else {
        let message = format!("{dtype} has {} bytes, as {count} elements of {} have", dtype.size(), ty.dtype);
        let help = format!("give a last dimension of size {count}: `.reshape([…, {count}])`");
        return Some(Fault::new(ErrorKind::Shape, message).help(help));
    };
    let sharded = !ty.spec.dim(last).is_empty();
    sharded.then(|| errors::sharded_dim(ty, last, ", and its elements become one"))
}

/// # Bits
impl Array {
    /// Reinterprets the bits as another element type.
    ///
    /// If the new type is narrower by a factor n, a last dimension of size n is added, with the
    /// least significant part first. If it is wider by a factor n, the last dimension has size n
    /// and is removed; it must be unsharded. So the order of the bytes is that of NumPy's `view`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from(1.0f32).bitcast(U32).item::<u32>()?, 0x3f80_0000);
    /// let halves = Array::from([0x0102_0304u32]).bitcast(U16);
    /// assert_eq!((halves.shape()?.to_vec(), halves.to_vec::<u16>()?),
    ///     (vec![1, 2], vec![0x0304, 0x0102]));
    /// assert_eq!(halves.bitcast(U32).to_vec::<u32>()?, [0x0102_0304]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("bitcast_convert_type", "view", "transmute"))]
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Array {
        self.bitcast_at(dtype, CallSite::here("bitcast"))
    }
    /// Implements [`Array::bitcast`].
    pub(super) fn bitcast_at(&self, dtype: DType, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let has_bits = |t: DType| t.is_integer() || t.is_float();
        let (from, to) = (ty.dtype.size(), dtype.size());
        if from == to || !has_bits(ty.dtype) || !has_bits(dtype) {
            return apply1(prims::bitcast(dtype), &[self.into()], call);
        }
        if let Some(fault) = (from < to).then(|| not_joinable(ty, dtype)).flatten() {
            return self.reject(fault, call);
        }
        self.with_call_site(call, |call| {
            let words = apply1(prims::bitcast(unsigned(from)), &[self.into()], call);
            let parts = if from > to { words.narrow_words(to, call) } else { words.widen_words(to, call) };
            apply1(prims::bitcast(dtype), &[parts.into()], call)
        })
    }
    /// Splits unsigned words into parts of `size` bytes, along a new last dimension.
    fn narrow_words(&self, size: usize, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let part = |k: usize| {
            let shifted = self.binary_with(Binary::ShiftRightLogical, 8 * size * k, call);
            shifted.astype_at(unsigned(size), call).expand_dims_at(&[ty.rank()], call)
        };
        let parts: Vec<ArrayOrLiteral> = (0..ty.dtype.size() / size).map(|k| part(k).into()).collect();
        apply1(prims::concatenate(ty.rank()), &parts, call)
    }
    /// Joins the unsigned words along the last dimension into words of `size` bytes.
    fn widen_words(&self, size: usize, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let (count, bits) = (size / ty.dtype.size(), 8 * ty.dtype.size());
        let last = ty.rank() - 1;
        let part = |k: usize| {
            let word = self.slice_dim(last, k, k + 1, call).squeeze_at(&[last], call);
            let word = word.astype_at(unsigned(size), call);
            if k == 0 { word } else { word.binary_with(Binary::ShiftLeft, bits * k, call) }
        };
        (1..count).fold(part(0), |sum, k| sum.binary_with(Binary::Or, part(k), call))
    }
}
