//! Rules of `shard_map`: the shapes of one device's block and of the assembled array.

use crate::axis::{DistinctAxis, MeshAxis, MeshType, Shard, Unsharded};
use crate::sets::{AddTo, Sets};
use crate::shape::{AxesOnce, DimAccess, DimType, Shape, Stretch, TDim};
use crate::size::{GathersOver, SplitsOver};

/// The shape of one device's block of an array, and the axes over which the block varies.
#[diagnostic::on_unimplemented(
    message = "an array of shape `{Self}` cannot be cut into blocks over the mesh `{M}`",
    label = "its dims must be sharded over axes of `{M}`, evenly",
    note = "in a generic function: `B: Tiles<X>` says that a size can be cut over `X` and put together again"
)]
pub trait LocalShape<M: MeshType>: Shape {
    /// The shape of one device's block.
    type Local: Shape;
    /// The axes over which the block varies.
    type Vary: Sets;
}
/// The shape that blocks assemble to by the out spec `P`.
#[diagnostic::on_unimplemented(
    message = "out spec `{P}` does not fit the block's shape `{Self}`",
    label = "an out spec has one entry for every dim of the output: an axis, `(X, Y)` or `_`",
    note = "the spec of several outputs is a tuple of specs: `(P![X, _], P![_])`"
)]
pub trait GlobalShape<P, M: MeshType>: Shape {
    /// The shape of the assembled array.
    type Global: Shape;
    /// The axes that the spec names.
    type Mentions: Sets;
}
/// The rule of [`LocalShape`] for one dim.
pub trait LocalDim<V>: DimType {
    /// The dim of one device's block.
    type Local: DimType;
    /// The set `V` with the dim's axes added.
    type Vary: Sets;
}
impl<Z: SplitsOver<S>, S: Shard + AddTo<V>, V> LocalDim<V> for TDim<Z, S> {
    type Local = TDim<Z::Tile>;
    type Vary = S::Out;
}
impl<V: Sets> LocalDim<V> for Stretch {
    type Local = Stretch;
    type Vary = V;
}
/// The rule of [`GlobalShape`] for one dim and its entry in the out spec.
#[diagnostic::on_unimplemented(
    message = "shard_map: the parts of dim `{Self}` of an output cannot be put together by entry `{P}` of its out spec",
    label = "an entry of an out spec is an axis of the mesh, `(X, Y)` or `_`",
    note = "one output has one spec, `P![X, _]`; several have a tuple of specs: `(P![X, _], P![_])`",
    note = "`DeviceShare<Batch, X>` is the share of `Batch` along `X`: only along `X` do its parts make `Batch` again"
)]
pub trait GlobalDim<P, V>: DimType {
    /// The dim of the assembled array.
    type Global: DimType;
    /// The set `V` with the entry's axes added.
    type Mentions: Sets;
}
#[diagnostic::do_not_recommend]
impl<Z: GathersOver<S>, S: Shard + AddTo<V>, V> GlobalDim<S, V> for TDim<Z> {
    type Global = TDim<Z::Full, S>;
    type Mentions = S::Out;
}
impl<V: Sets> GlobalDim<Unsharded, V> for Stretch {
    type Global = Stretch;
    type Mentions = V;
}
impl<M: MeshType> LocalShape<M> for () {
    type Local = ();
    type Vary = M::Empty;
}
impl<M: MeshType> GlobalShape<(), M> for () {
    type Global = ();
    type Mentions = M::Empty;
}
macro_rules! blocks {
    // each dim starts from the set that the dims before it produce
    ([$($d:ident $p:ident $v:ident $from:ty;)*] $last:ident $lp:ident $set:ty) => {
        impl<M: MeshType, $($d: LocalDim<$from, Vary = $v>, $v: Sets,)* $last: LocalDim<$set>> LocalShape<M> for ($($d,)* $last,) {
            type Local = ($($d::Local,)* $last::Local,);
            type Vary = $last::Vary;
        }
        impl<M: MeshType, $($d: GlobalDim<$p, $from, Mentions = $v>, $p, $v: Sets,)* $last: GlobalDim<$lp, $set>, $lp>
            GlobalShape<($($p,)* $lp,), M> for ($($d,)* $last,)
        where ($($d::Global,)* $last::Global,): AxesOnce + Shape {
            type Global = ($($d::Global,)* $last::Global,);
            type Mentions = $last::Mentions;
        }
    };
}
blocks!([] A P M::Empty);
blocks!([A P VA M::Empty;] B Q VA);
blocks!([A P VA M::Empty; B Q VB VA;] C R VB);
blocks!([A P VA M::Empty; B Q VB VA; C R VC VB;] E S VC);
blocks!([A P VA M::Empty; B Q VB VA; C R VC VB; E S VE VC;] F T VE);
blocks!([A P VA M::Empty; B Q VB VA; C R VC VB; E S VE VC; F T VF VE;] G U VF);

