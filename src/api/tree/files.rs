//! Saves and loads trees as directories, with one `.npy` file for each array, named by its path.

use super::{Path as TreePath, Tree};
use crate::api::array::Array;
use crate::api::array::files::atomic_file::{self, data_error, open_part, share_part};
use crate::api::array::files::blocks::StoredBlocks;
use crate::api::array::files::npy::{self, NpyFile, NpyPart};
use crate::api::array::files::peers::{FilePeers, StepFailure};
use crate::api::random::Key;
use crate::core::{ArrayType, DType, Error, ErrorKind, Fault, Result, SourceLocation};
use crate::ir::program::CallSite;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::panic::Location;
use std::path::Path;
use tempfile::TempDir;

/// Applies `f` to each path and array of a tree.
///
/// Returns the new tree, or all errors that `f` returned.
///
/// ```
/// use atmesh::prelude::*;
/// let params = (Array::ones([2]), Array::ones([3]));
/// let checked = tree::try_map_named(&params, |path, x| {
///     let least = x.min(..).item::<f32>()?;
///     match least > 0.0 {
///         true => Ok(x.clone()),
///         false => Err(atmesh::Error::other(format!("{path} is not positive"))),
///     }
/// })?;
/// assert_eq!(type_of(&checked), "(float32[2], float32[3])");
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn try_map_named<T: Tree>(tree: &T, mut f: impl FnMut(&str, &Array) -> Result<Array>) -> Result<T> {
    let mut errors = Vec::new();
    let made = tree.rebuild(&mut TreePath::named(), &mut |path, a| {
        f(&path.to_string(), a).unwrap_or_else(|error| {
            errors.push(error);
            a.clone()
        })
    });
    if errors.is_empty() { Ok(made) } else { Err(Error::combine(errors)) }
}

/// Writes all arrays of the tree into a directory: `layers.0.w.npy` and so on.
///
/// Each file is written as by [`Array::save_npy`]; bfloat16 arrays are stored as float32, keys as
/// their words. [`load_npy`] reads the directory.
///
/// The directory appears only after all files are written, so there is never a partial save. It
/// replaces an earlier directory of the same name, which must contain only `.npy` files. If arrays
/// are on devices of several processes, all of them save together, as in [`Array::save_npy`].
///
/// ```
/// use atmesh::prelude::*;
/// let dir = std::env::temp_dir().join(format!("atmesh-tree-{}", std::process::id()));
/// let mesh = Mesh::new([("X", 2)])?;
/// let params = (Array::ones([4]).put(&mesh, p!["X"]), vec![Array::from(1)]);
/// tree::save_npy(&params, &dir)?;
/// let read = tree::load_npy(&params, &dir)?;
/// assert_eq!(type_of(&read), "(float32[4@X], (int32[]))");
/// std::fs::remove_dir_all(&dir).map_err(atmesh::Error::other)?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn save_npy<T: Tree>(tree: &T, dir: impl AsRef<Path>) -> Result<()> {
    let (location, dir) = (Location::caller(), dir.as_ref());
    let failed = |fault: Fault| npy::file_error(SAVE, dir, fault.message, location);
    let is_own = |name: &str| name.ends_with(".npy");
    let mut peers = FilePeers::of_arrays(&leaves(tree), SAVE, dir, location)?;
    let mut failure = None;
    let write = |part: &Path, peers: &mut FilePeers| {
        let written = write_all(tree, part, peers, location);
        peers.agree(written).map_err(|why| {
            failure = Some(why.into_error(SAVE, location));
            // the error itself is returned below
            fault!(Data, "an array cannot be written")
        })
    };
    let replaced = replace_directory(dir, &mut peers, is_own, write);
    match failure {
        Some(error) => Err(error),
        None => replaced.map_err(failed),
    }
}

