//! Writing of trees: tensor by tensor, into one file or a folder of files with an index.

use super::digest::Xxh64;
use super::header::{NewHeader, check_metadata};
use super::index::{INDEX_NAME, index_text, part_name};
use super::tensor_file::CHUNK_BYTES;
use super::{METADATA_NAME, SAVE, stored_dtype, tensor_name};
use crate::api::array::Array;
use crate::api::array::atomic_file::{data_error, sync_folder};
use crate::api::random::Key;
use crate::api::tree::files::file_type;
use crate::api::tree::{Path as TreePath, Tree};
use crate::core::{ArrayType, DType, Error, ErrorKind, Fault, Result, SourceLocation};
use safetensors::Dtype;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;

/// The options of [`save_safetensors_with`](crate::tree::save_safetensors_with) and of
/// [`Checkpoints::save_with`](crate::tree::Checkpoints::save_with).
///
/// Entries of metadata convert to options: `[("offset", 1000)]`.
///
/// ```
/// use atmesh::prelude::*;
/// # let folder = std::env::temp_dir().join(format!("atmesh-saved-{}", std::process::id()));
/// // two tensors of 1,024 bytes, each in its own file, and an index
/// let options = tree::SaveOptions::default().max_file_bytes(1500).metadata([("step", 7)]);
/// tree::save_safetensors_with(&(Array::ones([256]), Array::ones([256])), &folder, options)?;
/// assert_eq!(std::fs::read_dir(&folder).map_err(atmesh::Error::other)?.count(), 3);
/// assert_eq!(tree::TensorFiles::open(&folder)?.metadata()["step"], "7");
/// # std::fs::remove_dir_all(&folder).map_err(atmesh::Error::other)?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SaveOptions {
    /// The maximum size of a file's tensors, in bytes. A larger tensor is in a file alone. Defaults
    /// to 4,000,000,000.
    pub max_file_bytes: usize,
    /// The entries of the metadata, which is in each file. Defaults to none; `format: pt`, which
    /// other libraries need, is added.
    pub metadata: BTreeMap<String, String>,
}
impl Default for SaveOptions {
    fn default() -> SaveOptions {
        SaveOptions {
            max_file_bytes: usize::try_from(4_000_000_000u64).unwrap_or(1 << 31),
            metadata: BTreeMap::new(),
        }
    }
}
impl SaveOptions {
    setters! {
        /// Sets the maximum size of a file's tensors, in bytes.
        ///
        /// ```
        /// let options = atmesh::tree::SaveOptions::default().max_file_bytes(1000);
        /// assert_eq!(options.max_file_bytes, 1000);
        /// ```
        #[doc(alias = "max_shard_size")]
        pub fn max_file_bytes(bytes: usize) = max_file_bytes: bytes;
    }
    /// Adds entries to the metadata.
    ///
    /// ```
    /// use atmesh::tree::SaveOptions;
    /// let options = SaveOptions::default().metadata([("offset", 1000)]);
    /// assert_eq!(options.metadata["offset"], "1000");
    /// ```
    pub fn metadata<K: Into<String>, V: ToString>(
        mut self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.metadata.extend(entries.into_iter().map(|(k, v)| (k.into(), v.to_string())));
        self
    }
}
conversions! { SaveOptions:
    [K: Into<String>, V: ToString, const N: usize] [(K, V); N]
        => |entries| SaveOptions::default().metadata(entries);
    [] BTreeMap<String, String> => |metadata| SaveOptions { metadata, ..SaveOptions::default() };
}

/// A tensor that will be written. It holds the memory of its array.
pub(in crate::api::tree) struct PendingTensor {
    name: String,
    dtype: Dtype,
    ty: ArrayType,
    array: Array,
}

/// Returns the tensors of a tree, or all errors of arrays that cannot be written.
pub(in crate::api::tree) fn pending_tensors<T: Tree>(
    tree: &T,
    options: &SaveOptions,
    location: SourceLocation,
) -> Result<Vec<PendingTensor>> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    tree.visit(&mut TreePath::named(), &mut |path, a| match pending_tensor(path, a, location) {
        Ok(tensor) => all.push(tensor),
        Err(error) => errors.push(error),
    });
    if !errors.is_empty() {
        return Err(Error::combine(errors));
    }
    let failed = |fault| Error::new(fault, SAVE, Vec::new(), Some(location));
    check_names(&all).and_then(|()| check_metadata(&options.metadata)).map_err(failed)?;
    Ok(all)
}

