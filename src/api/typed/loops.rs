//! `scan` and `vmap` over typed arrays, tuples and structs of them.

use super::rules::leading::{LeadingShape, MappedDim, StepsDim};
use super::shape::{AxesOnce, D, DimType, Insert, Shape, TDim};
use super::{Typed, sealed::FromRule};
use super::{leaves::LeafList, rules::reshape_dims::UnshardedDim, sets::Sets, size::Size};
use crate::api::transform::{ScanOptions, VmapOptions, check_arguments, scan_at, vmap_at};
use crate::api::tree::{Args, NamedSizes, Output, Path, Retype, ScanStep, Tree};
use crate::api::{array::Array, trace::poison};
use crate::core::{Element, Result};
use crate::ir::program::CallSite;
use std::cell::RefCell;
use std::marker::PhantomData;

/// The leaf types of one step of a loop, for [`Retype`]: each leaf without its leading dim, of size
/// `Z`.
pub struct Slices<Z>(PhantomData<fn() -> Z>);
/// The leaf types of the results of a loop of `Z` steps, for [`Retype`]: each leaf with a leading
/// dim of size `Z`.
pub struct Stacks<Z>(PhantomData<fn() -> Z>);
/// The leaf types of one example, for [`Retype`]: each leaf without its leading dim `Q`.
pub struct Examples<Q>(PhantomData<fn() -> Q>);
/// The leaf types of the results of all examples, for [`Retype`]: each leaf with the leading dim
/// `Q`.
pub struct Batches<Q>(PhantomData<fn() -> Q>);

/// One step's slice of `X`, which a loop of `Z` steps runs over.
pub type StepOf<X, Z> = <X as Retype<Slices<Z>>>::Out;
/// The results `Y` of all steps of a loop of `Z` steps.
pub type StackOf<Y, Z> = <Y as Retype<Stacks<Z>>>::Out;
/// One example of `X`, whose leading dims are `Q`.
pub type ExampleOf<X, Q> = <X as Retype<Examples<Q>>>::Out;
/// The results `Y` of all examples, whose leading dims are `Q`.
pub type BatchOf<Y, Q> = <Y as Retype<Batches<Q>>>::Out;

macro_rules! removes { ($leaves:ident $dim:ident: $($bound:path),*) => {
    impl<T: Element, S: LeadingShape, V: Sets, $dim> Retype<$leaves<$dim>> for Typed<T, S, V>
    where
        $(S::Dim: $bound,)*
    {
        type Out = Typed<T, S::Slice, V>;
        #[track_caller]
        fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
            FromRule::from_rule(next())
        }
    }
} }
removes!(Slices Z: UnshardedDim, StepsDim<Z>);
removes!(Examples Q: MappedDim<Q>);
impl<T: Element, S: Shape + Insert<D<0>, TDim<Z>>, V: Sets, Z: Size> Retype<Stacks<Z>> for Typed<T, S, V> {
    type Out = Typed<T, <S as Insert<D<0>, TDim<Z>>>::Out, V>;
    #[track_caller]
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
        FromRule::from_rule(next())
    }
}
impl<T: Element, S: Shape + Insert<D<0>, Q>, V: Sets, Q: DimType> Retype<Batches<Q>> for Typed<T, S, V>
where
    <S as Insert<D<0>, Q>>::Out: AxesOnce,
{
    type Out = Typed<T, <S as Insert<D<0>, Q>>::Out, V>;
    #[track_caller]
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
        FromRule::from_rule(next())
    }
}

/// The steps of a [`scan_with`]: their number `Z` as a type, and their order.
///
/// The arrays say the number, or it is written: `StepRange::<N![4]>::default()`.
pub struct StepRange<Z> {
    reverse: bool,
    count: PhantomData<fn() -> Z>,
}
impl<Z> Clone for StepRange<Z> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Z> Copy for StepRange<Z> {}
impl<Z> Default for StepRange<Z> {
    fn default() -> Self {
        StepRange { reverse: false, count: PhantomData }
    }
}
impl<Z> std::fmt::Debug for StepRange<Z> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepRange").field("reverse", &self.reverse).finish()
    }
}
impl<Z> StepRange<Z> {
    /// Runs from the last slice to the first.
    ///
    /// ```
    /// use atmesh::typed::{prelude::*, StepRange};
    /// let steps = StepRange::<N![4]>::default().reversed();
    /// assert_eq!(format!("{steps:?}"), "StepRange { reverse: true }");
    /// ```
    pub fn reversed(self) -> Self {
        StepRange { reverse: true, ..self }
    }
}

