//! The open files from which tensors are read: one file, several, an index, or a folder.

use super::error_in_file;
use super::index::{TensorSource, find_files, read_index};
use super::tensor_file::{TensorFile, missing_tensor};
use crate::api::array::Array;
use crate::core::{ArrayType, Error, Fault, Result, SourceLocation};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::path::{Path, PathBuf};

const OPEN: &str = "tree::TensorFiles::open";
const READ: &str = "tree::TensorFiles::read";
const READ_BLOCK: &str = "tree::TensorFiles::read_block";

/// Open `.safetensors` files, whose tensors are read one by one, or in blocks.
///
/// The files are one file, all files of an index (`model.safetensors.index.json`), or those of a
/// folder, as Hugging Face's libraries write them. The headers are read when the files are opened,
/// and the data of a tensor when it is asked for. A tensor that is read completely is compared with
/// its digest, if the file has one.
///
/// ```
/// use atmesh::prelude::*;
/// # let name = format!("atmesh-open-{}.safetensors", std::process::id());
/// # let path = std::env::temp_dir().join(name);
/// let w = Array::arange(0..8).reshape([4, 2]);
/// tree::save_safetensors(&BTreeMap::from([("w", w)]), &path)?;
/// # use std::collections::BTreeMap;
/// let mut files = tree::TensorFiles::open(&path)?;
/// assert_eq!(files.ty("w")?, I32.array_type([4, 2]));
///
/// // each device's block is read from the file, and nothing else
/// let mesh = Mesh::new([("X", 2)])?;
/// let sharding = Sharding::new(&mesh, p!["X"], &[4, 2])?;
/// let w = Array::from_fn([4, 2], &sharding, |block| {
///     files.read_block("w", block).expect("the file has these rows")
/// })?;
/// assert_eq!(w.shards()?[1].data.to_vec::<i32>()?, [4, 5, 6, 7]);
/// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("safe_open", "from_pretrained"))]
pub struct TensorFiles {
    /// The path that was opened, for messages.
    path: PathBuf,
    files: Vec<TensorFile>,
    /// The index in `files` of the file of each tensor.
    tensors: BTreeMap<String, usize>,
    metadata: BTreeMap<String, String>,
}

