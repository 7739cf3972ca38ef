//! `shard_map` of typed arrays: types in the body are those of one device's blocks.

use super::axis::{MeshAxis, MeshType, Shard};
use super::blocks::{GatherAt, GlobalShape, LocalShape, ScatterAt};
use super::region::{ManualRegion, PartialRegion, RegionAxes};
use super::sets::{AddAxis, AddTo, CompleteFor, CoveredBy, Mark, Sets, VaryingAxes};
use super::shape::{D, DimNumber, Shape};
use super::{Number, Typed, convert, equal_sizes::named_dims, habits::DevicePosition, mesh::TypedMesh, op};
use crate::api::array::{AllToAll, Array, CollectiveDim, Permutation};
use crate::api::tree::{Inferred, NamedSizes, SpecTree};
use crate::core::{Axes, Element, Error, Mesh, Result, Spec};
use crate::ir::program::CallSite;
use std::panic::Location;

/// The arrays that a `shard_map` takes, and the sizes that have names in their types.
#[derive(Debug, Default)]
pub struct ShardMapArguments {
    arrays: Vec<Array>,
    sizes: NamedSizes,
}
impl ShardMapArguments {
    /// Appends an array whose type names no sizes.
    pub(super) fn push(&mut self, array: Array) {
        self.arrays.push(array);
    }
}
/// An argument of `shard_map` over the mesh `M`.
///
/// Arguments are typed arrays, and tuples, arrays `[_; N]` and structs of them, each by value or by
/// reference. The body takes the blocks by value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be cut into blocks over the mesh `{M}`",
    label = "expected typed arrays that are sharded over axes of `{M}`: one, a reference to one, or a tuple of them",
    note = "a struct whose fields' types are its parameters derives `Blocks`"
)]
pub trait ShardMapIn<M> {
    /// The blocks of one device.
    type Local;
    /// Appends the arrays to a list.
    fn arrays(self, into: &mut ShardMapArguments);
    /// Takes the blocks from a list.
    fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local;
}
/// A result of a `shard_map` body that the out spec `P` can assemble.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot leave a `shard_map` by the out spec `{P}`",
    label = "one spec for each output: `(P![X, _], P![_])` for two",
    note = "a struct that derives `Blocks` leaves by a struct of specs: `Layer {{ w: P![_, X], b: P![X] }}`"
)]
pub trait ShardMapOut<P, M> {
    /// The assembled arrays.
    type Global;
    /// Appends the out specs of the arrays to a list.
    fn specs(into: &mut Vec<Spec>);
    /// Appends the blocks to a list.
    fn blocks(self, into: &mut Vec<Array>);
    /// Takes the assembled arrays from a list.
    fn arrays(from: &mut dyn Iterator<Item = Array>) -> Self::Global;
}
impl<M: ManualRegion, T: Element, S: LocalShape<M>> ShardMapIn<M> for Typed<T, S> {
    type Local = Typed<T, S::Local, S::Vary>;
    fn arrays(self, into: &mut ShardMapArguments) {
        let leaf = format!("argument `{}`", into.arrays.len());
        for dim in named_dims(S::DIMS, &self.array) {
            into.sizes.record(leaf.clone(), dim);
        }
        into.arrays.push(self.array);
    }
    #[track_caller]
    fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local {
        Typed::checked(next_block(from))
    }
}
impl<M: ManualRegion, T: Element, S: GlobalShape<P, M>, V: CoveredBy<S::Mentions>, P> ShardMapOut<P, M>
    for Typed<T, S, V>
{
    type Global = Typed<T, S::Global>;
    fn specs(into: &mut Vec<Spec>) {
        let spec = convert::spec::<S::Global, ()>();
        // axes that are not manual shard the block in the body too
        into.push(match M::manual_axes() {
            None => spec,
            Some(manual) => spec.filter_axes(|a| manual.contains(&a.name())),
        });
    }
    fn blocks(self, into: &mut Vec<Array>) {
        into.push(self.array);
    }
    #[track_caller]
    fn arrays(from: &mut dyn Iterator<Item = Array>) -> Self::Global {
        Typed::checked(next_block(from))
    }
}
impl<M: ManualRegion, A: ShardMapIn<M> + Clone> ShardMapIn<M> for &A {
    type Local = A::Local;
    fn arrays(self, into: &mut ShardMapArguments) {
        self.clone().arrays(into);
    }
    #[track_caller]
    fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local {
        A::blocks(from)
    }
}
/// Returns the next array of a list. If an error made the list too short, returns an array that
/// carries an error.
pub(super) fn next_block(from: &mut dyn Iterator<Item = Array>) -> Array {
    from.next().unwrap_or_else(|| {
        Array::poisoned(Error::from(fault!(Internal, "a `shard_map` returned too few arrays")))
    })
}
macro_rules! tuples { ($($a:ident $p:ident)+) => {
    #[allow(non_snake_case)]
    impl<M: ManualRegion, $($a: ShardMapIn<M>),+> ShardMapIn<M> for ($($a,)+) {
        type Local = ($($a::Local,)+);
        fn arrays(self, into: &mut ShardMapArguments) {
            let ($($a,)+) = self;
            $($a.arrays(into);)+
        }
        fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local { ($($a::blocks(from),)+) }
    }
    #[allow(non_snake_case)]
    impl<M: ManualRegion, $($a: ShardMapOut<$p, M>, $p),+> ShardMapOut<($($p,)+), M> for ($($a,)+) {
        type Global = ($($a::Global,)+);
        fn specs(into: &mut Vec<Spec>) { $($a::specs(into);)+ }
        fn blocks(self, into: &mut Vec<Array>) {
            let ($($a,)+) = self;
            $($a.blocks(into);)+
        }
        fn arrays(from: &mut dyn Iterator<Item = Array>) -> Self::Global { ($($a::arrays(from),)+) }
    }
} }
prefixes! { tuples [A P] (B Q) (C R) (E S) (F T) (G U) (H V) (I W) }

