//! Whole trees in one `.safetensors` file: names, types and elements, as other libraries read and write them.

use super::files::{in_file, matches, settled};
use super::{Path as TreePath, Tree};
use crate::array::{Array, npy};
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::program::Call;
use crate::random::Key;
use crate::runtime::Slab;
use crate::sorted;
use crate::types::{ArrayType, DType};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, View};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::panic::Location;
use std::path::Path;

/// The element types that both have.
const TYPES: [(DType, Dtype); 14] = [
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
/// The name of an array that is the whole tree.
const ALONE: &str = "array";
/// No header that means anything here is longer.
const LONGEST: u64 = 100 << 20;

const SAVE: &str = "tree::save_safetensors";
const LOAD: &str = "tree::load_safetensors";

/// One array's numbers.
struct Numbers {
    dtype: Dtype,
    shape: Vec<usize>,
    slab: Slab,
}
impl View for &Numbers {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        // these numbers were made dense: the fault says that they are not
        self.slab.bytes().unwrap_or_default().into()
    }
    fn data_len(&self) -> usize {
        self.slab.nbytes()
    }
}

/// Writes all arrays of the tree into one `.safetensors` file, by their paths (`layers.0.w`), global numbers whatever the sharding. Keys are
/// their words, uint32; complex128 has no form in such files. The file appears once all is written.
///
/// ```
/// use atmesh::prelude::*;
/// let path = std::env::temp_dir().join(format!("atmesh-{}.safetensors", std::process::id()));
/// let params = (Array::from([1.0f32, 2.0]), vec![Array::ones([3]).astype(BF16)]);
/// tree::save_safetensors(&params, &path)?;
/// // onto a mesh, since `like` is on one
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
    let (place, path) = (Location::caller(), path.as_ref());
    let (mut all, mut failed) = (Vec::new(), None);
    tree.visit(&mut TreePath::named(), &mut |name, a| {
        match numbers(a, place) {
            Ok(x) => all.push((named(name), x)),
            Err(error) => drop(failed.get_or_insert(error)),
        };
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let names = all.iter().map(|(name, x)| (name.as_str(), x));
    let bytes = safetensors::serialize(names, None).map_err(|why| npy::file(SAVE, path, why, place))?;
    npy::replace(path, &bytes).map_err(|why| npy::file(SAVE, path, why, place))
}

/// Reads a tree like this one from a `.safetensors` file: of its paths, element types and shapes, each array placed as that of `like` is, also
/// on another mesh than it was saved from. All that is missing or of another type is told at once; other arrays in the file are not read.
///
/// ```
/// use atmesh::prelude::*;
/// let error = tree::load_safetensors(&Array::ones([4]), "nowhere.safetensors").unwrap_err();
/// assert!(error.to_string().contains("nowhere.safetensors"));
/// ```
#[track_caller]
pub fn load_safetensors<T: Tree>(like: &T, path: impl AsRef<Path>) -> Result<T> {
    let (place, path) = (Location::caller(), path.as_ref());
    let mut file = Tensors::open(path).map_err(|fault| told(fault, path, place))?;
    let mut refused = Vec::new();
    let read = like.rebuild(&mut TreePath::named(), &mut |name, a| {
        leaf(&mut file, a, &named(name), path, place).unwrap_or_else(|error| {
            refused.push(error);
            a.clone()
        })
    });
    if refused.is_empty() { Ok(read) } else { Err(Error::all(refused)) }
}

/// All arrays of a `.safetensors` file by name, on no mesh. A map of arrays is a tree.
#[track_caller]
pub fn read_safetensors(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>> {
    let (place, path) = (Location::caller(), path.as_ref());
    let mut file = Tensors::open(path).map_err(|fault| told(fault, path, place))?;
    let mut made = BTreeMap::new();
    for name in file.head.offset_keys() {
        made.insert(name.clone(), file.array(&name).map_err(|fault| told(fault, path, place))?);
    }
    Ok(made)
}

fn told(fault: Fault, path: &Path, place: Place) -> Error {
    let message = format!("{}: {}", path.display(), fault.message);
    Error::at(Fault { message, ..fault }, LOAD, Vec::new(), Some(place))
}
fn named(path: &TreePath) -> String {
    if path.parts().is_empty() { ALONE.into() } else { path.to_string() }
}

/// An array's numbers, as files have them.
fn numbers(a: &Array, place: Place) -> Result<Numbers> {
    let ty = a.ty()?;
    let a = if ty.dtype == DType::Key { Key::of(a.clone()).data() } else { a.clone() };
    let ty = in_file(&ty);
    let Some((_, dtype)) = TYPES.iter().find(|t| t.0 == ty.dtype) else {
        let fault = Fault::new(ErrorKind::Dtype, format!("{} has no form in .safetensors files", ty.dtype));
        let fault = fault.help("convert it first: `.astype(C64)`");
        return Err(Error::at(fault, SAVE, vec![ty.to_string()], Some(place)));
    };
    Ok(Numbers { dtype: *dtype, shape: ty.shape.to_vec(), slab: a.numbers(SAVE, place)? })
}

fn leaf(file: &mut Tensors, like: &Array, name: &str, path: &Path, place: Place) -> Result<Array> {
    let ty = like.ty()?;
    let refused = |fault: Fault| {
        let message = format!("{name}, from {}: {}", path.display(), fault.message);
        Error::at(Fault { message, ..fault }, LOAD, vec![ty.to_string()], Some(place))
    };
    let info = file.info(name).map_err(refused)?;
    let found = typed(&info).map_err(refused)?;
    matches(&found, &in_file(&ty)).map_err(refused)?;
    let read = file.array(name).map_err(refused)?;
    settled(read, like, Call::new(LOAD, place))
}

/// The type of a tensor.
fn typed(info: &TensorInfo) -> Result<ArrayType, Fault> {
    let Some((dtype, _)) = TYPES.iter().find(|t| t.1 == info.dtype) else {
        return Err(npy::data(format!("no array has elements of type {:?}", info.dtype)));
    };
    let ty = dtype.of(info.shape.clone());
    ty.addressable()?;
    Ok(ty)
}

/// A file that is open, and what its header says.
struct Tensors {
    file: File,
    head: Metadata,
    /// Where the elements begin.
    begins: u64,
}

impl Tensors {
    fn open(path: &Path) -> Result<Tensors, Fault> {
        let no_file = |why: String| npy::data(format!("it is no .safetensors file: {why}"));
        let (mut file, length) = npy::opened(path)?;
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(|why| no_file(why.to_string()))?;
        let size = u64::from_le_bytes(size);
        if size > length.saturating_sub(8).min(LONGEST) {
            return Err(no_file(format!("a header of {size} bytes in a file of {length}")));
        }
        let mut head = Vec::new();
        (&mut file).take(size).read_to_end(&mut head).map_err(npy::data)?;
        // it checks that sizes are those of the types, and that there are no gaps
        let head: Metadata = serde_json::from_slice(&head).map_err(|why| no_file(why.to_string()))?;
        let (begins, takes) = (8 + size, head.data_len() as u64);
        if length - begins != takes {
            let holds = length - begins;
            return Err(npy::data(format!(
                "its arrays take {takes} bytes, but it holds {holds} behind its header"
            )));
        }
        Ok(Tensors { file, head, begins })
    }
    fn info(&self, name: &str) -> Result<TensorInfo, Fault> {
        self.head.info(name).cloned().ok_or_else(|| {
            let mut names = self.head.offset_keys();
            sorted::sort(&mut names);
            names.truncate(8);
            npy::data("the file has no array of this name").help(format!("it has {}, …", names.join(", ")))
        })
    }
    /// One array: nothing else of the file is read.
    fn array(&mut self, name: &str) -> Result<Array, Fault> {
        let info = self.info(name)?;
        let ty = typed(&info)?;
        self.file.seek(SeekFrom::Start(self.begins + info.data_offsets.0 as u64)).map_err(npy::data)?;
        let slab = npy::read_elements(&mut self.file, &ty, false)?;
        Ok(Array::concrete(slab, ty, None))
    }
}