/// Replaces a directory by what `write` writes into an empty one, which then gets its name.
///
/// A symbolic link to a directory stays one.
///
/// # Errors
/// The directory holds a file whose name is not one of `is_own`, or writing fails.
pub(super) fn replace_directory(
    dir: &Path,
    peers: &mut FilePeers,
    is_own: impl Fn(&str) -> bool,
    write: impl FnOnce(&Path, &mut FilePeers) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut temporary = None;
    let create = || {
        let dir = &*atomic_file::follow_links(dir).map_err(data_error)?;
        check_replaceable(dir, is_own)?;
        let part = std::fs::create_dir_all(atomic_file::parent(dir))
            .and_then(|()| atomic_file::temporary_names(dir, ".part").tempdir_in(atomic_file::parent(dir)))
            .map_err(data_error)?;
        Ok(temporary.insert(part).path().to_path_buf())
    };
    let part = share_part(dir, peers, create)?;
    let commit = || {
        let dir = &*atomic_file::follow_links(dir).map_err(data_error)?;
        swap_directory(&part, dir).map_err(data_error)?;
        // the directory has another name now
        let _ = temporary.take().map(TempDir::keep);
        atomic_file::sync_folder(atomic_file::parent(dir)).map_err(data_error)?;
        Ok(Vec::new())
    };
    let written = write(&part, peers)
        .and_then(|()| peers.step_of_first(commit).map(drop).map_err(StepFailure::into_fault));
    if written.is_err() && !peers.is_first() {
        // process 0 may be gone
        let _ = std::fs::remove_dir_all(&part);
    }
    written
}

/// Returns an error if the directory holds a file whose name is not one of `is_own`.
fn check_replaceable(dir: &Path, is_own: impl Fn(&str) -> bool) -> Result<(), Fault> {
    let others = match file_names(dir) {
        Ok(others) => others,
        // another save may replace the directory at this moment
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(why) => return Err(data_error(why)),
    };
    match others.iter().find(|name| !name.to_str().is_some_and(&is_own)) {
        Some(other) => Err(fault!(
            Data,
            "the directory holds {}, which is not an array file: it is not replaced",
            other.display()
        )),
        None => Ok(()),
    }
}

/// Reads a tree that [`save_npy`] wrote.
///
/// The structure, element types and shapes are those of `like`.
///
/// Each array is placed like the corresponding array of `like`, whose leaves may also be types. The
/// error lists all arrays that are missing, superfluous or of another type.
///
/// ```
/// use atmesh::prelude::*;
/// let error = tree::load_npy(&Array::ones([4]), "nowhere").unwrap_err();
/// assert!(error.to_string().contains("nowhere"));
/// ```
#[track_caller]
pub fn load_npy<T: Tree>(like: &T, dir: impl AsRef<Path>) -> Result<T> {
    let (location, dir) = (Location::caller(), dir.as_ref());
    let mut peers = FilePeers::of_arrays(&leaves(like), LOAD, dir, location)?;
    let read = read_leaves(like, dir, &peers, location);
    let read = peers.agree(read).map_err(|why| why.into_error(LOAD, location))?;
    let mut errors = Vec::new();
    let mut read = read.into_iter();
    // all processes convert all arrays, in the same order
    let restored = like.rebuild(&mut TreePath::unnamed(), &mut |_, a| {
        let Some(leaf) = read.next() else { return a.clone() };
        restore_leaf(leaf, a, location).unwrap_or_else(|error| {
            errors.push(error);
            a.clone()
        })
    });
    if errors.is_empty() { Ok(restored) } else { Err(Error::combine(errors)) }
}

/// Reads the leaves of a tree like this one, or returns all errors.
fn read_leaves<T: Tree>(
    like: &T,
    dir: &Path,
    peers: &FilePeers,
    location: SourceLocation,
) -> Result<Vec<StoredLeaf>> {
    let mut left: BTreeSet<OsString> =
        file_names(dir).map_err(|why| npy::file_error(LOAD, dir, why, location))?.into_iter().collect();
    let (mut read, mut errors) = (Vec::new(), Vec::new());
    like.visit(&mut TreePath::named(), &mut |path, a| {
        let name = file_name(path);
        left.remove(&OsString::from(&name));
        match read_leaf(a, &dir.join(name), path, peers, location) {
            Ok(leaf) => read.push(leaf),
            Err(error) => errors.push(error),
        }
    });
    left.retain(|n| Path::new(n).extension().is_some_and(|e| e == "npy"));
    if let Some(other) = left.first() {
        let fault = fault!(Tree, "{} does not belong to any array of the tree", dir.join(other).display())
            .help("load with a tree like the one that was saved");
        errors.push(Error::new(fault, LOAD, Vec::new(), Some(location)));
    }
    if errors.is_empty() { Ok(read) } else { Err(Error::combine(errors)) }
}

