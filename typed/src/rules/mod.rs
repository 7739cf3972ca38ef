//! How the types of results follow from those of operands, as traits.
//!
//! Each rule is a few impls that match on the form of a sharding, never a condition: rustc finds them by unification, so generic code
//! needs no bound for them. These traits keep to a few laws, each of which is easy to break and shows far from its cause:
//!
//! * the operand that may not be known yet is `Self`;
//! * no impl recurs through a parameter that may not be known yet;
//! * facts are positive: that two axes differ is said by `mesh!`, pair by pair;
//! * functions are total, and one bound checks; bounds are on methods, so that rustc shows our text;
//! * blanket impls are here only; macros in the user's crate implement leaf traits for the user's types.

pub mod contract;
pub mod einsum;
pub mod moves;
pub mod parts;
pub mod reduce;
pub mod respec;
pub mod zip;
