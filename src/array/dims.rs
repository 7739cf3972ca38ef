//! Dimensions named by the user: of a reduction, a permutation.

use crate::diagnostic::{ErrorKind, Fault};
use std::ops::RangeFull;

/// Dimensions: `0`, `-1` (the last), `[0, 1]`, `..` (all of them), `Dims::keep(0)` (a reduction leaves a dimension of size 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dims {
    /// `None`: all.
    list: Option<Vec<i64>>,
    keep: bool,
}

impl Dims {
    /// The same dimensions; the reduction leaves each with size 1.
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
    /// Whether reduced dimensions stay with size 1.
    pub(crate) fn keeps(&self) -> bool {
        self.keep
    }
    /// How many are named; 0 where all are meant.
    pub(crate) fn len(&self) -> usize {
        self.list.as_ref().map_or(0, Vec::len)
    }
    /// The dimensions of an array of this rank, counted from the front; each once.
    pub(crate) fn resolve(&self, rank: usize) -> Result<Vec<usize>, Fault> {
        let Some(list) = &self.list else { return Ok((0..rank).collect()) };
        let mut dims = Vec::with_capacity(list.len());
        for &d in list {
            let d = dim(d, rank)?;
            if dims.contains(&d) {
                return Err(Fault::new(ErrorKind::Shape, format!("dimension {d} is named twice"))
                    .help("name each dimension once")
                    .dim(0, d));
            }
            dims.push(d);
        }
        Ok(dims)
    }
}

/// The dimension that a number means in an array of this rank: negative ones count from the end.
pub(crate) fn dim(d: i64, rank: usize) -> Result<usize, Fault> {
    let at = if d < 0 { d + rank as i64 } else { d };
    if (0..rank as i64).contains(&at) {
        return Ok(at as usize);
    }
    let fault = Fault::new(ErrorKind::Shape, format!("there is no dimension {d} in an array of rank {rank}"));
    Err(match rank {
        0 => fault.help("a scalar has no dimensions"),
        1 => fault.help("its only dimension is 0, or -1 from the end"),
        _ => fault.help(format!("dimensions are 0 to {}, or -{rank} to -1 from the end", rank - 1)),
    })
}

/// A number as one that may be negative; one that is too large is too large for any array.
pub(crate) fn signed(d: usize) -> i64 {
    i64::try_from(d).unwrap_or(i64::MAX)
}

impl From<RangeFull> for Dims {
    fn from(_: RangeFull) -> Dims {
        Dims { list: None, keep: false }
    }
}
impl From<&Dims> for Dims {
    fn from(d: &Dims) -> Dims {
        d.clone()
    }
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
    [] usize: d => vec![signed(d)];
    [const N: usize] [i32; N]: d => d.into_iter().map(i64::from).collect();
    [const N: usize] [usize; N]: d => d.into_iter().map(signed).collect();
    [] &[usize]: d => d.iter().copied().map(signed).collect();
    [] Vec<usize>: d => d.into_iter().map(signed).collect();
    [] Vec<i64>: d => d;
}
