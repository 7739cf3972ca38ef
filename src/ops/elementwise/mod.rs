//! Elementwise primitives: functions of one and two operands, select, clamp, conversions. Shapes broadcast as numpy's.

mod binary;
mod convert;
mod formula;
mod select;
mod slopes;
mod unary;

pub use binary::Binary;
pub use convert::{Bitcast, Convert};
pub use select::{Clamp, Select};
pub use unary::Unary;

use crate::diagnostic::{ErrorKind, Fault, Spot};
use crate::program::Operand;
use crate::program::factors::{At, Dim, Factors};
use crate::program::sentence::{Body, Code, Read, Sentence};
use crate::types::{ArrayType, DType, Shape};

/// Element types that an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Takes {
    Any,
    /// Floats, complex numbers and integers.
    Number,
    /// Floats and integers.
    Real,
    Float,
    /// Floats and complex numbers.
    Inexact,
    Complex,
    /// What complex numbers are made of.
    Parts,

    /// Floats, complex numbers and signed integers.
    Signed,
    /// Integers and bool.
    Bits,
    Integer,
    /// Floats, integers and bool.
    Ordered,
    /// All but keys.
    Plain,
}

impl Takes {
    pub(super) fn holds(self, d: DType) -> bool {
        match self {
            Takes::Any => true,
            Takes::Number => d.is_number(),
            Takes::Real => d.is_number() && !d.is_complex(),
            Takes::Float => d.is_float(),
            Takes::Inexact => d.is_inexact(),
            Takes::Complex => d.is_complex(),
            Takes::Parts => d.is_float() && d.complex().is_some(),
            Takes::Signed => d.is_inexact() || d.is_signed(),
            Takes::Bits => d.is_integer() || d == DType::Bool,
            Takes::Integer => d.is_integer(),
            Takes::Ordered => d != DType::Key && !d.is_complex(),
            Takes::Plain => d != DType::Key,
        }
    }
    fn words(self) -> &'static str {
        match self {
            Takes::Any => "any element type",
            Takes::Number => "numbers",
            Takes::Real => "floats and integers",
            Takes::Float => "floats",
            Takes::Inexact => "floats and complex numbers",
            Takes::Complex => "complex numbers",
            Takes::Parts => "float32 and float64",
            Takes::Signed => "floats, complex numbers and signed integers",
            Takes::Bits => "integers and bool",
            Takes::Integer => "integers",
            Takes::Ordered => "floats, integers and bool",
            Takes::Plain => "numbers and bool",
        }
    }
    /// Refuses an operand of another element type.
    pub(super) fn check(self, operands: &[Operand], operand: usize) -> Result<(), Fault> {
        let (dtype, number) = (operands[operand].ty.dtype, operands[operand].number(operand));
        if self.holds(dtype) {
            return Ok(());
        }
        let fault = Fault::new(
            ErrorKind::Dtype,
            format!("operand {number} is {dtype}, but {} are expected", self.words()),
        )
        .mark(operand, Spot::Dtype);
        let bits = [DType::U8, DType::U16, DType::U32, DType::U64];
        let word = bits.into_iter().find(|d| d.size() == dtype.size()).unwrap_or(DType::U32);
        Err(match self {
            _ if dtype == DType::Key => fault.help("the two words of a key are numbers: `key.data()`"),
            Takes::Complex if dtype == DType::F64 => fault.help("make it complex: `.astype(C128)`"),
            Takes::Complex => fault.help("make it complex: `.astype(C64)`"),
            _ if dtype.is_complex() => {
                fault.help("take a part of it: `.real()` or `.imag()`, or its modulus: `.abs()`")
            }
            Takes::Float | Takes::Inexact | Takes::Parts => fault.help("convert it first: `.astype(F32)`"),
            Takes::Bits | Takes::Integer if dtype.is_float() => fault
                .help("convert it first: `.astype(I32)`")
                .help(format!("or take its bits: `.bitcast({word:?})`")),
            _ => fault.help("convert it first: `.astype(I32)`"),
        })
    }
}

