//! The operands of array operations: arrays and weakly typed numbers.
//!
//! Methods and operators accept `impl Operand` so that `x + 1.0` and `x + &y` both work. A number
//! has no element type until it is combined with an array, whose element type it takes.

use super::Array;
use crate::api::trace::{ArrayOrLiteral, apply, carried_errors, poison};
use crate::core::{ArrayType, DType, Fault, Scalar};
use crate::ir::program::{CallSite, Literal, Prim, UserOperand};
use num_complex::Complex;
use smallvec::SmallVec;

/// An operand of an array operation: an array, or a weakly typed number.
///
/// A number takes the element type of the array that it is combined with. It is an error if that
/// type cannot represent the number.
///
/// ```
/// use atmesh::{Array, Operand};
/// fn half(x: &Array, unit: impl Operand) -> Array {
///     x * 0.5 * unit
/// }
/// let x = Array::from([2.0f32]);
/// assert_eq!(half(&x, 3).to_vec::<f32>()?, half(&x, Array::from(3.0f32)).to_vec::<f32>()?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an operand of an array",
    label = "expected `Array`, `&Array` or a number",
    note = "from a `Vec`, a slice or an ndarray: `Array::from(..)`"
)]
pub trait Operand {
    /// Converts to an operand value.
    fn term(self) -> Term;
}

/// The value of an [`Operand`].
#[derive(Clone)]
pub enum Term {
    /// An array.
    Array(Array),
    /// A weakly typed number, which takes the element type of the array it is combined with.
    Number(Scalar),
}

impl Operand for Term {
    fn term(self) -> Term {
        self
    }
}
impl Operand for Array {
    fn term(self) -> Term {
        Term::Array(self)
    }
}
impl Operand for &Array {
    fn term(self) -> Term {
        Term::Array(self.clone())
    }
}
macro_rules! numbers { ($($t:ty)*) => {$(
    impl Operand for $t {
        fn term(self) -> Term {
            Term::Number(self.into())
        }
    }
)*} }
numbers!(f32 f64 i32 i64 u32 u64 usize bool Complex<f32> Complex<f64> Scalar);

impl Term {
    /// Returns the element type of an array; `None` for numbers and for arrays that carry an error.
    pub(crate) fn dtype(&self) -> Option<DType> {
        match self {
            Term::Array(a) => a.type_ref().ok().map(|t| t.dtype),
            Term::Number(_) => None,
        }
    }
    /// Returns the type of an array, or the text of a number, for error messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Term::Array(a) => a.type_ref().map_or_else(|_| "an error".into(), |t| t.to_string()),
            Term::Number(x) => x.to_string(),
        }
    }
    /// Converts to an operand of a primitive; a number becomes a literal of element type `dtype`.
    pub(crate) fn arg(&self, dtype: DType) -> Result<ArrayOrLiteral, Fault> {
        match self {
            Term::Array(a) => Ok(ArrayOrLiteral::Array(a.clone())),
            Term::Number(x) => Ok(ArrayOrLiteral::Lit(Literal { dtype, value: convert_weak(*x, dtype)? })),
        }
    }
}

/// Returns the element type of a number that is not combined with an array.
pub(crate) fn default_dtype(x: Scalar) -> DType {
    match x {
        Scalar::Bool(_) => DType::Bool,
        Scalar::Int(i) if i32::try_from(i).is_ok() => DType::I32,
        Scalar::Int(_) => DType::I64,
        Scalar::Float(_) => DType::F32,
        Scalar::Complex(..) => DType::C64,
    }
}

/// Converts a weakly typed number to an element type; an error if it is not representable.
pub(crate) fn convert_weak(x: Scalar, dtype: DType) -> Result<Scalar, Fault> {
    let reject = |why: &str| Err(fault!(Dtype, "the number {x} {why} {dtype}"));
    match x {
        Scalar::Bool(_) if dtype == DType::Bool => Ok(x),
        Scalar::Int(i) if dtype.is_integer() => {
            if fits_dtype(dtype, i) {
                Ok(x)
            } else {
                reject("does not fit into").map_err(|f| f.help(format!("{} holds it", smallest_dtype(i))))
            }
        }
        Scalar::Int(i) if dtype.is_inexact() => Ok(Scalar::Float(i as f64)),
        Scalar::Float(_) if dtype.is_inexact() => Ok(x),
        Scalar::Complex(..) if dtype.is_complex() => Ok(x),
        Scalar::Complex(..) => reject("has an imaginary part and cannot become")
            .map_err(|f| f.help("convert the array: `.astype(C64)`")),
        Scalar::Float(_) if dtype.is_integer() => reject("has a fraction or a point and cannot become")
            .map_err(|f| f.help("write a whole number").help("or convert the array: `.astype(F32)`")),
        Scalar::Bool(_) => {
            reject("cannot become").map_err(|f| f.help("write 0 or 1, or convert the array: `.astype(Bool)`"))
        }
        _ => reject("cannot become").map_err(|f| f.help("convert the array: `.astype(I32)`")),
    }
}

