//! Dims, shapes (tuples of dims), and access to dims by number.

use crate::axis::{Distinct, MeshInfo, NoShard, Shard, ShardOn, Unsharded};
use crate::sealed::{Seal, Sealed};
use crate::size::{Size, SplitsOver};
use core::any::TypeId;
use core::fmt;
use core::marker::PhantomData;
use typenum::consts as numbers;

/// A dim of size `S`, sharded over `A`. The notation is `S` or `S@A`.
pub struct TDim<S, A = Unsharded>(PhantomData<fn() -> (S, A)>);
/// A dim of size 1 that broadcasts in elementwise operations. The notation is `~`.
pub struct Stretch;

/// The runtime description of one dim, for comparing and printing.
#[derive(Clone, Copy)]
pub struct DimInfo {
    /// The size. `None` if it is known only at run time.
    pub size: Option<usize>,
    /// The name of a size that is known only at run time, as a type. `None` for `?`.
    pub name: Option<TypeId>,
    /// The axes that shard the dim, major first, with their sizes.
    /// A size is `None` if it is known only at run time.
    pub axes: &'static [(&'static str, Option<usize>)],
    /// The mesh of the axes. `None` if the dim is unsharded.
    pub mesh: Option<MeshInfo>,
    /// Writes the size: its value or its name.
    pub show: fn(&mut fmt::Formatter<'_>) -> fmt::Result,
}
/// Prints a dim as `type_of` does: `8@(X,Y)`.
impl fmt::Display for DimInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.show)(f)?;
        match self.axes {
            [] => Ok(()),
            [(one, _)] => write!(f, "@{one}"),
            many => write!(f, "@({})", many.iter().map(|a| a.0).collect::<Vec<_>>().join(",")),
        }
    }
}
impl fmt::Debug for DimInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A dim: [`TDim`] or [`Stretch`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dim of a shape",
    label = "expected `TDim<..>` or `Stretch`"
)]
pub trait DimType: Sealed + 'static {
    /// The size.
    type Size: Size;
    /// The sharding.
    type Shard: Shard;
    /// The runtime description.
    const INFO: DimInfo = DimInfo {
        size: Self::Size::VALUE,
        name: match Self::Size::VALUE {
            None if !Self::Size::IS_ANY => Some(TypeId::of::<Self::Size>()),
            _ => None,
        },
        axes: Self::Shard::AXES,
        mesh: Self::Shard::MESH,
        show: Self::Size::show,
    };
}
impl<S: Size, A: Shard> DimType for TDim<S, A> {
    type Size = S;
    type Shard = A;
}
impl DimType for Stretch {
    type Size = crate::size::Num<1>;
    type Shard = Unsharded;
}

/// A shape: a tuple of up to eight dims.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape: shapes are tuples of up to eight dims",
    label = "not a shape",
    note = "write shapes as `S![4@X, 2]`, and arrays as `T![f32; 4@X, 2]`"
)]
pub trait Shape: Sealed + 'static {
    /// The number of dims: a `typenum` integer.
    type Rank: typenum::Unsigned;
    /// The runtime descriptions of the dims.
    const DIMS: &'static [DimInfo];
}

rule_traits! {
    /// The shape of a scalar, which has no dims.
    message = "item: an array of shape `{Self}` is not a scalar",
    label = "this array has dims",
    note = "make a scalar first: `x.sum(..).item()?`; `x.to_vec()?` returns all elements",
    pub trait ScalarShape: Shape {
        [] (): ScalarShape;
    }
    /// A valid shape: each axis divides the dim that it shards, and shards only one dim.
    message = "`{Self}` is not a shape that an array can have",
    label = "a mesh axis shards two of its dims, or does not divide one",
    pub trait Formed: Shape {}
    /// A shape whose dims are sharded over axes of the mesh `M` only.
    message = "an array of shape `{Self}` cannot be created on the mesh `{M}`",
    label = "its dims must be sharded over axes of `{M}`",
    pub trait OnMesh<M>: Shape, sealed {}
    /// A shape whose dims are all unsharded: that of an array created in a `shard_map` body.
    pub trait BlockShape: Shape {}
    /// A shape whose sizes are all known at compile time.
    message = "a size of `{Self}` is not known when compiling",
    label = "an array is made from nothing with sizes that are known",
    note = "make it in the dynamic layer and state its type: `Array::zeros(..).typed::<T![..]>()?`",
    pub trait KnownShape: Shape {}
    /// A valid dim: its axes divide its size.
    pub trait FormedDim: DimType {
        [Z: SplitsOver<S>, S: Shard] TDim<Z, S>: FormedDim;
        [] Stretch: FormedDim;
    }
    /// Requires that no axis shards two of the dims.
    message = "a mesh axis would shard two dims of one array: `{Self}`",
    label = "this would give `{Self}`",
    note = "an axis can shard only one dim of an array: `reshard` an operand first, so that the axis is used once",
    note = "(axes of different meshes cannot meet in one array either)",
    note = "in code that is generic over axes say that two of them differ: `A: MeshAxis + DistinctAxis<B>`",
    pub trait AxesOnce: Sealed {}
}

