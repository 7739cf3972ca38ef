//! Whole trees in files: a directory with one `.npy` file for each array, named by its path.

use super::{Path as TreePath, Tree};
use crate::array::{Array, npy};
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::program::Call;
use crate::random::Key;
use crate::types::{ArrayType, DType};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// The tree with `f` applied to each path and array, or all errors that it returned.
///
/// ```
/// use atmesh::prelude::*;
/// let params = (Array::ones([2]), Array::ones([3]));
/// let checked = tree::try_map_named(&params, |path, x| {
///     let least = x.min(..).item::<f32>()?;
///     if least > 0.0 { Ok(x.clone()) } else { Err(atmesh::Error::other(format!("{path} is not positive"))) }
/// })?;
/// assert_eq!(type_of(&checked), "(float32[2], float32[3])");
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn try_map_named<T: Tree>(tree: &T, mut f: impl FnMut(&str, &Array) -> Result<Array>) -> Result<T> {
    let mut refused = Vec::new();
    let made = tree.rebuild(&mut TreePath::named(), &mut |path, a| {
        f(&path.to_string(), a).unwrap_or_else(|error| {
            refused.push(error);
            a.clone()
        })
    });
    if refused.is_empty() { Ok(made) } else { Err(Error::all(refused)) }
}

/// Writes all arrays of the tree into a directory: `layers.0.w.npy` and so on, each as [`Array::save_npy`] writes it; bfloat16 as
/// float32, keys as their words.
///
/// The directory appears once all is written, in place of an earlier one of this name, which must hold `.npy` files only: no save is ever
/// there by half. [`load_npy`] reads it.
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
    let (place, dir) = (Location::caller(), dir.as_ref());
    let failed = |why: &dyn std::fmt::Display| npy::file(SAVE, dir, why, place);
    if dir.exists() {
        let others = names(dir).map_err(|why| failed(&why))?;
        if let Some(other) = others.iter().find(|n| Path::new(n).extension().is_none_or(|e| e != "npy")) {
            let why =
                format!("the directory holds {}, which is no array: it is not replaced", other.display());
            return Err(failed(&why));
        }
    }
    let part = beside(dir, "part");
    let written = write_all(tree, &part, place).and_then(|()| {
        let old = beside(dir, "old");
        let replaced = dir.exists();
        let moved = if replaced { std::fs::rename(dir, &old) } else { Ok(()) };
        moved.and_then(|()| std::fs::rename(&part, dir)).map_err(|why| failed(&why))?;
        if replaced { std::fs::remove_dir_all(&old).map_err(|why| failed(&why)) } else { Ok(()) }
    });
    if written.is_err() {
        let _ = std::fs::remove_dir_all(&part);
    }
    written
}

/// Reads what [`save_npy`] wrote, for a tree like this one: of its structure, element types and shapes, each array placed as that of
/// `like` is. Types will do in place of arrays. All that is missing, too much or of another type is told at once.
///
/// ```
/// use atmesh::prelude::*;
/// let error = tree::load_npy(&Array::ones([4]), "nowhere").unwrap_err();
/// assert!(error.to_string().contains("nowhere"));
/// ```
#[track_caller]
pub fn load_npy<T: Tree>(like: &T, dir: impl AsRef<Path>) -> Result<T> {
    let (place, dir) = (Location::caller(), dir.as_ref());
    let mut left: BTreeSet<OsString> =
        names(dir).map_err(|why| npy::file(LOAD, dir, why, place))?.into_iter().collect();
    let mut refused = Vec::new();
    let read = like.rebuild(&mut TreePath::named(), &mut |path, a| {
        let name = file_name(path);
        left.remove(&OsString::from(&name));
        load_leaf(a, &dir.join(name), path, place).unwrap_or_else(|error| {
            refused.push(error);
            a.clone()
        })
    });
    left.retain(|n| Path::new(n).extension().is_some_and(|e| e == "npy"));
    if let Some(other) = left.first() {
        let fault =
            Fault::new(ErrorKind::Tree, format!("{} is of no array of the tree", dir.join(other).display()))
                .help("load with a tree like the one that was saved");
        refused.push(Error::at(fault, LOAD, Vec::new(), Some(place)));
    }
    if refused.is_empty() { Ok(read) } else { Err(Error::all(refused)) }
}

