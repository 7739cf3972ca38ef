//! Trees in `.safetensors` files, compatible with other libraries.
//!
//! [`save`] writes files, tensor by tensor, with the [`header`] of each, and with the [`index`] of
//! several. [`files`] opens them again. [`names`] says which tensor is which array of a tree, and
//! [`load`] reads a tree. [`digest`] finds damaged data.

mod digest;
mod files;
mod header;
mod index;
mod load;
mod names;
mod save;
mod tensor_file;

pub use files::TensorFiles;
pub use load::LoadOptions;
pub(super) use load::{LoadCall, LoadFailure, load_tree};
pub use save::SaveOptions;
pub(super) use save::{PendingTensor, pending_tensors, write_folder};

use super::files::{leaves, replace_directory};
use super::{Args, Path as TreePath, Tree};
use crate::api::array::Array;
use crate::api::array::files::atomic_file::{data_error, replace_file};
use crate::api::array::files::peers::FilePeers;
use crate::core::{DType, Error, Fault, Result, SourceLocation};
use index::{INDEX_SUFFIX, SUFFIX};
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::panic::Location;
use std::path::Path;

/// The element types that safetensors and this crate share.
const DTYPE_PAIRS: [(DType, Dtype); 14] = [
    (DType::Bool, Dtype::BOOL),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::C64, Dtype::C64),
];
/// The tensor name of a tree that is a single array.
const ROOT_NAME: &str = "array";
/// The name that the format reserves for metadata, which is not a tensor.
const METADATA_NAME: &str = "__metadata__";

const SAVE: &str = "tree::save_safetensors";
const LOAD: &str = "tree::load_safetensors";
const LOAD_WITH: &str = "tree::load_safetensors_with";
const READ: &str = "tree::read_safetensors";

/// Writes all arrays of the tree into one `.safetensors` file.
///
/// Tensors are named by their paths (`layers.0.w`). The file contains the global arrays, whatever
/// their sharding. Keys are stored as their words, uint32. complex128 is an error: the format does
/// not support it. The file appears only when it is complete. Its metadata has `format: pt`, which
/// other libraries need, and digests of the data, which are compared when it is loaded.
///
/// If arrays are on devices of [several processes](crate::distributed), all of them call this
/// function, with one path on a file system that they share. Each writes the blocks of its
/// devices, and the file is the same as that of one process. If a process fails or dies, the
/// earlier file stays as it was, and the others receive an error that names that process.
///
/// [`save_safetensors_with`] writes several files, and metadata.
///
/// ```
/// use atmesh::prelude::*;
/// let path = std::env::temp_dir().join(format!("atmesh-{}.safetensors", std::process::id()));
/// let params = (Array::from([1.0f32, 2.0]), vec![Array::ones([3]).astype(BF16)]);
/// tree::save_safetensors(&params, &path)?;
/// // the result is on the mesh because `like` is
/// let mesh = Mesh::new([("X", 2)])?;
/// let like = (Array::zeros([2]).put(&mesh, p!["X"]), vec![Array::zeros([3]).astype(BF16)]);
/// let read = tree::load_safetensors(&like, &path);
/// let all = tree::read_safetensors(&path);
/// std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
/// assert_eq!(type_of(&read?), "(float32[2@X], (bfloat16[3]))");
/// assert_eq!(all?["0"].to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn save_safetensors<T: Tree>(tree: &T, path: impl AsRef<Path>) -> Result<()> {
    save_file(tree, path.as_ref(), &SaveOptions::default(), Location::caller())
}