/// A dim that can be gathered over the devices along `A`: an axis, or several, major first.
#[diagnostic::on_unimplemented(
    message = "all_gather/all_to_all: a block's dim `{Self}` cannot be made longer along `{A}`",
    label = "name mesh axes, `X` or `(X, Y)`, each once; a block's dims are unsharded"
)]
pub trait GatherDim<A>: DimType {
    /// The gathered dim.
    type Out: DimType;
}
/// A dim that can be scattered over the devices along `A`.
#[diagnostic::on_unimplemented(
    message = "psum_scatter/all_to_all: a block's dim `{Self}` cannot be cut along `{A}`",
    label = "name mesh axes, `X` or `(X, Y)`, each once; a block's dims are unsharded"
)]
pub trait ScatterDim<A>: DimType {
    /// The dim of one device's block.
    type Out: DimType;
}
macro_rules! along { ([$($a:ident),*] $along:ty $(, where $($x:ident $y:ident)*)?) => {
    impl<Z: GathersOver<$along>, $($a: MeshAxis),*> GatherDim<$along> for TDim<Z> $(where $($x: DistinctAxis<$y>),*)? {
        type Out = TDim<Z::Full>;
    }
    impl<Z: SplitsOver<$along>, $($a: MeshAxis),*> ScatterDim<$along> for TDim<Z> $(where $($x: DistinctAxis<$y>),*)? {
        type Out = TDim<Z::Tile>;
    }
} }
along!([A] A);
along!([A, B] (A, B), where A B);
along!([A, B, C] (A, B, C), where A B A C B C);
/// A shape whose dim `I` can be gathered along `A`.
#[diagnostic::on_unimplemented(
    message = "all_gather/all_to_all: dim `{I}` of `{Self}` cannot be made longer along `{A}`",
    label = "name a dim that the block has, `D0`, and mesh axes, `X` or `(X, Y)`"
)]
pub trait GatherAt<A, I>: Shape {
    /// The shape of the result.
    type Out: Shape;
}
/// A shape whose dim `I` can be scattered along `A`.
#[diagnostic::on_unimplemented(
    message = "psum_scatter/all_to_all: dim `{I}` of `{Self}` cannot be cut along `{A}`",
    label = "name a dim that the block has, `D0`, and mesh axes, `X` or `(X, Y)`"
)]
pub trait ScatterAt<A, I>: Shape {
    /// The shape of the result.
    type Out: Shape;
}
type Gathered<S, A, I> = <S as DimAccess<I>>::Put<<<S as DimAccess<I>>::Dim as GatherDim<A>>::Out>;
type Scattered<S, A, I> = <S as DimAccess<I>>::Put<<<S as DimAccess<I>>::Dim as ScatterDim<A>>::Out>;
impl<S: DimAccess<I>, A, I> GatherAt<A, I> for S
where
    S::Dim: GatherDim<A>,
    Gathered<S, A, I>: Shape,
{
    type Out = Gathered<S, A, I>;
}
impl<S: DimAccess<I>, A, I> ScatterAt<A, I> for S
where
    S::Dim: ScatterDim<A>,
    Scattered<S, A, I>: Shape,
{
    type Out = Scattered<S, A, I>;
}
