//! Reading and writing of `.npy` files, NumPy's file format for one array.
//!
//! A file has a header in Python syntax (element type, order, shape), followed by the elements. The
//! size that the header announces is compared with the file's length before any allocation, so that
//! a malformed file cannot request more memory than its own size.

use super::Array;
use super::atomic_file::{data_error, open_regular, write_atomically};
use crate::core::{ArrayType, Cursor, DType, Error, Fault, Result, Shape, SourceLocation, types::with_dtype};
use crate::exec::runtime::{ArrayData, Buffer, check_available, parallel_copy, try_vec_with_capacity};
use ndarray::{ArrayView, IxDyn, ShapeBuilder};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The maximum header length that is accepted, in bytes; supported arrays need less.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// The first bytes of a `.npz` archive, which is a zip file.
const ZIP_MAGIC: &[u8; 4] = b"PK\x03\x04";

/// The element types that NumPy and this crate share, with NumPy's type codes.
const NPY_DTYPES: [(DType, &str); 15] = [
    (DType::Bool, "b1"),
    (DType::I8, "i1"),
    (DType::I16, "i2"),
    (DType::I32, "i4"),
    (DType::I64, "i8"),
    (DType::U8, "u1"),
    (DType::U16, "u2"),
    (DType::U32, "u4"),
    (DType::U64, "u8"),
    (DType::F16, "f2"),
    (DType::F32, "f4"),
    (DType::F64, "f8"),
    (DType::C64, "c8"),
    (DType::C128, "c16"),
    // NumPy has no bfloat16; JAX writes it as opaque elements of two bytes
    (DType::BF16, "V2"),
];

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
        let (location, path) = (Location::caller(), path.as_ref());
        let bytes = self.npy_bytes("save_npy", location)?;
        write_atomically(path, &bytes).map_err(|why| file_error("save_npy", path, why, location))
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
        let (op, location, path) = ("save_npy_all", Location::caller(), path.as_ref());
        let mut bytes = Vec::new();
        for array in arrays {
            bytes.extend(array.npy_bytes(op, location)?);
        }
        write_atomically(path, &bytes).map_err(|why| file_error(op, path, why, location))
    }
    /// Reads all arrays of a file that has one after the other, on no mesh.
    ///
    /// `np.save` writes such a file if it is called repeatedly with an open file.
    #[track_caller]
    pub fn load_npy_all(path: impl AsRef<Path>) -> Result<Vec<Array>> {
        let (location, path) = (Location::caller(), path.as_ref());
        load_all(path).map_err(|fault| error_in_file(fault, "load_npy_all", path, location))
    }
    /// Returns the contents of the `.npy` file of this array.
    pub(crate) fn npy_bytes(&self, op: &'static str, location: SourceLocation) -> Result<Vec<u8>> {
        let ty = self.ty()?;
        let slab = self.host_data(op, location)?;
        let Some((_, code)) = NPY_DTYPES.iter().find(|t| t.0 == ty.dtype) else {
            let fault = fault!(Dtype, "{} cannot be stored in .npy files", ty.dtype);
            let fault = match ty.dtype {
                DType::Key => fault.help("save the key's two words: `key.data()`"),
                _ => fault.help("convert it first: `.astype(F32)`"),
            };
            return Err(Error::new(fault, op, vec![ty.to_string()], Some(location)));
        };
        self.npy_bytes_with_dtype(op, (ty.dtype.size(), code), &ty.shape, &slab, location)
    }
    /// Returns `.npy` contents that also represent types NumPy lacks, for other programs to read.
    ///
    /// A key is written as its two words.
    #[cfg(feature = "json")]
    pub(crate) fn npy_bytes_raw(&self, op: &'static str, location: SourceLocation) -> Result<Vec<u8>> {
        let ty = self.ty()?;
        match ty.dtype {
            DType::Key => {
                let shape: Vec<usize> = ty.shape.iter().copied().chain([2]).collect();
                self.npy_bytes_with_dtype(op, (4, "u4"), &shape, &self.host_data(op, location)?, location)
            }
            _ => self.npy_bytes(op, location),
        }
    }
    /// Returns a header for elements of `size` bytes and this type code, followed by the elements.
    fn npy_bytes_with_dtype(
        &self,
        op: &'static str,
        (size, code): (usize, &str),
        shape: &[usize],
        slab: &ArrayData,
        location: SourceLocation,
    ) -> Result<Vec<u8>> {
        let ty = self.ty()?;
        let order = match size {
            1 => '|',
            _ if cfg!(target_endian = "big") => '>',
            _ => '<',
        };
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        let comma = if sizes.len() == 1 { "," } else { "" };
        let shape = format!("({}{comma})", sizes.join(", "));
        let header = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': {shape}, }}");
        // the elements start at a multiple of 64 bytes
        let len = (10 + header.len() + 1).next_multiple_of(64) - 10;
        let error = |fault| Error::new(fault, op, vec![ty.to_string()], Some(location));
        let mut bytes = try_vec_with_capacity(10 + len + ty.nbytes()).map_err(error)?;
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[1, 0]);
        let short = u16::try_from(len).map_err(|_| {
            let fault = fault!(Data, "a header for this number of dimensions is too long for .npy files");
            Error::new(fault, op, vec![ty.to_string()], Some(location))
        })?;
        bytes.extend_from_slice(&short.to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(10 + len - 1, b' ');
        bytes.push(b'\n');
        bytes.extend_from_slice(slab.bytes().map_err(error)?);
        Ok(bytes)
    }
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

