//! The macro `ix!`, which parses index entries, and the traits of the values in its ranges.
//!
//! The macro parses ranges itself. What a number after `start..;` means depends on the type of the
//! start: the step of a static range, or the size of a window that starts at an array.

use super::{Array, DimIndex};

/// Builds an index with one entry per dimension: `ix![1..-1, .., 0, ..;2, &rows]`.
///
/// The result is an [`Index`](crate::api::array::Index). Entries are written as follows:
///
/// - `start..stop` and `start..=last` take a range. Either end may be omitted, and negative ends
///   count from the end. `;step` after a range sets a step; a negative step reverses the order.
/// - An integer takes one position and drops the dimension.
/// - `&array` takes the positions in an array of integers; a scalar drops the dimension.
/// - `&start..; size` takes a window of `size` elements from a position that is known only at run
///   time. The start may be any expression that is an array: `(2 * &i)..; size`.
/// - [`NewAxis`](crate::api::array::NewAxis) inserts a dimension of size 1.
/// - [`Ellipsis`](crate::api::array::Ellipsis) stands for all dimensions that are not written.
///
/// Trailing dimensions that are not written are taken in full. The macro parses ranges itself,
/// because clippy rejects the expression `1..-1`.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::arange(0..12).reshape([3, 4]);
/// assert_eq!(x.slice(ix![1..-1, ..;2]).to_vec::<i32>()?, [4, 6]);
/// assert_eq!(x.slice(ix![-1, 1..=2]).to_vec::<i32>()?, [9, 10]);
/// assert_eq!(x.slice(ix![0, ..;-1]).to_vec::<i32>()?, [3, 2, 1, 0]);
/// let i = Array::from(1);
/// assert_eq!(x.slice(ix![&i, &i..; 2]).to_vec::<i32>()?, [5, 6]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[macro_export]
macro_rules! ix {
    (@ $o:tt [] ... $($t:tt)*) => {
        compile_error!("write `Ellipsis` for all other dimensions: `ix![Ellipsis, 0]`")
    };
    (@ $o:tt [$($s:tt)*] : $($t:tt)*) => {
        compile_error!("write a range with two dots, and its step after a semicolon: `ix![1..-1, ..;2]`")
    };
    (@ $o:tt [$($s:tt)*] :: $n:literal $($t:tt)*) => {
        compile_error!("write a range with two dots, and its step after a semicolon: `ix![1..-1, ..;2]`")
    };
    (@ [$($o:tt)*] [$($s:tt)*] ..= $($t:tt)*) => { $crate::ix!(@to through [$($o)*] [$($s)*] [] $($t)*) };
    (@ [$($o:tt)*] [$($s:tt)*] .. $($t:tt)*) => { $crate::ix!(@to range [$($o)*] [$($s)*] [] $($t)*) };
    (@ [$($o:tt)*] [$($s:tt)+] , $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::DimIndex::from($($s)+),] [] $($t)*)
    };
    (@ [$($o:tt)*] [$($s:tt)+]) => { $crate::array::Index::new([$($o)* $crate::array::DimIndex::from($($s)+)]) };
    (@ [$($o:tt)*] []) => { $crate::array::Index::new([$($o)*]) };
    (@ $o:tt [$($s:tt)*] $t:tt $($r:tt)*) => { $crate::ix!(@ $o [$($s)* $t] $($r)*) };
    (@to $k:ident $o:tt $s:tt $e:tt , $($t:tt)*) => { $crate::ix!(@end $k $o $s $e [] $($t)*) };
    (@to $k:ident $o:tt $s:tt $e:tt ; $step:expr, $($t:tt)*) => { $crate::ix!(@end $k $o $s $e [$step] $($t)*) };
    (@to $k:ident $o:tt $s:tt $e:tt ; $step:expr) => { $crate::ix!(@end $k $o $s $e [$step]) };
    (@to $k:ident $o:tt $s:tt $e:tt) => { $crate::ix!(@end $k $o $s $e []) };
    (@to $k:ident $o:tt $s:tt [$($e:tt)*] $t:tt $($r:tt)*) => { $crate::ix!(@to $k $o $s [$($e)* $t] $($r)*) };
    (@end through [$($o:tt)*] $s:tt [$($e:tt)+] $p:tt $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::DimIndex::range_inclusive($crate::ix!(@opt $s), $crate::array::RangeBound::position($($e)+), $crate::ix!(@opt $p)),] [] $($t)*)
    };
    (@end range [$($o:tt)*] [$($s:tt)+] [] [$n:expr] $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::RangeStart::followed_by($($s)+, $n),] [] $($t)*)
    };
    (@end range [$($o:tt)*] $s:tt $e:tt $p:tt $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::DimIndex::range($crate::ix!(@opt $s), $crate::ix!(@opt $e), $crate::ix!(@opt $p)),] [] $($t)*)
    };
    (@opt []) => { None };
    (@opt [$($e:tt)+]) => { Some($crate::array::RangeBound::position($($e)+)) };
    ($($t:tt)*) => { $crate::ix!(@ [] [] $($t)*) };
}

/// An end of a range in [`ix!`](crate::ix!): an integer, which counts from the end if it is
/// negative.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an end of a range in `ix!`",
    label = "expected an integer",
    note = "a window that starts at an array has a size: `ix![&start..; size]`"
)]
pub trait RangeBound {
    /// Returns the position.
    fn position(self) -> i64;
}

/// The start of a range of [`ix!`](crate::ix!) that has a number after a semicolon.
///
/// After an integer the number is a step, after an array it is the size of a window.
///
/// ```
/// use atmesh::prelude::*;
/// let (x, i) = (Array::arange(0..6), Array::from(1));
/// assert_eq!(x.slice(ix![1..; 2]).to_vec::<i32>()?, [1, 3, 5]);
/// assert_eq!(x.slice(ix![(2 * &i)..; 2]).to_vec::<i32>()?, [2, 3]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the start of a range in `ix!`",
    label = "expected an integer, or an array: `ix![&start..; size]`"
)]
pub trait RangeStart<N> {
    /// Returns the entry `self..; number`.
    fn followed_by(self, number: N) -> DimIndex;
}

macro_rules! bounds { ($($t:ty)*) => {$(
    impl RangeBound for $t {
        fn position(self) -> i64 {
            // a position that does not fit is out of range for any array
            i64::try_from(self).unwrap_or(i64::MAX)
        }
    }
    impl<N: RangeBound> RangeStart<N> for $t {
        fn followed_by(self, step: N) -> DimIndex {
            DimIndex::range(Some(self.position()), None, Some(step.position()))
        }
    }
)*} }
bounds!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

macro_rules! starts { ($($t:ty)*) => {$(
    impl RangeStart<usize> for $t {
        fn followed_by(self, size: usize) -> DimIndex {
            DimIndex::window(&self, size)
        }
    }
)*} }
starts!(Array & Array && Array);
