//! Primitives on boxes with static bounds: slice, pad, concatenate, and update_slice.
//!
//! All of them are views: their loop nests copy elements, and compute nothing. Their transposes
//! consist of primitives of the same family.

mod concatenate;
mod pad;
mod slice;

pub use concatenate::{Concatenate, UpdateSlice};
pub use pad::Pad;
pub use slice::Slice;

use crate::core::{Fault, Result};
use crate::ir::program::{Dim, DimMap, Factors};

/// Returns the factors of an operation that maps each operand dimension to a result dimension.
///
/// `at(d)` returns how the iterations of the loop of dimension `d` map to the operand and to the
/// result.
fn mapped_factors(from: &[usize], to: &[usize], at: impl Fn(usize) -> (DimMap, DimMap)) -> Factors {
    let (mut operand, mut result) = (Vec::new(), Vec::new());
    let mut f = Factors::default();
    for (d, (&n, &m)) in from.iter().zip(to).enumerate() {
        let l = f.add_loop(n.max(m));
        let (a, b) = at(d);
        operand.push(Dim::mapped(l, a));
        result.push(Dim::mapped(l, b));
    }
    Factors { operands: vec![operand], results: vec![result], ..f }
}

/// Returns an error if a parameter does not have one entry for each dimension.
fn check_length(what: &str, got: usize, rank: usize) -> Result<(), Fault> {
    if got != rank {
        return Err(fault!(Shape, "{what} has {got} entries, but the operand has {rank} dimensions"));
    }
    Ok(())
}
