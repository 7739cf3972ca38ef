//! Typed arrays as tree leaves: arguments and results of transformed functions.

use super::equal_sizes::{any_open, named_dims};
use super::rules::reshape_dims::UnshardedDim;
use super::sets::Sets;
use super::shape::{D, DimAccess, DimType, Insert, Shape, TDim};
use super::{Typed, TypedArray};
use crate::api::array::{Array, Operand, Term};
use crate::api::transform::{ScanOptions, scan_at};
use crate::api::tree::{Args, Loss, NamedSizes, Param, Path, Tree};
use crate::core::diagnostic::Error;
use crate::core::types::Element;
use crate::ir::program::CallSite;

impl<T: Element, S: Shape, V: Sets> Tree for Typed<T, S, V> {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        if const { any_open(S::DIMS) } {
            path.record_dims(|| named_dims(S::DIMS, &self.array));
        }
        f(path, &self.array);
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
        Typed::checked(f(path, &self.array))
    }
    fn differs(&self, _: &Self, _: &mut Path) -> Option<String> {
        None
    }
    fn filled_with(error: &Error) -> Self {
        Typed::from_rule_result(Array::poisoned(error.clone()))
    }
}
impl<T: Element, S: Shape, V: Sets> Args for Typed<T, S, V> {
    type Owned = Self;
    fn into_tree(self) -> Self {
        self
    }
}
impl<T: Element, S: Shape, V: Sets> Param for Typed<T, S, V> {
    type Owned = Self;
    type Item<'a> = Self;
    fn lend(owned: &Self) -> Self {
        owned.clone()
    }
}
/// A typed scalar is a loss.
impl<T: Element, V: Sets> Loss for Typed<T, (), V> {}
impl<T: Element, V: Sets, M: Tree> Loss for (Typed<T, (), V>, M) {}

impl<T, S, V> Operand for Typed<T, S, V> {
    fn term(self) -> Term {
        Term::Array(self.array)
    }
}
impl<T, S, V> Operand for &Typed<T, S, V> {
    fn term(self) -> Term {
        Term::Array(self.array.clone())
    }
}

/// The stacked results of a [`scan`] over `X`: `Y` with the leading dim of `X` prepended.
pub type ScanResult<X, Y> = Typed<
    <Y as TypedArray>::Elem,
    <<Y as TypedArray>::Shape as Insert<D<0>, NumRows<<X as TypedArray>::Shape>>>::Out,
    <Y as TypedArray>::Sets,
>;
type NumRows<S> = TDim<<<S as DimAccess<D<0>>>::Dim as DimType>::Size>;
type RowOf<X> = Typed<
    <X as TypedArray>::Elem,
    <<X as TypedArray>::Shape as DimAccess<D<0>>>::Removed,
    <X as TypedArray>::Sets,
>;

/// Runs [`scan`](crate::scan) over the slices of a typed array along its leading dim.
///
/// `body(carry, slice)` returns the next carry and a result. Returns the last carry, and the
/// results stacked. A body that changes the carry's type does not compile.
///
/// ```
/// use atmesh::typed::{prelude::*, scan};
/// mesh! { struct Pod { X: 2 } }
/// let pod = Pod::mesh()?;
/// let (zero, xs) = (<T![f32; 4@X]>::zeros(&pod), <T![f32; 3, 4@X]>::ones(&pod));
/// let (total, sums) = scan(zero, &xs, |total, x| (&total + &x, &total + &x));
/// let _: T![f32; 3, 4@X] = sums;
/// assert_eq!(total.to_vec()?, [3.0; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn scan<C: Args, X: TypedArray + Tree, Y: TypedArray + Tree>(
    init: C,
    xs: impl Args<Owned = X>,
    body: impl Fn(C::Owned, RowOf<X>) -> (C::Owned, Y),
) -> (C::Owned, ScanResult<X, Y>)
where
    X::Shape: DimAccess<D<0>>,
    <X::Shape as DimAccess<D<0>>>::Dim: UnshardedDim,
    Y::Shape: Insert<D<0>, NumRows<X::Shape>>,
{
    let (call, init, xs) = (CallSite::here("scan"), init.into_tree(), xs.into_tree());
    let rows = match NamedSizes::of(&init, "carry").and(&xs, "scanned array").check(call) {
        Ok(()) => xs.as_untyped().clone(),
        Err(error) => crate::api::trace::poison(error),
    };
    let step = |carry, x: Array| {
        let (carry, y) = body(carry, Typed::from_rule_result(x));
        Ok((carry, y.as_untyped().clone()))
    };
    let (carry, rows) = scan_at(ScanOptions::default(), init, rows, &step, call);
    (carry, Typed::from_rule_result(rows))
}

/// The results of a [`vmap`] over `X`: `Y` with the leading dim of `X` and its sharding prepended.
pub type VmapResult<X, Y> = Typed<
    <Y as TypedArray>::Elem,
    <<Y as TypedArray>::Shape as Insert<D<0>, <<X as TypedArray>::Shape as DimAccess<D<0>>>::Dim>>::Out,
    <Y as TypedArray>::Sets,
>;

/// Runs [`vmap`](crate::vmap()) over the leading dim of a typed array, which keeps its sharding.
///
/// `f` is written for one slice.
///
/// ```
/// use atmesh::typed::{prelude::*, vmap};
/// mesh! { struct Pod { X: 2 } }
/// let pod = Pod::mesh()?;
/// let (xs, w) = (<T![f32; 4@X, 3]>::ones(&pod), <T![f32; 3, 5]>::ones(&pod));
/// let ys: T![f32; 4@X, 5] = vmap(&xs, |x| {
///     let one: T![f32; 3] = x;
///     one.matmul(&w)
/// });
/// assert_eq!(ys.to_vec()?, [3.0; 20]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn vmap<X: TypedArray, Y: TypedArray + Tree>(
    xs: impl Args<Owned = X>,
    f: impl Fn(RowOf<X>) -> Y,
) -> VmapResult<X, Y>
where
    X::Shape: DimAccess<D<0>>,
    Y::Shape: Insert<D<0>, <X::Shape as DimAccess<D<0>>>::Dim>,
{
    let xs = xs.into_tree();
    Typed::from_rule_result(crate::api::transform::vmap(xs.as_untyped(), |x: Array| {
        f(Typed::from_rule_result(x)).as_untyped().clone()
    }))
}