/// Writes all arrays of a tree, with metadata, into one file or into a folder of several.
///
/// A path that ends in `.safetensors` is one file, as of [`save_safetensors`]. Any other path is a
/// folder in the layout of Hugging Face's libraries: `model.safetensors`, or several files of a
/// maximum size and an index, `model.safetensors.index.json`. The folder appears only when it is
/// complete. It replaces an earlier folder of the same name, which must contain only such files.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::tree::SaveOptions;
/// let folder = std::env::temp_dir().join(format!("atmesh-folder-{}", std::process::id()));
/// let params = (Array::ones([256]), Array::ones([256]));
/// let options = SaveOptions::default().max_file_bytes(1024).metadata([("epoch", 3)]);
/// tree::save_safetensors_with(&params, &folder, options)?;
/// assert!(folder.join("model-00002-of-00002.safetensors").exists());
///
/// let files = tree::TensorFiles::open(&folder)?;
/// assert_eq!(files.metadata()["epoch"], "3");
/// assert_eq!(type_of(tree::load_safetensors(&params, &folder)?), "(float32[256], float32[256])");
/// # std::fs::remove_dir_all(&folder).map_err(atmesh::Error::other)?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "save_pretrained")]
#[track_caller]
pub fn save_safetensors_with<T: Tree>(
    tree: &T,
    path: impl AsRef<Path>,
    options: impl Into<SaveOptions>,
) -> Result<()> {
    let (location, path, options) = (Location::caller(), path.as_ref(), options.into());
    if path.to_string_lossy().ends_with(SUFFIX) {
        return save_file(tree, path, &options, location);
    }
    let mut peers = FilePeers::of_arrays(&leaves(tree), SAVE, path, location)?;
    let tensors = pending_tensors(tree, &options, location)?;
    let write = |part: &Path, peers: &mut FilePeers| write_folder(part, tensors, &options, peers, location);
    let is_own = |name: &str| name.ends_with(SUFFIX) || name.ends_with(INDEX_SUFFIX);
    replace_directory(path, &mut peers, is_own, write).map_err(|fault| error_of_save(fault, path, location))
}

fn save_file<T: Tree>(tree: &T, path: &Path, options: &SaveOptions, location: SourceLocation) -> Result<()> {
    let mut peers = FilePeers::of_arrays(&leaves(tree), SAVE, path, location)?;
    let tensors = pending_tensors(tree, options, location)?;
    let write =
        |part: &Path, peers: &mut FilePeers| save::write_file(part, tensors, options, peers, location);
    replace_file(path, &mut peers, write).map_err(|fault| error_of_save(fault, path, location))
}
fn error_of_save(fault: Fault, path: &Path, location: SourceLocation) -> Error {
    Error::new(error_in_file(fault, path), SAVE, Vec::new(), Some(location))
}

/// Reads a tree from a `.safetensors` file, an index, or the folder of either.
///
/// The paths, element types and shapes are those of `like`.
///
/// Each array is placed like the corresponding array of `like`, which may be on another mesh than
/// the saved one. The error lists all arrays that are missing or of another type. Other arrays in
/// the file are not read. [`load_safetensors_with`] converts and renames, and is strict.
///
/// If arrays of `like` are on devices of several processes, all of them call this function. Each
/// reads the blocks of its devices, whatever the number of processes that wrote the file, and
/// compares some of the tensors with their digests.
///
/// ```
/// use atmesh::prelude::*;
/// let error = tree::load_safetensors(&Array::ones([4]), "nowhere.safetensors").unwrap_err();
/// assert!(error.to_string().contains("nowhere.safetensors"));
/// ```
#[track_caller]
pub fn load_safetensors<T: Tree>(like: &T, path: impl AsRef<Path>) -> Result<T> {
    let call = LoadCall { op: LOAD, location: Location::caller() };
    load_from(like, path.as_ref(), &LoadOptions::default().ignore("*"), call)
}

