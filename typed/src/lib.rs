//! The static types of atmesh's typed layer: sizes, axes, shapes, and sharding rules as traits.
//!
//! The crate has types only: the arrays of these types are `atmesh::typed::Typed`, which wraps
//! atmesh's dynamic arrays. The crates are separate to compile in parallel: this crate does not
//! know arrays, and atmesh does not know size arithmetic. Programs use this crate as
//! `atmesh::typed`.

/// Writes impls of rules that give one type: `[parameters] type: rule = result;`.
///
/// `hidden` keeps an impl out of rustc's suggestions. `sealed` gives it the constant of the type
/// `Seal`.
macro_rules! rules {
    ($out:ident: $($($mark:ident)* [$($parameter:tt)*] $ty:ty: $rule:path = $result:ty;)*) => {$(
        rules! { @ [$($mark)*] [] [] [$($parameter)*] [$rule] [$ty] $out [$result] }
    )*};
    (@ [hidden $($mark:ident)*] [] $($rest:tt)*) => {
        rules! { @ [$($mark)*] [#[diagnostic::do_not_recommend]] $($rest)* }
    };
    (@ [sealed] $attribute:tt [] $($rest:tt)*) => {
        rules! { @ [] $attribute [const SEAL: crate::sealed::Seal = crate::sealed::Seal;] $($rest)* }
    };
    (@ [] [$($attribute:tt)*] [$($seal:tt)*] [$($parameter:tt)*] [$rule:path] [$ty:ty] $out:ident [$result:ty]) => {
        $($attribute)*
        impl<$($parameter)*> $rule for $ty {
            $($seal)*
            type $out = $result;
        }
    };
}

pub mod axis;
mod macros;
pub mod manual;
pub mod region;
pub mod rules;
#[doc(hidden)]
pub mod sealed;
pub mod sets;
pub mod shape;
pub mod size;
mod text;

#[doc(hidden)]
pub use atmesh_typed_macros as notation;
pub use text::{print, text};
pub use typenum;
