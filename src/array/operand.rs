//! Operands beside an array in a formula: arrays and weak numbers.

use super::Array;
use crate::diagnostic::{ErrorKind, Fault};
use crate::program::{Call, Literal, Prim, Source};
use crate::trace::{Arg, apply, carried, poison};
use crate::types::{DType, Scalar};
use num_complex::Complex;
use smallvec::SmallVec;

/// An operand beside an array in a formula. Numbers are weak: they take the array's element type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an operand of an array",
    label = "expected `Array`, `&Array` or a number",
    note = "from a `Vec`, a slice or an ndarray: `Array::from(..)`"
)]
pub trait Operand {
    /// The array or number that it is.
    fn term(self) -> Term;
}

/// An operand: an array, or a number that takes the element type of the array beside it.
#[derive(Clone)]
pub enum Term {
    /// An array.
    Array(Array),
    /// A number without an element type of its own.
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
    /// Its element type: of an array its own; `None` for numbers, and for arrays that carry an error.
    pub(crate) fn dtype(&self) -> Option<DType> {
        match self {
            Term::Array(a) => a.type_ref().ok().map(|t| t.dtype),
            Term::Number(_) => None,
        }
    }
    /// As text, for errors: a type or a number.
    pub(crate) fn describe(&self) -> String {
        match self {
            Term::Array(a) => a.type_ref().map_or_else(|_| "an error".into(), |t| t.to_string()),
            Term::Number(x) => x.to_string(),
        }
    }
    /// As an operand of a primitive, where a number takes this element type.
    pub(crate) fn arg(&self, dtype: DType) -> Result<Arg, Fault> {
        match self {
            Term::Array(a) => Ok(Arg::Array(a.clone())),
            Term::Number(x) => Ok(Arg::Lit(Literal { dtype, value: weak(*x, dtype)? })),
        }
    }
}

/// The element type of a number alone.
pub(crate) fn default_dtype(x: Scalar) -> DType {
    match x {
        Scalar::Bool(_) => DType::Bool,
        Scalar::Int(i) if i32::try_from(i).is_ok() => DType::I32,
        Scalar::Int(_) => DType::I64,
        Scalar::Float(_) => DType::F32,
        Scalar::Complex(..) => DType::C64,
    }
}

/// A weak number as one of this element type.
pub(crate) fn weak(x: Scalar, dtype: DType) -> Result<Scalar, Fault> {
    let refuse = |why: &str| Err(Fault::new(ErrorKind::Dtype, format!("the number {x} {why} {dtype}")));
    match x {
        Scalar::Bool(_) if dtype == DType::Bool => Ok(x),
        Scalar::Int(i) if dtype.is_integer() => {
            if holds(dtype, i) {
                Ok(x)
            } else {
                refuse("does not fit into").map_err(|f| f.help(format!("{} holds it", wider(i))))
            }
        }
        Scalar::Int(i) if dtype.is_inexact() => Ok(Scalar::Float(i as f64)),
        Scalar::Float(_) if dtype.is_inexact() => Ok(x),
        Scalar::Complex(..) if dtype.is_complex() => Ok(x),
        Scalar::Complex(..) => refuse("has an imaginary part and cannot become")
            .map_err(|f| f.help("convert the array: `.astype(C64)`")),
        Scalar::Float(_) if dtype.is_integer() => refuse("has a fraction or a point and cannot become")
            .map_err(|f| f.help("write a whole number").help("or convert the array: `.astype(F32)`")),
        Scalar::Bool(_) => {
            refuse("cannot become").map_err(|f| f.help("write 0 or 1, or convert the array: `.astype(Bool)`"))
        }
        _ => refuse("cannot become").map_err(|f| f.help("convert the array: `.astype(I32)`")),
    }
}

/// Whether a whole number is one of this integer type.
pub(crate) fn holds(dtype: DType, i: i128) -> bool {
    let bits = dtype.size() as u32 * 8;
    if dtype.is_signed() {
        (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&i)
    } else {
        (0..1i128 << bits).contains(&i)
    }
}
fn wider(i: i128) -> DType {
    [DType::I32, DType::U32, DType::I64].into_iter().find(|d| holds(*d, i)).unwrap_or(DType::U64)
}

