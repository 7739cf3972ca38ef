//! Writing of trees: tensor by tensor, into one file or a folder of files with an index.

use super::digest::Xxh64;
use super::header::{NewHeader, check_metadata};
use super::index::{INDEX_NAME, index_text, part_name};
use super::tensor_file::digest_of_part;
use super::{METADATA_NAME, SAVE, stored_dtype, tensor_name};
use crate::api::array::Array;
use crate::api::array::files::atomic_file::{data_error, open_part, sync_folder};
use crate::api::array::files::blocks::write_blocks;
use crate::api::array::files::peers::{FilePeers, StepFailure};
use crate::api::random::Key;
use crate::api::tree::files::file_type;
use crate::api::tree::{Path as TreePath, Tree};
use crate::core::{ArrayType, DType, Error, ErrorKind, Fault, Result, SourceLocation};
use safetensors::Dtype;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

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
///
/// If there are several processes, all of them call this.
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
    let array = match ty.dtype {
        DType::Key => Key::from_array(a.clone()).data(),
        _ => a.clone(),
    };
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

/// A file of tensors that is being written.
struct NewTensorFile {
    path: PathBuf,
    header: NewHeader,
    tensors: Vec<PendingTensor>,
}

/// Writes the tensors into one file.
pub(super) fn write_file(
    path: &Path,
    tensors: Vec<PendingTensor>,
    options: &SaveOptions,
    peers: &mut FilePeers,
    location: SourceLocation,
) -> Result<(), Fault> {
    let files = vec![NewTensorFile::new(path.into(), tensors, options)];
    write_files(files, peers, location).and_then(|files| {
        peers.step_of_first(|| finish_files(&files)).map(drop).map_err(StepFailure::into_fault)
    })
}

/// Writes the tensors into new files of an empty folder, and an index if there are several.
///
/// All of it is on the disk when the function returns.
pub(in crate::api::tree) fn write_folder(
    folder: &Path,
    tensors: Vec<PendingTensor>,
    options: &SaveOptions,
    peers: &mut FilePeers,
    location: SourceLocation,
) -> Result<(), Fault> {
    let total: usize = tensors.iter().map(|t| t.ty.nbytes()).sum();
    let groups = split_by_size(tensors, options.max_file_bytes);
    let (number, mut index, mut files) = (groups.len(), BTreeMap::new(), Vec::new());
    for (k, group) in groups.into_iter().enumerate() {
        let name = part_name(k, number);
        index.extend(group.iter().map(|tensor| (tensor.name.clone(), name.clone())));
        files.push(NewTensorFile::new(folder.join(&name), group, options));
    }
    let files = write_files(files, peers, location)?;
    let finish = || {
        finish_files(&files)?;
        if number > 1 {
            let mut file = File::create_new(folder.join(INDEX_NAME)).map_err(data_error)?;
            file.write_all(index_text(total, &index)?.as_bytes()).map_err(data_error)?;
            file.sync_all().map_err(data_error)?;
        }
        sync_folder(folder).map_err(data_error)?;
        Ok(Vec::new())
    };
    peers.step_of_first(finish).map(drop).map_err(StepFailure::into_fault)
}

/// Writes the data of files, in all processes, and returns the files with all digests.
fn write_files(
    mut files: Vec<NewTensorFile>,
    peers: &mut FilePeers,
    location: SourceLocation,
) -> Result<Vec<NewTensorFile>, Fault> {
    let written = write_own_parts(&mut files, peers, location);
    let known = set_digests(&mut files, peers.gather(written).map_err(StepFailure::into_fault)?);
    if known.iter().any(|known| !known) {
        // a tensor of several writers is digested when all of it is written
        let read = digest_by_turns(&files, &known, peers);
        set_digests(&mut files, peers.gather(read).map_err(StepFailure::into_fault)?);
    }
    Ok(files)
}