/// Reads a tree from a `.safetensors` file, an index, or the folder of either, with conversions.
///
/// The tree has the paths, element types and shapes of `like`, whose leaves may be types, and each
/// array is placed like that leaf. Arrays are read one after the other, so there is at most one
/// array more in memory than the result.
///
/// # Errors
/// A file is missing or damaged; an array is missing or of another type; a tensor belongs to no
/// array. All such arrays are listed, before any data is read.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::tree::LoadOptions;
///
/// #[derive(Clone, Tree)]
/// struct Linear<T = Array> {
///     weight: T,
/// }
/// # use std::collections::BTreeMap;
/// # let name = format!("atmesh-load-{}.safetensors", std::process::id());
/// # let path = std::env::temp_dir().join(name);
/// # let stored = BTreeMap::from([("model.weight", Array::ones([2, 4]).astype(BF16))]);
/// # tree::save_safetensors(&stored, &path)?;
/// // the file has `model.weight`, a bfloat16[2,4]
/// let mesh = Mesh::new([("X", 2)])?;
/// let types = Linear { weight: F32.array_type([4, 2]).on(&mesh, p!["X"]) };
/// let options = LoadOptions::default().cast().rename("model.*", "*").transpose("weight");
/// let layer = tree::load_safetensors_with(types, &path, options)?;
/// assert_eq!(type_of(&layer), "{weight: float32[4@X,2]}");
/// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("load_state_dict", "load_with", "from_pretrained"))]
#[track_caller]
pub fn load_safetensors_with<L: Args>(
    like: L,
    path: impl AsRef<Path>,
    options: LoadOptions,
) -> Result<L::Owned> {
    let call = LoadCall { op: LOAD_WITH, location: Location::caller() };
    load_from(&like.into_tree(), path.as_ref(), &options, call)
}

fn load_from<T: Tree>(like: &T, path: &Path, options: &LoadOptions, call: LoadCall) -> Result<T> {
    let mut peers = FilePeers::of_arrays(&leaves(like), call.op, path, call.location)?;
    load_tree(|| TensorFiles::try_open(path), &mut peers, like, options, call)
        .map(|(read, _)| read)
        .map_err(LoadFailure::into_error)
}

/// Reads all arrays of a `.safetensors` file, an index, or the folder of either, by name.
///
/// The arrays are unplaced. The map that is returned is a tree. Floats of 8 bits, which arrays do
/// not have, are returned as their bytes, uint8.
///
/// # Errors
/// The file is not a `.safetensors` file, or a tensor has an element type of less than 8 bits; the
/// error names the tensor.
///
/// ```
/// use atmesh::prelude::*;
/// # let name = format!("atmesh-all-{}.safetensors", std::process::id());
/// # let path = std::env::temp_dir().join(name);
/// tree::save_safetensors(&(Array::ones([2]), Array::from([3, 4])), &path)?;
/// let all = tree::read_safetensors(&path)?;
/// assert_eq!(type_of(&all["0"]), "float32[2]");
/// assert_eq!(all["1"].to_vec::<i32>()?, [3, 4]);
/// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn read_safetensors(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>> {
    let location = Location::caller();
    let failed = |fault| Error::new(fault, READ, Vec::new(), Some(location));
    let mut files = TensorFiles::try_open(path.as_ref()).map_err(failed)?;
    let names: Vec<String> = files.names().map(String::from).collect();
    let read = |name: String| {
        files.tensor_type(&name)?;
        let array = files.read_tensor(&name)?;
        Ok((name, array))
    };
    names.into_iter().map(read).collect::<Result<_, Fault>>().map_err(failed)
}

/// Adds the path of a file to the message of a fault.
fn error_in_file(fault: Fault, path: &Path) -> Fault {
    Fault { message: format!("{}: {}", path.display(), fault.message), ..fault }
}
fn tensor_name(path: &TreePath) -> String {
    if path.parts().is_empty() { ROOT_NAME.into() } else { path.to_string() }
}

/// Returns the element type of arrays for one of a file.
fn stored_dtype(dtype: Dtype) -> Result<DType, Fault> {
    match DTYPE_PAIRS.iter().find(|t| t.1 == dtype) {
        Some((dtype, _)) => Ok(*dtype),
        // floats of 8 bits are read as their bytes
        None if dtype.bitsize() == 8 => Ok(DType::U8),
        None => Err(data_error(format!("arrays do not support the element type {dtype}"))),
    }
}