/// A dim number: `x.sum(D1)`.
#[derive(Clone, Copy, Debug)]
pub struct D<const I: usize>;
/// The number of the first dim.
pub const D0: D<0> = D;
/// The number of the second dim.
pub const D1: D<1> = D;
/// The number of the third dim.
pub const D2: D<2> = D;
/// The number of the fourth dim.
pub const D3: D<3> = D;
/// The number of the fifth dim.
pub const D4: D<4> = D;
/// The number of the sixth dim.
pub const D5: D<5> = D;
/// The number of the seventh dim.
pub const D6: D<6> = D;
/// The number of the eighth dim.
pub const D7: D<7> = D;
/// A dim number as an argument: [`D0`] … [`D7`], or a `typenum` integer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dim number",
    label = "expected `D0`, `D1`, .. `D7`, or a `typenum` integer up to 7",
    note = "dims and ranges are types: `x.transpose((D1, D0))`, `x.softmax(D1)`; `x.slice::<N![0], N![4], _>(D1)` is `ix![.., 0..4]`"
)]
pub trait DimNumber: Sealed {
    /// The number as a type, in the form that the rules use.
    type D;
    /// The number as a value.
    const NUMBER: usize;
}
impl<const I: usize> DimNumber for D<I> {
    type D = D<I>;
    const NUMBER: usize = I;
}
macro_rules! dim_numbers { ($($u:ident $i:literal)*) => { $(
    // rustc's suggestions omit these: `typenum`'s integers print as nested bits
    #[diagnostic::do_not_recommend]
    impl DimNumber for numbers::$u { type D = D<$i>; const NUMBER: usize = $i; }
)* } }
dim_numbers!(U0 0 U1 1 U2 2 U3 3 U4 4 U5 5 U6 6 U7 7);

/// A shape that has a dim `I`: `S: DimAccess<D<1>>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no dim number `{I}`",
    label = "no dim `{I}`; dims count from 0"
)]
pub trait DimAccess<I>: Shape {
    seal!();
    /// The dim.
    type Dim: DimType;
    /// The shape with the dim replaced by `Q`.
    type Put<Q>;
    /// The shape without the dim.
    type Removed: Shape;
}
rule_traits! {
    /// A shape into which a dim `Q` can be inserted at number `I`.
    message = "`{Self}` cannot get a new dim number `{I}`",
    label = "the new dim's number is at most the rank; shapes have up to eight dims",
    pub trait Insert<I, Q>: Shape, sealed => Out: Shape, "The longer shape." {}
    /// A shape to which a last dim `Q` can be appended.
    message = "`{Self}` cannot get a new last dim",
    label = "shapes have up to eight dims",
    pub trait Push<Q>: Shape => Out: Shape, "The longer shape." {}
    /// A dim number that is less than `J`.
    message = "dim numbers come in rising order, each once: `{Self}` before `{J}`",
    label = "write the lesser number first",
    pub trait EarlierDim<J>: Sealed {}
}
macro_rules! before { ($($i:literal [$($j:literal)*])*) => { $($( impl EarlierDim<D<$j>> for D<$i> {} )*)* } }
before!(0 [1 2 3 4 5 6 7] 1 [2 3 4 5 6 7] 2 [3 4 5 6 7] 3 [4 5 6 7] 4 [5 6 7] 5 [6 7] 6 [7]);
/// A dim number other than `J`.
#[diagnostic::on_unimplemented(
    message = "dim `{J}` is named twice",
    label = "each dim is named once",
    note = "a permutation names every dim once: `x.transpose((D1, D0))`"
)]
pub trait OtherDim<J>: Sealed {}
macro_rules! other { ($($i:literal [$($j:literal)*])*) => { $($( impl OtherDim<D<$j>> for D<$i> {} )*)* } }
other!(0 [1 2 3 4 5 6 7] 1 [0 2 3 4 5 6 7] 2 [0 1 3 4 5 6 7] 3 [0 1 2 4 5 6 7]
    4 [0 1 2 3 5 6 7] 5 [0 1 2 3 4 6 7] 6 [0 1 2 3 4 5 7] 7 [0 1 2 3 4 5 6]);

/// A shape with as many dims as an operand's einsum subscripts have letters: `D<2>` for two.
#[diagnostic::on_unimplemented(
    message = "einsum: the subscripts have another number of letters than `{Self}` has dims",
    label = "write one letter for each dim of the operand"
)]
pub trait Letters<Z>: Shape {
    /// The shape itself. Without it rustc would go on to check the contracted dims.
    type Same: Shape;
}

