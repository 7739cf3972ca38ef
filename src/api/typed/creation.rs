//! Meshes of typed programs, and creation of typed arrays.

use super::Typed;
use super::axis::MeshType;
use super::convert;
use super::sets::Sets;
use super::shape::{Formed, KnownShape, Shape};
use crate::api::array::Array;
use crate::core::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::core::mesh::Mesh;
use crate::core::types::Element;
use std::panic::Location;

/// The mesh that a type declared by `mesh!` stands for.
pub trait TypedMesh: MeshType {
    /// Creates the mesh with the declared sizes.
    ///
    /// A mesh with a size `?` is created by [`TypedMesh::with_sizes`].
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
        Self::with_sizes(&sizes)
    }
    /// Creates the mesh with these sizes, in order. Declared sizes must agree.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Late { Data: ?, Model: 4 } }
    /// assert_eq!(Late::with_sizes(&[2, 4])?.to_string(), "Mesh(Data: 2, Model: 4)");
    /// assert!(Late::with_sizes(&[2, 8]).is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    fn with_sizes(sizes: &[usize]) -> Result<Mesh> {
        let location = Some(Location::caller());
        let reject = |why: String, help: &str| {
            Err(Error::new(Fault::new(ErrorKind::Mesh, why).help(help), "mesh", Vec::new(), location))
        };
        if sizes.len() != Self::AXES.len() {
            let why = format!(
                "`{}` has {} axes, but {} sizes are known",
                Self::NAME,
                Self::AXES.len(),
                sizes.len()
            );
            return reject(why, &format!("give one size for each axis: `{}::with_sizes(&[..])`", Self::NAME));
        }
        for ((name, stated), size) in Self::AXES.iter().zip(sizes) {
            if let Some(stated) = stated.filter(|n| n != size) {
                let why = format!(
                    "axis {name} of `{}` has {stated} devices in its type, and {size} here",
                    Self::NAME
                );
                return reject(why, "make the two sizes equal, or write `?` in `mesh!`");
            }
        }
        Mesh::new(Self::AXES.iter().zip(sizes).map(|(a, n)| (a.0, *n)))
    }
    /// Returns true if a mesh has exactly the declared axes, in order, with the declared sizes.
    fn matches(mesh: &Mesh) -> bool {
        let names = mesh.axis_names().iter().map(|a| a.name());
        names.eq(Self::AXES.iter().map(|a| a.0))
            && Self::AXES.iter().zip(mesh.axis_sizes()).all(|(a, n)| a.1.is_none_or(|size| size == *n))
    }
}
impl<M: MeshType> TypedMesh for M {}

impl<T: Element, S: Shape> Typed<T, S> {
    #[track_caller]
    fn create(mesh: &Mesh, make: impl FnOnce(crate::core::types::ArrayType) -> Array) -> Self {
        let sizes: Vec<usize> = S::DIMS.iter().map(|d| d.size.unwrap_or(0)).collect();
        // building or comparing the type rejects a mesh with other axes or other axis sizes
        Typed::checked(make(T::DTYPE.array_type(sizes).on(mesh, convert::spec::<S, ()>())))
    }
    /// Creates an array of zeros on a mesh.
    #[track_caller]
    pub fn zeros(mesh: &Mesh) -> Self
    where
        S: KnownShape + Formed,
    {
        Self::create(mesh, |ty| Array::zeros(ty))
    }
    /// Creates an array of ones on a mesh.
    #[track_caller]
    pub fn ones(mesh: &Mesh) -> Self
    where
        S: KnownShape + Formed,
    {
        Self::create(mesh, |ty| Array::ones(ty))
    }
    /// Creates an array with one value everywhere, on a mesh.
    #[track_caller]
    pub fn full(mesh: &Mesh, value: T) -> Self
    where
        S: KnownShape + Formed,
    {
        Self::create(mesh, |ty| Array::full(ty, Array::from(value)))
    }
    /// Creates an array of the indices along a dim, on a mesh.
    #[track_caller]
    pub fn iota<I: super::shape::DimNumber>(mesh: &Mesh, along: I) -> Self
    where
        S: super::shape::DimAccess<I::D> + KnownShape + Formed,
        T: super::Number,
    {
        let _ = along;
        Self::create(mesh, |ty| Array::iota(ty, I::NUMBER))
    }
}
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Creates an array of zeros with the type of this array.
    #[track_caller]
    pub fn zeros_like(&self) -> Self {
        Typed::from_rule_result(self.array.zeros_like())
    }
    /// Creates an array of ones with the type of this array.
    #[track_caller]
    pub fn ones_like(&self) -> Self {
        Typed::from_rule_result(self.array.ones_like())
    }
}
