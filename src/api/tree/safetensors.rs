//! Trees in one `.safetensors` file, compatible with other libraries.

use super::files::{check_type, file_type, restore_like};
use super::{Path as TreePath, Tree};
use crate::api::array::{Array, atomic_file, npy};
use crate::api::random::Key;
use crate::core::{ArrayType, DType, Error, ErrorKind, Fault, Result, SourceLocation, util::small_sort};
use crate::exec::runtime::ArrayData;
use crate::ir::program::CallSite;
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, View};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
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
/// The maximum size of a header, in bytes. A larger header is rejected as corrupt.
const MAX_HEADER_BYTES: u64 = 100 << 20;

const SAVE: &str = "tree::save_safetensors";
const LOAD: &str = "tree::load_safetensors";
const READ: &str = "tree::read_safetensors";

/// The data of one array, as the file stores it.
struct TensorBytes {
    dtype: Dtype,
    shape: Vec<usize>,
    data: ArrayData,
}
impl View for &TensorBytes {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        // the data was made contiguous, so this cannot fail
        self.data.bytes().unwrap_or_default().into()
    }
    fn data_len(&self) -> usize {
        self.data.nbytes()
    }
}

/// Writes all arrays of the tree into one `.safetensors` file.
///
/// Tensors are named by their paths (`layers.0.w`). The file contains the global arrays, whatever
/// their sharding. Keys are stored as their words, uint32. complex128 is an error: the format does
/// not support it. The file appears only when it is complete.
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
    let (location, path) = (Location::caller(), path.as_ref());
    let (mut all, mut failed) = (Vec::new(), None);
    tree.visit(&mut TreePath::named(), &mut |name, a| {
        match to_tensor(a, location) {
            Ok(x) => all.push((tensor_name(name), x)),
            Err(error) => drop(failed.get_or_insert(error)),
        };
    });
    if let Some(error) = failed {
        return Err(error);
    }
    check_names(&all).map_err(|fault| Error::new(fault, SAVE, Vec::new(), Some(location)))?;
    let names = all.iter().map(|(name, x)| (name.as_str(), x));
    let bytes =
        safetensors::serialize(names, None).map_err(|why| npy::file_error(SAVE, path, why, location))?;
    atomic_file::write_atomically(path, &bytes).map_err(|why| npy::file_error(SAVE, path, why, location))
}

/// Returns an error if two tensors have one name, or one has the name of the file's metadata.
fn check_names(tensors: &[(String, TensorBytes)]) -> Result<(), Fault> {
    let mut names = BTreeSet::new();
    for (name, _) in tensors {
        if name == METADATA_NAME {
            let message = format!("`{name}` is reserved for the metadata of the file");
            return Err(Fault::new(ErrorKind::Tree, message).help("rename the key of the array"));
        }
        if !names.insert(name) {
            let message = format!("two arrays are named `{name}`: names join the keys of a path by dots");
            return Err(Fault::new(ErrorKind::Tree, message).help("rename a key that has a dot"));
        }
    }
    Ok(())
}

/// Reads a tree from a `.safetensors` file.
///
/// The paths, element types and shapes are those of `like`.
///
/// Each array is placed like the corresponding array of `like`, which may be on another mesh than
/// the saved one. The error lists all arrays that are missing or of another type. Other arrays in
/// the file are not read.
///
/// ```
/// use atmesh::prelude::*;
/// let error = tree::load_safetensors(&Array::ones([4]), "nowhere.safetensors").unwrap_err();
/// assert!(error.to_string().contains("nowhere.safetensors"));
/// ```
#[track_caller]
pub fn load_safetensors<T: Tree>(like: &T, path: impl AsRef<Path>) -> Result<T> {
    let (location, path) = (Location::caller(), path.as_ref());
    let mut file = TensorFile::open(path).map_err(|fault| error_in_file(fault, LOAD, path, location))?;
    let mut errors = Vec::new();
    let read = like.rebuild(&mut TreePath::named(), &mut |name, a| {
        read_leaf(&mut file, a, &tensor_name(name), path, location).unwrap_or_else(|error| {
            errors.push(error);
            a.clone()
        })
    });
    if errors.is_empty() { Ok(read) } else { Err(Error::combine(errors)) }
}

