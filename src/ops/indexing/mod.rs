//! Parts of arrays at places known at run time only: numbers say where they are.
//!
//! Their sentences bind loops to the numbers. The transposes are each other.

mod dynamic;
mod gather;
mod places;
mod scatter;

pub use dynamic::{DynamicSlice, DynamicUpdateSlice};
pub use gather::{Gather, nothing};
pub use places::Places;
pub use scatter::Scatter;

use crate::diagnostic::{ErrorKind, Fault, Spot};
use crate::program::Operand;
use crate::program::sentence::{Beyond, Bound, Read};
use crate::types::{ArrayType, DType};

/// A read of operand k that has one loop for each of its dimensions.
fn read(k: usize, dtype: DType, extents: &[usize], loops: impl IntoIterator<Item = usize>) -> Read {
    let loops: Vec<Option<usize>> = loops.into_iter().map(Some).collect();
    Read::plain(k, dtype, extents, &loops)
}

/// Refuses sizes that are not one for each dimension.
fn same_rank(name: &str, sizes: usize, x: &ArrayType) -> Result<(), Fault> {
    if sizes == x.rank() {
        return Ok(());
    }
    let message = format!("{name} speaks of {sizes} dimensions, but the array has {}", x.rank());
    Err(crate::ops::view::shape_fault(message))
}

/// Refuses numbers that say where and are no integers.
fn integers(operands: &[Operand], first: usize) -> Result<(), Fault> {
    match operands.iter().enumerate().skip(first).find(|(_, o)| !o.ty.dtype.is_integer()) {
        None => Ok(()),
        Some((k, o)) => {
            let message =
                format!("operand {} says where, and is {}: indices are integers", o.number(k), o.ty.dtype);
            Err(Fault::new(ErrorKind::Dtype, message)
                .help("convert it: `.astype(I32)`")
                .mark(o.number(k), Spot::Dtype))
        }
    }
}

/// Refuses an update of another element type than the array.
fn one_type(x: &ArrayType, u: &ArrayType) -> Result<(), Fault> {
    if x.dtype == u.dtype {
        return Ok(());
    }
    let message = format!("the update is {}, but the array {}", u.dtype, x.dtype);
    Err(Fault::new(ErrorKind::Dtype, message)
        .help(format!("convert the update: `.astype({:?})`", x.dtype))
        .mark(0, Spot::Dtype)
        .mark(1, Spot::Dtype))
}
