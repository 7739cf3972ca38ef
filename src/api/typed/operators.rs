//! The operators `+ - * / %`, `& | ^`, `-x` and `!x` on typed arrays and scalars.

use super::elementwise::{AddResult, JoinResult, MulResult};
use super::rules::broadcast::ZipRhs;
use super::sets::{AddRhs, CompleteSets, JoinRhs, MulRhs, ScalarSets, Sets};
use super::shape::Shape;
use super::{Bits, Number, SameElem, Signed, Typed, TypedArray};
use crate::api::array::{Array, Operand};
use crate::ir::ops::elementwise::Binary;
use crate::ir::program::CallSite;
use std::ops;

macro_rules! operators { ($($trait:ident $name:ident $bound:ident $rhs:ident $of:ident;)*) => { $(
    operators!(@ $trait $name $bound $rhs $of [&Typed<T, S, V>] [&R] [R: TypedArray<Elem: SameElem<T>>,] [R] |b| b);
    operators!(@ $trait $name $bound $rhs $of [Typed<T, S, V>] [&R] [R: TypedArray<Elem: SameElem<T>>,] [R] |b| b);
    operators!(@ $trait $name $bound $rhs $of [&Typed<T, S, V>] [Typed<T2, S2, V2>]
        [T2: crate::core::types::Element + SameElem<T>, S2: Shape, V2: Sets,] [Typed<T2, S2, V2>] |b| &b);
    operators!(@ $trait $name $bound $rhs $of [Typed<T, S, V>] [Typed<T2, S2, V2>]
        [T2: crate::core::types::Element + SameElem<T>, S2: Shape, V2: Sets,] [Typed<T2, S2, V2>] |b| &b);
)* };
    (@ $trait:ident $name:ident $bound:ident $rhs:ident $of:ident [$($left:tt)*] [$($right:tt)*] [$($g:tt)*] [$r:ty] |$b:ident| $by:expr) => {
        impl<T: $bound, S: Shape, V: Sets, $($g)*> ops::$trait<$($right)*> for $($left)*
        where
            <$r as TypedArray>::Shape: ZipRhs<S>,
            <$r as TypedArray>::Sets: $rhs<V>,
        {
            type Output = $of<T, S, V, $r>;
            #[track_caller]
            fn $name(self, $b: $($right)*) -> Self::Output {
                Typed::$name(&self, $by)
            }
        }
    };
}
operators! {
    Add add Number AddRhs AddResult;
    Sub sub Number AddRhs AddResult;
    Mul mul Number MulRhs MulResult;
    Div div Number JoinRhs JoinResult;
    Rem rem Number JoinRhs JoinResult;
    BitAnd bitand Bits JoinRhs JoinResult;
    BitOr bitor Bits JoinRhs JoinResult;
    BitXor bitxor Bits JoinRhs JoinResult;
}

macro_rules! left {
    ($fun:expr, $a:expr, $b:expr, $name:expr) => {
        Typed::from_rule_result(Array::binary($fun, $a.term(), $b.term(), CallSite::here($name)))
    };
}
// a scalar has the array's element type, which is how rustc infers `2.0`
macro_rules! numbers { ($($t:ty)*) => { $(
    numbers!(@ $t; Add add + CompleteSets, Sub sub - CompleteSets, Mul mul * ScalarSets, Div div / CompleteSets,
        Rem rem % CompleteSets);
)* };
    (@ $t:ty; $($trait:ident $name:ident $op:tt $sets:ident),*) => { $(
        impl<S: Shape, V: $sets> ops::$trait<$t> for &Typed<$t, S, V> {
            type Output = Typed<$t, S, V>;
            #[track_caller]
            fn $name(self, b: $t) -> Self::Output { Typed::from_rule_result(&self.array $op b) }
        }
        impl<S: Shape, V: $sets> ops::$trait<$t> for Typed<$t, S, V> {
            type Output = Typed<$t, S, V>;
            #[track_caller]
            fn $name(self, b: $t) -> Self::Output { Typed::from_rule_result(self.array $op b) }
        }
        impl<S: Shape, V: $sets> ops::$trait<&Typed<$t, S, V>> for $t {
            type Output = Typed<$t, S, V>;
            #[track_caller]
            fn $name(self, b: &Typed<$t, S, V>) -> Self::Output { left!(Binary::$trait, self, &b.array, stringify!($name)) }
        }
        impl<S: Shape, V: $sets> ops::$trait<Typed<$t, S, V>> for $t {
            type Output = Typed<$t, S, V>;
            #[track_caller]
            fn $name(self, b: Typed<$t, S, V>) -> Self::Output { left!(Binary::$trait, self, b.array, stringify!($name)) }
        }
    )* };
}
numbers!(f32 f64 i32 i64);

macro_rules! unary { ($($trait:ident $name:ident $bound:ident $op:tt;)*) => { $(
    impl<T: $bound, S: Shape, V: CompleteSets> ops::$trait for &Typed<T, S, V> {
        type Output = Typed<T, S, V>;
        #[track_caller]
        fn $name(self) -> Self::Output { Typed::from_rule_result($op &self.array) }
    }
    impl<T: $bound, S: Shape, V: CompleteSets> ops::$trait for Typed<T, S, V> {
        type Output = Typed<T, S, V>;
        #[track_caller]
        fn $name(self) -> Self::Output { Typed::from_rule_result($op self.array) }
    }
)* };
}
unary! {
    Neg neg Signed -;
    Not not Bits !;
}