/// Reads the array in a `.npy` file, which has no other array.
pub(crate) fn load(path: &Path) -> Result<Array, Fault> {
    let (mut file, length) = open_regular(path)?;
    let (header, data_start) = read_header(&mut file)?;
    let ty = header.array_type()?;
    let (takes, holds) = (ty.nbytes() as u64, length.saturating_sub(data_start));
    if takes < holds && begins_with_magic(&mut file, data_start + takes)? {
        return Err(
            data_error("it holds more than one array").help("read all of them: `Array::load_npy_all(path)`")
        );
    }
    if takes != holds { Err(wrong_length(&ty, holds)) } else { read_array(&mut file, &header, ty) }
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

/// Returns true if another array begins at this offset, and goes back to the current position.
fn begins_with_magic(file: &mut File, offset: u64) -> Result<bool, Fault> {
    let back = file.stream_position().map_err(data_error)?;
    let mut start = [0; MAGIC.len()];
    file.seek(SeekFrom::Start(offset)).map_err(data_error)?;
    let is_magic = file.read_exact(&mut start).is_ok() && start == *MAGIC;
    file.seek(SeekFrom::Start(back)).map_err(data_error)?;
    Ok(is_magic)
}

/// Reads the elements after a header.
fn read_array(file: &mut File, header: &Header, ty: ArrayType) -> Result<Array, Fault> {
    let slab = read_elements(file, &ty, header.big_endian)?;
    if !header.fortran_order || header.shape.rank() < 2 {
        return Ok(Array::concrete(slab, ty, None));
    }
    with_dtype!(header.dtype, T => {
        let view = ArrayView::from_shape(IxDyn(&header.shape).f(), slab.elements::<T>());
        Ok(Array::from(view.map_err(data_error)?))
    })
}

/// Reads the elements of a type, in row-major order, from the current position.
///
/// `big` is true if the elements are big-endian.
pub(crate) fn read_elements(file: &mut File, ty: &ArrayType, big: bool) -> Result<ArrayData, Fault> {
    read_elements_with(ty, big, |bytes| file.read_exact(bytes))
}

/// Makes an array of this type from the bytes that `read` writes.
pub(crate) fn read_elements_with(
    ty: &ArrayType,
    big: bool,
    read: impl FnOnce(&mut [u8]) -> std::io::Result<()>,
) -> Result<ArrayData, Fault> {
    let takes = ty.nbytes();
    check_available(takes)?;
    let mut buffer = Buffer::allocate(takes)?;
    let bytes = buffer.fill_zeros();
    read(bytes).map_err(data_error)?;
    if big != cfg!(target_endian = "big") {
        parallel_copy::swap_bytes(bytes, ty.dtype.real().size());
    }
    if ty.dtype == DType::Bool && bytes.iter().any(|b| *b > 1) {
        return Err(data_error("a bool in it is neither true nor false"));
    }
    Ok(ArrayData::new(ty.dtype, ty.shape.clone(), 1, Arc::new(buffer)))
}

/// The header of a `.npy` file.
struct Header {
    /// The element type.
    dtype: DType,
    /// True if the elements are big-endian.
    big_endian: bool,
    /// True if the elements are in column-major order.
    fortran_order: bool,
    /// The shape.
    shape: Shape,
}

impl Header {
    /// Returns the type of the array, if its size can be addressed.
    fn array_type(&self) -> Result<ArrayType, Fault> {
        let ty = self.dtype.array_type(&self.shape);
        ty.check_addressable()?;
        Ok(ty)
    }
}

/// Reads the header; returns it and its length in bytes.
fn read_header(file: &mut File) -> Result<(Header, u64), Fault> {
    let no_file = |_| data_error("it is not a .npy file: the header is cut off");
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(no_file)?;
    if start[..4] == ZIP_MAGIC[..] {
        return Err(data_error("it is a zip archive of arrays (.npz), not a .npy file")
            .help("unpack it, and load each of its .npy files: `unzip file.npz`"));
    }
    if start[..6] != MAGIC[..] {
        return Err(data_error("it is not a .npy file: such files start with \\x93NUMPY"));
    }
    let (length, begins) = match start[6] {
        1 => {
            let mut length = [0; 2];
            file.read_exact(&mut length).map_err(no_file)?;
            (u16::from_le_bytes(length) as usize, 10)
        }
        2 | 3 => {
            let mut length = [0; 4];
            file.read_exact(&mut length).map_err(no_file)?;
            (u32::from_le_bytes(length) as usize, 12)
        }
        other => {
            return Err(data_error(format!(
                "its header has version {other}, but only 1, 2 and 3 are supported"
            )));
        }
    };
    if length > MAX_HEADER_BYTES {
        return Err(data_error(format!(
            "its header says that it has {length} bytes, more than any array needs"
        )));
    }
    let mut text = vec![0; length];
    file.read_exact(&mut text).map_err(no_file)?;
    let text = std::str::from_utf8(&text).map_err(|_| data_error("its header is not text"))?;
    let header = parse_header(&mut Cursor::new(text, true, header_error))?;
    Ok((header, begins + length as u64))
}

/// Returns the error for a header that does not have `what` at the cursor.
fn header_error(c: &Cursor<'_>, what: &str) -> Fault {
    let shown: String = c.text().trim_end().chars().take(200).collect();
    data_error(format!("its header is {shown:?}: {what} is expected at byte {}", c.bytes()))
}

/// Parses a quoted string without escapes.
fn parse_quoted<'a>(c: &mut Cursor<'a>) -> Result<&'a str, Fault> {
    let quote = ["'", "\""].into_iter().find(|quote| c.eat(quote));
    quote.and_then(|quote| c.until(quote)).ok_or_else(|| c.expected("a word in quotes"))
}