macro_rules! shape {
    ($rank:ident $n:literal $($d:ident)*) => {
        // otherwise rustc would list all ranks
        #[diagnostic::do_not_recommend]
        impl<$($d: DimType),*> Letters<D<$n>> for ($($d,)*) { type Same = Self; }
        impl<$($d: DimType),*> Shape for ($($d,)*) {
            type Rank = numbers::$rank;
            const DIMS: &'static [DimInfo] = &[$($d::INFO),*];
        }
        impl<$($d: DimType<Size: crate::size::KnownSize>),*> KnownShape for ($($d,)*) {}
        impl<M, $($d: DimType<Shard: ShardOn<M>>),*> OnMesh<M> for ($($d,)*) { const SEAL: Seal = Seal; }
        impl<$($d: DimType<Shard: NoShard>),*> BlockShape for ($($d,)*) {}
        impl<$($d: FormedDim),*> Formed for ($($d,)*) where ($($d,)*): AxesOnce {}
        shape!(@once [] $($d)*);
        shape!(@at [0 1 2 3 4 5 6 7] [] $($d)*);
        shape!(@insert [0 1 2 3 4 5 6 7] [] $($d)*);
        shape!(@push $($d)*);
    };
    // every pair of dims
    (@once [$($x:ident $y:ident)*]) => { impl AxesOnce for () {} };
    (@once [] $a:ident) => { impl<$a> AxesOnce for ($a,) {} };
    (@once [] $($d:ident)*) => { shape!(@pairs [] [$($d)*] $($d)*); };
    (@pairs [$($x:ident $y:ident)*] [$($all:ident)*] $a:ident $($d:ident)+) => {
        shape!(@pairs [$($x $y)* $($a $d)+] [$($all)*] $($d)+);
    };
    (@pairs [$($x:ident $y:ident)*] [$($all:ident)*] $last:ident) => {
        #[diagnostic::do_not_recommend]
        impl<$($all: DimType),*> AxesOnce for ($($all,)*) where $($x::Shard: Distinct<$y::Shard>),* {}
    };
    (@at $n:tt [$($l:ident)*]) => {};
    (@at [$i:literal $($n:literal)*] [$($l:ident)*] $d:ident $($r:ident)*) => {
        #[diagnostic::do_not_recommend]
        impl<$($l: DimType,)* $d: DimType, $($r: DimType),*> DimAccess<D<$i>> for ($($l,)* $d, $($r,)*) {
            const SEAL: Seal = Seal;
            type Dim = $d;
            type Put<Q> = ($($l,)* Q, $($r,)*);
            type Removed = ($($l,)* $($r,)*);
        }
        shape!(@at [$($n)*] [$($l)* $d] $($r)*);
    };
    (@push $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident) => {};
    (@push $($d:ident)*) => {
        impl<$($d: DimType,)* Q: DimType> Push<Q> for ($($d,)*) { type Out = ($($d,)* Q,); }
    };
    // there is no ninth dim
    (@insert $n:tt $l:tt $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident) => {};
    (@insert [$i:literal $($n:literal)*] [$($l:ident)*] $($r:ident)*) => {
        #[diagnostic::do_not_recommend]
        impl<$($l: DimType,)* Q: DimType, $($r: DimType),*> Insert<D<$i>, Q> for ($($l,)* $($r,)*) {
            const SEAL: Seal = Seal;
            type Out = ($($l,)* Q, $($r,)*);
        }
        shape!(@next [$($n)*] [$($l)*] $($r)*);
    };
    (@next $n:tt $l:tt) => {};
    (@next $n:tt [$($l:ident)*] $d:ident $($r:ident)*) => { shape!(@insert $n [$($l)* $d] $($r)*); };
}
/// No dim number. With these impls rustc does not take the only number that fits for the one that
/// the program names.
#[doc(hidden)]
pub struct NoDim;
#[doc(hidden)]
impl<A: DimType> DimAccess<NoDim> for (A,) {
    const SEAL: Seal = Seal;
    type Dim = A;
    type Put<Q> = (Q,);
    type Removed = ();
}
#[doc(hidden)]
impl<Q: DimType> Insert<NoDim, Q> for () {
    const SEAL: Seal = Seal;
    type Out = (Q,);
}
shape!(U0 0);
shape!(U1 1 A);
shape!(U2 2 A B);
shape!(U3 3 A B C);
shape!(U4 4 A B C E);
shape!(U5 5 A B C E F);
shape!(U6 6 A B C E F G);
shape!(U7 7 A B C E F G H);
shape!(U8 8 A B C E F G H I);
