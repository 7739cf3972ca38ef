//! Loading of trees: each array is checked first, and then read, converted and placed.

use super::files::TensorFiles;
use super::names::{NameRule, TensorSlice, captures, named_slices};
use super::tensor_name;
use crate::api::array::Array;
use crate::api::array::files::blocks::StoredBlocks;
use crate::api::array::files::peers::{FilePeers, StepError, StepFailure};
use crate::api::tree::files::{StoredLeaf, check_type, file_type, restore_like};
use crate::api::tree::{Path as TreePath, Tree};
use crate::core::{ArrayType, Axes, DType, Error, ErrorKind, Fault, Result, Sharding, SourceLocation};
use crate::ir::program::CallSite;
use std::collections::{BTreeMap, BTreeSet};

/// The options of [`load_safetensors_with`](crate::tree::load_safetensors_with): conversions, and
/// the names of tensors.
///
/// Without options, the files must have exactly the arrays of the tree, with their names, shapes
/// and element types. The rules of names apply in the order in which they are given. In a pattern,
/// `*` stands for any text, and in a new name for the same text as in the pattern. A rule that
/// matches no tensor is an error.
///
/// ```
/// use atmesh::prelude::*;
/// use std::collections::BTreeMap;
/// # let name = format!("atmesh-options-{}.safetensors", std::process::id());
/// # let path = std::env::temp_dir().join(name);
/// let file = BTreeMap::from([("model.w", Array::arange(0..6).reshape([2, 3]).astype(BF16))]);
/// tree::save_safetensors(&file, &path)?;
/// let options = tree::LoadOptions::default().rename("model.*", "*").transpose("w").cast();
/// let like = BTreeMap::from([("w", Array::zeros([3, 2]))]);
/// let read = tree::load_safetensors_with(&like, &path, options)?;
/// assert_eq!(read["w"].to_vec::<f32>()?, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
/// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options are an argument of `load_safetensors_with`"]
pub struct LoadOptions {
    casts: bool,
    rules: Vec<NameRule>,
    /// The patterns of tensors that no array needs.
    ignored: Vec<String>,
    /// The patterns of arrays that keep their values if the files do not have them.
    kept: Vec<String>,
}