/// Refuses operands of two element types.
pub(super) fn one_dtype(operands: &[Operand], from: usize) -> Result<DType, Fault> {
    let first = operands[from].ty.dtype;
    for (k, o) in operands.iter().enumerate().skip(from) {
        if o.ty.dtype != first {
            let other = o.ty.dtype;
            // to the one that holds the other's numbers
            let wide = |d: DType| (d.is_complex(), d.is_float(), d.is_number(), d.size());
            let (narrow, to) = if wide(other) > wide(first) { (from, other) } else { (k, first) };
            let fault = Fault::new(
                ErrorKind::Dtype,
                format!(
                    "operand {} is {first}, operand {} is {other}: they must be of one element type",
                    operands[from].number(from),
                    o.number(k),
                ),
            )
            .mark(from, Spot::Dtype)
            .mark(k, Spot::Dtype);
            return Err(match first == DType::Key || other == DType::Key {
                true => fault.help("the two words of a key are numbers: `key.data()`"),
                false => {
                    let narrow = operands[narrow].number(narrow);
                    fault.help(format!("convert operand {narrow}: `.astype({to:?})`"))
                }
            });
        }
    }
    Ok(first)
}

/// The common shape of these (with their operands' numbers), as numpy has it: ranks made equal with leading 1s, then sizes are equal or 1.
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
                let fault = Fault::new(
                    ErrorKind::Shape,
                    format!(
                        "dimension {other} of operand {first} has size {size}, dimension {d} of operand {k} size {n}: \
                         sizes that meet must be equal, or one of them 1"
                    ),
                );
                return Err(fault.dim(first, other).dim(*k, d).help(meeting(shapes[holder], (*k, shape))));
            }
            sizes[lead + d] = (n, i);
        }
    }
    Ok(sizes.iter().map(|s| s.0).collect())
}

/// What to write instead of operands whose sizes do not fit: a vector may be meant along another dimension than the last.
fn meeting(a: (usize, &[usize]), b: (usize, &[usize])) -> String {
    let meant = [(a, b), (b, a)].into_iter().find_map(|((v, vector), (x, to))| {
        let [n] = vector else { return None };
        let mut at = (0..to.len()).filter(|d| to[*d] == *n);
        let (d, None) = (at.next()?, at.next()) else { return None };
        let shape: Vec<usize> = std::iter::once(*n).chain(vec![1; to.len() - d - 1]).collect();
        Some(format!(
            "to meet dimension {d} of operand {x}, operand {v} needs 1s behind: `.reshape({shape:?})`"
        ))
    });
    meant.unwrap_or_else(|| "cut or fill one of them, `slice` or `pad`; a size of 1 is repeated".to_string())
}

/// One loop a result dimension; dimensions of size 1 that others stretch are read again at every step.
pub(super) fn factors(operands: &[ArrayType], shape: &[usize]) -> Factors {
    let dims = |ty: &ArrayType| {
        let lead = shape.len() - ty.rank();
        let dim = |(d, n): (usize, &usize)| {
            let at = if *n == 1 && shape[lead + d] != 1 { At::Stretched } else { At::Same };
            Dim::at(lead + d, at)
        };
        ty.shape.iter().enumerate().map(dim).collect()
    };
    let operands = operands.iter().map(dims).collect();
    Factors { operands, results: vec![Dim::each(0..shape.len())], ..Factors::over(shape) }
}

/// `code` of the operands, each read where it is against the result.
pub(super) fn sentence(operands: &[ArrayType], result: &ArrayType, code: Code) -> Sentence {
    let rank = result.rank();
    let read = |(k, ty): (usize, &ArrayType)| {
        let lead = rank - ty.rank();
        let at = |(d, n): (usize, &usize)| (*n == result.shape[lead + d]).then_some(lead + d);
        let loops: Vec<_> = ty.shape.iter().enumerate().map(at).collect();
        Read::plain(k, ty.dtype.storage(), &result.shape, &loops)
    };
    Sentence {
        extents: result.shape.to_vec(),
        rank,
        dtype: result.dtype.storage(),
        reads: operands.iter().enumerate().map(read).collect(),
        body: Body::Map(code),
    }
}