/// The stored data of a leaf.
pub(super) enum StoredLeaf {
    /// The whole array, on no mesh.
    Whole(Array),
    /// The blocks of the devices of this process.
    Blocks(StoredBlocks),
}
impl StoredLeaf {
    /// Returns the array, on the mesh of the leaf if there are several processes.
    pub(super) fn into_array(self, op: &str, location: SourceLocation) -> Result<Array> {
        match self {
            StoredLeaf::Whole(read) => Ok(read),
            StoredLeaf::Blocks(blocks) => blocks.into_array(op, location),
        }
    }
}

/// Renames the directory `part` to `dir`, and removes the directory that was there.
///
/// Another thread or process may do the same at the same time; the last one wins.
fn swap_directory(part: &Path, dir: &Path) -> std::io::Result<()> {
    if let Ok(known) = std::fs::metadata(dir) {
        std::fs::set_permissions(part, known.permissions())?;
    }
    let mut renamed = std::fs::rename(part, dir);
    for _ in 0..MAX_REPLACEMENTS {
        if renamed.is_ok() {
            break;
        }
        let old = atomic_file::temporary_names(dir, ".old").tempdir_in(atomic_file::parent(dir))?;
        match std::fs::rename(dir, old.path().join("replaced")) {
            Ok(()) => {
                renamed = std::fs::rename(part, dir);
                old.close()?;
            }
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => renamed = std::fs::rename(part, dir),
            Err(why) => return Err(why),
        }
    }
    renamed
}

/// The number of times that a save is repeated because another one replaced the directory.
const MAX_REPLACEMENTS: usize = 100;

const SAVE: &str = "tree::save_npy";
const LOAD: &str = "tree::load_npy";

/// Writes this process's part of each array, and returns the first error.
fn write_all<T: Tree>(tree: &T, part: &Path, peers: &FilePeers, location: SourceLocation) -> Result<()> {
    let mut done = Ok(());
    tree.visit(&mut TreePath::named(), &mut |path, a| {
        if done.is_err() && peers.is_alone() {
            return;
        }
        // all processes convert all arrays
        let head = NpyPart::new(&to_file_dtype(a, location), 0, (SAVE, location));
        if done.is_ok() {
            let at = part.join(file_name(path));
            done = head.and_then(|head| {
                write_leaf(&head, &at, peers, location)
                    .map_err(|fault| npy::file_error(SAVE, &at, fault.message, location))
            });
        }
    });
    done
}
fn write_leaf(head: &NpyPart, at: &Path, peers: &FilePeers, location: SourceLocation) -> Result<(), Fault> {
    let mut file = open_part(at).map_err(data_error)?;
    head.write(&mut file, peers, (SAVE, location))?;
    file.sync_all().map_err(data_error)
}

/// Returns all arrays of a tree.
pub(super) fn leaves<T: Tree>(tree: &T) -> Vec<Array> {
    let mut all = Vec::new();
    tree.visit(&mut TreePath::unnamed(), &mut |_, a| all.push(a.clone()));
    all
}

/// Converts the array to an element type that `.npy` files support.
fn to_file_dtype(a: &Array, location: SourceLocation) -> Array {
    match a.type_ref().map(|t| t.dtype) {
        Ok(DType::Key) => Key::from_array(a.clone()).data(),
        Ok(DType::BF16) => a.convert_at(DType::F32, CallSite::new(SAVE, location)),
        _ => a.clone(),
    }
}

