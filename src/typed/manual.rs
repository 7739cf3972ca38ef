//! `shard_map` of typed arrays: types in the body are those of one device's blocks.

use super::axis::{MeshAxis, MeshType, Shard};
use super::blocks::{GatherAt, GlobalShape, LocalShape, ScatterAt};
use super::creation::OnDevices;
use super::sets::{AddAxis, AddTo, CoveredBy, Made, Mark, Over, Sets};
use super::shape::{D, DimNumber, KnownShape, Shape};
use super::{Number, Typed, door};
use crate::array::{Array, Exchange, Gather, Permutation};
use crate::axes::Axes;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Mesh;
use crate::sharding::Spec;
use crate::tree::{Inferred, SpecTree};
use crate::types::Element;
use std::panic::Location;

/// What can be cut into blocks over the mesh `M`: typed arrays, and tuples, arrays `[_; N]` and structs of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be cut into blocks over the mesh `{M}`",
    label = "expected typed arrays that are sharded over axes of `{M}`: one, or a tuple of them",
    note = "a struct whose fields' types are its parameters derives `Blocks`"
)]
pub trait Enter<M> {
    /// The blocks of one device.
    type Local;
    /// The arrays.
    fn arrays(self, into: &mut Vec<Array>);
    /// The blocks, taken from a list.
    fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local;
}
/// What blocks can leave a `shard_map` by an out spec `P`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot leave a `shard_map` by the out spec `{P}`",
    label = "one spec for each output: `(P![X, _], P![_])` for two",
    note = "a struct that derives `Blocks` leaves by a struct of specs: `Layer {{ w: P![_, X], b: P![X] }}`"
)]
pub trait Leave<P, M> {
    /// The arrays outside.
    type Global;
    /// The out specs of the arrays.
    fn specs(into: &mut Vec<Spec>);
    /// The blocks.
    fn blocks(self, into: &mut Vec<Array>);
    /// The arrays outside, taken from a list.
    fn arrays(from: &mut dyn Iterator<Item = Array>) -> Self::Global;
}
impl<M: MeshType, T: Element, S: LocalShape<M>> Enter<M> for Typed<T, S> {
    type Local = Typed<T, S::Local, S::Vary>;
    fn arrays(self, into: &mut Vec<Array>) {
        into.push(self.array);
    }
    #[track_caller]
    fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local {
        Typed::checked(next(from))
    }
}
impl<M: MeshType, T: Element, S: GlobalShape<P, M>, V: CoveredBy<S::Mentions>, P> Leave<P, M>
    for Typed<T, S, V>
{
    type Global = Typed<T, S::Global>;
    fn specs(into: &mut Vec<Spec>) {
        into.push(door::spec::<S::Global, ()>());
    }
    fn blocks(self, into: &mut Vec<Array>) {
        into.push(self.array);
    }
    #[track_caller]
    fn arrays(from: &mut dyn Iterator<Item = Array>) -> Self::Global {
        Typed::checked(next(from))
    }
}
/// Lists are as long as types say; a list that an error cut short ends in arrays that carry it.
fn next(from: &mut dyn Iterator<Item = Array>) -> Array {
    from.next().unwrap_or_else(|| {
        Array::poisoned(Error::from(Fault::new(ErrorKind::Internal, "a `shard_map` returned too few arrays")))
    })
}
macro_rules! tuples { ($($($a:ident $p:ident)+;)*) => { $(
    #[allow(non_snake_case)]
    impl<M: MeshType, $($a: Enter<M>),+> Enter<M> for ($($a,)+) {
        type Local = ($($a::Local,)+);
        fn arrays(self, into: &mut Vec<Array>) {
            let ($($a,)+) = self;
            $($a.arrays(into);)+
        }
        fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local { ($($a::blocks(from),)+) }
    }
    #[allow(non_snake_case)]
    impl<M: MeshType, $($a: Leave<$p, M>, $p),+> Leave<($($p,)+), M> for ($($a,)+) {
        type Global = ($($a::Global,)+);
        fn specs(into: &mut Vec<Spec>) { $($a::specs(into);)+ }
        fn blocks(self, into: &mut Vec<Array>) {
            let ($($a,)+) = self;
            $($a.blocks(into);)+
        }
        fn arrays(from: &mut dyn Iterator<Item = Array>) -> Self::Global { ($($a::arrays(from),)+) }
    }
)* } }
tuples! {
    A P;
    A P B Q;
    A P B Q C R;
    A P B Q C R E S;
    A P B Q C R E S F T;
    A P B Q C R E S F T G U;
    A P B Q C R E S F T G U H V;
    A P B Q C R E S F T G U H V I W;
}