/// Writes what this process has of the tensors. The memory of each is free after it was written.
///
/// Returns the digests of the tensors that this process has written completely.
fn write_own_parts(
    files: &mut [NewTensorFile],
    peers: &FilePeers,
    location: SourceLocation,
) -> Result<Vec<u8>, Fault> {
    let (mut digests, mut number) = (Vec::new(), 0);
    for new in files {
        let mut file = open_part(&new.path).map_err(data_error)?;
        let data_start = new.header.data_start()?;
        if peers.is_first() {
            new.header.write(&mut file)?;
        }
        for (k, tensor) in std::mem::take(&mut new.tensors).into_iter().enumerate() {
            let start = data_start + new.header.offset(k) as u64;
            let (mut digest, call) = (Xxh64::new(), (SAVE, location));
            let update = |bytes: &[u8]| digest.update(bytes);
            let written = write_blocks((&mut file, start), &tensor.array, peers, call, update);
            let is_complete = written.map_err(|fault| Fault {
                message: format!("`{}`: {}", tensor.name, fault.message),
                ..fault
            })?;
            if is_complete {
                digests.push((number, digest.finish()));
            }
            number += 1;
        }
        if !peers.is_alone() {
            // processes on other hosts see it after this
            file.sync_all().map_err(data_error)?;
        }
    }
    Ok(digest_bytes(&digests))
}

/// Reads the tensors whose digests are not known, of which each process takes its share.
fn digest_by_turns(files: &[NewTensorFile], known: &[bool], peers: &FilePeers) -> Result<Vec<u8>, Fault> {
    let (mut digests, mut number, mut turn) = (Vec::new(), 0, 0);
    for new in files {
        let (mut file, data_start) = (None, new.header.data_start()?);
        for k in 0..new.header.len() {
            if !known[number] {
                if peers.has_turn(turn) {
                    let file = match &mut file {
                        Some(file) => file,
                        none => none.insert(File::open(&new.path).map_err(data_error)?),
                    };
                    let start = data_start + new.header.offset(k) as u64;
                    digests.push((number, digest_of_part(file, start, new.header.nbytes(k))?.finish()));
                }
                turn += 1;
            }
            number += 1;
        }
    }
    Ok(digest_bytes(&digests))
}

/// Sets digests that processes have found. Returns which tensors have one, of all files in order.
fn set_digests(files: &mut [NewTensorFile], found: Vec<Vec<u8>>) -> Vec<bool> {
    let mut known: Vec<bool> = Vec::new();
    let all: BTreeMap<usize, u64> = found.iter().flat_map(|bytes| parse_digest_bytes(bytes)).collect();
    for new in files {
        for k in 0..new.header.len() {
            let digest = all.get(&known.len());
            if let Some(digest) = digest {
                new.header.set_digest(k, *digest);
            }
            known.push(digest.is_some());
        }
    }
    known
}

/// Returns digests as bytes: the number of each tensor, and its digest.
fn digest_bytes(digests: &[(usize, u64)]) -> Vec<u8> {
    let words = digests.iter().flat_map(|(number, digest)| [*number as u64, *digest]);
    words.flat_map(u64::to_le_bytes).collect()
}
fn parse_digest_bytes(bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let (pairs, _) = bytes.as_chunks::<16>();
    pairs.iter().map(|pair| {
        let pair = u128::from_le_bytes(*pair);
        (pair as u64 as usize, (pair >> 64) as u64)
    })
}

/// Writes the headers again, with all digests.
fn finish_files(files: &[NewTensorFile]) -> Result<Vec<u8>, Fault> {
    for new in files {
        let mut file = open_part(&new.path).map_err(data_error)?;
        new.header.write(&mut file)?;
        file.sync_all().map_err(data_error)?;
    }
    Ok(Vec::new())
}

impl NewTensorFile {
    fn new(path: PathBuf, mut tensors: Vec<PendingTensor>, options: &SaveOptions) -> NewTensorFile {
        // the order of the crate `safetensors`, in which each tensor is aligned
        tensors.sort_by(|a, b| b.dtype.cmp(&a.dtype).then(a.name.cmp(&b.name)));
        let described = tensors.iter().map(|t| (t.name.as_str(), t.dtype, &*t.ty.shape, t.ty.nbytes()));
        let header = NewHeader::new(&options.metadata, described);
        NewTensorFile { path, header, tensors }
    }
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
