//! Mesh axes, and how one dimension is sharded over them.

/// A mesh axis: a unit struct made by `mesh!`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mesh axis",
    label = "not a mesh axis",
    note = "mesh axes are declared with their mesh: `mesh! {{ pub struct Pod {{ X: 2, Y: 4 }} }}`",
    note = "in a generic function: `A: MeshAxis`"
)]
pub trait MeshAxis: Copy + 'static {
    /// The mesh that it is an axis of.
    type Mesh: MeshType;
    /// How many devices there are along it: a `typenum` integer, or [`AtRun`].
    type Size: 'static;
    /// The prime factors of its size, or [`AtRun`].
    type Factors: crate::size::Factors;
    /// Its name.
    const NAME: &'static str;
    /// How many devices there are along it, where that is known when compiling.
    const SIZE: Option<usize>;
}
/// A mesh: a unit struct made by `mesh!`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mesh",
    label = "not a mesh",
    note = "declare one: `mesh! {{ pub struct Pod {{ X: 2, Y: 4 }} }}`"
)]
pub trait MeshType: Copy + 'static {
    /// The set of no axes: what a value inside of `shard_map` has that is the same on every device.
    type Empty: crate::sets::Sets;
    /// Its name.
    const NAME: &'static str;
    /// Its axes, in order, and their sizes.
    const AXES: &'static [(&'static str, Option<usize>)];
}
/// Two different axes of one mesh; `mesh!` says it of every pair.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{B}` are not known to be two different axes of one mesh",
    label = "one axis, or axes of two meshes",
    note = "in a generic function say that they differ: `A: MeshAxis + Apart<B>`"
)]
pub trait Apart<B> {}

/// The size of an axis that is given when the mesh is made: `mesh! { struct Pod { Data: ? } }`.
pub struct AtRun;

/// Unsharded: every device holds all of the dim.
#[derive(Clone, Copy, Debug)]
pub struct Whole;

/// How a dim is sharded: [`Whole`], an axis, or a tuple of axes, major first.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how a dim is sharded",
    label = "expected a mesh axis, or up to three: `(X, Y)`"
)]
pub trait Shard: 'static {
    /// Its axes, major first, and their sizes where those are known when compiling.
    const AXES: &'static [(&'static str, Option<usize>)];
}
/// Split over at least one axis.
pub trait Split: Shard {}
impl Shard for Whole {
    const AXES: &'static [(&'static str, Option<usize>)] = &[];
}
impl<A: MeshAxis> Shard for A {
    const AXES: &'static [(&'static str, Option<usize>)] = &[(A::NAME, A::SIZE)];
}
impl<A: MeshAxis> Split for A {}
macro_rules! split { ($($a:ident)+) => {
    impl<$($a: MeshAxis),+> Shard for ($($a,)+) {
        const AXES: &'static [(&'static str, Option<usize>)] = &[$(($a::NAME, $a::SIZE)),+];
    }
    impl<$($a: MeshAxis),+> Split for ($($a,)+) {}
} }
split!(A B);
split!(A B C);

/// No mesh axis in common.
pub trait Distinct<S> {}
impl<S: Shard> Distinct<S> for Whole {}
impl<A: MeshAxis> Distinct<Whole> for A {}
impl<A: MeshAxis, B: MeshAxis> Distinct<B> for A where A: Apart<B> {}
macro_rules! distinct {
    ($($a:ident)+; $($b:ident)+; $me:ty, $other:ty; $($x:ident $y:ident),+) => {
        impl<$($a: MeshAxis,)+ $($b: MeshAxis),+> Distinct<$other> for $me where $($x: Apart<$y>),+ {}
    };
}
impl<A: MeshAxis, B: MeshAxis> Distinct<Whole> for (A, B) {}
impl<A: MeshAxis, B: MeshAxis, C: MeshAxis> Distinct<Whole> for (A, B, C) {}
distinct!(A; D E; A, (D, E); A D, A E);
distinct!(A; D E F; A, (D, E, F); A D, A E, A F);
distinct!(A B; D; (A, B), D; A D, B D);
distinct!(A B; D E; (A, B), (D, E); A D, A E, B D, B E);
distinct!(A B; D E F; (A, B), (D, E, F); A D, A E, A F, B D, B E, B F);
distinct!(A B C; D; (A, B, C), D; A D, B D, C D);
distinct!(A B C; D E; (A, B, C), (D, E); A D, A E, B D, B E, C D, C E);
distinct!(A B C; D E F; (A, B, C), (D, E, F); A D, A E, A F, B D, B E, B F, C D, C E, C F);
