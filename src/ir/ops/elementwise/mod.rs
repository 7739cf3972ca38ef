//! The elementwise primitives.
//!
//! They are functions of one and of two operands, `select`, `clamp`, and conversions. Shapes
//! broadcast as in NumPy. This module has the rules that all of them share: checks of element
//! types, broadcasting, factors, and loop nests.

/// Defines the rules that elementwise primitives share: loops, priority and batching.
macro_rules! elementwise_rules {
    () => {
        fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
            factors(operands, &results[0].1)
        }
        fn priority(&self) -> crate::ir::program::Priority {
            crate::ir::program::Priority::Elementwise
        }
        fn vmap(&self, _: &crate::ir::program::VmapArgs<'_>) -> crate::ir::program::BatchedOp {
            crate::ir::program::BatchedOp::broadcasting(Arc::new(*self))
        }
    };
}

mod binary;
mod code_builder;
mod convert;
mod derivatives;
mod select;
mod unary;

pub use binary::Binary;
pub use convert::{Bitcast, Convert};
pub use select::{Clamp, Select};
pub use unary::Unary;

pub(super) use crate::core::dtype::DTypeClass;

use crate::core::{ArrayType, DType, Fault, Shape, TypePart};
use crate::ir::program::{Access, Dim, DimMap, Factors, LoopNest, ScalarCode, TypedOperand};

impl DTypeClass {
    /// Returns an error if the operand's element type is not in this class.
    pub(in crate::ir::ops) fn check(self, operands: &[TypedOperand], operand: usize) -> Result<(), Fault> {
        let (dtype, number) = (operands[operand].ty.dtype, operands[operand].user_index(operand));
        if self.contains(dtype) {
            return Ok(());
        }
        let fault = fault!(Dtype, "operand {number} is {dtype}, but {} are expected", self.description())
            .highlight(operand, TypePart::Dtype);
        let bits = [DType::U8, DType::U16, DType::U32, DType::U64];
        let word = bits.into_iter().find(|d| d.size() == dtype.size()).unwrap_or(DType::U32);
        Err(match self {
            _ if dtype == DType::Key => fault.help("the two words of a key are numbers: `key.data()`"),
            DTypeClass::Complex if dtype == DType::F64 => fault.help("make it complex: `.astype(C128)`"),
            DTypeClass::Complex => fault.help("make it complex: `.astype(C64)`"),
            _ if dtype.is_complex() => {
                fault.help("take a part of it: `.real()` or `.imag()`, or its modulus: `.abs()`")
            }
            DTypeClass::Float | DTypeClass::Inexact | DTypeClass::Parts => {
                fault.help("convert it first: `.astype(F32)`")
            }
            DTypeClass::Bits | DTypeClass::Integer if dtype.is_float() => fault
                .help("convert it first: `.astype(I32)`")
                .help(format!("or take its bits: `.bitcast({word:?})`")),
            _ => fault.help("convert it first: `.astype(I32)`"),
        })
    }
}

/// Returns the common element type of the operands, or an error if they differ.
pub(super) fn common_dtype(operands: &[TypedOperand], from: usize) -> Result<DType, Fault> {
    let first = operands[from].ty.dtype;
    for (k, o) in operands.iter().enumerate().skip(from) {
        if o.ty.dtype != first {
            let other = o.ty.dtype;
            // The help suggests converting to the type that can represent the values of both.
            let wide = |d: DType| (d.is_complex(), d.is_float(), d.is_number(), d.size());
            let (narrow, to) = if wide(other) > wide(first) { (from, other) } else { (k, first) };
            let fault = fault!(
                Dtype,
                "operand {} is {first}, operand {} is {other}: they must be of one element type",
                operands[from].user_index(from),
                o.user_index(k),
            )
            .highlight(from, TypePart::Dtype)
            .highlight(k, TypePart::Dtype);
            return Err(if first == DType::Key || other == DType::Key {
                fault.help("the two words of a key are numbers: `key.data()`")
            } else {
                let narrow = operands[narrow].user_index(narrow);
                fault.help(format!("convert operand {narrow}: `.astype({to:?})`"))
            });
        }
    }
    Ok(first)
}