fn pending_tensor(path: &TreePath, a: &Array, location: SourceLocation) -> Result<PendingTensor> {
    let ty = a.ty()?;
    // an array that is traced, was donated or has a type only is an error now
    a.array_data(SAVE, location)?;
    let array = if ty.dtype == DType::Key { Key::from_array(a.clone()).data() } else { a.clone() };
    let (ty, given) = (file_type(&ty), ty);
    let Some((_, dtype)) = super::DTYPE_PAIRS.iter().find(|t| t.0 == ty.dtype) else {
        let fault = fault!(
            Dtype,
            "{}: {} cannot be stored in .safetensors files",
            path.name_or("the array"),
            ty.dtype
        );
        let fault = fault.help("convert it first: `.astype(C64)`");
        return Err(Error::new(fault, SAVE, vec![given.to_string()], Some(location)));
    };
    debug_assert_eq!(stored_dtype(*dtype), Ok(ty.dtype));
    Ok(PendingTensor { name: tensor_name(path), dtype: *dtype, ty, array })
}

/// Returns an error if two tensors have one name, or one has the name of the file's metadata.
fn check_names(tensors: &[PendingTensor]) -> Result<(), Fault> {
    let mut names = BTreeSet::new();
    for tensor in tensors {
        let name = &tensor.name;
        if name == METADATA_NAME {
            let message = format!("the name `{METADATA_NAME}` is reserved for metadata");
            return Err(Fault::new(ErrorKind::Tree, message).help("rename the key"));
        }
        if !names.insert(name) {
            let message = format!("two arrays are named `{name}`");
            return Err(Fault::new(ErrorKind::Tree, message).help("rename a key that has a dot"));
        }
    }
    Ok(())
}

/// Writes the tensors and their header. The memory of each is free after it has been written.
pub(super) fn write_tensors(
    file: &mut File,
    mut tensors: Vec<PendingTensor>,
    options: &SaveOptions,
    location: SourceLocation,
) -> Result<(), Fault> {
    // the order of the crate `safetensors`, in which each tensor is aligned
    tensors.sort_by(|a, b| b.dtype.cmp(&a.dtype).then(a.name.cmp(&b.name)));
    let described = tensors.iter().map(|t| (t.name.as_str(), t.dtype, &*t.ty.shape, t.ty.nbytes()));
    let mut header = NewHeader::new(&options.metadata, described);
    header.write(file)?;
    for (k, tensor) in tensors.into_iter().enumerate() {
        let data = tensor.array.host_data_once(SAVE, location).map_err(|error| {
            let fault = error.diagnostics().first().map(|d| d.fault.clone());
            let fault = fault.unwrap_or_else(|| fault!(Internal, "an error without a diagnostic"));
            Fault { message: format!("`{}`: {}", tensor.name, fault.message), ..fault }
        })?;
        let mut digest = Xxh64::new();
        for chunk in data.bytes()?.chunks(CHUNK_BYTES) {
            digest.update(chunk);
            file.write_all(chunk).map_err(data_error)?;
        }
        header.set_digest(k, digest.finish());
    }
    file.rewind().map_err(data_error)?;
    header.write(file)
}

/// Writes the tensors into new files of an empty folder, and an index if there are several.
///
/// All of it is on the disk when the function returns.
pub(in crate::api::tree) fn write_folder(
    folder: &Path,
    tensors: Vec<PendingTensor>,
    options: &SaveOptions,
    location: SourceLocation,
) -> Result<(), Fault> {
    let total: usize = tensors.iter().map(|t| t.ty.nbytes()).sum();
    let groups = split_by_size(tensors, options.max_file_bytes);
    let (number, mut index) = (groups.len(), BTreeMap::new());
    for (k, group) in groups.into_iter().enumerate() {
        let name = part_name(k, number);
        index.extend(group.iter().map(|tensor| (tensor.name.clone(), name.clone())));
        let mut file = File::create_new(folder.join(&name)).map_err(data_error)?;
        write_tensors(&mut file, group, options, location)?;
        file.sync_all().map_err(data_error)?;
    }
    if number > 1 {
        let mut file = File::create_new(folder.join(INDEX_NAME)).map_err(data_error)?;
        file.write_all(index_text(total, &index)?.as_bytes()).map_err(data_error)?;
        file.sync_all().map_err(data_error)?;
    }
    sync_folder(folder).map_err(data_error)
}

/// Splits tensors, in order, into groups of at most `max_bytes` bytes; there is at least one group.
fn split_by_size(tensors: Vec<PendingTensor>, max_bytes: usize) -> Vec<Vec<PendingTensor>> {
    let (mut groups, mut bytes) = (vec![Vec::new()], 0usize);
    for tensor in tensors {
        let own = tensor.ty.nbytes();
        if bytes.saturating_add(own) > max_bytes && groups.last().is_some_and(|group| !group.is_empty()) {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes = bytes.saturating_add(own);
        if let Some(group) = groups.last_mut() {
            group.push(tensor);
        }
    }
    groups
}
