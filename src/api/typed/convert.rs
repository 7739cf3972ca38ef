//! Conversion between typed and untyped arrays.

use super::sets::{Sets, State};
use super::shape::{ScalarShape, Shape as StaticShape};
use super::{Typed, TypedArray, mesh::has_axes};
use crate::api::array::Array;
use crate::api::trace::{poison, user_location};
use crate::core::{ArrayType, Axes, Element, Error, ErrorKind, Fault, Result, Spec};
use std::marker::PhantomData;
use std::panic::Location;

/// Requires equal element types on both sides of an operation.
#[diagnostic::on_unimplemented(
    message = "the element types differ: `{T}` on the left and `{Self}` on the right",
    label = "expected an array of `{T}`",
    note = "convert one of them: `.convert::<{T}>()`"
)]
pub trait SameElem<T> {}
impl<T> SameElem<T> for T {}

/// Formats a static array type.
pub(super) fn text<T: Element, S: StaticShape, V: Sets>() -> String {
    format!("{}{}", T::DTYPE.name(), atmesh_typed::text::<S, V>())
}
fn sets<V: Sets>(state: State) -> impl Iterator<Item = &'static str> {
    V::STATES.iter().flatten().filter(move |s| s.1 == state).map(|s| s.0)
}

/// Returns the first mismatch between an array's type and the static type; `None` if they agree.
fn type_mismatch<T: Element, S: StaticShape, V: Sets>(ty: &ArrayType) -> Option<Fault> {
    let wrong = |kind: ErrorKind, why: &str| {
        Fault::new(kind, format!("the array is {ty}, but the type is {}{why}", text::<T, S, V>()))
    };
    if ty.dtype != T::DTYPE {
        return Some(
            wrong(ErrorKind::Dtype, "").help(format!("convert it first: `.astype({:?})`", T::DTYPE)),
        );
    }
    if ty.rank() != S::DIMS.len() {
        return Some(wrong(ErrorKind::Shape, &format!(": its rank is {}", ty.rank())));
    }
    // sharded types are of one mesh; unsharded ones accept any
    let declared = S::DIMS.iter().find_map(|d| d.mesh).or(V::MESH);
    if let (Some(mesh), Some(declared)) = (&ty.mesh, declared)
        && !has_axes(mesh, declared.axes)
    {
        let fault = wrong(ErrorKind::Mesh, &format!(" on {declared}: the array is on {mesh}"));
        return Some(
            fault.help(format!("put it on the mesh of the type: `.put(&{}::mesh()?, ..)`", declared.name)),
        );
    }
    for (d, info) in S::DIMS.iter().enumerate() {
        if info.size.is_some_and(|n| n != ty.shape[d]) {
            let why = format!(": dimension {d} has size {}", ty.shape[d]);
            return Some(wrong(ErrorKind::Shape, &why).highlight_dim(0, d));
        }
        if !ty.spec.dim(d).iter().map(|a| a.name()).eq(info.axes.iter().map(|a| a.0)) {
            let fault = wrong(ErrorKind::Sharding, &format!(": dimension {d} is sharded otherwise"))
                .highlight_dim(0, d);
            return Some(fault.help(format!("reshard it first: `.reshard({})`", spec::<S, V>())));
        }
    }
    let same = |axes: &Axes, state| {
        axes.len() == sets::<V>(state).count()
            && sets::<V>(state).all(|name| axes.iter().any(|a| a.name() == name))
    };
    if !same(&ty.varying, State::Varying) {
        return Some(wrong(ErrorKind::Varying, ": it varies over other mesh axes"));
    }
    let (u, r) = (ty.spec.unreduced_axes(), ty.spec.reduced_axes());
    if !same(u, State::Unreduced) || !same(r, State::Reduced) {
        return Some(wrong(ErrorKind::Sharding, ": it is unreduced or reduced over other mesh axes"));
    }
    None
}
/// Returns true if the array has the sets of a cotangent: unreduced and reduced are exchanged.
fn is_cotangent<V: Sets>(ty: &ArrayType) -> bool {
    let same = |axes: &Axes, state| axes.same_set(&sets::<V>(state).map(Into::into).collect());
    let has_sets = ty.spec.has_sets();
    has_sets
        && same(ty.spec.unreduced_axes(), State::Reduced)
        && same(ty.spec.reduced_axes(), State::Unreduced)
}
/// Returns the sharding that a static type states.
pub(super) fn spec<S: StaticShape, V: Sets>() -> Spec {
    let dims = S::DIMS.iter().map(|d| d.axes.iter().map(|a| a.0.into()).collect()).collect();
    let axes = |state| sets::<V>(state).map(Into::into).collect::<Axes>();
    let spec = Spec::from_dims(dims);
    let (u, r) = (axes(State::Unreduced), axes(State::Reduced));
    let spec = if u.is_empty() { spec } else { spec.unreduced(u) };
    if r.is_empty() { spec } else { spec.reduced(r) }
}