impl<M: MeshType, A: Enter<M>, const N: usize> Enter<M> for [A; N] {
    type Local = [A::Local; N];
    fn arrays(self, into: &mut Vec<Array>) {
        self.into_iter().for_each(|a| a.arrays(into));
    }
    fn blocks(from: &mut dyn Iterator<Item = Array>) -> Self::Local {
        std::array::from_fn(|_| A::blocks(from))
    }
}
/// Each by the same spec.
impl<M: MeshType, A: Leave<P, M>, P, const N: usize> Leave<P, M> for [A; N] {
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

/// The mesh that the arguments are on; else the one of stated sizes.
fn mesh_of<M: MeshType>(args: &[Array]) -> Result<Mesh> {
    let found = args.iter().find_map(|a| a.type_ref().ok().and_then(|t| t.mesh.clone()));
    let Some(mesh) = found else { return M::mesh() };
    if M::fits(&mesh) {
        return Ok(mesh);
    }
    let fault =
        Fault::new(ErrorKind::Mesh, format!("the arguments are on {mesh}, which is not `{}`", M::NAME));
    Err(fault.help(format!("make their mesh by `{}::mesh()`", M::NAME)).into())
}

/// Per-device code over a mesh that `mesh!` declares.
pub trait Manual: MeshType {
    /// Runs `body` on each device's blocks of `args`; `out` says how the blocks of the results are put together.
    ///
    /// In specs are what the arguments' types say. In the body a type has sizes of one block, and the set of axes over which the devices' blocks differ; an output that
    /// still varies over an axis must name it in its out spec. The body reads nothing of outside but its arguments.
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
    #[track_caller]
    fn shard_map<P, A: Enter<Self>, R: Leave<P, Self>>(
        self,
        args: A,
        out: P,
        body: impl Fn(A::Local) -> R,
    ) -> R::Global {
        let _ = out;
        let place = Location::caller();
        let mut arrays = Vec::new();
        args.arrays(&mut arrays);
        let mut specs = Vec::new();
        R::specs(&mut specs);
        let count = specs.len();
        let specs = specs.into_iter().enumerate().map(|(i, s)| (i.to_string(), SpecTree::One(s))).collect();
        let traced = |blocks: &Vec<Array>| -> Vec<Array> {
            let mut out = Vec::new();
            body(A::blocks(&mut blocks.iter().cloned())).blocks(&mut out);
            out
        };
        let result = mesh_of::<Self>(&arrays).map_err(|e| e.located("shard_map", place)).and_then(|mesh| {
            crate::shard_map::shard_map(&mesh, Inferred, SpecTree::Node(specs), traced).call(arrays)
        });
        let results = result.unwrap_or_else(|e| vec![crate::trace::poison(e); count]);
        R::arrays(&mut results.into_iter())
    }
    /// Zeros in a body: the same on every device.
    #[track_caller]
    fn zeros<T: Number, S: KnownShape>(self) -> Typed<T, S, Self::Empty> {
        let sizes: Vec<usize> = S::DIMS.iter().map(|d| d.size.unwrap_or(0)).collect();
        Typed::of(Array::zeros(T::DTYPE.of(sizes)))
    }
    /// The device's position along a mesh axis, in a body.
    #[track_caller]
    fn axis_index<A: MeshAxis + AddAxis<Self::Empty>>(
        self,
        axis: A,
    ) -> Typed<i32, (), <A as AddAxis<Self::Empty>>::Out> {
        let _ = axis;
        Typed::of(crate::array::axis_index(A::NAME))
    }
}
impl<M: MeshType> Manual for M {}

fn names(of: &[&'static str]) -> Axes {
    of.iter().map(|a| (*a).into()).collect()
}

fn along<A: Shard>() -> Axes {
    A::AXES.iter().map(|a| a.0.into()).collect()
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// The sum over a mesh axis, or several, `(X, Y)`, in a body: every device along them then has the same value.
    #[track_caller]
    pub fn psum<A: Over<V>>(&self, axes: A) -> Typed<T, S, A::Less>
    where
        T: Number,
        V: Made,
    {
        let _ = axes;
        Typed::of(self.array.psum(names(A::NAMES)))
    }
    /// The mean over a mesh axis, or several, in a body.
    #[track_caller]
    pub fn pmean<A: Over<V>>(&self, axes: A) -> Typed<T, S, A::Less>
    where
        T: super::Float,
        V: Made,
    {
        let _ = axes;
        Typed::of(self.array.pmean(names(A::NAMES)))
    }
    /// The greatest of the devices' values along a mesh axis, or several, in a body.
    #[track_caller]
    pub fn pmax<A: Over<V>>(&self, axes: A) -> Typed<T, S, A::Less>
    where
        V: Made,
    {
        let _ = axes;
        Typed::of(self.array.pmax(names(A::NAMES)))
    }
    /// The least of the devices' values along a mesh axis, or several, in a body.
    #[track_caller]
    pub fn pmin<A: Over<V>>(&self, axes: A) -> Typed<T, S, A::Less>
    where
        V: Made,
    {
        let _ = axes;
        Typed::of(self.array.pmin(names(A::NAMES)))
    }
    /// The sum over a mesh axis, or several, of which each device keeps its part of dim `I`.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let x = <T![f32; 16@(X, Y), 3]>::ones(&Pod::mesh()?);
    /// let eight: T![f32; 16@(X, Y), 3] = Pod.shard_map((x,), P![(X, Y), _], |(x,)| {
    ///     let all: T![f32; 16, 3; V: (X, Y)] = x.all_gather((X, Y), D0); // the major axis first
    ///     all.psum_scatter((X, Y), D0)
    /// });
    /// assert_eq!(eight.to_vec()?, [8.0; 48]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn psum_scatter<A: Shard + Over<V>, I: DimNumber>(&self, axes: A, dim: I) -> Typed<T, S::Out, V>
    where
        T: Number,
        V: Made,
        S: ScatterAt<A, I::D>,
    {
        let _ = (axes, dim);
        Typed::of(self.array.psum_scatter(names(A::NAMES), Gather::tiled(I::NUMBER as i32)))
    }
    /// All devices' blocks along a mesh axis, or several, side by side in dim `I`. The value varies over them as far as types know.
    #[track_caller]
    pub fn all_gather<A: Shard + AddTo<V>, I: DimNumber>(&self, axes: A, dim: I) -> Typed<T, S::Out, A::Out>
    where
        V: Made,
        S: GatherAt<A, I::D>,
    {
        let _ = (axes, dim);
        Typed::of(self.array.all_gather(along::<A>(), Gather::tiled(I::NUMBER as i32)))
    }
    /// Cuts dim `I` into a part for each device along a mesh axis, or several, and puts the parts that come in side by side in dim `J`.
    #[track_caller]
    pub fn all_to_all<A: Shard + AddTo<V>, const I: usize, const J: usize>(
        &self,
        axes: A,
        split: D<I>,
        concat: D<J>,
    ) -> Typed<T, <S::Out as GatherAt<A, D<J>>>::Out, A::Out>
    where
        V: Made,
        D<I>: super::shape::Other<D<J>>,
        S: ScatterAt<A, D<I>>,
        S::Out: GatherAt<A, D<J>>,
    {
        let _ = (axes, split, concat);
        Typed::of(self.array.all_to_all(along::<A>(), Exchange::split(I as i32).concat(J as i32)))
    }
    /// Each device's value to another one along a mesh axis; zeros where none comes in.
    #[track_caller]
    pub fn ppermute<A: MeshAxis + AddAxis<V>>(
        &self,
        axis: A,
        how: impl Into<Permutation>,
    ) -> Typed<T, S, A::Out>
    where
        V: Made,
    {
        let _ = axis;
        Typed::of(self.array.ppermute(A::NAME, how))
    }
    /// The same value, which counts as one that varies over a mesh axis.
    #[track_caller]
    pub fn pvary<A: MeshAxis + Mark<V>>(&self, axis: A) -> Typed<T, S, A::Varying> {
        let _ = axis;
        Typed::of(self.array.pvary(A::NAME))
    }
}