/// Parses `True` or `False`.
fn parse_bool(c: &mut Cursor<'_>) -> Result<bool, Fault> {
    if c.eat("True") {
        return Ok(true);
    }
    if c.eat("False") { Ok(false) } else { Err(c.expected("`True` or `False`")) }
}

/// Parses a tuple of sizes.
fn parse_shape(c: &mut Cursor<'_>) -> Result<Vec<usize>, Fault> {
    c.expect("(")?;
    let mut sizes = Vec::new();
    while !c.eat(")") {
        let before = *c;
        sizes.push(c.take(|c| c.is_ascii_digit()).parse().map_err(|_| before.expected("a size"))?);
        // Python 2 wrote long integers like this
        c.eat("L");
        // a tuple of one element needs a comma
        if !c.eat(",") {
            if sizes.len() == 1 {
                return Err(c.expected("`,`"));
            }
            c.expect(")")?;
            break;
        }
    }
    Ok(sizes)
}

/// Parses a header: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }`.
fn parse_header(c: &mut Cursor<'_>) -> Result<Header, Fault> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    c.expect("{")?;
    while !c.eat("}") {
        let before = *c;
        let key = parse_quoted(c)?;
        c.expect(":")?;
        let again = match key {
            "descr" if c.eat("[") => return Err(records_error(c.text())),
            "descr" => descr.replace(parse_quoted(c)?).is_some(),
            "fortran_order" => fortran.replace(parse_bool(c)?).is_some(),
            "shape" => shape.replace(parse_shape(c)?).is_some(),
            _ => true,
        };
        if again {
            return Err(before.expected("one each of `descr`, `fortran_order` and `shape`"));
        }
        if !c.eat(",") {
            c.expect("}")?;
            break;
        }
    }
    c.end()?;
    let missing = |what| move || data_error(format!("its header has no `{what}`"));
    let descr = descr.ok_or_else(missing("descr"))?;
    let fortran = fortran.ok_or_else(missing("fortran_order"))?;
    let shape = shape.ok_or_else(missing("shape"))?;
    let known = parse_dtype(descr);
    let Some((dtype, big)) = known else {
        let names: Vec<_> = NPY_DTYPES.iter().map(|t| t.0.name()).collect();
        return Err(data_error(format!("arrays do not support its element type, `{descr}`"))
            .help(format!("convert it in Python: `x.astype(…)` to one of {}", names.join(", "))));
    };
    Ok(Header { dtype, big_endian: big, fortran_order: fortran, shape: shape.into() })
}

/// Returns the element type with this code, and true if its elements are big-endian.
fn parse_dtype(descr: &str) -> Option<(DType, bool)> {
    // Python's name of a type means the byte order of the machine that wrote the file; nearly all
    // are little-endian
    if let Some((dtype, _)) = NPY_DTYPES.iter().find(|t| t.0.name() == descr) {
        return Some((*dtype, false));
    }
    if descr == "?" {
        return Some((DType::Bool, false));
    }
    let (order, code) = descr.split_at_checked(1)?;
    let code = if code == "?" { "b1" } else { code };
    let (dtype, _) = NPY_DTYPES.iter().find(|t| t.1 == code)?;
    let is_big_endian = match order {
        "<" => false,
        ">" => true,
        "=" => cfg!(target_endian = "big"),
        "|" if dtype.size() == 1 || *dtype == DType::BF16 => false,
        _ => return None,
    };
    Some((*dtype, is_big_endian))
}

/// Returns the error for a header whose elements are records.
fn records_error(header: &str) -> Fault {
    let fields: Vec<&str> = header.split("('").skip(1).filter_map(|field| field.split('\'').next()).collect();
    let first = fields.first().copied().unwrap_or("field");
    data_error(format!("its elements are records, with the fields {}", fields.join(", ")))
        .help(format!("save each field in a file: `np.save(path, x['{first}'])` in Python"))
}