/// Returns true if an integer is representable in an integer type.
pub(crate) fn fits_dtype(dtype: DType, i: i128) -> bool {
    let bits = dtype.size() as u32 * 8;
    if dtype.is_signed() {
        (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&i)
    } else {
        (0..1i128 << bits).contains(&i)
    }
}
/// Returns the first of int32, uint32, int64 and uint64 that represents an integer.
fn smallest_dtype(i: i128) -> DType {
    [DType::I32, DType::U32, DType::I64].into_iter().find(|d| fits_dtype(*d, i)).unwrap_or(DType::U64)
}

/// The operands of one primitive.
pub(crate) type PrimArgs = SmallVec<[ArrayOrLiteral; 2]>;

/// Resolves two operands on the fast path: two arrays, or an array and a number it can represent.
///
/// Other combinations are returned unchanged.
pub(crate) fn binary_args(a: Term, b: Term) -> Result<PrimArgs, [Term; 2]> {
    let number = |x: &Scalar, other: &Array| {
        let dtype = other.type_ref().ok()?.dtype;
        Some(ArrayOrLiteral::Lit(Literal { dtype, value: convert_weak(*x, dtype).ok()? }))
    };
    let known = match (&a, &b) {
        (Term::Array(_), Term::Array(_)) => None,
        (Term::Array(a), Term::Number(x)) | (Term::Number(x), Term::Array(a)) => number(x, a),
        (Term::Number(_), Term::Number(_)) => None,
    };
    match (a, b, known) {
        (Term::Array(a), Term::Array(b), _) => {
            Ok(SmallVec::from_buf([ArrayOrLiteral::Array(a), ArrayOrLiteral::Array(b)]))
        }
        (Term::Array(a), Term::Number(_), Some(l)) => Ok(SmallVec::from_buf([ArrayOrLiteral::Array(a), l])),
        (Term::Number(_), Term::Array(b), Some(l)) => Ok(SmallVec::from_buf([l, ArrayOrLiteral::Array(b)])),
        (a, b, _) => Err([a, b]),
    }
}

/// Resolves operands; numbers take the element type of the first array.
///
/// On error, returns an array that carries it.
pub(crate) fn resolve_args(terms: &[Term], call: CallSite<'_>) -> Result<PrimArgs, Array> {
    let dtype = terms.iter().find_map(Term::dtype).unwrap_or_else(|| {
        // without arrays, the most general number determines the element type
        let numbers = terms.iter().filter_map(|t| if let Term::Number(x) = t { Some(*x) } else { None });
        numbers.map(default_dtype).max().unwrap_or(DType::F32)
    });
    let args: Result<PrimArgs, Fault> = terms.iter().map(|t| t.arg(dtype)).collect();
    args.map_err(|fault| reject(fault, terms, call))
}

/// Returns the types of the operands, or an array that carries their errors.
pub(crate) fn types<const N: usize>(operands: [&Array; N]) -> Result<[&ArrayType; N], Array> {
    match carried_errors(operands.into_iter()) {
        Some(error) => Err(poison(error)),
        None => Ok(operands.map(|a| a.type_ref().expect("no operand carries an error"))),
    }
}
/// Returns an array that carries this error; errors carried by operands take precedence.
pub(crate) fn reject(fault: Fault, terms: &[Term], call: CallSite<'_>) -> Array {
    let arrays = terms.iter().filter_map(|t| if let Term::Array(a) = t { Some(a) } else { None });
    if let Some(error) = carried_errors(arrays) {
        return poison(error);
    }
    poison(call.error(fault, || describe_all(terms)))
}

/// Describes operands for error messages.
pub(crate) fn describe_all(terms: &[Term]) -> Vec<String> {
    terms.iter().map(Term::describe).collect()
}

/// # Custom primitives
impl Array {
    /// Applies a primitive, built-in or user-defined, and returns its results.
    ///
    /// Numbers take the element type of the first array. On error, returns a single array that
    /// carries it.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::ops::reduce::{Reduce, Reduction};
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// let sums = Array::apply(std::sync::Arc::new(Reduce::new(Reduction::Sum, &[0], None)),
    ///     &[(&x).into()]);
    /// assert_eq!(sums[0].to_vec::<i32>()?, [4, 6]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn apply(prim: Prim, operands: &[Term]) -> Vec<Array> {
        let call = CallSite::here(prim.name());
        let args = ok_or_return!(resolve_args(operands, call), |poisoned| vec![poisoned]);
        apply(prim, &args, call)
    }
    /// Calls `make` with a call site whose errors refer to this array as the user's operand.
    ///
    /// Without it, errors would refer to the intermediate operands of the primitives that `make`
    /// applies.
    pub(crate) fn with_call_site<R>(&self, call: CallSite<'_>, make: impl FnOnce(CallSite<'_>) -> R) -> R {
        match self.type_ref() {
            Ok(ty) if !call.has_user_operands() => {
                let source = UserOperand { index: 0, ty: Some(ty), dims: None };
                make(call.with_operands(&|| vec![ty.to_string()], &[source]))
            }
            _ => make(call),
        }
    }
    /// Returns an array that carries an error about an operation on this array.
    pub(crate) fn reject(&self, fault: Fault, call: CallSite<'_>) -> Array {
        reject(fault, &[Term::Array(self.clone())], call)
    }
}

conversions! { Term: [] &Array => |a| Term::Array(a.clone()); }

impl Operand for &Term {
    fn term(self) -> Term {
        self.clone()
    }
}