/// Returns the common shape of operands under NumPy's broadcasting rules.
///
/// Each shape comes with its operand's index, for error messages. Ranks are made equal with leading
/// 1s; then sizes must be equal or 1.
pub fn broadcast_shapes<'a>(shapes: impl IntoIterator<Item = (usize, &'a [usize])>) -> Result<Shape, Fault> {
    let shapes: Vec<(usize, &[usize])> = shapes.into_iter().collect();
    let rank = shapes.iter().map(|s| s.1.len()).max().unwrap_or(0);
    let mut sizes: Vec<(usize, usize)> = vec![(1, 0); rank];
    for (i, (k, shape)) in shapes.iter().enumerate() {
        let lead = rank - shape.len();
        for (d, &n) in shape.iter().enumerate() {
            let (size, holder) = sizes[lead + d];
            if n == size || n == 1 {
                continue;
            }
            if size != 1 {
                let (first, held) = shapes[holder];
                let other = lead + d + held.len() - rank;
                let fault = fault!(
                    Shape,
                    "dimension {other} of operand {first} has size {size}, dimension {d} of operand {k} size {n}: \
                         sizes that meet must be equal, or one of them 1"
                );
                return Err(fault
                    .highlight_dim(first, other)
                    .highlight_dim(*k, d)
                    .help(broadcast_help(shapes[holder], (*k, shape))));
            }
            sizes[lead + d] = (n, i);
        }
    }
    Ok(sizes.iter().map(|s| s.0).collect())
}

/// Returns the help for operands that do not broadcast.
///
/// If one operand is a vector whose size matches exactly one dimension of the other, the help says
/// how to reshape it.
fn broadcast_help(a: (usize, &[usize]), b: (usize, &[usize])) -> String {
    let meant = [(a, b), (b, a)].into_iter().find_map(|((v, vector), (x, to))| {
        let [n] = vector else { return None };
        let mut at = (0..to.len()).filter(|d| to[*d] == *n);
        let (d, None) = (at.next()?, at.next()) else { return None };
        let shape: Vec<usize> = std::iter::once(*n).chain(vec![1; to.len() - d - 1]).collect();
        Some(format!(
            "to meet dimension {d} of operand {x}, operand {v} needs trailing 1s: `.reshape({shape:?})`"
        ))
    });
    meant.unwrap_or_else(|| "cut or fill one of them, `slice` or `pad`; a size of 1 is repeated".to_string())
}

/// Returns factors with one loop for each dimension of the result.
///
/// Operand dimensions of size 1 that are broadcast are read again at every iteration.
pub(super) fn factors(operands: &[ArrayType], shape: &[usize]) -> Factors {
    let dims = |ty: &ArrayType| {
        let lead = shape.len() - ty.rank();
        let dim = |(d, n): (usize, &usize)| {
            let at = if *n == 1 && shape[lead + d] != 1 { DimMap::Broadcast } else { DimMap::Identity };
            Dim::mapped(lead + d, at)
        };
        ty.shape.iter().enumerate().map(dim).collect()
    };
    let operands = operands.iter().map(dims).collect();
    Factors { operands, results: vec![Dim::each(0..shape.len())], ..Factors::from_sizes(shape) }
}

/// Returns a loop nest that applies `code` to the operands, which are broadcast to the result.
pub(super) fn loop_nest(operands: &[ArrayType], result: &ArrayType, code: ScalarCode) -> LoopNest {
    let rank = result.rank();
    let read = |(k, ty): (usize, &ArrayType)| {
        let lead = rank - ty.rank();
        let at = |(d, n): (usize, &usize)| (*n == result.shape[lead + d]).then_some(lead + d);
        let loops: Vec<_> = ty.shape.iter().enumerate().map(at).collect();
        Access::from_loops(k, ty.dtype.storage(), &result.shape, &loops)
    };
    let accesses = operands.iter().enumerate().map(read).collect();
    LoopNest::map(result.shape.to_vec(), result.dtype.storage(), accesses, code)
}
