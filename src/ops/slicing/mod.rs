//! Pieces of arrays at places known beforehand: slice, pad, concatenate, update_slice.
//!
//! All are views: their sentences read, and compute nothing. The transposes are each other.

mod join;
mod pad;
mod slice;

pub use join::{Concatenate, UpdateSlice};
pub use pad::Pad;
pub use slice::Slice;

use super::view::shape_fault;
use crate::diagnostic::{Fault, Result};
use crate::program::{At, Dim, Factors};

/// The factors of an operation that maps each dimension of its operand to the same of its result: `at(d)` is where step i of the
/// dimension's loop is in the operand and in the result.
fn moved(from: &[usize], to: &[usize], at: impl Fn(usize) -> (At, At)) -> Factors {
    let (mut operand, mut result) = (Vec::new(), Vec::new());
    let mut f = Factors::default();
    for (d, (&n, &m)) in from.iter().zip(to).enumerate() {
        let l = f.add(n.max(m));
        let (a, b) = at(d);
        operand.push(Dim::at(l, a));
        result.push(Dim::at(l, b));
    }
    Factors { operands: vec![operand], results: vec![result], ..f }
}

fn same_length(what: &str, got: usize, rank: usize) -> Result<(), Fault> {
    if got != rank {
        return Err(shape_fault(format!("{what} has {got} entries, but the operand has {rank} dimensions")));
    }
    Ok(())
}
