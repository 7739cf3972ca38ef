//! Mesh axes, and the sharding of one dimension over them.

use crate::rules::dot::{BothSides, OneSide};
use crate::sealed::{Seal, SealedOrDeclared};

/// A mesh axis: a unit struct declared by `mesh!`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mesh axis",
    label = "not a mesh axis",
    note = "mesh axes are declared with their mesh: `mesh! {{ pub struct Pod {{ X: 2, Y: 4 }} }}`",
    note = "in a generic function: `A: MeshAxis`"
)]
pub trait MeshAxis: SealedOrDeclared + Copy + 'static {
    /// The mesh of this axis.
    type Mesh: MeshType + HasAxis<Self>;
    /// The number of devices along the axis: a `typenum` integer, or [`RunTimeSize`].
    type Size: 'static;
    /// The prime factors of the axis size, or [`RunTimeSize`].
    type Factors: crate::size::PrimeFactors;
    /// The axis as a value: `x.psum(X::AXIS)` in code that is generic over axes.
    const AXIS: Self;
    /// The name of the axis.
    const NAME: &'static str;
    /// The number of devices along the axis. `None` if it is known only at run time.
    const SIZE: Option<usize>;
}
/// A mesh: a unit struct declared by `mesh!`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mesh",
    label = "not a mesh",
    note = "declare one: `mesh! {{ pub struct Pod {{ X: 2, Y: 4 }} }}`"
)]
pub trait MeshType: SealedOrDeclared + Copy + 'static {
    /// The empty set of axes: the set of a value inside `shard_map` that is equal on every device.
    type Empty: crate::sets::Sets;
    /// The name of the mesh.
    const NAME: &'static str;
    /// The names of the axes in order, with their sizes.
    /// A size is `None` if it is known only at run time.
    const AXES: &'static [(&'static str, Option<usize>)];
    /// The run-time description of the mesh.
    const INFO: MeshInfo = MeshInfo { name: Self::NAME, axes: Self::AXES };
}
/// The run-time description of a mesh type.
#[derive(Clone, Copy, Debug)]
pub struct MeshInfo {
    /// The name of the mesh type.
    pub name: &'static str,
    /// The names of the axes in order, with their sizes.
    /// A size is `None` if it is known only at run time.
    pub axes: &'static [(&'static str, Option<usize>)],
}
/// Prints the mesh as `Pod` (`Mesh(X: 2, Y: ?)`).
impl core::fmt::Display for MeshInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "`{}` (Mesh(", self.name)?;
        for (i, (axis, size)) in self.axes.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match size {
                Some(n) => write!(f, "{comma}{axis}: {n}")?,
                None => write!(f, "{comma}{axis}: ?")?,
            }
        }
        f.write_str("))")
    }
}
/// Returns the first mesh of a list that is known.
pub(crate) const fn first_mesh(of: &[Option<MeshInfo>]) -> Option<MeshInfo> {
    let mut i = 0;
    while i < of.len() {
        if of[i].is_some() {
            return of[i];
        }
        i += 1;
    }
    None
}
rule_traits! {
    /// A mesh that declares the axis `A`. `mesh!` implements it for each axis.
    message = "`{A}` is not an axis of the mesh `{Self}`",
    label = "not an axis of `{Self}`",
    note = "an array is on one mesh: create it on the mesh that declares `{A}`",
    note = "in a `shard_map` over some axes, `PartialRegion<Pod, (X, Invariant)>` is `Pod.over(X)`",
    pub trait HasAxis<A>: SealedOrDeclared, sealed {}
    /// States that two axes of one mesh differ. `mesh!` implements it for every pair.
    message = "`{Self}` and `{B}` are not known to be two different axes of one mesh",
    label = "one axis, or axes of two meshes",
    note = "in a generic function say that they differ: `A: MeshAxis + DistinctAxis<B>`",
    pub trait DistinctAxis<B>: SealedOrDeclared, sealed {}
}

/// The size of an axis that is given when the mesh is created: `mesh! { struct Pod { Data: ? } }`.
pub struct RunTimeSize;

/// Unsharded: every device holds the full dim.
#[derive(Clone, Copy, Debug)]
pub struct Unsharded;

