//! The operators `+ - * / %`, `& | ^`, `-x` and `!x` on typed arrays and scalars.

use super::operands::{
    AddOperand, ArithmeticKind, AssignableTo, BitwiseKind, BitwiseOperand, DivOperand, JoinsElem, LeftNumber,
    MulOperand, RightOperand,
};
use super::rules::broadcast::ZipRhs;
use super::sealed::FromRule;
use super::sets::{AddRhs, CompleteSets, JoinRhs, MulRhs, ScalarSets, Sets};
use super::shape::Shape;
use super::{AsNumber, Bits, Float, Signed, Typed, equal_sizes};
use crate::api::array::{Array, Operand};
use crate::core::Element;
use crate::ir::{ops::elementwise::Binary, program::CallSite};
use half::{bf16, f16};
use std::ops;

// There is one impl per left side for arrays and numbers on the right: the bounds, whose messages are
// ours, decide. They are the bounds of the impls of one trait, which has the type of the result: rustc
// then waits for the type of the right side with one obligation, not with one for each bound.
// A bound on `T` alone would give E0369 instead: rustc looks for an impl before it knows the right
// side, and bounds on that are left for later.
macro_rules! operators { ($($trait:ident $name:ident $assign:ident $assign_name:ident $bound:ident $rhs:ident $operand:ident;)*) => { $(
    impl<T: Element, S: Shape, V: Sets, R: $operand<T, S, V>> ops::$trait<R> for &Typed<T, S, V> {
        type Output = R::Out;
        #[track_caller]
        fn $name(self, b: R) -> Self::Output {
            R::Out::from_rule(operators!(@ self b $trait $name))
        }
    }
    impl<T: Element, S: Shape, V: Sets, R: $operand<T, S, V>> ops::$trait<R> for Typed<T, S, V> {
        type Output = R::Out;
        #[track_caller]
        fn $name(self, b: R) -> Self::Output {
            R::Out::from_rule(operators!(@ self b $trait $name))
        }
    }
    /// The result has the type of the left side.
    impl<T: Element, S: Shape, V: Sets, R: RightOperand<Kind: JoinsElem<T, R::Elem> + $bound<T>>> ops::$assign<R> for Typed<T, S, V>
    where
        R::Shape: ZipRhs<S, Out: AssignableTo<S>>,
        R::Sets: $rhs<V, Out: AssignableTo<V>>,
    {
        #[track_caller]
        fn $assign_name(&mut self, b: R) {
            *self = Typed::from_rule_result(operators!(@ self b $trait $name));
        }
    }
)* };
    (@ $a:ident $b:ident $trait:ident $name:ident) => {{
        let b = $b.right_term();
        match equal_sizes::right::<S, R>(stringify!($name), &$a.array, &b) {
            Ok(()) => ops::$trait::$name(&$a.array, b),
            Err(unequal) => unequal,
        }
    }};
}
operators! {
    Add add AddAssign add_assign ArithmeticKind AddRhs AddOperand;
    Sub sub SubAssign sub_assign ArithmeticKind AddRhs AddOperand;
    Mul mul MulAssign mul_assign ArithmeticKind MulRhs MulOperand;
    Div div DivAssign div_assign ArithmeticKind JoinRhs DivOperand;
    Rem rem RemAssign rem_assign ArithmeticKind JoinRhs DivOperand;
    BitAnd bitand BitAndAssign bitand_assign BitwiseKind JoinRhs BitwiseOperand;
    BitOr bitor BitOrAssign bitor_assign BitwiseKind JoinRhs BitwiseOperand;
    BitXor bitxor BitXorAssign bitxor_assign BitwiseKind JoinRhs BitwiseOperand;
}

// A number on the left has the array's element type, or is an `f32` for `f16` and `bf16`, or an `i32`
// for floats: with two types for one literal, rustc would not know the type of `(2.0 * x).sin()`.
// The impls for other numbers have a bound that does not hold: rustc prints its message, and skips
// these impls where it infers the type of a literal.
macro_rules! left { ($([$($g:tt)*] $n:ident $t:ty $(, where [$($w:tt)*])?;)*) => { $(
    left!(@ [$($g)*] [$($($w)*)?] $n $t; Add add CompleteSets, Sub sub CompleteSets, Mul mul ScalarSets, Div div CompleteSets,
        Rem rem CompleteSets);
)* };
    (@ $g:tt $w:tt $n:ident $t:ty; $($trait:ident $name:ident $sets:ident),*) => { $(
        left!(@@ $g $w $n $t; $trait $name $sets, Typed<$t, S, V>);
        left!(@@ $g $w $n $t; $trait $name $sets, &Typed<$t, S, V>);
    )* };
    (@@ [$($g:tt)*] [$($w:tt)*] $n:ident $t:ty; $trait:ident $name:ident $sets:ident, $right:ty) => {
        impl<$($g)* S: Shape, V: $sets> ops::$trait<$right> for $n
        where
            $($w)*
        {
            type Output = Typed<$t, S, V>;
            #[track_caller]
            fn $name(self, b: $right) -> Self::Output {
                let (a, b) = (self.number(), b.as_untyped().clone());
                Typed::from_rule_result(Array::binary(Binary::$trait, a, b.term(), CallSite::here(stringify!($name))))
            }
        }
    };
}
left! {
    [] f16 f16; [] bf16 bf16; [] f32 f16; [] f32 bf16; [] f32 f32; [] f64 f64; [T: Float,] i32 T;
    [] i8 i8; [] i16 i16; [] i32 i32; [] i64 i64; [] u8 u8; [] u16 u16; [] u32 u32; [] u64 u64;
    ['a,] f64 f16, where [f64: LeftNumber<'a, f16>]; ['a,] f64 bf16, where [f64: LeftNumber<'a, bf16>];
    ['a,] f64 f32, where [f64: LeftNumber<'a, f32>]; ['a,] f32 f64, where [f32: LeftNumber<'a, f64>];
}

macro_rules! unary { ($($trait:ident $name:ident $bound:ident $sets:ident $op:tt;)*) => { $(
    impl<T: $bound, S: Shape, V: $sets> ops::$trait for &Typed<T, S, V> {
        type Output = Typed<T, S, V>;
        #[track_caller]
        fn $name(self) -> Self::Output { Typed::from_rule_result($op &self.array) }
    }
    impl<T: $bound, S: Shape, V: $sets> ops::$trait for Typed<T, S, V> {
        type Output = Typed<T, S, V>;
        #[track_caller]
        fn $name(self) -> Self::Output { Typed::from_rule_result($op self.array) }
    }
)* };
}
unary! {
    Neg neg Signed Sets -;
    Not not Bits CompleteSets !;
}
