//! Lists of dimensions as users write them, and the resolution of negative dimensions.
//!
//! Array methods take `impl Into<Dims>`: an integer is one dimension, an array or vector of
//! integers several, and `..` all of them.

use super::Array;
use crate::core::Fault;
use std::ops::RangeFull;

/// A list of array dimensions: `0`, `-1` (the last), `[0, 1]`, or `..` (all of them).
///
/// Lists that are made at run time are slices or vectors of integers.
///
/// ```
/// use atmesh::prelude::*;
/// let last: Vec<i32> = (1..3).map(|d| -d).collect();
/// assert_eq!(Array::ones([4, 2, 3]).sum(&last[..]).shape()?, [4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// `Dims::keep(0)` makes a reduction keep the dimension with size 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dims {
    /// The dimensions as given, possibly negative; `None` means all.
    list: Option<Vec<i64>>,
    /// True if a reduction keeps the dimensions with size 1.
    keep: bool,
}

impl Dims {
    /// Makes a reduction keep these dimensions, with size 1.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([4, 2]).sum(Dims::keep(-1)).shape()?, [4, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "keepdims")]
    pub fn keep(dims: impl Into<Dims>) -> Dims {
        Dims { keep: true, ..dims.into() }
    }
    /// Returns true if reduced dimensions are kept with size 1.
    pub(crate) fn keeps_dims(&self) -> bool {
        self.keep
    }
    /// Returns the number of listed dimensions; 0 if all are meant.
    pub(crate) fn len(&self) -> usize {
        self.list.as_ref().map_or(0, Vec::len)
    }
    /// Resolves the list for an array of this rank: non-negative dimensions, in the given order.
    ///
    /// Out-of-range and repeated dimensions are errors.
    pub(crate) fn resolve(&self, rank: usize) -> Result<Vec<usize>, Fault> {
        let Some(list) = &self.list else { return Ok((0..rank).collect()) };
        let mut dims = Vec::with_capacity(list.len());
        for &d in list {
            let d = resolve_dim(d, rank)?;
            if dims.contains(&d) {
                return Err(fault!(Shape, "dimension {d} is named twice")
                    .help("name each dimension once")
                    .highlight_dim(0, d));
            }
            dims.push(d);
        }
        Ok(dims)
    }
}

/// # Sizes
impl Array {
    /// Returns the size of dimension `d`, which counts from the end if it is negative.
    ///
    /// It is 0 if the array carries an error, and if there is no such dimension. So closures need
    /// no `?` for it: what they compute from the array carries the error anyway.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::ones([4, 2]);
    /// assert_eq!((x.dim_size(0), x.dim_size(-1), x.dim_size(2)), (4, 2, 0));
    /// let f = jit(|x: &Array| x.reshape([x.dim_size(0) * x.dim_size(1)]));
    /// assert_eq!(f.call(&x)?.shape()?, [8]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("len", "dim", "size", "shape"))]
    pub fn dim_size(&self, d: i32) -> usize {
        let Ok(ty) = self.type_ref() else { return 0 };
        resolve_dim(d.into(), ty.rank()).map_or(0, |at| ty.shape[at])
    }
}

/// Resolves a possibly negative dimension of an array of this rank.
pub(crate) fn resolve_dim(d: i64, rank: usize) -> Result<usize, Fault> {
    let at = if d < 0 { d + rank as i64 } else { d };
    if (0..rank as i64).contains(&at) {
        return Ok(at as usize);
    }
    let fault = fault!(Shape, "there is no dimension {d} in an array of rank {rank}");
    Err(match rank {
        0 => fault.help("a scalar has no dimensions"),
        1 => fault.help("its only dimension is 0, or -1 from the end"),
        _ => fault.help(format!("dimensions are 0 to {}, or -{rank} to -1 from the end", rank - 1)),
    })
}

/// Converts to `i64`, saturating: a dimension that does not fit is out of range for any array.
pub(crate) fn saturating_i64(d: usize) -> i64 {
    i64::try_from(d).unwrap_or(i64::MAX)
}

conversions! { Dims:
    [] RangeFull => |_| Dims { list: None, keep: false };
    [] &Dims => |d| d.clone();
}
macro_rules! dims { ($([$($g:tt)*] $t:ty: $d:ident => $list:expr;)*) => {$(
    impl<$($g)*> From<$t> for Dims {
        fn from($d: $t) -> Dims {
            Dims { list: Some($list), keep: false }
        }
    }
)*} }
dims! {
    [] i32: d => vec![d.into()];
    [] i64: d => vec![d];
    [] usize: d => vec![saturating_i64(d)];
    [const N: usize] [i32; N]: d => d.into_iter().map(i64::from).collect();
    [const N: usize] [i64; N]: d => d.to_vec();
    [const N: usize] [usize; N]: d => d.into_iter().map(saturating_i64).collect();
    [] &[i32]: d => d.iter().copied().map(i64::from).collect();
    [] &[i64]: d => d.to_vec();
    [] &[usize]: d => d.iter().copied().map(saturating_i64).collect();
    [] Vec<i32>: d => d.into_iter().map(i64::from).collect();
    [] Vec<usize>: d => d.into_iter().map(saturating_i64).collect();
    [] Vec<i64>: d => d;
}
