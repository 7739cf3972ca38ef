//! In and out of the typed layer.

use super::sets::{Sets, State};
use super::shape::Shape as StaticShape;
use super::{Typed, TypedArray};
use crate::array::Array;
use crate::axes::{Axes, Spec};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::types::{ArrayType, Element};
use std::marker::PhantomData;
use std::panic::Location;

/// Elements of one type on both sides.
#[diagnostic::on_unimplemented(
    message = "the element types differ: `{T}` on the left and `{Self}` on the right",
    label = "expected an array of `{T}`",
    note = "convert one of them: `.convert::<{T}>()`"
)]
pub trait SameElem<T> {}
impl<T> SameElem<T> for T {}

/// How a type of arrays prints.
fn text<T: Element, S: StaticShape, V: Sets>() -> String {
    format!("{}{}", T::DTYPE.name(), atmesh_typed::text::<S, V>())
}
fn sets<V: Sets>(state: State) -> impl Iterator<Item = &'static str> {
    V::STATES.iter().flatten().filter(move |s| s.1 == state).map(|s| s.0)
}

/// What of an array's type does not fit the static type; `None` if all fits.
fn misfit<T: Element, S: StaticShape, V: Sets>(ty: &ArrayType) -> Option<Fault> {
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
    for (d, info) in S::DIMS.iter().enumerate() {
        if info.size.is_some_and(|n| n != ty.shape[d]) {
            let why = format!(": dimension {d} has size {}", ty.shape[d]);
            return Some(wrong(ErrorKind::Shape, &why).dim(0, d));
        }
        if !ty.spec.dim(d).iter().map(|a| a.name()).eq(info.axes.iter().map(|a| a.0)) {
            let fault =
                wrong(ErrorKind::Sharding, &format!(": dimension {d} is sharded otherwise")).dim(0, d);
            return Some(fault.help(format!("reshard it first: `.reshard({})`", spec::<S, V>())));
        }
        for (name, size) in info.axes {
            let found = ty.mesh.as_ref().and_then(|m| m.axis_size(*name).ok());
            if size.is_some() && found.is_some() && *size != found {
                let (want, found) = (size.unwrap_or(0), found.unwrap_or(0));
                return Some(
                    wrong(ErrorKind::Mesh, &format!(": mesh axis {name} has {found} devices, not {want}"))
                        .dim(0, d),
                );
            }
        }
    }
    let same = |axes: &Axes, state| {
        axes.len() == sets::<V>(state).count()
            && sets::<V>(state).all(|name| axes.iter().any(|a| a.name() == name))
    };
    if !same(&ty.varying, State::Varying) {
        return Some(wrong(ErrorKind::Vma, ": it varies over other mesh axes"));
    }
    let (u, r) = (ty.spec.unreduced_axes(), ty.spec.reduced_axes());
    if !same(u, State::Unreduced) || !same(r, State::Reduced) {
        return Some(wrong(ErrorKind::Sharding, ": it is unreduced or reduced over other mesh axes"));
    }
    None
}
/// The sharding that a static type states.
pub(super) fn spec<S: StaticShape, V: Sets>() -> Spec {
    let dims = S::DIMS.iter().map(|d| d.axes.iter().map(|a| a.0.into()).collect()).collect();
    let axes = |state| sets::<V>(state).map(Into::into).collect::<Axes>();
    let spec = Spec::of(dims);
    let (u, r) = (axes(State::Unreduced), axes(State::Reduced));
    let spec = if u.is_empty() { spec } else { spec.unreduced(u) };
    if r.is_empty() { spec } else { spec.reduced(r) }
}

impl<T: Element, S: StaticShape, V: Sets> Typed<T, S, V> {
    /// What an operation gave. With debug assertions it is compared with what the rule says.
    #[track_caller]
    pub(super) fn of(array: Array) -> Self {
        if cfg!(debug_assertions)
            && let Ok(ty) = array.type_ref()
            && let Some(fault) = misfit::<T, S, V>(ty)
        {
            panic!("a rule of the typed layer differs from the dynamic one: {}", fault.message);
        }
        Typed { array, of: PhantomData }
    }
    /// An array of a tree that someone else made: of this type, or one that carries the refusal.
    #[track_caller]
    pub(super) fn checked(array: Array) -> Self {
        let fault = array.type_ref().ok().and_then(misfit::<T, S, V>);
        let array = match fault {
            None => array,
            Some(fault) => {
                let operands = array.type_ref().map(|ty| vec![ty.to_string()]).unwrap_or_default();
                let fault = fault.help(
                    "the leaf of the tree is a typed array: what changes its type needs an `Array` there",
                );
                crate::trace::poison(Error::at(fault, "typed", operands, Some(Location::caller())))
            }
        };
        Typed { array, of: PhantomData }
    }
    /// How the type prints, without a value: as [`type_of`](crate::type_of) prints an array of it. Sizes known at run time only print their names.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// assert_eq!(<T![i32; 4@X, 2]>::type_text(), "int32[4@X,2]");
    /// ```
    pub fn type_text() -> String {
        text::<T, S, V>()
    }
    /// Goes on in the dynamic layer: `f` of the array, checked to be of the type that is stated.
    ///
    /// For what types cannot say: sizes that depend on data, reshapes with more than one reading, operations without a rule.
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
    /// The array, for the dynamic layer.
    pub fn untyped(self) -> Array {
        self.array
    }
    /// The array, for the dynamic layer.
    pub fn as_untyped(&self) -> &Array {
        &self.array
    }
    /// The numbers, row by row; as [`Array::to_vec`].
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<T>>
    where
        T: Element,
    {
        self.array.to_vec()
    }
}
impl<T: Element, V> Typed<T, (), V> {
    /// The number; as [`Array::item`].
    #[track_caller]
    pub fn item(&self) -> Result<T> {
        self.array.item()
    }
}

impl Array {
    /// This array with a static type, which is checked here, once: element type, rank, sizes, shardings, sets of mesh axes.
    ///
    /// `?` and sizes known at run time only take any size. Arrays that carry an error give that error.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let x = Array::ones([8, 16]).put(&Pod::mesh()?, p!["X"]);
    /// let y = x.typed::<T![f32; 8@X, ?]>()?;
    /// assert_eq!(type_of(&y), "float32[8@X,16]");
    /// let refused = x.typed::<T![f32; 8@Y, 16]>().unwrap_err().to_string();
    /// assert!(refused.contains("float32[8@X,16]") && refused.contains("float32[8@Y,16]"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn typed<A: TypedArray>(&self) -> Result<A> {
        let ty = self.type_ref().map_err(Error::clone)?;
        match misfit::<A::Elem, A::Shape, A::Sets>(ty) {
            None => Ok(A::made(self.clone())),
            Some(fault) => Err(Error::at(fault, "typed", vec![ty.to_string()], Some(Location::caller()))),
        }
    }
}