/// Runs [`scan`](crate::scan) over the slices of typed arrays along their leading dims.
///
/// `xs` is an array, a tuple, or a struct that derives `Tree` and has a type parameter for each
/// array. Its leading dims are unsharded and have one size `Z`; in the body they are removed.
/// `body(carry, slice)` returns the next carry, which has the type of the first one, and a result.
/// Returns the last carry, and the results with a leading dim of size `Z`.
///
/// ```
/// use atmesh::prelude::Tree;
/// use atmesh::typed::{self, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// #[derive(Clone, Tree)]
/// struct Layer<W, B> {
///     w: W,
///     b: B,
/// }
/// let pod = Pod::mesh()?;
/// // three layers
/// let layers = Layer { w: <T![f32; 3, 4, 4]>::ones(&pod), b: <T![f32; 3, 4]>::ones(&pod) };
/// let x = <T![f32; 8@X, 4]>::ones(&pod);
/// let (y, sums) = typed::scan(x, &layers, |x, layer| {
///     let w: T![f32; 4, 4] = layer.w; // one layer's
///     let y = x.matmul(&w) + &layer.b;
///     let sum: T![f32; 8@X] = y.sum(D1);
///     (y, sum)
/// });
/// let (_, _): (T![f32; 8@X, 4], T![f32; 3, 8@X]) = (y.clone(), sums);
/// assert_eq!(y.to_vec()?, [85.0; 32]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn scan<Z: Size, C: Args, X: Args, R: Output<Tree: ScanStep<C::Owned>>>(
    init: C,
    xs: X,
    body: impl Fn(C::Owned, StepOf<X::Owned, Z>) -> R,
) -> (C::Owned, StackOf<RowOf<R, C>, Z>)
where
    X::Owned: Retype<Slices<Z>>,
    RowOf<R, C>: Retype<Stacks<Z>>,
{
    scan_steps(init.into_tree(), &xs.into_tree(), &body, StepRange::default(), CallSite::here("scan"))
}
/// The results of one step of a scan whose body returns `R`, with carries `C`.
pub type RowOf<R, C> = <<R as Output>::Tree as ScanStep<<C as Args>::Owned>>::Row;

/// Runs [`scan`] in the order that [`StepRange`] says, or for a number of steps without arrays.
///
/// ```
/// use atmesh::typed::{self, prelude::*, StepRange};
/// mesh! { struct Pod { X: 2 } }
/// let pod = Pod::mesh()?;
/// let xs = <T![i32; 3, 4@X]>::iota(&pod, D0);
/// let zero = <T![i32; 4@X]>::zeros(&pod);
/// let back = StepRange::default().reversed();
/// let (_, sums) = typed::scan_with(&zero, &xs, |c, x| (&c + &x, &c + &x), back);
/// assert_eq!(sums.to_vec()?, [3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2]);
/// let four = StepRange::<N![4]>::default();
/// let (y, ()) = typed::scan_with(typed::scalar(1), (), |x, ()| (&x + &x, ()), four);
/// assert_eq!(y.item()?, 16);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn scan_with<Z: Size, C: Args, X: Args, R: Output<Tree: ScanStep<C::Owned>>>(
    init: C,
    xs: X,
    body: impl Fn(C::Owned, StepOf<X::Owned, Z>) -> R,
    steps: StepRange<Z>,
) -> (C::Owned, StackOf<RowOf<R, C>, Z>)
where
    X::Owned: Retype<Slices<Z>>,
    RowOf<R, C>: Retype<Stacks<Z>>,
{
    scan_steps(init.into_tree(), &xs.into_tree(), &body, steps, CallSite::here("scan"))
}

