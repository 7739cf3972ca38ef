//! Rules of `shard_map`: the shapes of one device's block and of the assembled array.

use crate::axis::{DistinctAxis, MeshAxis, MeshType, Shard, ShardOn, Unsharded};
use crate::region::{CutShard, Leading, ManualRegion, PartialRegion};
use crate::sealed::Seal;
use crate::sets::{AddTo, Sets};
use crate::shape::{AxesOnce, DimAccess, DimType, Shape, Stretch, TDim};
use crate::size::{GathersOver, SplitsOver};

/// The shape of one device's block of an array, and the axes over which the block varies.
#[diagnostic::on_unimplemented(
    message = "an array of shape `{Self}` cannot be cut into blocks over the mesh `{M}`",
    label = "its dims must be sharded over axes of `{M}`, evenly",
    note = "in a generic function: `B: Tiles<X>` says that a size can be cut over `X` and put together again"
)]
pub trait LocalShape<M>: Shape {
    seal!();
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
pub trait GlobalShape<P, M>: Shape {
    seal!();
    /// The shape of the assembled array.
    type Global: Shape;
    /// The axes that the spec names.
    type Mentions: Sets;
}
/// The rule of [`LocalShape`] for one dim and the region `R`.
#[diagnostic::on_unimplemented(
    message = "a dim `{Self}` cannot be cut into blocks over `{R}`",
    label = "the dim must be sharded over axes of the mesh, evenly, the manual ones first",
    note = "in a `shard_map` over some axes, `PartialRegion<Pod, (X, Invariant)>` is `Pod.over(X)`",
    note = "`reshard` the array first, with the manual axes in front"
)]
pub trait LocalDim<R, V>: DimType {
    seal!();
    /// The dim of one device's block.
    type Local: DimType;
    /// The set `V` with the dim's axes added.
    type Vary: Sets;
}
impl<M: MeshType, Z: SplitsOver<S>, S: Shard + AddTo<V> + ShardOn<M>, V> LocalDim<M, V> for TDim<Z, S> {
    const SEAL: Seal = Seal;
    type Local = TDim<Z::Tile>;
    type Vary = S::Out;
}
impl<M, F, Z, S: CutShard<F>, V> LocalDim<PartialRegion<M, F>, V> for TDim<Z, S>
where
    Z: SplitsOver<S::Manual>,
    S::Manual: AddTo<V>,
{
    const SEAL: Seal = Seal;
    type Local = TDim<Z::Tile, S::Rest>;
    type Vary = <S::Manual as AddTo<V>>::Out;
}
impl<R: ManualRegion, V: Sets> LocalDim<R, V> for Stretch {
    const SEAL: Seal = Seal;
    type Local = Stretch;
    type Vary = V;
}
/// The rule of [`GlobalShape`] for one dim, its entry in the out spec and the region `R`.
#[diagnostic::on_unimplemented(
    message = "shard_map: the parts of dim `{Self}` of an output cannot be put together by entry `{P}` of its out spec",
    label = "an entry of an out spec is an axis of the mesh, `(X, Y)` or `_`",
    note = "one output has one spec, `P![X, _]`; several have a tuple of specs: `(P![X, _], P![_])`",
    note = "`DeviceShare<Batch, X>` is the share of `Batch` along `X`: only along `X` do its parts make `Batch` again"
)]
pub trait GlobalDim<R, P, V>: DimType {
    seal!();
    /// The dim of the assembled array.
    type Global: DimType;
    /// The set `V` with the entry's axes added.
    type Mentions: Sets;
}
#[diagnostic::do_not_recommend]
impl<M: MeshType, Z: GathersOver<S>, S: Shard + AddTo<V> + ShardOn<M>, V> GlobalDim<M, S, V> for TDim<Z> {
    const SEAL: Seal = Seal;
    type Global = TDim<Z::Full, S>;
    type Mentions = S::Out;
}
#[diagnostic::do_not_recommend]
impl<M, F, Z, S, T: Shard, V> GlobalDim<PartialRegion<M, F>, S, V> for TDim<Z, T>
where
    Z: GathersOver<S>,
    S: Shard + AddTo<V> + ShardOn<PartialRegion<M, F>> + Leading<T>,
{
    const SEAL: Seal = Seal;
    type Global = TDim<Z::Full, S::Joined>;
    type Mentions = S::Out;
}
impl<R: ManualRegion, V: Sets> GlobalDim<R, Unsharded, V> for Stretch {
    const SEAL: Seal = Seal;
    type Global = Stretch;
    type Mentions = V;
}
impl<R: ManualRegion> LocalShape<R> for () {
    const SEAL: Seal = Seal;
    type Local = ();
    type Vary = R::Empty;
}
impl<R: ManualRegion> GlobalShape<(), R> for () {
    const SEAL: Seal = Seal;
    type Global = ();
    type Mentions = R::Empty;
}
macro_rules! blocks {
    // each dim starts from the set that the dims before it produce
    ([$($d:ident $p:ident $v:ident $from:ty;)*] $last:ident $lp:ident $set:ty) => {
        impl<R: ManualRegion, $($d: LocalDim<R, $from, Vary = $v>, $v: Sets,)* $last: LocalDim<R, $set>> LocalShape<R> for ($($d,)* $last,) {
            const SEAL: Seal = Seal;
            type Local = ($($d::Local,)* $last::Local,);
            type Vary = $last::Vary;
        }
        impl<R: ManualRegion, $($d: GlobalDim<R, $p, $from, Mentions = $v>, $p, $v: Sets,)* $last: GlobalDim<R, $lp, $set>, $lp>
            GlobalShape<($($p,)* $lp,), R> for ($($d,)* $last,)
        where ($($d::Global,)* $last::Global,): AxesOnce + Shape {
            const SEAL: Seal = Seal;
            type Global = ($($d::Global,)* $last::Global,);
            type Mentions = $last::Mentions;
        }
    };
}
blocks!([] A P R::Empty);
blocks!([A P VA R::Empty;] B Q VA);
blocks!([A P VA R::Empty; B Q VB VA;] C S VB);
blocks!([A P VA R::Empty; B Q VB VA; C S VC VB;] D T VC);
blocks!([A P VA R::Empty; B Q VB VA; C S VC VB; D T VD VC;] E U VD);
blocks!([A P VA R::Empty; B Q VB VA; C S VC VB; D T VD VC; E U VE VD;] F W VE);
blocks!([A P VA R::Empty; B Q VB VA; C S VC VB; D T VD VC; E U VE VD; F W VF VE;] G X VF);
blocks!([A P VA R::Empty; B Q VB VA; C S VC VB; D T VD VC; E U VE VD; F W VF VE; G X VG VF;] H Y VG);

