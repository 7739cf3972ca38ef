//! The typing rules of operations, as traits: result types as functions of operand types.
//!
//! Most rules are a few impls, one for each form of a sharding. rustc selects among them by
//! unification, so generic code needs no bounds on shardings for them. Rules that compute sizes
//! need bounds on the sizes. The traits follow these laws. Each is easy to break, and a violation
//! shows far from its cause:
//!
//! * the operand whose type may not be known yet is `Self`;
//! * no impl recurs through a parameter that may not be known yet;
//! * facts are positive: `mesh!` states, for every pair of axes, that they differ;
//! * functions are total, and a single bound checks them; bounds are on methods, so that rustc
//!   shows this crate's messages;
//! * blanket impls are in this crate only; macros in the user's crate implement leaf traits for the
//!   user's types;
//! * every trait is sealed: its supertrait is `Sealed`, or `SealedOrDeclared` if it is implemented
//!   for declared types too. It has a constant `SEAL` if its impl could name a declared type as
//!   `Self` or as a parameter. The module `sealed` says why.

pub mod broadcast;
pub mod dot;
pub mod einsum;
pub mod halo;
pub mod join;
pub mod leading;
pub mod matrices;
pub mod rearrange;
pub mod reduce;
pub mod reshape_dims;
pub mod reshard;
pub mod select;
pub mod slice;
pub mod take;
pub mod windows;
