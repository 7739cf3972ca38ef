//! Reading and writing of `.npy` files, NumPy's file format for one array.
//!
//! A file has a header in Python syntax (element type, order, shape), followed by the elements. The
//! size that the header announces is compared with the file's length before any allocation, so that
//! a malformed file cannot request more memory than its own size.

use super::atomic_file::{data_error, open_part, open_regular, replace_file};
use super::blocks::{StoredBlocks, read_block, read_elements, write_blocks};
use super::npy_header::{Header, begins_with_magic, npy_head, read_header};
use super::peers::{FilePeers, StepFailure};
use crate::api::array::Array;
use crate::core::{
    ArrayType, Axes, DType, Error, Fault, Mesh, Result, Shape, Sharding, SourceLocation, Spec,
    types::with_dtype,
};
use crate::exec::runtime::ArrayData;
#[cfg(feature = "json")]
use crate::exec::runtime::try_vec_with_capacity;
use crate::ir::program::CallSite;
use ndarray::{ArrayView, IxDyn, ShapeBuilder};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::panic::Location;
use std::path::Path;

/// # Files
impl Array {
    /// Writes the array to a `.npy` file: element type, shape and elements, without the sharding.
    ///
    /// The file is written under a temporary name and renamed, so that an existing file is
    /// replaced atomically; it keeps its permissions, and a symbolic link is followed. bfloat16 is
    /// written as JAX writes it, as opaque elements of two bytes, which
    /// `x.view(ml_dtypes.bfloat16)` reads in Python. Keys are an error, because the format cannot
    /// represent them.
    ///
    /// If the array is on devices of [several processes](crate::distributed), all of them call this
    /// function, with one path on a file system that they share. Each writes the blocks of its
    /// devices, and the file is the same as that of one process.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let path = std::env::temp_dir().join(format!("atmesh-{}.npy", std::process::id()));
    /// Array::from([1, 2]).save_npy(&path)?;
    /// let read = Array::load_npy(&path);
    /// std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// assert_eq!(read?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn save_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        save_all("save_npy", std::slice::from_ref(self), path.as_ref(), Location::caller())
    }
    /// Reads an array from a `.npy` file, on no mesh.
    ///
    /// Both byte orders, and both row-major and column-major order, are supported. Opaque elements
    /// of two bytes are bfloat16, as JAX saves it.
    ///
    /// # Errors
    /// The file is not a `.npy` file, has elements of another type (records, objects, dates), or
    /// has more than one array ([`Array::load_npy_all`] reads those).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert!(Array::load_npy("nowhere.npy").is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn load_npy(path: impl AsRef<Path>) -> Result<Array> {
        let (location, path) = (Location::caller(), path.as_ref());
        load(path).map_err(|fault| error_in_file(fault, "load_npy", path, location))
    }
    /// Reads an array from a `.npy` file onto a mesh.
    ///
    /// If the mesh has devices of several processes, all of them call this function, and each reads
    /// the blocks of its devices only. In all other respects it is [`Array::load_npy`] followed
    /// by [`Array::put`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let path = std::env::temp_dir().join(format!("atmesh-to-{}.npy", std::process::id()));
    /// Array::arange(0..8).save_npy(&path)?;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let read = Array::load_npy_to(&path, &mesh, p!["X"]);
    /// std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// assert_eq!(type_of(read?), "int32[8@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn load_npy_to(path: impl AsRef<Path>, mesh: &impl AsRef<Mesh>, spec: Spec) -> Result<Array> {
        let call = CallSite::here("load_npy_to");
        load_to(path.as_ref(), mesh.as_ref(), spec, call)
    }
    /// Writes several arrays to one file, one after the other.
    ///
    /// Repeated calls of `np.save` with an open file write the same.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let path = std::env::temp_dir().join(format!("atmesh-all-{}.npy", std::process::id()));
    /// Array::save_npy_all(&[Array::from([1, 2]), Array::from(0.5f32)], &path)?;
    /// let read = Array::load_npy_all(&path);
    /// std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    /// assert_eq!(type_of(read?), "(int32[2], float32[])");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn save_npy_all(arrays: &[Array], path: impl AsRef<Path>) -> Result<()> {
        save_all("save_npy_all", arrays, path.as_ref(), Location::caller())
    }
    /// Reads all arrays of a file that has one after the other, on no mesh.
    ///
    /// `np.save` writes such a file if it is called repeatedly with an open file.
    #[track_caller]
    pub fn load_npy_all(path: impl AsRef<Path>) -> Result<Vec<Array>> {
        let (location, path) = (Location::caller(), path.as_ref());
        load_all(path).map_err(|fault| error_in_file(fault, "load_npy_all", path, location))
    }
    /// Returns the contents of a `.npy` file of this array, for other programs to read.
    ///
    /// A key is written as its two words.
    #[cfg(feature = "json")]
    pub(crate) fn npy_bytes_raw(&self, op: &'static str, location: SourceLocation) -> Result<Vec<u8>> {
        let mut ty = self.ty()?;
        if ty.dtype == DType::Key {
            ty = DType::U32.array_type(ty.shape.iter().copied().chain([2]).collect::<Vec<_>>());
        }
        let slab = self.host_data(op, location)?;
        let error = |fault| Error::new(fault, op, vec![ty.to_string()], Some(location));
        let head = npy_head(&ty).map_err(error)?;
        let mut bytes = try_vec_with_capacity(head.len() + ty.nbytes()).map_err(error)?;
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(slab.bytes().map_err(error)?);
        Ok(bytes)
    }
}