impl LoadOptions {
    setters! {
        /// Converts elements to the types of the tree: a bfloat16 file loads into float32 arrays.
        ///
        /// Floats become floats, and integers become floats or integers. It is an error if an
        /// integer does not fit.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// # let name = format!("atmesh-cast-{}.safetensors", std::process::id());
        /// # let path = std::env::temp_dir().join(name);
        /// tree::save_safetensors(&vec![Array::ones([2]).astype(BF16)], &path)?;
        /// let options = tree::LoadOptions::default().cast();
        /// let read = tree::load_safetensors_with(vec![Array::zeros([2])], &path, options)?;
        /// assert_eq!(read[0].to_vec::<f32>()?, [1.0, 1.0]);
        /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn cast() = casts: true;
    }
    fn rule(mut self, rule: NameRule) -> LoadOptions {
        self.rules.push(rule);
        self
    }
    /// Gives the tensors that match a pattern another name: `rename("transformer.*", "*")`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use std::collections::BTreeMap;
    /// # let name = format!("atmesh-rename-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// let file = BTreeMap::from([("transformer.h.0.b", Array::ones([2]))]);
    /// tree::save_safetensors(&file, &path)?;
    /// let options = tree::LoadOptions::default().rename("transformer.h.*", "layers.*");
    /// let like = BTreeMap::from([("layers.0.b", Array::zeros([2]))]);
    /// let read = tree::load_safetensors_with(&like, &path, options)?;
    /// assert_eq!(read["layers.0.b"].to_vec::<f32>()?, [1.0, 1.0]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn rename(self, pattern: impl Into<String>, name: impl Into<String>) -> LoadOptions {
        self.rule(NameRule::Rename { pattern: pattern.into(), name: name.into() })
    }
    /// Gives the tensors that match a pattern a second name, for weights that are tied.
    ///
    /// `copy("model.embed_tokens.weight", "lm_head.weight")` is for a file that has one of the two.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use std::collections::BTreeMap;
    /// # let name = format!("atmesh-copy-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// tree::save_safetensors(&BTreeMap::from([("embed", Array::ones([2]))]), &path)?;
    /// let options = tree::LoadOptions::default().copy("embed", "head");
    /// let like = BTreeMap::from([("embed", Array::zeros([2])), ("head", Array::zeros([2]))]);
    /// let read = tree::load_safetensors_with(&like, &path, options)?;
    /// assert_eq!(read["head"].to_vec::<f32>()?, [1.0, 1.0]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn copy(self, pattern: impl Into<String>, name: impl Into<String>) -> LoadOptions {
        self.rule(NameRule::Copy { pattern: pattern.into(), name: name.into() })
    }
    /// Reverses the dimensions of the tensors that match a pattern.
    ///
    /// A layer `[inputs, outputs]` becomes one of `[outputs, inputs]`:
    /// `transpose("*.c_fc.weight")`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use std::collections::BTreeMap;
    /// # let name = format!("atmesh-transpose-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// let file = BTreeMap::from([("h.0.c_fc.weight", Array::arange(0..6).reshape([2, 3]))]);
    /// tree::save_safetensors(&file, &path)?;
    /// let options = tree::LoadOptions::default().transpose("*.c_fc.weight");
    /// let like = BTreeMap::from([("h.0.c_fc.weight", Array::zeros([3, 2]).astype(I32))]);
    /// let read = tree::load_safetensors_with(&like, &path, options)?;
    /// assert_eq!(read["h.0.c_fc.weight"].to_vec::<i32>()?, [0, 3, 1, 4, 2, 5]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn transpose(self, pattern: impl Into<String>) -> LoadOptions {
        self.rule(NameRule::Transpose { pattern: pattern.into() })
    }
    /// Splits the tensors that match a pattern along a dimension, into equal parts of these names.
    ///
    /// A negative dimension counts from the end. Only the data of a part is in memory.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use std::collections::BTreeMap;
    /// # let name = format!("atmesh-split-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// let fused = Array::arange(0..12).reshape([2, 6]);
    /// tree::save_safetensors(&BTreeMap::from([("h.0.c_attn", fused)]), &path)?;
    /// let options = tree::LoadOptions::default().split("*.c_attn", -1, ["*.q", "*.k", "*.v"]);
    /// let names = ["h.0.q", "h.0.k", "h.0.v"];
    /// let like = BTreeMap::from(names.map(|name| (name, Array::zeros([2, 2]).astype(I32))));
    /// let read = tree::load_safetensors_with(&like, &path, options)?;
    /// assert_eq!(read["h.0.k"].to_vec::<i32>()?, [2, 3, 8, 9]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn split<S: Into<String>>(
        self,
        pattern: impl Into<String>,
        dim: i64,
        names: impl IntoIterator<Item = S>,
    ) -> LoadOptions {
        let parts = names.into_iter().map(|name| (name.into(), None)).collect();
        self.rule(NameRule::Split { pattern: pattern.into(), dim, parts })
    }
    /// Splits the tensors that match a pattern along a dimension, into parts of these names and
    /// sizes.
    ///
    /// `split_sizes("*.qkv.*", 0, [("*.q.*", 64), ("*.k.*", 16), ("*.v.*", 16)])` is for attention
    /// whose heads share keys and values.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use std::collections::BTreeMap;
    /// # let name = format!("atmesh-sizes-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// tree::save_safetensors(&BTreeMap::from([("qkv.b", Array::arange(0..8))]), &path)?;
    /// let parts = [("q.b", 4), ("k.b", 2), ("v.b", 2)];
    /// let options = tree::LoadOptions::default().split_sizes("qkv.b", 0, parts);
    /// let zeros = |size| Array::zeros(I32.array_type([size]));
    /// let like = BTreeMap::from(parts.map(|(name, size)| (name, zeros(size))));
    /// let read = tree::load_safetensors_with(&like, &path, options)?;
    /// assert_eq!(read["k.b"].to_vec::<i32>()?, [4, 5]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn split_sizes<S: Into<String>>(
        self,
        pattern: impl Into<String>,
        dim: i64,
        parts: impl IntoIterator<Item = (S, usize)>,
    ) -> LoadOptions {
        let parts = parts.into_iter().map(|(name, size)| (name.into(), Some(size))).collect();
        self.rule(NameRule::Split { pattern: pattern.into(), dim, parts })
    }
    /// Ignores tensors that match a pattern and belong to no array of the tree: `ignore("*")`.
    ///
    /// Without it such tensors are an error. The names are those after the rules.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use std::collections::BTreeMap;
    /// # let name = format!("atmesh-ignore-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// let file = BTreeMap::from([("w", Array::ones([2])), ("old.w", Array::ones([3]))]);
    /// tree::save_safetensors(&file, &path)?;
    /// let like = BTreeMap::from([("w", Array::zeros([2]))]);
    /// let load = |options| tree::load_safetensors_with(&like, &path, options);
    /// assert!(load(tree::LoadOptions::default()).is_err());
    /// let read = load(tree::LoadOptions::default().ignore("old.*"))?;
    /// assert_eq!(read["w"].to_vec::<f32>()?, [1.0, 1.0]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn ignore(mut self, pattern: impl Into<String>) -> LoadOptions {
        self.ignored.push(pattern.into());
        self
    }
    /// Keeps the values of arrays whose paths match a pattern if the files do not have them.
    ///
    /// Without it such arrays are an error.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let name = format!("atmesh-keep-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(name);
    /// tree::save_safetensors(&(Array::ones([2]),), &path)?;
    /// let model = (Array::zeros([2]), Array::zeros([3]));
    /// let options = tree::LoadOptions::default().keep_missing("1");
    /// let read = tree::load_safetensors_with(&model, &path, options)?;
    /// assert_eq!(read.1.to_vec::<f32>()?, [0.0, 0.0, 0.0]);
    /// # std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn keep_missing(mut self, pattern: impl Into<String>) -> LoadOptions {
        self.kept.push(pattern.into());
        self
    }
}

