//! Access to types, shardings, host data and files of typed arrays.

use super::{Typed, TypedArray, sets::Sets, shape::Shape};
use crate::api::array::{Array, HostView, Shard};
use crate::api::display::Picture;
use crate::core::{ArrayType, DType, DeviceId, Element, Result, Sharding};
use ndarray::ArrayD;
use std::path::Path;

macro_rules! same { ($($(#[$doc:meta])* $name:ident -> $out:ty;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> $out {
            self.array.$name()
        }
    )* }
} }
same! {
    /// Returns the type of the array, with all sizes, or the error that the array carries.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 3]>::ones(&Pod::mesh()?);
    /// assert_eq!((x.ty()?.to_string(), x.size()?), ("float32[4@X,3]".into(), 12));
    /// assert_eq!((x.shards()?.len(), x.dtype()?.name()), (2, "float32"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ty -> Result<ArrayType>;
    /// Returns the element type, or the error that the array carries.
    dtype -> Result<DType>;
    /// Returns the number of elements, or the error that the array carries.
    size -> Result<usize>;
    /// Returns the size of the global array in bytes, or the error that the array carries.
    nbytes -> Result<usize>;
    /// Returns the sharding; `None` for an array without a mesh.
    sharding -> Result<Option<Sharding>>;
    /// Returns a picture of the blocks and their devices.
    visualize -> Picture;
    /// Returns the devices that hold blocks of the array.
    devices -> Result<Vec<DeviceId>>;
    /// Returns the blocks of all devices.
    shards -> Result<Vec<Shard>>;
    /// Copies the data into an ndarray array.
    to_ndarray -> Result<ArrayD<T>>;
    /// Returns a zero-copy view of the data.
    view -> Result<HostView<T>>;
}
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Returns the array once it is computed, or the error that it carries.
    #[track_caller]
    pub fn ready(self) -> Result<Self> {
        self.array.ready().map(Typed::from_rule_result)
    }
    forward! {
        /// Names the value for checkpoint policies. The type does not change.
        pub fn checkpoint_name(&self, name: &str) -> Self = self.array.checkpoint_name(name);
        /// Creates an array with the type of this array, and one value everywhere.
        pub fn full_like(&self, value: T) -> Self = self.array.full_like(Array::from(value));
    }
    /// Saves the array as an `.npy` file.
    #[track_caller]
    pub fn save_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        self.array.save_npy(path)
    }
    /// Loads an unsharded array from an `.npy` file, and checks its type.
    ///
    /// Sharded arrays, and trees of them, are loaded by `tree::load_npy`.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let file = std::env::temp_dir().join(format!("atmesh-typed-{}.npy", std::process::id()));
    /// <T![f32; 4@X]>::ones(&Pod::mesh()?).save_npy(&file)?;
    /// assert_eq!(<T![f32; 4]>::load_npy(&file)?.to_vec()?, [1.0; 4]);
    /// assert!(<T![f32; 5]>::load_npy(&file).is_err());
    /// # std::fs::remove_file(&file).expect("it was saved");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn load_npy(path: impl AsRef<Path>) -> Result<Self>
    where
        Self: TypedArray,
    {
        Array::load_npy(path)?.typed()
    }
}