impl<M: ManualRegion, A: ShardMapIn<M>, const N: usize> ShardMapIn<M> for [A; N] {
    type Local = [A::Local; N];
    fn arrays(self, into: &mut ShardMapArguments) {
        self.into_iter().for_each(|a| a.arrays(into));
    }
    fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local {
        std::array::from_fn(|_| A::blocks(from))
    }
}
/// Applies the same spec to each element.
impl<M: ManualRegion, A: ShardMapOut<P, M>, P, const N: usize> ShardMapOut<P, M> for [A; N] {
    type Global = [A::Global; N];
    fn specs(into: &mut Vec<Spec>) {
        (0..N).for_each(|_| A::specs(into));
    }
    fn blocks(self, into: &mut Vec<Array>) {
        self.into_iter().for_each(|a| a.blocks(into));
    }
    fn arrays(from: &mut dyn Iterator<Item = Array>) -> Self::Global {
        std::array::from_fn(|_| A::arrays(from))
    }
}

/// Returns the mesh of the arguments, or the declared one if they are unplaced.
fn mesh_of<M: MeshType>(args: &[Array]) -> Result<Mesh> {
    let found = args.iter().find_map(|a| a.type_ref().ok().and_then(|t| t.mesh.clone()));
    let Some(mesh) = found else { return Ok(M::mesh()?.untyped()) };
    if M::matches(&mesh) {
        return Ok(mesh);
    }
    let fault = fault!(Mesh, "the arguments are on {mesh}, which is not `{}`", M::NAME);
    Err(fault.help(format!("make their mesh by `{}::mesh()`", M::NAME)).into())
}

/// The body of a [`shard_map`](Manual::shard_map): a closure that is `Sync`.
#[diagnostic::on_unimplemented(
    message = "the body of a `shard_map` captures a value that it could change",
    label = "captures a `RefCell`, a `Cell`, an `Rc` or another value that threads cannot share",
    note = "the body is the program of every device: blocks leave it as results only, by an out spec"
)]
pub trait ShardMapBody {}
#[diagnostic::do_not_recommend]
impl<F: Sync> ShardMapBody for F {}