/// The sharding of a dim: [`Unsharded`], an axis, or a tuple of axes, major first.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how a dim is sharded",
    label = "expected a mesh axis, or up to three: `(X, Y)`"
)]
pub trait Shard: Distinct<Unsharded> + 'static {
    /// Which of two dims with this sharding are sharded: [`OneSide`] for [`Unsharded`], else
    /// [`BothSides`].
    type Parts;
    /// The axes, major first, with their sizes. A size is `None` if it is known only at run time.
    const AXES: &'static [(&'static str, Option<usize>)];
    /// The mesh of the axes. `None` if there is no axis.
    const MESH: Option<MeshInfo>;
}
rule_traits! {
    /// A sharding whose axes are all of the mesh `M`.
    message = "`{Self}` are not axes of the mesh `{M}`",
    label = "not axes of `{M}`",
    note = "an array is on one mesh: create it on the mesh that declares these axes",
    pub trait ShardOn<M>: Shard, sealed {
        sealed [M] Unsharded: ShardOn<M>;
        sealed [A: MeshAxis, M: HasAxis<A>] A: ShardOn<M>;
    }
    /// Requires an unsharded dim.
    message = "an array that is created in a `shard_map` body is unsharded, not sharded over `{Self}`",
    label = "each device creates the entire array",
    note = "state the block's size: for `8@X` over two devices write `4`",
    pub trait NoShard: Shard {
        [] Unsharded: NoShard;
    }
    /// Requires sharding over at least one axis.
    pub trait Split: Shard {}
}
impl Shard for Unsharded {
    type Parts = OneSide;
    const AXES: &'static [(&'static str, Option<usize>)] = &[];
    const MESH: Option<MeshInfo> = None;
}
impl<A: MeshAxis> Shard for A {
    type Parts = BothSides;
    const AXES: &'static [(&'static str, Option<usize>)] = &[(A::NAME, A::SIZE)];
    const MESH: Option<MeshInfo> = Some(A::Mesh::INFO);
}
impl<A: MeshAxis> Split for A {}
macro_rules! split { ($($a:ident)+) => {
    impl<$($a: MeshAxis),+> Shard for ($($a,)+) {
        type Parts = BothSides;
        const AXES: &'static [(&'static str, Option<usize>)] = &[$(($a::NAME, $a::SIZE)),+];
        const MESH: Option<MeshInfo> = first_mesh(&[$(Some($a::Mesh::INFO)),+]);
    }
    impl<M: $(HasAxis<$a> +)+, $($a: MeshAxis),+> ShardOn<M> for ($($a,)+) { const SEAL: Seal = Seal; }
    impl<$($a: MeshAxis),+> Split for ($($a,)+) {}
} }
split!(A B);
split!(A B C);

rule_traits! {
    /// Requires two shardings without a common mesh axis.
    message = "the shardings `{Self}` and `{S}` are not known to have no mesh axis in common",
    label = "a mesh axis shards only one dim of an array",
    note = "`reshard` one of the dims, so that the axis is used once",
    note = "in a generic function: `A: MeshAxis + DistinctAxis<B>` for two axes, `A: Shard + Distinct<B>` for two shardings",
    pub trait Distinct<S>: SealedOrDeclared, sealed {
        sealed [S: Shard] Unsharded: Distinct<S>;
        sealed [A: MeshAxis] A: Distinct<Unsharded>;
        sealed [A: MeshAxis, B: MeshAxis] A: Distinct<B> where [A: DistinctAxis<B>];
    }
}
macro_rules! distinct {
    ($($a:ident)+; $($b:ident)+; $me:ty, $other:ty; $($x:ident $y:ident),+) => {
        impl<$($a: MeshAxis,)+ $($b: MeshAxis),+> Distinct<$other> for $me where $($x: DistinctAxis<$y>),+ { const SEAL: Seal = Seal; }
    };
}
impl<A: MeshAxis, B: MeshAxis> Distinct<Unsharded> for (A, B) {
    const SEAL: Seal = Seal;
}
impl<A: MeshAxis, B: MeshAxis, C: MeshAxis> Distinct<Unsharded> for (A, B, C) {
    const SEAL: Seal = Seal;
}
distinct!(A; D E; A, (D, E); A D, A E);
distinct!(A; D E F; A, (D, E, F); A D, A E, A F);
distinct!(A B; D; (A, B), D; A D, B D);
distinct!(A B; D E; (A, B), (D, E); A D, A E, B D, B E);
distinct!(A B; D E F; (A, B), (D, E, F); A D, A E, A F, B D, B E, B F);
distinct!(A B C; D; (A, B, C), D; A D, B D, C D);
distinct!(A B C; D E; (A, B, C), (D, E); A D, A E, B D, B E, C D, C E);
distinct!(A B C; D E F; (A, B, C), (D, E, F); A D, A E, A F, B D, B E, B F, C D, C E, C F);
