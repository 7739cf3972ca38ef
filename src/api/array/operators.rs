//! Operators on arrays: `+ - * / % & | ^ << >>`, prefix `-` and `!`, and compound assignment.

use super::{Array, Operand, Term};
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::program::{CallSite, Primitive};
use std::ops;

/// A number on the left of an operator, with an array on the right: an `f64` or an `i32`.
///
/// A constant of another type goes to the right, where any number may be, or is written as `f64`.
/// In both cases it takes the element type of the array.
///
/// ```
/// use atmesh::prelude::*;
/// const RATE: f64 = 0.5;
/// let x = Array::from([1.0f32, 2.0]);
/// assert_eq!((RATE * &x).to_vec::<f32>()?, [0.5, 1.0]);
/// assert_eq!((&x * 0.5f32).to_vec::<f32>()?, [0.5, 1.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be on the left of an operator whose right side is an array",
    label = "expected `f64` or `i32`",
    note = "declare a float as `f64`, and an integer as `i32`: it takes the element type of the array",
    note = "or put the number on the right, where any type may be: `&x * number`"
)]
pub trait LeftOperand<'a> {
    /// Converts to an operand value.
    fn into_term(self) -> Term;
}
macro_rules! left { ($($t:ty)*) => {$(
    impl LeftOperand<'_> for $t {
        fn into_term(self) -> Term {
            self.term()
        }
    }
)*} }
left!(f64 i32);

// There is one generic impl per side: its Output does not depend on the literal's type, so that
// `(x + 1.0).sin()` can be inferred. On the left only f64 and i32 are supported: with a second
// float type, `(2.0 * x).sin()` could not be inferred. The impls for other numbers have a bound
// that does not hold. It has a lifetime so that rustc checks it for each use, where it prints the
// message of `LeftOperand`; inference of literals skips these impls. They are inline, because rustc
// compiles no code for an impl whose bound does not hold, but a shared library would export it.
macro_rules! binary { ($($Op:ident $op:ident $fun:ident;)*) => {$(
    impl<R: Operand> ops::$Op<R> for Array {
        type Output = Array;
        #[track_caller]
        fn $op(self, rhs: R) -> Array {
            Array::binary(Binary::$fun, self.term(), rhs.term(), CallSite::here(Binary::$fun.name()))
        }
    }
    impl<R: Operand> ops::$Op<R> for &Array {
        type Output = Array;
        #[track_caller]
        fn $op(self, rhs: R) -> Array {
            Array::binary(Binary::$fun, self.term(), rhs.term(), CallSite::here(Binary::$fun.name()))
        }
    }
    binary!(@left $Op $op $fun f64 f32 i32 i8 i16 i64 u8 u16 u32 u64 usize);
)*};
(@left $Op:ident $op:ident $fun:ident $($s:ident)*) => {$(
    impl<'a> ops::$Op<Array> for $s
    where
        $s: LeftOperand<'a>,
    {
        type Output = Array;
        #[inline]
        #[track_caller]
        fn $op(self, rhs: Array) -> Array {
            Array::binary(Binary::$fun, self.into_term(), rhs.term(), CallSite::here(Binary::$fun.name()))
        }
    }
    impl<'a> ops::$Op<&'a Array> for $s
    where
        $s: LeftOperand<'a>,
    {
        type Output = Array;
        #[inline]
        #[track_caller]
        fn $op(self, rhs: &'a Array) -> Array {
            Array::binary(Binary::$fun, self.into_term(), rhs.term(), CallSite::here(Binary::$fun.name()))
        }
    }
)*};
}
binary! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
    Shl shl ShiftLeft;
}

macro_rules! prefix { ($($Op:ident $op:ident $fun:ident;)*) => {$(
    impl ops::$Op for Array {
        type Output = Array;
        #[track_caller]
        fn $op(self) -> Array {
            (&self).unary(Unary::$fun, CallSite::here(Unary::$fun.name()))
        }
    }
    impl ops::$Op for &Array {
        type Output = Array;
        #[track_caller]
        fn $op(self) -> Array {
            (&self).unary(Unary::$fun, CallSite::here(Unary::$fun.name()))
        }
    }
)*} }
prefix! {
    Neg neg Neg;
    Not not Not;
}

/// Implements compound assignment, which rebinds the handle: other handles keep their value.
macro_rules! assign { ($($Op:ident $op:ident $fun:ident;)*) => {$(
    impl<R: Operand> ops::$Op<R> for Array {
        #[track_caller]
        fn $op(&mut self, rhs: R) {
            *self = Array::binary(Binary::$fun, (&*self).term(), rhs.term(), CallSite::here(Binary::$fun.name()));
        }
    }
)*} }
assign! {
    AddAssign add_assign Add;
    SubAssign sub_assign Sub;
    MulAssign mul_assign Mul;
    DivAssign div_assign Div;
    RemAssign rem_assign Rem;
    BitAndAssign bitand_assign And;
    BitOrAssign bitor_assign Or;
    BitXorAssign bitxor_assign Xor;
    ShlAssign shl_assign ShiftLeft;
}

/// Returns the operation of `>>`: an arithmetic shift for signed integers, else a logical one.
fn shift_right_op(x: &Array) -> Binary {
    let unsigned = x.type_ref().is_ok_and(|t| t.dtype.is_unsigned());
    if unsigned { Binary::ShiftRightLogical } else { Binary::ShiftRightArithmetic }
}
impl<R: Operand> ops::Shr<R> for &Array {
    type Output = Array;
    #[track_caller]
    fn shr(self, rhs: R) -> Array {
        let op = shift_right_op(self);
        Array::binary(op, self.term(), rhs.term(), CallSite::here(op.name()))
    }
}
impl<R: Operand> ops::Shr<R> for Array {
    type Output = Array;
    #[track_caller]
    fn shr(self, rhs: R) -> Array {
        &self >> rhs.term()
    }
}
impl<R: Operand> ops::ShrAssign<R> for Array {
    #[track_caller]
    fn shr_assign(&mut self, rhs: R) {
        let op = shift_right_op(self);
        *self = Array::binary(op, (&*self).term(), rhs.term(), CallSite::here(op.name()));
    }
}

/// Adds the arrays in order; the sum of an empty iterator is float32 0.
impl std::iter::Sum for Array {
    #[track_caller]
    fn sum<I: Iterator<Item = Array>>(all: I) -> Array {
        all.reduce(|a, b| a + b).unwrap_or_else(|| Array::from(0.0f32))
    }
}
impl<'a> std::iter::Sum<&'a Array> for Array {
    #[track_caller]
    fn sum<I: Iterator<Item = &'a Array>>(all: I) -> Array {
        all.cloned().sum()
    }
}