/// Methods of mesh types for per-device code.
pub trait Manual: ManualRegion {
    /// Runs `body` on each device's blocks of `args`.
    ///
    /// `out` says how the blocks of the results are assembled.
    ///
    /// The in specs follow from the arguments' types. In the body, a type states the sizes of one
    /// block, and the set of axes over which the blocks vary. An output that still varies over an
    /// axis must name the axis in its out spec. The body cannot capture arrays. It is the program
    /// of every device, so it captures nothing that it could change: no `RefCell`, for example.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let x = <T![f32; 8@X, 16]>::ones(&Pod::mesh()?);
    /// let total: T![f32; 16] = Pod.shard_map((x,), P![_], |(x,)| {
    ///     let part: T![f32; 16; V: X] = x.sum(D0); // of one device's `4, 16`
    ///     part.psum(X) // without this it does not compile
    /// });
    /// assert_eq!(total.to_vec()?, [8.0; 16]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// A [`ThisDevice`](super::ThisDevice) among the arguments becomes the device that runs the
    /// body, and a [`Key`](crate::Key) a [`BlockKey`](super::BlockKey).
    ///
    /// A function that is generic over the axis writes it as `X::AXIS`, in specs too:
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// fn from_min<M: MeshType, X: ManualAxis<M>, B: Tiles<X>>(
    ///     mesh: M,
    ///     x: &T![f32; B@X],
    /// ) -> T![f32; B@X] {
    ///     mesh.shard_map((x,), P![X::AXIS], |(x,)| &x - x.min(..).pmin(X::AXIS))
    /// }
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let x = <T![f32; 4@X]>::iota(&Pod::mesh()?, D0) + 5.0;
    /// assert_eq!(from_min(Pod, &x).to_vec()?, [0.0, 1.0, 2.0, 3.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    fn shard_map<P, A: ShardMapIn<Self>, R: ShardMapOut<P, Self>>(
        self,
        args: A,
        out: P,
        body: impl Fn(A::Local) -> R + ShardMapBody,
    ) -> R::Global {
        let _ = out;
        let location = Location::caller();
        let mut list = ShardMapArguments::default();
        args.arrays(&mut list);
        let ShardMapArguments { arrays, sizes } = list;
        let mut specs = Vec::new();
        R::specs(&mut specs);
        let count = specs.len();
        let specs = specs.into_iter().enumerate().map(|(i, s)| (i.to_string(), SpecTree::One(s))).collect();
        let traced = |blocks: &Vec<Array>| -> Vec<Array> {
            let mut out = Vec::new();
            body(A::blocks(&mut blocks.iter().cloned())).blocks(&mut out);
            out
        };
        let call = CallSite::new("shard_map", location);
        let mesh =
            sizes.check(call).and_then(|()| mesh_of::<Self::Mesh>(&arrays).map_err(|e| call.locate(e)));
        let result = mesh.and_then(|mesh| {
            let map = crate::api::shard_map::shard_map(&mesh, Inferred, SpecTree::Node(specs), traced);
            let Some(axes) = Self::manual_axes() else { return map.call(arrays) };
            map.over(axis_set(&axes)).call(arrays)
        });
        let results = result.unwrap_or_else(|e| vec![crate::api::trace::poison(e); count]);
        R::arrays(&mut results.into_iter())
    }
    /// Returns the mesh with only some axes manual: `X`, or `(X, Y)`.
    ///
    /// In the body of its `shard_map`, a block is cut along these axes only. Its dims stay sharded
    /// over the other axes, and operations on them follow the rules of code outside of `shard_map`.
    /// In a dim that is sharded over axes of both kinds, the manual ones come first.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let x = <T![f32; 8@X, 16@Y]>::ones(&Pod::mesh()?);
    /// let sums: T![f32; 8@X] = Pod.over(X).shard_map((x,), P![X], |(x,)| {
    ///     let x: T![f32; 4, 16@Y; V: X] = x;
    ///     x.sum(D1) // sums over `Y` too, as outside of `shard_map`
    /// });
    /// assert_eq!(sums.to_vec()?, [16.0; 8]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    fn over<A: RegionAxes<<Self as ManualRegion>::Empty>>(self, axes: A) -> PartialRegion<Self, A::Out>
    where
        Self: MeshType,
    {
        let _ = axes;
        PartialRegion::VALUE
    }
    /// Does not compile; the message says that the device of a body has a position.
    #[doc(hidden)]
    fn axis_index<A: MeshAxis>(&self, axis: A) -> Self::Index
    where
        Self: DevicePosition,
    {
        let _ = axis;
        self.position()
    }
}
impl<M: ManualRegion> Manual for M {}

