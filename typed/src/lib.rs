//! The static types of atmesh's typed layer: sizes, axes, shapes, and sharding rules as traits.
//!
//! The crate has types only: the arrays of these types are `atmesh::typed::Typed`, which wraps
//! atmesh's dynamic arrays. The crates are separate to compile in parallel: this crate does not
//! know arrays, and atmesh does not know size arithmetic. Programs use this crate as
//! `atmesh::typed`.

/// Writes impls of rules: `[parameters] type: rule where [bounds] = result;`, without `= result`
/// for traits that have no items.
///
/// `hidden` keeps an impl out of rustc's suggestions. `sealed` gives it the constant of the type
/// `Seal`.
macro_rules! rules {
    ($out:ident: $($($mark:ident)* [$($parameter:tt)*] $ty:ty: $rule:path
        $(where [$($bound:tt)*])? = $result:ty;)*) => {$(
        rules! { @ [$($mark)*] [] [] [$($parameter)*] [$rule] [$ty] [$($($bound)*)?] [type $out = $result;] }
    )*};
    ($($($mark:ident)* [$($parameter:tt)*] $ty:ty: $rule:path $(where [$($bound:tt)*])?;)*) => {$(
        rules! { @ [$($mark)*] [] [] [$($parameter)*] [$rule] [$ty] [$($($bound)*)?] [] }
    )*};
    (@ [hidden $($mark:ident)*] [] $($rest:tt)*) => {
        rules! { @ [$($mark)*] [#[diagnostic::do_not_recommend]] $($rest)* }
    };
    (@ [sealed] $attribute:tt [] $($rest:tt)*) => {
        rules! { @ [] $attribute [const SEAL: crate::sealed::Seal = crate::sealed::Seal;] $($rest)* }
    };
    (@ [] [$($attribute:tt)*] [$($seal:tt)*] [$($parameter:tt)*] [$rule:path] [$ty:ty] [$($bound:tt)*]
        [$($item:tt)*]) => {
        $($attribute)*
        impl<$($parameter)*> $rule for $ty
        where
            $($bound)*
        {
            $($seal)*
            $($item)*
        }
    };
}

/// Declares traits of rules, each with rustc's messages for types that the rule rejects, at most
/// one associated type (`=> Name: bound, "documentation"`), and its impls in the form of `rules!`.
///
/// `sealed` declares the constant that only this crate's impls can have.
macro_rules! rule_traits {
    ($(
        $(#[$doc:meta])+
        $(message = $message:literal, label = $label:literal, $(note = $note:literal,)*)?
        pub trait $name:ident $(<$($parameter:ident $(: $bound:path)?),*>)?: $super:path $(, $sealed:ident)?
            $(=> $out:ident: $of:path, $about:literal)? {$($rules:tt)*}
    )*) => {$(
        $(#[$doc])+
        $(#[diagnostic::on_unimplemented(message = $message, label = $label $(, note = $note)*)])?
        pub trait $name $(<$($parameter $(: $bound)?),*>)?: $super {
            $(seal! { $sealed })?
            $(
                #[doc = $about]
                type $out: $of;
            )?
        }
        rules! { $($out:)? $($rules)* }
    )*};
}

/// Declares the constant that only this crate's impls of a trait can have.
macro_rules! seal {
    ($(sealed)?) => {
        #[doc(hidden)]
        const SEAL: crate::sealed::Seal;
    };
}
/// Calls a macro with a list, and with the list extended by each group of tokens in turn.
macro_rules! prefixes {
    ($macro:ident [$($all:tt)*]) => { $macro!($($all)*); };
    ($macro:ident [$($list:tt)*] ($($next:tt)*) $($more:tt)*) => {
        $macro!($($list)*);
        prefixes! { $macro [$($list)* $($next)*] $($more)* }
    };
}
/// Calls a macro for two operands of up to eight dims: for each number of dims that both have, with
/// the dims that only one has, and with the pairs.
macro_rules! dim_pairs {
    ($macro:ident) => {
        dim_pairs! { $macro [P1 P2 P3 P4 P5 P6 P7 P8] []
            (A1 B1) (A2 B2) (A3 B3) (A4 B4) (A5 B5) (A6 B6) (A7 B7) (A8 B8) }
    };
    ($macro:ident [] [$($pair:ident)*]) => { $macro!([] [$($pair)*]); };
    ($macro:ident [$first:ident $($single:ident)*] [$($pair:ident)*] ($($next:ident)*) $($more:tt)*) => {
        $macro!([$first $($single)*] [$($pair)*]);
        dim_pairs! { $macro [$($single)*] [$($pair)* $($next)*] $($more)* }
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