/// Reads all arrays of a `.safetensors` file, by name.
///
/// The arrays are unplaced. The map that is returned is a tree. Floats of 8 bits, which arrays do
/// not have, are returned as their bytes, uint8.
///
/// # Errors
/// The file is not a `.safetensors` file, or a tensor has an element type of less than 8 bits; the
/// error names the tensor.
#[track_caller]
pub fn read_safetensors(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>> {
    let (location, path) = (Location::caller(), path.as_ref());
    let failed = |fault| error_in_file(fault, READ, path, location);
    let mut file = TensorFile::open(path).map_err(failed)?;
    let mut made = BTreeMap::new();
    for name in file.head.offset_keys() {
        let array = file.array(&name).map_err(|fault| {
            let message = format!("`{name}`: {}", fault.message);
            failed(Fault { message, ..fault })
        })?;
        made.insert(name, array);
    }
    Ok(made)
}

fn error_in_file(fault: Fault, op: &str, path: &Path, location: SourceLocation) -> Error {
    let message = format!("{}: {}", path.display(), fault.message);
    Error::new(Fault { message, ..fault }, op, Vec::new(), Some(location))
}
fn tensor_name(path: &TreePath) -> String {
    if path.parts().is_empty() { ROOT_NAME.into() } else { path.to_string() }
}

/// Returns the data of an array in the form that the file stores.
fn to_tensor(a: &Array, location: SourceLocation) -> Result<TensorBytes> {
    let ty = a.ty()?;
    let a = if ty.dtype == DType::Key { Key::from_array(a.clone()).data() } else { a.clone() };
    let ty = file_type(&ty);
    let Some((_, dtype)) = DTYPE_PAIRS.iter().find(|t| t.0 == ty.dtype) else {
        let fault = fault!(Dtype, "{} cannot be stored in .safetensors files", ty.dtype);
        let fault = fault.help("convert it first: `.astype(C64)`");
        return Err(Error::new(fault, SAVE, vec![ty.to_string()], Some(location)));
    };
    Ok(TensorBytes { dtype: *dtype, shape: ty.shape.to_vec(), data: a.host_data(SAVE, location)? })
}

fn read_leaf(
    file: &mut TensorFile,
    like: &Array,
    name: &str,
    path: &Path,
    location: SourceLocation,
) -> Result<Array> {
    let ty = like.ty()?;
    let error = |fault: Fault| {
        let message = format!("{name}, from {}: {}", path.display(), fault.message);
        Error::new(Fault { message, ..fault }, LOAD, vec![ty.to_string()], Some(location))
    };
    let info = file.info(name).map_err(error)?;
    let found = tensor_type(&info).map_err(error)?;
    check_type(&found, &file_type(&ty)).map_err(error)?;
    let read = file.array(name).map_err(error)?;
    restore_like(read, like, CallSite::new(LOAD, location))
}

/// Returns the array type of a tensor.
fn tensor_type(info: &TensorInfo) -> Result<ArrayType, Fault> {
    let dtype = match DTYPE_PAIRS.iter().find(|t| t.1 == info.dtype) {
        Some((dtype, _)) => dtype,
        // floats of 8 bits are read as their bytes
        None if info.dtype.bitsize() == 8 => &DType::U8,
        None => {
            return Err(atomic_file::data_error(format!(
                "arrays do not support the element type {}",
                info.dtype
            )));
        }
    };
    let ty = dtype.array_type(info.shape.clone());
    ty.check_addressable()?;
    Ok(ty)
}

/// An open file and its header.
struct TensorFile {
    file: File,
    head: Metadata,
    /// The offset of the first element from the start of the file, in bytes.
    data_start: u64,
}

impl TensorFile {
    fn open(path: &Path) -> Result<TensorFile, Fault> {
        let no_file = |why: String| atomic_file::data_error(format!("it is not a .safetensors file: {why}"));
        let (mut file, length) = atomic_file::open_regular(path)?;
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(|why| no_file(why.to_string()))?;
        let size = u64::from_le_bytes(size);
        if size > length.saturating_sub(8).min(MAX_HEADER_BYTES) {
            return Err(no_file(format!("a header of {size} bytes in a file of {length}")));
        }
        let mut head = Vec::new();
        (&mut file).take(size).read_to_end(&mut head).map_err(atomic_file::data_error)?;
        // the deserializer checks that sizes match the types, and that there are no gaps
        let head: Metadata = serde_json::from_slice(&head).map_err(|why| no_file(why.to_string()))?;
        let (begins, takes) = (8 + size, head.data_len() as u64);
        if length - begins != takes {
            let holds = length - begins;
            return Err(atomic_file::data_error(format!(
                "its arrays take {takes} bytes, but it holds {holds} after its header"
            )));
        }
        Ok(TensorFile { file, head, data_start: begins })
    }
    fn info(&self, name: &str) -> Result<TensorInfo, Fault> {
        self.head.info(name).cloned().ok_or_else(|| {
            let mut names = self.head.offset_keys();
            small_sort::sort(&mut names);
            names.truncate(8);
            atomic_file::data_error("the file has no array of this name")
                .help(format!("it has {}, …", names.join(", ")))
        })
    }
    /// Reads one array, and nothing else of the file.
    fn array(&mut self, name: &str) -> Result<Array, Fault> {
        let info = self.info(name)?;
        let ty = tensor_type(&info)?;
        self.file
            .seek(SeekFrom::Start(self.data_start + info.data_offsets.0 as u64))
            .map_err(atomic_file::data_error)?;
        let slab = npy::read_elements(&mut self.file, &ty, false)?;
        Ok(Array::concrete(slab, ty, None))
    }
}
