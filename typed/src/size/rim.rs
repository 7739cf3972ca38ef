//! The size of a block together with its rim, as `halo` returns it.

use super::{Size, Symbol};
use core::fmt;
use core::marker::PhantomData;

/// The size of a block of size `Z` and a rim of `K` elements on both sides: `Z` + 2 · `K`.
///
/// It is a type for any `Z`, so generic functions can exchange halos: for the share of a size `N`
/// along an axis `X` and a rim of 1 it prints `N/X+2`.
pub struct WithRim<Z, K>(PhantomData<fn() -> (Z, K)>);
impl<Z: Size, K: Size> Size for WithRim<Z, K> {
    type Kind = Symbol;
    const VALUE: Option<usize> = match (Z::VALUE, K::VALUE) {
        (Some(block), Some(rim)) => Some(block + 2 * rim),
        _ => None,
    };
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (Self::VALUE, K::VALUE) {
            (Some(n), _) => write!(f, "{n}"),
            (None, Some(rim)) => {
                Z::show(f)?;
                write!(f, "+{}", 2 * rim)
            }
            (None, None) => {
                Z::show(f)?;
                f.write_str("+2*")?;
                K::show(f)
            }
        }
    }
}
