//! The user-facing API: arrays, function transformations, per-device code and pictures.
//!
//! The API builds programs of the IR. The module `trace` records operations on arrays, or runs them
//! eagerly; the methods of arrays and the transformations are built on it.

/// Calls a macro with a list, and with the list extended by each group of tokens in turn.
macro_rules! prefixes {
    ($macro:ident [$($all:tt)*]) => { $macro! { $($all)* } };
    ($macro:ident [$($list:tt)*] ($($next:tt)*) $($more:tt)*) => {
        $macro! { $($list)* }
        prefixes! { $macro [$($list)* $($next)*] $($more)* }
    };
}

pub mod array;
pub mod display;
pub mod distributed;
pub mod nn;
pub mod notebook;
pub mod optim;
pub mod random;
pub mod shard_map;
pub mod spmd;
pub mod trace;
pub mod transform;
pub mod tree;
#[cfg(feature = "typed")]
pub mod typed;