const SAVE: &str = "tree::save_npy";
const LOAD: &str = "tree::load_npy";

fn write_all<T: Tree>(tree: &T, part: &Path, place: Place) -> Result<()> {
    std::fs::create_dir_all(part).map_err(|why| npy::file(SAVE, part, why, place))?;
    let mut done = Ok(());
    tree.visit(&mut TreePath::named(), &mut |path, a| {
        if done.is_ok() {
            let at = part.join(file_name(path));
            done = stored(a, place)
                .npy_bytes(SAVE, place)
                .and_then(|bytes| npy::replace(&at, &bytes).map_err(|why| npy::file(SAVE, &at, why, place)));
        }
    });
    done
}

/// The array in an element type that files have.
fn stored(a: &Array, place: Place) -> Array {
    match a.type_ref().map(|t| t.dtype) {
        Ok(DType::Key) => Key::of(a.clone()).data(),
        Ok(DType::BF16) => a.convert_at(DType::F32, Call::new(SAVE, place)),
        _ => a.clone(),
    }
}

fn load_leaf(like: &Array, file: &Path, path: &TreePath, place: Place) -> Result<Array> {
    let ty = like.ty()?;
    let told = |fault: Fault| {
        let message = format!("{}, from {}: {}", path.or("the array"), file.display(), fault.message);
        Error::at(Fault { message, ..fault }, LOAD, vec![ty.to_string()], Some(place))
    };
    let read = npy::load(file).map_err(told)?;
    let found = read.ty()?;
    let wanted = if ty.dtype == DType::BF16 { DType::F32.of(ty.shape.to_vec()) } else { in_file(&ty) };
    matches(&found, &wanted).map_err(told)?;
    let read = match ty.dtype {
        DType::BF16 => read.convert_at(DType::BF16, Call::new(LOAD, place)),
        _ => read,
    };
    settled(read, like, Call::new(LOAD, place))
}
/// The type that files have of an array: keys are their words.
pub(super) fn in_file(ty: &ArrayType) -> ArrayType {
    match ty.dtype {
        DType::Key => DType::U32.of(ty.shape.iter().copied().chain([2]).collect::<Vec<_>>()),
        other => other.of(ty.shape.to_vec()),
    }
}
/// Refuses another type than the one that is wanted.
pub(super) fn matches(found: &ArrayType, wanted: &ArrayType) -> Result<(), Fault> {
    if found == wanted {
        return Ok(());
    }
    let kind = if found.dtype == wanted.dtype { ErrorKind::Shape } else { ErrorKind::Dtype };
    Err(Fault::new(kind, format!("the file holds {found}, wanted is {wanted}")))
}
/// What was read, as the array `like` is: keys of their words, placed as that is.
pub(super) fn settled(read: Array, like: &Array, call: Call<'_>) -> Result<Array> {
    let read = match like.ty()?.dtype {
        DType::Key => Key::from_data(&read).array().clone(),
        _ => read,
    };
    match like.placed() {
        Some(s) => read.put_at(&s.mesh, s.spec, call).ready(),
        None => read.ready(),
    }
}

/// `layers.0.w.npy`. What is not a letter, a digit, `_` or `-` in a key is written as `%` and two digits, so that no two paths have one name,
/// and none leads out of the directory.
fn file_name(path: &TreePath) -> String {
    let part = |part: &str| -> String {
        let kept = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        part.chars().map(|c| if kept(c) { c.to_string() } else { format!("%{:02X}", u32::from(c)) }).collect()
    };
    let parts: Vec<String> = path.parts().iter().map(|p| part(p)).collect();
    // of a tree that is one array the path is empty
    if parts.is_empty() { "array.npy".into() } else { format!("{}.npy", parts.join(".")) }
}

fn names(dir: &Path) -> std::io::Result<Vec<OsString>> {
    std::fs::read_dir(dir)?.map(|entry| entry.map(|e| e.file_name())).collect()
}

/// A name of our own beside the directory, on the same file system.
fn beside(dir: &Path, what: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.{what}", std::process::id()));
    dir.with_file_name(name)
}
