//! The notation. Each macro hands its input and the path of this crate to the proc macro of the same name.

/// A shape as a type: `S![4@X, 2]`, `S![8@(X, Y), B@Data, 4096*3, {WIDTH}, ?@Data, ~, U4096]`.
///
/// A size is a number, a product of numbers, a constant expression in braces, a name made by `dim!`, a type parameter, a
/// `typenum` integer, or `?` where it is known at run time only; `~` is a dim of size 1 that repeats in operations on elements.
#[macro_export]
macro_rules! S { ($($t:tt)*) => { $crate::notation::shape! { [$crate] $($t)* } } }

/// A size as a type: `N![11008]`.
#[macro_export]
macro_rules! N { ($($t:tt)*) => { $crate::notation::size! { [$crate] $($t)* } } }

/// A spec, as a type and as a value: `P![X, _]`, `P![(X, Y), _]`, `P![=, Y]` (the first dim as it is), `P![_, _; U: X]`.
#[macro_export]
macro_rules! P { ($($t:tt)*) => { $crate::notation::spec! { [$crate] $($t)* } } }

/// A mesh and its axes, as types: `mesh! { pub struct Pod { X: 2, Y: 4 } }`; `Data: ?` for a size known when the mesh is made.
///
/// Axes are unit structs, so that they are passed as values too (`psum(X)`). Their names begin with a capital: an axis `data` would make
/// `let data = ..` an error. An axis that arrays know by another name is `Data("data"): 2`.
#[macro_export]
macro_rules! mesh { ($($t:tt)*) => { $crate::notation::mesh! { [$crate] $($t)* } } }

/// A named size: `dim!(pub Hidden = 11008)`, or `dim!(pub Batch)` where it is known at run time only.
#[macro_export]
macro_rules! dim { ($($t:tt)*) => { $crate::notation::dim! { [$crate] $($t)* } } }

// these two name `Typed`, which is atmesh's own: by its name, as `#[derive(Tree)]` does
/// The type of an array; documented where `atmesh::typed` exports it.
#[macro_export]
macro_rules! T { ($($t:tt)*) => { $crate::notation::array! { [::atmesh::typed] $($t)* } } }

/// A product by subscripts; documented where `atmesh::typed` exports it.
#[macro_export]
macro_rules! einsum { ($($t:tt)*) => { $crate::notation::einsum! { [::atmesh::typed] $($t)* } } }