impl<T: Element, S: StaticShape, V: Sets> Typed<T, S, V> {
    /// Wraps the result of an operation. With debug assertions, its type is compared with the
    /// static type.
    #[track_caller]
    pub(super) fn from_rule_result(array: Array) -> Self {
        if cfg!(debug_assertions)
            && let Ok(ty) = array.type_ref()
            && let Some(fault) = type_mismatch::<T, S, V>(ty)
        {
            panic!("a rule of the typed layer differs from the dynamic one: {}", fault.message);
        }
        Typed { array, marker: PhantomData }
    }
    /// Wraps an array that other code put into a tree.
    /// If its type differs, the result carries the error.
    #[track_caller]
    pub(super) fn checked(array: Array) -> Self {
        let fault = array.type_ref().ok().and_then(type_mismatch::<T, S, V>);
        let array = match fault {
            None => array,
            Some(fault) => {
                let operands = array.type_ref().map(|ty| vec![ty.to_string()]).unwrap_or_default();
                let fault = fault.help(match array.type_ref() {
                    Ok(ty) if is_cotangent::<V>(ty) => {
                        "take the derivative by `typed::grad`, `typed::value_and_grad` or `typed::vjp`, whose \
                         results are unreduced where the point is reduced"
                    }
                    _ => "the leaf of the tree is a typed array: to change its type, use an `Array` as the leaf",
                });
                let location = user_location(Location::caller());
                poison(Error::new(fault, "typed", operands, Some(location)))
            }
        };
        Typed { array, marker: PhantomData }
    }
    /// Returns the text of the type, without a value, as [`type_of`](crate::type_of) prints it.
    ///
    /// Sizes that are known only at run time print their names.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// assert_eq!(<T![i32; 4@X, 2]>::type_text(), "int32[4@X,2]");
    /// ```
    pub fn type_text() -> String {
        text::<T, S, V>()
    }
    /// Applies `f` to the untyped array, and checks the result against the stated type.
    ///
    /// Use it for operations that types cannot express: sizes that depend on data, ambiguous
    /// reshapes, and operations without a typing rule.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 6]>::ones(&Pod::mesh()?);
    /// let y = x.then::<T![f32; 4@X, 2, 3]>(|x| x.reshape_to([4, 2, 3], atmesh::p!["X"]))?;
    /// assert!(y.then::<T![f32; 24]>(|y| y.clone()).is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn then<A: TypedArray>(&self, f: impl FnOnce(&Array) -> Array) -> Result<A> {
        f(&self.array).typed()
    }
}

impl<T, S, V> Typed<T, S, V> {
    /// Converts to the untyped array.
    pub fn untyped(self) -> Array {
        self.array
    }
    /// Returns the untyped array.
    pub fn as_untyped(&self) -> &Array {
        &self.array
    }
    /// Returns the elements in row-major order, like [`Array::to_vec`].
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<T>>
    where
        T: Element,
    {
        self.array.to_vec()
    }
}
impl<T, S, V> Typed<T, S, V> {
    /// Returns the element of a scalar, like [`Array::item`].
    #[track_caller]
    pub fn item(&self) -> Result<T>
    where
        T: Element,
        S: ScalarShape,
    {
        self.array.item()
    }
}

/// Implements `From<Array>`: if the types differ, the result carries the error.
#[track_caller]
pub(super) fn stated<T: Element, S: StaticShape, V: Sets>(array: Array) -> Typed<T, S, V> {
    let array = match array.type_ref() {
        Err(_) => array,
        Ok(_) => match array.typed::<Typed<T, S, V>>() {
            Ok(typed) => return typed,
            Err(e) => crate::api::trace::poison(e),
        },
    };
    Typed { array, marker: PhantomData }
}

impl Array {
    /// Checks this array against a static type, and wraps it.
    ///
    /// The check covers element type, rank, sizes, shardings and sets of mesh axes. `?` and sizes
    /// that are known only at run time accept any size. An array that carries an error returns that
    /// error.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let x = Array::ones([8, 16]).put(&Pod::mesh()?, p!["X"]);
    /// let y = x.typed::<T![f32; 8@X, ?]>()?;
    /// assert_eq!(type_of(&y), "float32[8@X,16]");
    /// let error = x.typed::<T![f32; 8@Y, 16]>().unwrap_err().to_string();
    /// assert!(error.contains("float32[8@X,16]") && error.contains("float32[8@Y,16]"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn typed<A: TypedArray>(&self) -> Result<A> {
        let ty = self.type_ref().map_err(Error::clone)?;
        match type_mismatch::<A::Elem, A::Shape, A::Sets>(ty) {
            None => Ok(A::from_rule(self.clone())),
            Some(fault) => Err(Error::new(fault, "typed", vec![ty.to_string()], Some(Location::caller()))),
        }
    }
}
