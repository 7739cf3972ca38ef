//! The notation macros.
//! Each passes its input and the path of this crate to the proc macro of the same name.
//! `T!` and `einsum!` name arrays, so they are in `atmesh`.

/// Writes a shape as a type: `S![4@X, 2]`.
///
/// A longer example is `S![8@(X, Y), B@Data, 4096*3, {WIDTH}, ?@Data, ~, U4096]`. A size is an
/// integer, a product of integers, a constant expression in braces, a name declared by `dim!`, a
/// type parameter, a `typenum` integer, or `?` if it is known only at run time. `~` is a dim of
/// size 1 that broadcasts in elementwise operations.
#[macro_export]
macro_rules! S { ($($t:tt)*) => { $crate::notation::shape! { [$crate] $($t)* } } }

/// Writes a size as a type: `N![11008]`.
#[macro_export]
macro_rules! N { ($($t:tt)*) => { $crate::notation::size! { [$crate] $($t)* } } }

/// Writes a spec, as a type and as a value: `P![X, _]`.
///
/// Other examples are `P![(X, Y), _]`, `P![=, Y]` and `P![_, _; U: X]`. An entry `=` keeps the
/// sharding of its dim.
#[macro_export]
macro_rules! P { ($($t:tt)*) => { $crate::notation::spec! { [$crate] $($t)* } } }

/// Declares a mesh and its axes as types: `mesh! { pub struct Pod { X: 2, Y: 4 } }`.
///
/// `Data: ?` declares an axis whose size is given when the mesh is created. Axes are unit structs,
/// so they can be passed as values (`psum(X)`). Their names begin with a capital letter: an axis
/// `data` would make `let data = ..` an error. `Data("data"): 2` declares an axis that dynamic
/// arrays know as `data`.
#[macro_export]
macro_rules! mesh { ($($t:tt)*) => { $crate::notation::mesh! { [$crate] $($t)* } } }

/// Declares a named size: `dim!(pub Hidden = 11008)`.
///
/// `dim!(pub Batch)` declares a size that is known only at run time.
#[macro_export]
macro_rules! dim { ($($t:tt)*) => { $crate::notation::dim! { [$crate] $($t)* } } }