impl TensorFiles {
    /// Opens a file, an index or a folder.
    ///
    /// In a folder it opens the files of `model.safetensors.index.json` or of the only other index,
    /// or `model.safetensors`, or all `.safetensors` files.
    ///
    /// # Errors
    /// A file is missing, is cut off, or has a damaged header; or an index names a path outside of
    /// its folder. The error names the file.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let why = tree::TensorFiles::open("nowhere.safetensors").unwrap_err();
    /// assert!(why.to_string().contains("nowhere.safetensors"));
    /// ```
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<TensorFiles> {
        let location = Location::caller();
        TensorFiles::try_open(path.as_ref()).map_err(|fault| located(fault, OPEN, location))
    }
    /// Opens several files, whose tensors have different names.
    ///
    /// ```
    /// use atmesh::tree::TensorFiles;
    /// assert!(TensorFiles::open_all(["nowhere.safetensors"]).is_err());
    /// ```
    #[track_caller]
    pub fn open_all<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<TensorFiles> {
        let location = Location::caller();
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().into()).collect();
        let first = paths.first().cloned().unwrap_or_default();
        TensorFiles::of_files(&first, &paths).map_err(|fault| located(fault, OPEN, location))
    }
    /// Implements [`TensorFiles::open`]; the message of an error names the file.
    pub(in crate::api::tree) fn try_open(path: &Path) -> Result<TensorFiles, Fault> {
        match find_files(path).map_err(|fault| error_in_file(fault, path))? {
            TensorSource::Files(files) => TensorFiles::of_files(path, &files),
            TensorSource::Index(index) => TensorFiles::of_index(path, &index),
        }
    }
    fn empty(path: &Path) -> TensorFiles {
        TensorFiles {
            path: path.into(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
            metadata: BTreeMap::new(),
        }
    }
    /// Opens a file, and returns the names of its tensors.
    fn add_file(&mut self, path: &Path) -> Result<Vec<String>, Fault> {
        let file = TensorFile::open(path).map_err(|fault| error_in_file(fault, path))?;
        for (name, value) in &file.header.metadata {
            self.metadata.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let names = file.header.names();
        self.files.push(file);
        Ok(names)
    }
    fn of_files(path: &Path, paths: &[PathBuf]) -> Result<TensorFiles, Fault> {
        let mut files = TensorFiles::empty(path);
        for path in paths {
            for name in files.add_file(path)? {
                let own = files.files.len() - 1;
                if let Some(other) = files.tensors.insert(name.clone(), own) {
                    let other = files.files[other].path.display();
                    return Err(fault!(Data, "{}: `{name}` is in {other} too", path.display())
                        .help("open the files of one model, or give its index"));
                }
            }
        }
        Ok(files)
    }
    fn of_index(path: &Path, index: &Path) -> Result<TensorFiles, Fault> {
        let map = read_index(index).map_err(|fault| error_in_file(fault, index))?;
        let mut files = TensorFiles::empty(path);
        let mut opened: BTreeMap<&PathBuf, usize> = BTreeMap::new();
        for (name, file) in &map {
            let own = match opened.get(file) {
                Some(own) => *own,
                None => {
                    files.add_file(file)?;
                    *opened.entry(file).or_insert(files.files.len() - 1)
                }
            };
            if files.files[own].header.info(name).is_none() {
                let message =
                    format!("{}: the file has no tensor `{name}`, but the index says so", file.display());
                return Err(Fault { message, ..missing_tensor(files.files[own].header.names()) });
            }
            files.tensors.insert(name.clone(), own);
        }
        Ok(files)
    }
    /// Returns the names of all tensors, sorted.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let name = format!("atmesh-names-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// tree::save_safetensors(&(Array::ones([2]), vec![Array::ones([3])]), &path)?;
    /// let files = tree::TensorFiles::open(&path)?;
    /// assert_eq!(files.names().collect::<Vec<_>>(), ["0", "1.0"]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
    /// Returns the metadata of the files, without the digests.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let name = format!("atmesh-metadata-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// tree::save_safetensors_with(&Array::ones([2]), &path, [("licence", "MIT")])?;
    /// assert_eq!(tree::TensorFiles::open(&path)?.metadata()["licence"], "MIT");
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
    /// Returns the type of a tensor. Floats of 8 bits, which arrays do not have, are uint8.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let name = format!("atmesh-ty-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// tree::save_safetensors(&vec![Array::ones([2, 3]).astype(BF16)], &path)?;
    /// let files = tree::TensorFiles::open(&path)?;
    /// assert_eq!(files.ty("0")?, BF16.array_type([2, 3]));
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn ty(&self, name: &str) -> Result<ArrayType> {
        let location = Location::caller();
        self.tensor_type(name).map_err(|fault| located(fault, "tree::TensorFiles::ty", location))
    }
    /// Reads a tensor, as an array on no mesh.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let name = format!("atmesh-read-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// tree::save_safetensors(&vec![Array::from([1, 2])], &path)?;
    /// assert_eq!(tree::TensorFiles::open(&path)?.read("0")?.to_vec::<i32>()?, [1, 2]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn read(&mut self, name: &str) -> Result<Array> {
        let location = Location::caller();
        self.read_tensor(name).map_err(|fault| located(fault, READ, location))
    }
    /// Reads the block of a tensor with this index range in each dimension, and no other data.
    ///
    /// A digest is of all data of a tensor, so a block is not compared with it.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let name = format!("atmesh-block-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// tree::save_safetensors(&vec![Array::arange(0..12).reshape([3, 4])], &path)?;
    /// let mut files = tree::TensorFiles::open(&path)?;
    /// assert_eq!(files.read_block("0", &[1..3, 0..2])?.to_vec::<i32>()?, [4, 5, 8, 9]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn read_block(&mut self, name: &str, index: &[Range<usize>]) -> Result<Array> {
        let location = Location::caller();
        self.read_tensor_block(name, index).map_err(|fault| located(fault, READ_BLOCK, location))
    }

    /// Calls `f` with the file of a tensor; the message of its error names the tensor and the file.
    fn in_file_of<R>(
        &mut self,
        name: &str,
        f: impl FnOnce(&mut TensorFile) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let Some(file) = self.tensors.get(name) else { return Err(self.missing(name)) };
        let file = &mut self.files[*file];
        f(file).map_err(|fault| {
            let message = format!("{name}, from {}: {}", file.path.display(), fault.message);
            Fault { message, ..fault }
        })
    }
    /// Returns the error for a tensor that the files do not have.
    pub(super) fn missing(&self, name: &str) -> Fault {
        let fault = missing_tensor(self.tensors.keys().cloned().collect());
        let message = format!("{name}, from {}: {}", self.path.display(), fault.message);
        Fault { message, ..fault }
    }
    pub(super) fn tensor_type(&self, name: &str) -> Result<ArrayType, Fault> {
        match self.tensors.get(name) {
            Some(file) => self.files[*file].tensor_type(name).map_err(|fault| {
                let message = format!("`{name}`: {}", fault.message);
                error_in_file(Fault { message, ..fault }, &self.files[*file].path)
            }),
            None => Err(self.missing(name)),
        }
    }
    /// Returns the path of the file of a tensor, or the opened path if there is no such tensor.
    pub(super) fn path_of(&self, name: &str) -> &Path {
        self.tensors.get(name).map_or(&self.path, |file| &self.files[*file].path)
    }
    pub(super) fn read_tensor(&mut self, name: &str) -> Result<Array, Fault> {
        self.in_file_of(name, |file| file.read(name))
    }
    pub(super) fn read_tensor_block(&mut self, name: &str, index: &[Range<usize>]) -> Result<Array, Fault> {
        self.in_file_of(name, |file| file.read_block(name, index))
    }
    /// Compares the data of a tensor with its digest, if it has one.
    pub(super) fn verify(&mut self, name: &str) -> Result<(), Fault> {
        self.in_file_of(name, |file| file.verify(name))
    }
}

fn located(fault: Fault, op: &str, location: SourceLocation) -> Error {
    Error::new(fault, op, Vec::new(), Some(location))
}

impl fmt::Debug for TensorFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorFiles({}, {} tensors)", self.path.display(), self.tensors.len())
    }
}
