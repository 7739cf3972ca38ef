//! Meshes of typed programs, and arrays from nothing.

use super::Typed;
use super::axis::MeshType;
use super::door;
use super::sets::Sets;
use super::shape::{Formed, KnownShape, Shape};
use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Mesh;
use crate::types::Element;
use std::panic::Location;

/// The mesh that a type made by `mesh!` stands for.
pub trait OnDevices: MeshType {
    /// The mesh, with the sizes that are stated. One with a size `?` is made by [`OnDevices::sized`].
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// assert_eq!(Pod::mesh()?.to_string(), "Mesh(X: 2, Y: 4)");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    fn mesh() -> Result<Mesh> {
        let sizes = Self::AXES.iter().filter_map(|a| a.1).collect::<Vec<_>>();
        Self::sized(&sizes)
    }
    /// The mesh of axes of these sizes, in order; those that are stated must agree.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Late { Data: ?, Model: 4 } }
    /// assert_eq!(Late::sized(&[2, 4])?.to_string(), "Mesh(Data: 2, Model: 4)");
    /// assert!(Late::sized(&[2, 8]).is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    fn sized(sizes: &[usize]) -> Result<Mesh> {
        let place = Some(Location::caller());
        let refuse = |why: String, help: &str| {
            Err(Error::at(Fault::new(ErrorKind::Mesh, why).help(help), "mesh", Vec::new(), place))
        };
        if sizes.len() != Self::AXES.len() {
            let why = format!(
                "`{}` has {} axes, but {} sizes are known",
                Self::NAME,
                Self::AXES.len(),
                sizes.len()
            );
            return refuse(why, &format!("give one size for each axis: `{}::sized(&[..])`", Self::NAME));
        }
        for ((name, stated), size) in Self::AXES.iter().zip(sizes) {
            if let Some(stated) = stated.filter(|n| n != size) {
                let why = format!(
                    "axis {name} of `{}` has {stated} devices in its type, and {size} here",
                    Self::NAME
                );
                return refuse(why, "make the two sizes equal, or write `?` in `mesh!`");
            }
        }
        Mesh::new(Self::AXES.iter().zip(sizes).map(|(a, n)| (a.0, *n)))
    }
    /// Whether a mesh has just these axes, of these sizes.
    fn fits(mesh: &Mesh) -> bool {
        let names = mesh.axis_names().iter().map(|a| a.name());
        names.eq(Self::AXES.iter().map(|a| a.0))
            && Self::AXES.iter().zip(mesh.axis_sizes()).all(|(a, n)| a.1.is_none_or(|size| size == *n))
    }
}
impl<M: MeshType> OnDevices for M {}

impl<T: Element, S: Shape> Typed<T, S> {
    #[track_caller]
    fn from_nothing(mesh: &Mesh, make: impl FnOnce(crate::types::ArrayType) -> Array) -> Self {
        let sizes: Vec<usize> = S::DIMS.iter().map(|d| d.size.unwrap_or(0)).collect();
        // a mesh with other axes, or axes of other sizes, is refused when the type is made or compared
        Typed::checked(make(T::DTYPE.of(sizes).on(mesh, door::spec::<S, ()>())))
    }
    /// Zeros on a mesh.
    #[track_caller]
    pub fn zeros(mesh: &Mesh) -> Self
    where
        S: KnownShape + Formed,
    {
        Self::from_nothing(mesh, |ty| Array::zeros(ty))
    }
    /// Ones on a mesh.
    #[track_caller]
    pub fn ones(mesh: &Mesh) -> Self
    where
        S: KnownShape + Formed,
    {
        Self::from_nothing(mesh, |ty| Array::ones(ty))
    }
    /// The same number everywhere, on a mesh.
    #[track_caller]
    pub fn full(mesh: &Mesh, value: T) -> Self
    where
        S: KnownShape + Formed,
    {
        Self::from_nothing(mesh, |ty| Array::full(ty, Array::from(value)))
    }
    /// The index along dim `d`, on a mesh.
    #[track_caller]
    pub fn iota<I: super::shape::DimNumber>(mesh: &Mesh, along: I) -> Self
    where
        S: super::shape::At<I::D> + KnownShape + Formed,
        T: super::Number,
    {
        let _ = along;
        Self::from_nothing(mesh, |ty| Array::iota(ty, I::NUMBER))
    }
}
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Zeros of this array's type.
    #[track_caller]
    pub fn zeros_like(&self) -> Self {
        Typed::of(self.array.zeros_like())
    }
    /// Ones of this array's type.
    #[track_caller]
    pub fn ones_like(&self) -> Self {
        Typed::of(self.array.ones_like())
    }
}
