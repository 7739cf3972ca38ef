//! Meshes of typed programs: a mesh whose axes a type declares.

use super::axis::MeshType;
use crate::core::{Error, ErrorKind, Fault, Mesh, Result};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;

/// A [`Mesh`] with the axes that the type `M` declares: the value of [`TypedMesh::mesh`].
///
/// Typed arrays are created on it. It dereferences to [`Mesh`], so untyped code takes it too:
/// `x.put(&pod, p!["X"])`. A [`Mesh`] becomes a typed one by [`Mesh::typed`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2, Y: 4 } }
/// let pod: MeshOf<Pod> = Pod::mesh()?;
/// let x = <T![f32; 8@X]>::ones(&pod);
/// let y = Array::ones([8]).put(&pod, p!["X"]);
/// assert_eq!((pod.size(), type_of(&x)), (8, type_of(&y)));
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// An array with axes of another mesh does not compile:
///
/// ```compile_fail
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2, Y: 4 } }
/// mesh! { struct Ring { Stage: 4 } }
/// let ring = Ring::mesh().unwrap();
/// let _ = <T![f32; 8@X]>::ones(&ring); // `X` is not an axis of the mesh `Ring`
/// ```
pub struct MeshOf<M> {
    mesh: Mesh,
    marker: PhantomData<fn() -> M>,
}
impl<M> atmesh_typed::sealed::Sealed for MeshOf<M> {}

impl<M> Clone for MeshOf<M> {
    fn clone(&self) -> Self {
        MeshOf { mesh: self.mesh.clone(), marker: PhantomData }
    }
}
/// Prints like the mesh.
impl<M> fmt::Display for MeshOf<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.mesh, f)
    }
}
impl<M> fmt::Debug for MeshOf<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.mesh, f)
    }
}
impl<M> PartialEq for MeshOf<M> {
    fn eq(&self, other: &Self) -> bool {
        self.mesh == other.mesh
    }
}
impl<M> Eq for MeshOf<M> {}
impl<M> Deref for MeshOf<M> {
    type Target = Mesh;
    fn deref(&self) -> &Mesh {
        &self.mesh
    }
}
impl<M> AsRef<Mesh> for MeshOf<M> {
    fn as_ref(&self) -> &Mesh {
        &self.mesh
    }
}
impl<M> MeshOf<M> {
    /// Converts to the untyped mesh.
    pub fn untyped(self) -> Mesh {
        self.mesh
    }
}

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
    fn mesh() -> Result<MeshOf<Self>> {
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
    fn with_sizes(sizes: &[usize]) -> Result<MeshOf<Self>> {
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
        let mesh = Mesh::new(Self::AXES.iter().zip(sizes).map(|(a, n)| (a.0, *n)))?;
        Ok(MeshOf { mesh, marker: PhantomData })
    }
    /// Returns true if a mesh has exactly the declared axes, in order, with the declared sizes.
    fn matches(mesh: &Mesh) -> bool {
        has_axes(mesh, Self::AXES)
    }
}
impl<M: MeshType> TypedMesh for M {}

impl Mesh {
    /// Checks this mesh against a type declared by `mesh!`, and wraps it.
    ///
    /// The names of the axes, their order and their sizes must agree. A size `?` accepts any size.
    /// Use it for a mesh of certain devices, or without devices.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let pod = Mesh::without_devices([("X", 2), ("Y", 4)])?.typed::<Pod>()?;
    /// assert!(pod.is_abstract());
    /// let error = Mesh::new([("X", 2), ("Z", 4)])?.typed::<Pod>().unwrap_err().to_string();
    /// assert!(error.contains("the mesh is Mesh(X: 2, Z: 4), but the type is `Pod` (Mesh(X: 2, Y: 4))"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn typed<M: MeshType>(&self) -> Result<MeshOf<M>> {
        if M::matches(self) {
            return Ok(MeshOf { mesh: self.clone(), marker: PhantomData });
        }
        let fault = fault!(Mesh, "the mesh is {self}, but the type is {}", M::INFO)
            .help(format!("create the mesh by `{}::mesh()`, or declare its axes by `mesh!`", M::NAME));
        Err(Error::new(fault, "typed", Vec::new(), Some(Location::caller())))
    }
}

/// Returns true if a mesh has exactly these axes, in order. A size `None` accepts any size.
pub(super) fn has_axes(mesh: &Mesh, axes: &[(&str, Option<usize>)]) -> bool {
    let names = mesh.axis_names().iter().map(|a| a.name());
    names.eq(axes.iter().map(|a| a.0))
        && axes.iter().zip(mesh.axis_sizes()).all(|(a, n)| a.1.is_none_or(|size| size == *n))
}