/// The operands of one operation.
pub(crate) type Args = SmallVec<[Arg; 2]>;

/// [`args`] of two, where at least one is an array and a number fits beside it; else these two.
pub(crate) fn pair(a: Term, b: Term) -> Result<Args, [Term; 2]> {
    let number = |x: &Scalar, beside: &Array| {
        let dtype = beside.type_ref().ok()?.dtype;
        Some(Arg::Lit(Literal { dtype, value: weak(*x, dtype).ok()? }))
    };
    let known = match (&a, &b) {
        (Term::Array(_), Term::Array(_)) => None,
        (Term::Array(a), Term::Number(x)) | (Term::Number(x), Term::Array(a)) => number(x, a),
        (Term::Number(_), Term::Number(_)) => None,
    };
    match (a, b, known) {
        (Term::Array(a), Term::Array(b), _) => Ok(SmallVec::from_buf([Arg::Array(a), Arg::Array(b)])),
        (Term::Array(a), Term::Number(_), Some(l)) => Ok(SmallVec::from_buf([Arg::Array(a), l])),
        (Term::Number(_), Term::Array(b), Some(l)) => Ok(SmallVec::from_buf([l, Arg::Array(b)])),
        (a, b, _) => Err([a, b]),
    }
}

/// The operands of one operation, numbers with the element type of the arrays among them.
pub(crate) fn args(terms: &[Term], call: Call<'_>) -> Result<Args, Array> {
    let dtype = terms.iter().find_map(Term::dtype).unwrap_or_else(|| {
        // numbers only: a float among them makes floats
        let numbers = terms.iter().filter_map(|t| if let Term::Number(x) = t { Some(*x) } else { None });
        numbers.map(default_dtype).max().unwrap_or(DType::F32)
    });
    let args: Result<Args, Fault> = terms.iter().map(|t| t.arg(dtype)).collect();
    args.map_err(|fault| refuse(fault, terms, call))
}

/// The array that carries this refusal; where operands carry errors, those.
pub(crate) fn refuse(fault: Fault, terms: &[Term], call: Call<'_>) -> Array {
    let arrays = terms.iter().filter_map(|t| if let Term::Array(a) = t { Some(a) } else { None });
    if let Some(error) = carried(arrays) {
        return poison(error);
    }
    poison(call.error(fault, || described(terms)))
}

/// Operands as text, for errors.
pub(crate) fn described(terms: &[Term]) -> Vec<String> {
    terms.iter().map(Term::describe).collect()
}

/// # Primitives of one's own
impl Array {
    /// Applies a primitive of any kind, also one's own: its results, or one array that carries the refusal. Numbers take the element
    /// type of the first array.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::ops::reduce::{Reduce, Reduction};
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// let sums = Array::apply(std::sync::Arc::new(Reduce::new(Reduction::Sum, &[0], None)), &[(&x).into()]);
    /// assert_eq!(sums[0].to_vec::<i32>()?, [4, 6]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn apply(prim: Prim, operands: &[Term]) -> Vec<Array> {
        let call = Call::here(prim.name());
        match args(operands, call) {
            Ok(args) => apply(prim, &args, call),
            Err(refused) => vec![refused],
        }
    }
    /// What `make` makes of this array, which is the user's operand: errors tell it, not what is made on the way.
    pub(crate) fn told<R>(&self, call: Call<'_>, make: impl FnOnce(Call<'_>) -> R) -> R {
        match self.type_ref() {
            Ok(ty) if !call.tells_operands() => {
                let source = Source { number: 0, ty: Some(ty), dims: None };
                make(call.on(&|| vec![ty.to_string()], &[source]))
            }
            _ => make(call),
        }
    }
    /// The array that carries the refusal of an operation on this one.
    pub(crate) fn refuse(&self, fault: Fault, call: Call<'_>) -> Array {
        refuse(fault, &[Term::Array(self.clone())], call)
    }
}

impl From<&Array> for Term {
    fn from(a: &Array) -> Term {
        Term::Array(a.clone())
    }
}

impl Operand for &Term {
    fn term(self) -> Term {
        self.clone()
    }
}