fn axis_set(of: &[&'static str]) -> Axes {
    of.iter().map(|a| (*a).into()).collect()
}

pub(super) fn shard_axes<A: Shard>() -> Axes {
    A::AXES.iter().map(|a| a.0.into()).collect()
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Sums over one or several mesh axes, `X` or `(X, Y)`, inside a `shard_map` body.
        ///
        /// Every device along the axes gets the sum.
        pub fn psum[A: VaryingAxes<V>](&self, axes: A) -> Typed<T, S, A::Removed>
        where [T: Number, V: CompleteFor<op::psum>]
            = self.array.psum(axis_set(A::NAMES));
        /// Averages over one or several mesh axes, inside a `shard_map` body.
        pub fn pmean[A: VaryingAxes<V>](&self, axes: A) -> Typed<T, S, A::Removed>
        where [T: super::Float, V: CompleteFor<op::pmean>]
            = self.array.pmean(axis_set(A::NAMES));
        /// Returns the elementwise maximum over one or several mesh axes, inside a `shard_map`
        /// body.
        pub fn pmax[A: VaryingAxes<V>](&self, axes: A) -> Typed<T, S, A::Removed>
        where [V: CompleteFor<op::pmax>]
            = self.array.pmax(axis_set(A::NAMES));
        /// Returns the elementwise minimum over one or several mesh axes, inside a `shard_map`
        /// body.
        pub fn pmin[A: VaryingAxes<V>](&self, axes: A) -> Typed<T, S, A::Removed>
        where [V: CompleteFor<op::pmin>]
            = self.array.pmin(axis_set(A::NAMES));
        /// Sums over one or several mesh axes. Each device keeps its block of the sum along dim
        /// `I`.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2, Y: 4 } }
        /// let x = <T![f32; 16@(X, Y), 3]>::ones(&Pod::mesh()?);
        /// let eight: T![f32; 16@(X, Y), 3] = Pod.shard_map((x,), P![(X, Y), _], |(x,)| {
        ///     // the major axis first
        ///     let all: T![f32; 16, 3; V: (X, Y)] = x.all_gather((X, Y), D0);
        ///     all.psum_scatter((X, Y), D0)
        /// });
        /// assert_eq!(eight.to_vec()?, [8.0; 48]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn psum_scatter[A: Shard + VaryingAxes<V>, I: DimNumber](&self, axes: A, dim: I)
            -> Typed<T, S::Out, V>
        where [T: Number, V: CompleteFor<op::psum_scatter>, S: ScatterAt<A, I::D>]
            = self.array.psum_scatter(axis_set(A::NAMES), CollectiveDim::tiled(I::NUMBER as i32));
        /// Concatenates the blocks of the devices along one or several mesh axes, along dim `I`.
        ///
        /// The result's type still varies over these axes.
        pub fn all_gather[A: Shard + AddTo<V>, I: DimNumber](&self, axes: A, dim: I)
            -> Typed<T, S::Out, A::Out>
        where [V: CompleteFor<op::all_gather>, S: GatherAt<A, I::D>]
            = self.array.all_gather(shard_axes::<A>(), CollectiveDim::tiled(I::NUMBER as i32));
        /// Splits dim `I` over the devices along the mesh axes, and concatenates along dim `J`.
        ///
        /// Each device sends one piece of dim `I` to every device along the axes, and concatenates
        /// the pieces that it receives.
        pub fn all_to_all[A: Shard + AddTo<V>, const I: usize, const J: usize]
            (&self, axes: A, split: D<I>, concat: D<J>)
            -> Typed<T, <S::Out as GatherAt<A, D<J>>>::Out, A::Out>
        where [
            V: CompleteFor<op::all_to_all>,
            D<I>: super::shape::OtherDim<D<J>>,
            S: ScatterAt<A, D<I>>,
            S::Out: GatherAt<A, D<J>>,
        ]
            = self.array.all_to_all(shard_axes::<A>(), AllToAll::split(I as i32).concat(J as i32));
        /// Sends each device's value to another device along a mesh axis.
        ///
        /// `how` is a [`Permutation`], or pairs of a source and a target. A device that receives
        /// nothing gets zeros.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 4 } }
        /// let x = <T![f32; 4@X]>::iota(&Pod::mesh()?, D0) + 1.0;
        /// let next: T![f32; 4@X] =
        ///     Pod.shard_map((x,), P![X], |(x,)| x.ppermute(X, Permutation::shift(1)));
        /// assert_eq!(next.to_vec()?, [0.0, 1.0, 2.0, 3.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn ppermute[A: AddAxis<V>](&self, axis: A, how: impl Into<Permutation>)
            -> Typed<T, S, A::Out>
        where [V: CompleteFor<op::ppermute>]
            = self.array.ppermute(A::NAME, how);
        /// Returns the value unchanged, typed as varying over a mesh axis.
        pub fn pvary[A: MeshAxis + Mark<V>](&self, axis: A) -> Typed<T, S, A::Varying>
            = self.array.pvary(A::NAME);
    }
}