rule_traits! {
    /// A dim that can be gathered over the devices along `A`: an axis, or several, major first.
    message = "all_gather/all_to_all: a block's dim `{Self}` cannot be made longer along `{A}`",
    label = "name mesh axes, `X` or `(X, Y)`, each once; a block's dims are unsharded",
    pub trait GatherDim<A>: DimType, sealed => Out: DimType, "The gathered dim." {}
    /// A dim that can be scattered over the devices along `A`.
    message = "psum_scatter/all_to_all: a block's dim `{Self}` cannot be cut along `{A}`",
    label = "name mesh axes, `X` or `(X, Y)`, each once; a block's dims are unsharded",
    pub trait ScatterDim<A>: DimType, sealed => Out: DimType, "The dim of one device's block." {}
}
macro_rules! along { ([$($a:ident),*] $along:ty $(, where $($x:ident $y:ident)*)?) => {
    impl<Z: GathersOver<$along>, $($a: MeshAxis),*> GatherDim<$along> for TDim<Z> $(where $($x: DistinctAxis<$y>),*)? {
        const SEAL: Seal = Seal;
        type Out = TDim<Z::Full>;
    }
    impl<Z: SplitsOver<$along>, $($a: MeshAxis),*> ScatterDim<$along> for TDim<Z> $(where $($x: DistinctAxis<$y>),*)? {
        const SEAL: Seal = Seal;
        type Out = TDim<Z::Tile>;
    }
} }
along!([A] A);
along!([A, B] (A, B), where A B);
along!([A, B, C] (A, B, C), where A B A C B C);
rule_traits! {
    /// A shape whose dim `I` can be gathered along `A`.
    message = "all_gather/all_to_all: dim `{I}` of `{Self}` cannot be made longer along `{A}`",
    label = "name a dim that the block has, `D0`, and mesh axes, `X` or `(X, Y)`",
    pub trait GatherAt<A, I>: Shape => Out: Shape, "The shape of the result." {}
    /// A shape whose dim `I` can be scattered along `A`.
    message = "psum_scatter/all_to_all: dim `{I}` of `{Self}` cannot be cut along `{A}`",
    label = "name a dim that the block has, `D0`, and mesh axes, `X` or `(X, Y)`",
    pub trait ScatterAt<A, I>: Shape => Out: Shape, "The shape of the result." {}
}
type Gathered<S, A, I> = <S as DimAccess<I>>::Put<<<S as DimAccess<I>>::Dim as GatherDim<A>>::Out>;
type Scattered<S, A, I> = <S as DimAccess<I>>::Put<<<S as DimAccess<I>>::Dim as ScatterDim<A>>::Out>;
rules! { Out:
    [S: DimAccess<I>, A, I] S: GatherAt<A, I>
        where [S::Dim: GatherDim<A>, Gathered<S, A, I>: Shape] = Gathered<S, A, I>;
    [S: DimAccess<I>, A, I] S: ScatterAt<A, I>
        where [S::Dim: ScatterDim<A>, Scattered<S, A, I>: Shape] = Scattered<S, A, I>;
}