/// An array as a part of a file.
pub(crate) struct NpyPart {
    /// The offset of the header, in bytes.
    at: u64,
    head: Vec<u8>,
    array: Array,
}
impl NpyPart {
    /// Creates the part for an array whose header begins at byte `at`.
    pub(crate) fn new(
        array: &Array,
        at: u64,
        (op, location): (&'static str, SourceLocation),
    ) -> Result<NpyPart> {
        let ty = array.ty()?;
        // an array that is traced, was donated or has a type only is an error now
        array.array_data(op, location)?;
        let head = npy_head(&ty).map_err(|f| Error::new(f, op, vec![ty.to_string()], Some(location)))?;
        Ok(NpyPart { at, head, array: array.clone() })
    }
    /// Returns the offset of the end, in bytes.
    fn end(&self) -> u64 {
        self.at + self.head.len() as u64 + self.array.nbytes().unwrap_or(0) as u64
    }
    /// Writes what this process has of the array, and in process 0 the header.
    pub(crate) fn write(
        &self,
        file: &mut File,
        peers: &FilePeers,
        call: (&'static str, SourceLocation),
    ) -> Result<(), Fault> {
        if peers.is_first() {
            file.seek(SeekFrom::Start(self.at)).map_err(data_error)?;
            file.write_all(&self.head).map_err(data_error)?;
        }
        let start = self.at + self.head.len() as u64;
        write_blocks((file, start), &self.array, peers, call, |_| ()).map(drop)
    }
}

/// Writes arrays to a file, one after the other.
fn save_all(op: &'static str, arrays: &[Array], path: &Path, location: SourceLocation) -> Result<()> {
    let mut peers = FilePeers::of_arrays(arrays, op, path, location)?;
    let mut parts: Vec<NpyPart> = Vec::new();
    for array in arrays {
        let at = parts.last().map_or(0, NpyPart::end);
        parts.push(NpyPart::new(array, at, (op, location))?);
    }
    let write_parts = |temporary: &Path, peers: &FilePeers| {
        let mut file = open_part(temporary).map_err(data_error)?;
        parts.iter().try_for_each(|part| part.write(&mut file, peers, (op, location)))?;
        // processes on other hosts see it after this
        if peers.is_alone() { Ok(()) } else { file.sync_all().map_err(data_error) }
    };
    let write = |temporary: &Path, peers: &mut FilePeers| {
        let written = write_parts(temporary, peers);
        peers.agree(written).map_err(StepFailure::into_fault)
    };
    replace_file(path, &mut peers, write).map_err(|fault| error_in_file(fault, op, path, location))
}

/// Returns the error for a failed file operation.
pub(crate) fn file_error(
    op: &str,
    path: &Path,
    why: impl std::fmt::Display,
    location: SourceLocation,
) -> Error {
    Error::new(fault!(Data, "{}: {why}", path.display()), op, Vec::new(), Some(location))
}

/// Returns the error for the contents of a file.
fn error_in_file(fault: Fault, op: &str, path: &Path, location: SourceLocation) -> Error {
    let fault = Fault { message: format!("{}: {}", path.display(), fault.message), ..fault };
    Error::new(fault, op, Vec::new(), Some(location))
}

/// An open `.npy` file, which has one array.
pub(crate) struct NpyFile {
    file: File,
    header: Header,
    pub(crate) ty: ArrayType,
    /// The offset of the elements, in bytes.
    data_start: u64,
}
impl NpyFile {
    pub(crate) fn open(path: &Path) -> Result<NpyFile, Fault> {
        let (mut file, length) = open_regular(path)?;
        let (header, data_start) = read_header(&mut file)?;
        let ty = header.array_type()?;
        let (takes, holds) = (ty.nbytes() as u64, length.saturating_sub(data_start));
        if takes < holds && begins_with_magic(&mut file, data_start + takes)? {
            return Err(data_error("it holds more than one array")
                .help("read all of them: `Array::load_npy_all(path)`"));
        }
        if takes != holds {
            Err(wrong_length(&ty, holds))
        } else {
            Ok(NpyFile { file, header, ty, data_start })
        }
    }
    /// Reads the array.
    pub(crate) fn read(mut self) -> Result<Array, Fault> {
        read_array(&mut self.file, &self.header, self.ty)
    }
    /// Reads the blocks of the devices of this process.
    pub(crate) fn read_blocks(
        &mut self,
        peers: &FilePeers,
        sharding: &Sharding,
    ) -> Result<StoredBlocks, Fault> {
        let shape = self.ty.shape.clone();
        let sharding = Sharding { spec: sharding.spec.unreduced(Axes::none()), ..sharding.clone() };
        StoredBlocks::read(peers, &sharding, &shape, |index| self.read_block(index))
    }
    fn read_block(&mut self, index: &[Range<usize>]) -> Result<Array, Fault> {
        let NpyFile { file, header, ty, data_start } = self;
        let local: Shape = index.iter().map(Range::len).collect();
        if !header.fortran_order || ty.rank() < 2 {
            let data = read_block(file, *data_start, ty, index, header.big_endian)?;
            return Ok(Array::concrete(data, ty.dtype.array_type(local), None));
        }
        // a column-major array is the row-major one of the reversed dimensions
        let reversed: Vec<usize> = ty.shape.iter().rev().copied().collect();
        let index: Vec<Range<usize>> = index.iter().rev().cloned().collect();
        let data = read_block(file, *data_start, &ty.dtype.array_type(reversed), &index, header.big_endian)?;
        from_column_major(&data, ty.dtype, &local)
    }
}

/// Reads the array in a `.npy` file, which has no other array.
pub(crate) fn load(path: &Path) -> Result<Array, Fault> {
    NpyFile::open(path)?.read()
}

/// Returns the array whose elements these are in column-major order.
fn from_column_major(slab: &ArrayData, dtype: DType, shape: &Shape) -> Result<Array, Fault> {
    with_dtype!(dtype, T => {
        let view = ArrayView::from_shape(IxDyn(shape).f(), slab.elements::<T>());
        Ok(Array::from(view.map_err(data_error)?))
    })
}

/// Reads the array in a `.npy` file onto a mesh.
fn load_to(path: &Path, mesh: &Mesh, spec: Spec, call: CallSite<'_>) -> Result<Array> {
    let (op, location) = (call.op, call.location);
    let failed = |fault| error_in_file(fault, op, path, location);
    let mut peers = FilePeers::of_mesh(mesh, op, path, location)?;
    if peers.is_alone() {
        return load(path).map_err(failed)?.put_at(mesh, spec, call).ready();
    }
    let read = NpyFile::open(path)
        .and_then(|mut file| file.read_blocks(&peers, &Sharding { mesh: mesh.clone(), spec }));
    let blocks = peers.agree(read).map_err(StepFailure::into_fault).map_err(failed)?;
    blocks.into_array(op, location)?.put_at(mesh, spec, call).ready()
}

/// Reads all arrays in a file that has one after the other.
fn load_all(path: &Path) -> Result<Vec<Array>, Fault> {
    let (mut file, length) = open_regular(path)?;
    let (mut arrays, mut at) = (Vec::new(), 0);
    while at < length {
        let described = |fault: Fault| {
            let message = format!("array {}: {}", arrays.len(), fault.message);
            Fault { message, ..fault }
        };
        let (header, header_bytes) = read_header(&mut file).map_err(described)?;
        let ty = header.array_type().map_err(described)?;
        let holds = length.saturating_sub(at + header_bytes);
        if ty.nbytes() as u64 > holds {
            return Err(described(wrong_length(&ty, holds)));
        }
        at += header_bytes + ty.nbytes() as u64;
        let array = read_array(&mut file, &header, ty).map_err(described)?;
        arrays.push(array);
    }
    Ok(arrays)
}

/// Returns the error for a file with `holds` bytes after a header that announces `ty`.
fn wrong_length(ty: &ArrayType, holds: u64) -> Fault {
    data_error(format!("{ty} takes {} bytes, but the file holds {holds} after its header", ty.nbytes()))
}

/// Reads the elements after a header.
fn read_array(file: &mut File, header: &Header, ty: ArrayType) -> Result<Array, Fault> {
    let slab = read_elements(file, &ty, header.big_endian)?;
    if !header.fortran_order || header.shape.rank() < 2 {
        return Ok(Array::concrete(slab, ty, None));
    }
    from_column_major(&slab, header.dtype, &header.shape)
}