/// The error of a load.
pub(in crate::api::tree) enum LoadFailure {
    /// The tree or the options do not fit the files.
    Mismatch(Error),
    /// Data cannot be read, or differs from its digest.
    Damaged(Error),
}
impl LoadFailure {
    pub(in crate::api::tree) fn into_error(self) -> Error {
        match self {
            LoadFailure::Mismatch(error) | LoadFailure::Damaged(error) => error,
        }
    }
}

impl StepError for LoadFailure {
    fn text(&self) -> String {
        match self {
            LoadFailure::Mismatch(error) | LoadFailure::Damaged(error) => error.text(),
        }
    }
}

/// The public function that loads, and its caller.
#[derive(Clone, Copy)]
pub(in crate::api::tree) struct LoadCall {
    pub(in crate::api::tree) op: &'static str,
    pub(in crate::api::tree) location: SourceLocation,
}
impl LoadCall {
    /// Returns the failure of a step.
    fn failure(self, why: StepFailure<LoadFailure>) -> LoadFailure {
        match why {
            StepFailure::Own(failure) => failure,
            // data that another process cannot read
            StepFailure::Other(fault) if fault.kind == ErrorKind::Data => {
                LoadFailure::Damaged(self.error(fault, None))
            }
            // a process is gone
            StepFailure::Other(fault) => LoadFailure::Mismatch(self.error(fault, None)),
        }
    }
    fn error(self, fault: Fault, like: Option<&ArrayType>) -> Error {
        Error::new(fault, self.op, like.iter().map(ToString::to_string).collect(), Some(self.location))
    }
}

/// Loads a tree like this one, whose leaves may be types, and returns it with the metadata.
///
/// It reads no data before all names and types have been checked.
pub(in crate::api::tree) fn load_tree<T: Tree>(
    open: impl FnOnce() -> Result<TensorFiles, Fault>,
    peers: &mut FilePeers,
    like: &T,
    options: &LoadOptions,
    call: LoadCall,
) -> Result<(T, BTreeMap<String, String>), LoadFailure> {
    let opened = open().map_err(|fault| LoadFailure::Damaged(call.error(fault, None)));
    let matched = opened.and_then(|files| {
        let sources = match_leaves(&files, like, options, call).map_err(LoadFailure::Mismatch)?;
        Ok((files, sources))
    });
    let (mut files, sources) = peers.agree(matched).map_err(|why| call.failure(why))?;
    let metadata = files.metadata().clone();
    let stored = match peers.is_alone() {
        true => None,
        false => {
            let read = read_leaves(&mut files, like, &sources, peers, call).map_err(LoadFailure::Damaged);
            Some(peers.agree(read).map_err(|why| call.failure(why))?)
        }
    };
    let (mut stored, mut sources, mut errors) = (stored.map(Vec::into_iter), sources.into_iter(), Vec::new());
    // all processes convert all arrays, in the same order
    let read = like.rebuild(&mut TreePath::unnamed(), &mut |_, a| {
        let stored = stored.as_mut().and_then(Iterator::next);
        let Some(slice) = sources.next().flatten() else { return a.clone() };
        // alone, an array is read when the one before it is in its place
        let stored = stored.map_or_else(|| read_leaf(&mut files, a, &slice, peers, call), Ok);
        stored.and_then(|stored| restore_leaf(&files, stored, a, &slice, call)).unwrap_or_else(|error| {
            errors.push(error);
            a.clone()
        })
    });
    let read = if errors.is_empty() { Ok((read, metadata)) } else { Err(Error::combine(errors)) };
    peers.agree(read.map_err(LoadFailure::Damaged)).map_err(|why| call.failure(why))
}