fn read_leaf(
    like: &Array,
    file: &Path,
    path: &TreePath,
    peers: &FilePeers,
    location: SourceLocation,
) -> Result<StoredLeaf> {
    let ty = like.ty()?;
    let error = |fault: Fault| {
        let message = format!("{}, from {}: {}", path.name_or("the array"), file.display(), fault.message);
        Error::new(Fault { message, ..fault }, LOAD, vec![ty.to_string()], Some(location))
    };
    let mut stored = NpyFile::open(file).map_err(error)?;
    // bfloat16 is saved as float32, which NumPy can read; JAX saves it as opaque elements
    let is_widened = ty.dtype == DType::BF16 && stored.ty.dtype != DType::BF16;
    let expected = if is_widened { DType::F32.array_type(ty.shape.to_vec()) } else { file_type(&ty) };
    check_type(&stored.ty, &expected).map_err(error)?;
    match like.concrete_sharding() {
        Some(sharding) if !peers.is_alone() => {
            stored.read_blocks(peers, sharding).map(StoredLeaf::Blocks).map_err(error)
        }
        _ => stored.read().map(StoredLeaf::Whole).map_err(error),
    }
}
fn restore_leaf(leaf: StoredLeaf, like: &Array, location: SourceLocation) -> Result<Array> {
    let read = leaf.into_array(LOAD, location)?;
    let call = CallSite::new(LOAD, location);
    let is_widened = like.ty()?.dtype == DType::BF16 && read.ty()?.dtype != DType::BF16;
    let read = if is_widened { read.convert_at(DType::BF16, call) } else { read };
    restore_like(read, like, call)
}
/// Returns the type that a file stores for an array: keys are stored as their words.
pub(super) fn file_type(ty: &ArrayType) -> ArrayType {
    match ty.dtype {
        DType::Key => DType::U32.array_type(ty.shape.iter().copied().chain([2]).collect::<Vec<_>>()),
        other => other.array_type(ty.shape.to_vec()),
    }
}
/// Returns an error if the stored type is not the expected one.
pub(super) fn check_type(found: &ArrayType, wanted: &ArrayType) -> Result<(), Fault> {
    if found == wanted {
        return Ok(());
    }
    let kind = if found.dtype == wanted.dtype { ErrorKind::Shape } else { ErrorKind::Dtype };
    Err(Fault::new(kind, format!("the file holds {found}, but {wanted} is expected")))
}
/// Converts stored data to an array with the type and placement of `like`.
///
/// Words become keys if `like` is a key, and the array is placed like `like`.
pub(super) fn restore_like(read: Array, like: &Array, call: CallSite<'_>) -> Result<Array> {
    let read = match like.ty()?.dtype {
        DType::Key => Key::from_data(&read).array().clone(),
        _ => read,
    };
    let Some(s) = like.concrete_sharding() else { return read.ready() };
    read.put_at(&s.mesh, s.spec, call).ready()
}

/// Returns the file name of a path: `layers.0.w.npy`.
///
/// Characters of a key other than letters, digits, `_` and `-` are escaped: each byte of their
/// UTF-8 is `%` and two hexadecimal digits, as in URLs. An empty key is `%`. So different paths
/// have different names, and no name leads out of the directory.
fn file_name(path: &TreePath) -> String {
    let escaped = |c: char| -> String { c.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect() };
    let part = |part: &str| -> String {
        let kept = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if part.is_empty() {
            return "%".into();
        }
        part.chars().map(|c| if kept(c) { c.to_string() } else { escaped(c) }).collect()
    };
    let parts: Vec<String> = path.parts().iter().map(|p| part(p)).collect();
    // a tree that is a single array has an empty path
    if parts.is_empty() { "array.npy".into() } else { format!("{}.npy", parts.join(".")) }
}

fn file_names(dir: &Path) -> std::io::Result<Vec<OsString>> {
    std::fs::read_dir(dir)?.map(|entry| entry.map(|e| e.file_name())).collect()
}
