//! Operators: `+ - * / % & | ^`, prefix `-` and `!`, and the assigning ones.

use super::{Array, Operand};
use crate::ops::elementwise::{Binary, Unary};
use crate::program::{Call, Primitive};
use std::ops;

// One generic impl a side: its Output does not depend on the literal's type, so `(x + 1.0).sin()` infers.
// On the left only f64 and i32: with two float types there, `(2.0 * x).sin()` does not infer.
macro_rules! binary { ($($Op:ident $op:ident $fun:ident;)*) => {$(
    impl<R: Operand> ops::$Op<R> for Array {
        type Output = Array;
        #[track_caller]
        fn $op(self, rhs: R) -> Array {
            Array::binary(Binary::$fun, self.term(), rhs.term(), Call::here(Binary::$fun.name()))
        }
    }
    impl<R: Operand> ops::$Op<R> for &Array {
        type Output = Array;
        #[track_caller]
        fn $op(self, rhs: R) -> Array {
            Array::binary(Binary::$fun, self.term(), rhs.term(), Call::here(Binary::$fun.name()))
        }
    }
    binary!(@left $Op $op $fun f64 Array);
    binary!(@left $Op $op $fun f64 &Array);
    binary!(@left $Op $op $fun i32 Array);
    binary!(@left $Op $op $fun i32 &Array);
)*};
(@left $Op:ident $op:ident $fun:ident $s:ident $a:ty) => {
    impl ops::$Op<$a> for $s {
        type Output = Array;
        #[track_caller]
        fn $op(self, rhs: $a) -> Array {
            Array::binary(Binary::$fun, self.term(), rhs.term(), Call::here(Binary::$fun.name()))
        }
    }
};
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
}

macro_rules! prefix { ($($Op:ident $op:ident $fun:ident;)*) => {$(
    impl ops::$Op for Array {
        type Output = Array;
        #[track_caller]
        fn $op(self) -> Array {
            (&self).unary(Unary::$fun, Call::here(Unary::$fun.name()))
        }
    }
    impl ops::$Op for &Array {
        type Output = Array;
        #[track_caller]
        fn $op(self) -> Array {
            (&self).unary(Unary::$fun, Call::here(Unary::$fun.name()))
        }
    }
)*} }
prefix! {
    Neg neg Neg;
    Not not Not;
}

/// These rebind the handle: other handles of the array keep its value.
macro_rules! assign { ($($Op:ident $op:ident $fun:ident;)*) => {$(
    impl<R: Operand> ops::$Op<R> for Array {
        #[track_caller]
        fn $op(&mut self, rhs: R) {
            *self = Array::binary(Binary::$fun, (&*self).term(), rhs.term(), Call::here(Binary::$fun.name()));
        }
    }
)*} }
assign! {
    AddAssign add_assign Add;
    SubAssign sub_assign Sub;
    MulAssign mul_assign Mul;
    DivAssign div_assign Div;
    RemAssign rem_assign Rem;
}