/// Reads this process's part of all leaves, or returns all errors. Each tensor of several
/// processes is compared with its digest by one of them.
fn read_leaves<T: Tree>(
    files: &mut TensorFiles,
    like: &T,
    sources: &[Option<TensorSlice>],
    peers: &FilePeers,
    call: LoadCall,
) -> Result<Vec<StoredLeaf>> {
    let (mut sources, mut read, mut errors) = (sources.iter(), Vec::new(), Vec::new());
    let mut digested = BTreeSet::new();
    like.visit(&mut TreePath::unnamed(), &mut |_, a| {
        let Some(slice) = sources.next().and_then(Option::as_ref) else {
            return read.push(StoredLeaf::Whole(a.clone()));
        };
        let verified = match digested.insert(slice.tensor.clone()) && peers.has_turn(digested.len() - 1) {
            true => files.verify(&slice.tensor).map_err(|fault| call.error(fault, None)),
            false => Ok(()),
        };
        match verified.and_then(|()| read_leaf(files, a, slice, peers, call)) {
            Ok(leaf) => read.push(leaf),
            Err(error) => errors.push(error),
        }
    });
    if errors.is_empty() { Ok(read) } else { Err(Error::combine(errors)) }
}

/// Returns the source of each leaf; `None` for a leaf that keeps its value.
///
/// The error lists all arrays that are missing or of another type, and all tensors that no array
/// needs.
fn match_leaves<T: Tree>(
    files: &TensorFiles,
    like: &T,
    options: &LoadOptions,
    call: LoadCall,
) -> Result<Vec<Option<TensorSlice>>> {
    let slices = named_slices(files, &options.rules).map_err(|fault| call.error(fault, None))?;
    let (mut sources, mut errors, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
    like.visit(&mut TreePath::named(), &mut |path, a| {
        let name = tensor_name(path);
        let source = match slices.get(&name) {
            Some(slice) => check_leaf(files, a, &name, slice, options, call).map(|()| Some(slice.clone())),
            None => missing_leaf(files, a, &name, options, call).map(|()| None),
        };
        used.insert(name);
        match source {
            Ok(source) => sources.push(source),
            Err(error) => errors.push(error),
        }
    });
    let is_ignored = |name: &str| options.ignored.iter().any(|pattern| captures(pattern, name).is_some());
    for (name, slice) in slices.iter().filter(|(name, _)| !used.contains(*name) && !is_ignored(name)) {
        let file = files.path_of(&slice.tensor).display();
        let fault = fault!(Tree, "{name}, from {file}: no array of the tree has this path")
            .help(format!("if it is not needed: `LoadOptions::default().ignore({name:?})`"));
        errors.push(call.error(fault, Some(&slice.ty())));
    }
    if errors.is_empty() { Ok(sources) } else { Err(Error::combine(errors)) }
}

/// Returns an error unless the leaf may keep its value.
fn missing_leaf(
    files: &TensorFiles,
    like: &Array,
    name: &str,
    options: &LoadOptions,
    call: LoadCall,
) -> Result<()> {
    let ty = like.ty()?;
    if options.kept.iter().any(|pattern| captures(pattern, name).is_some()) {
        return like.array_data(call.op, call.location).map(drop);
    }
    match files.tensor_type(name) {
        Err(fault) => Err(call.error(fault, Some(&ty))),
        // the tensor exists, but the rules have given it another name
        Ok(_) => Err(call.error(files.missing(name), Some(&ty))),
    }
}

/// Returns an error unless the slice can become this leaf.
fn check_leaf(
    files: &TensorFiles,
    like: &Array,
    name: &str,
    slice: &TensorSlice,
    options: &LoadOptions,
    call: LoadCall,
) -> Result<()> {
    let ty = like.ty()?;
    let (found, wanted) = (slice.ty(), file_type(&ty));
    let error = |fault: Fault| {
        let message = format!("{name}, from {}: {}", files.path_of(&slice.tensor).display(), fault.message);
        call.error(Fault { message, ..fault }, Some(&ty))
    };
    let same_dtype = found.dtype.array_type(wanted.shape.to_vec());
    if found.shape != wanted.shape {
        return check_type(&found, &wanted).map_err(error);
    }
    let is_castable = ty.dtype != DType::Key && can_cast(found.dtype, wanted.dtype);
    match check_type(&found, &wanted) {
        Err(_) if options.casts && is_castable && found == same_dtype => Ok(()),
        Err(fault) if fault.kind == ErrorKind::Dtype && is_castable => {
            let fault =
                fault.help("convert it: `tree::load_safetensors_with(.., LoadOptions::default().cast())`");
            Err(error(fault))
        }
        checked => checked.map_err(error),
    }
}

/// Returns true if a cast keeps the kind of elements: floats stay floats.
fn can_cast(from: DType, to: DType) -> bool {
    match (from.is_inexact(), to.is_inexact()) {
        (true, true) => !from.is_complex() || to.is_complex(),
        (true, false) => false,
        (false, true) => true,
        (false, false) => to.is_integer(),
    }
}

/// Reads the data of a leaf: all of it, or the blocks of the devices of this process.
fn read_leaf(
    files: &mut TensorFiles,
    like: &Array,
    slice: &TensorSlice,
    peers: &FilePeers,
    call: LoadCall,
) -> Result<StoredLeaf> {
    let read = match like.concrete_sharding() {
        Some(sharding) if !peers.is_alone() => {
            let spec = sharding.spec.unreduced(Axes::none());
            let sharding = Sharding { spec, ..sharding.clone() };
            StoredBlocks::read(peers, &sharding, &slice.ty().shape, |index| slice.read_block(files, index))
                .map(StoredLeaf::Blocks)
        }
        _ => slice.read(files).map(StoredLeaf::Whole),
    };
    read.map_err(|fault| call.error(fault, like.type_ref().ok()))
}

/// Converts and places the data of a leaf.
fn restore_leaf(
    files: &TensorFiles,
    stored: StoredLeaf,
    like: &Array,
    slice: &TensorSlice,
    call: LoadCall,
) -> Result<Array> {
    let ty = like.ty()?;
    let read = stored.into_array(call.op, call.location)?;
    let site = CallSite::new(call.op, call.location);
    let (found, wanted) = (slice.ty().dtype, file_type(&ty).dtype);
    if found == wanted {
        return restore_like(read, like, site);
    }
    let cast = read.convert_at(wanted, site);
    // an integer that does not fit changes when it is converted back
    if !wanted.is_inexact() && !have_equal_bytes(&cast.convert_at(found, site), &read, call)? {
        let file = files.path_of(&slice.tensor).display();
        let fault =
            fault!(Data, "{}, from {file}: an element of {found} does not fit into {wanted}", slice.tensor)
                .help(format!("load it into an array of {found}"));
        return Err(call.error(fault, Some(&ty)));
    }
    restore_like(cast, like, site)
}

/// Compares two arrays of one type and sharding; of several processes, each compares its blocks.
fn have_equal_bytes(a: &Array, b: &Array, call: LoadCall) -> Result<bool> {
    let equal = |a: &Array, b: &Array| -> Result<bool> {
        let (a, b) = (a.host_data(call.op, call.location)?, b.host_data(call.op, call.location)?);
        Ok(a.bytes()? == b.bytes()?)
    };
    if b.concrete_sharding().is_none() {
        return equal(a, b);
    }
    for (a, b) in a.shards()?.iter().zip(b.shards()?) {
        if !equal(&a.data, &b.data)? {
            return Ok(false);
        }
    }
    Ok(true)
}