fn scan_steps<Z: Size, C: Tree, X: Retype<Slices<Z>>, R: Output<Tree: ScanStep<C>>>(
    init: C,
    xs: &X,
    body: &dyn Fn(C, X::Out) -> R,
    steps: StepRange<Z>,
    call: CallSite<'_>,
) -> (C, StackOf<<R::Tree as ScanStep<C>>::Row, Z>)
where
    <R::Tree as ScanStep<C>>::Row: Retype<Stacks<Z>>,
{
    let options = ScanOptions { length: Z::VALUE, reverse: steps.reverse };
    let returned = Structure::new();
    let step = |carry: C, slice: LeafList| -> Result<(C, LeafList)> {
        let (carry, row) = body(carry, xs.retype(&mut slice.supply())).into_result()?.into_step();
        Ok((carry, returned.remember(row)))
    };
    let names = NamedSizes::of(&init, "carry").and(xs, "scanned array").check(call);
    let (carry, rows) = scan_at(options, init, checked_leaves(xs, names), &step, call);
    (carry, returned.retyped(rows))
}

/// Runs [`vmap`](crate::vmap()) over the leading dims of typed arrays, which keep their sharding.
///
/// `xs` is an array, a tuple, or a struct that derives `Tree` and has a type parameter for each
/// array. Its leading dims are one dim `Q`: one size and one sharding. `f` is written for one
/// example, without this dim, and returns an array, a tuple or such a struct; each result gets the
/// leading dim `Q`. A result that is sharded over an axis of `Q` does not compile: an axis shards
/// only one dim of an array.
///
/// ```
/// use atmesh::typed::{self, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// let pod = Pod::mesh()?;
/// let (xs, w) = (<T![f32; 4@X, 3]>::ones(&pod), <T![f32; 3, 5]>::ones(&pod));
/// let ys: T![f32; 4@X, 5] = typed::vmap(&xs, |x| {
///     let one: T![f32; 3] = x;
///     one.matmul(&w)
/// });
/// assert_eq!(ys.to_vec()?, [3.0; 20]);
/// // several arguments, several results
/// let (sums, products): (T![f32; 4@X], T![f32; 4@X, 3]) =
///     typed::vmap((&xs, &xs), |(a, b)| (a.sum(..), &a * &b));
/// assert_eq!((sums.to_vec()?, products.to_vec()?), (vec![3.0; 4], vec![1.0; 12]));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn vmap<Q: DimType, X: Args, R: Output>(
    xs: X,
    f: impl Fn(ExampleOf<X::Owned, Q>) -> R,
) -> BatchOf<R::Tree, Q>
where
    X::Owned: Retype<Examples<Q>>,
    R::Tree: Retype<Batches<Q>>,
{
    let (call, xs) = (CallSite::here("vmap"), xs.into_tree());
    let returned = Structure::new();
    let one = |example: LeafList| -> Result<LeafList> {
        Ok(returned.remember(f(xs.retype(&mut example.supply())).into_result()?))
    };
    let leaves = checked_leaves(&xs, check_arguments(&xs, call));
    let all = vmap_at(&VmapOptions::default(), &leaves, &one, call);
    returned.retyped(all)
}

/// Returns the leaves of a tree, or leaves that carry the error.
fn checked_leaves<T: Tree>(tree: &T, check: Result<()>) -> LeafList {
    let leaves = LeafList::of(tree);
    match check {
        Ok(()) => leaves,
        Err(error) => {
            let wrong = poison(error);
            leaves.rebuild(&mut Path::unnamed(), &mut |_, _| wrong.clone())
        }
    }
}

/// The tree that a closure returned, once it has returned.
struct Structure<T>(RefCell<Option<T>>);

impl<T: Tree> Structure<T> {
    fn new() -> Self {
        Structure(RefCell::new(None))
    }
    /// Stores the tree, and returns its leaves.
    fn remember(&self, tree: T) -> LeafList {
        let leaves = LeafList::of(&tree);
        self.0.borrow_mut().get_or_insert(tree);
        leaves
    }
    /// Returns the tree with these leaves, of the types that `F` gives them.
    fn retyped<F>(&self, leaves: LeafList) -> T::Out
    where
        T: Retype<F>,
    {
        match (&*self.0.borrow(), leaves.error()) {
            (None, Some(error)) => T::Out::filled_with(error),
            (Some(like), _) => like.retype(&mut leaves.supply()),
            (None, None) => {
                T::Out::filled_with(&crate::core::diagnostic::Error::internal("a closure did not run"))
            }
        }
    }
}
