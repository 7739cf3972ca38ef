//! `.npy` files: numpy's format for one array. A header in Python's words (element type, order, shape), then the elements.
//!
//! The header is compared with the file's length before anything is made, so that a file never asks for more memory than it
//! has bytes.

use super::Array;
use crate::diagnostic::{Cursor, Error, ErrorKind, Fault, Place, Result};
use crate::runtime::{Buffer, Slab, fits, host, room};
use crate::types::{ArrayType, DType, Shape, with_dtype};
use ndarray::{ArrayView, IxDyn, ShapeBuilder};
use std::fs::File;
use std::io::{Read, Write};
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// No header that means anything here is longer.
const LONGEST: usize = 1 << 16;

/// The element types that both have, as numpy writes them.
const TYPES: [(DType, &str); 14] = [
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
];

/// # Files
impl Array {
    /// Writes a `.npy` file: element type, shape and numbers, not the sharding. A file of this name is replaced once all is written,
    /// so that none is ever half there. bfloat16 and keys have no form in such files.
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
        let (place, path) = (Location::caller(), path.as_ref());
        let bytes = self.npy_bytes("save_npy", place)?;
        replace(path, &bytes).map_err(|why| file("save_npy", path, why, place))
    }
    /// Reads a `.npy` file: on no mesh, of the file's element type and shape. Either byte order and either order of dimensions is read.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert!(Array::load_npy("nowhere.npy").is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn load_npy(path: impl AsRef<Path>) -> Result<Array> {
        let (place, path) = (Location::caller(), path.as_ref());
        load(path).map_err(|fault| {
            let fault = Fault { message: format!("{}: {}", path.display(), fault.message), ..fault };
            Error::at(fault, "load_npy", Vec::new(), Some(place))
        })
    }
    /// The file's bytes.
    pub(crate) fn npy_bytes(&self, op: &'static str, place: Place) -> Result<Vec<u8>> {
        let ty = self.ty()?;
        let slab = self.numbers(op, place)?;
        let Some((_, code)) = TYPES.iter().find(|t| t.0 == ty.dtype) else {
            let fault = Fault::new(ErrorKind::Dtype, format!("{} has no form in .npy files", ty.dtype));
            let fault = match ty.dtype {
                DType::Key => fault.help("a key's two words have: `key.data()`"),
                _ => fault.help("convert it first: `.astype(F32)`"),
            };
            return Err(Error::at(fault, op, vec![ty.to_string()], Some(place)));
        };
        self.npy_file(op, (ty.dtype.size(), code), &ty.shape, &slab, place)
    }
    /// The bytes of a file that another system reads: a key is its two words, bfloat16 two bytes without a meaning.
    pub(crate) fn words_npy(&self, op: &'static str, place: Place) -> Result<Vec<u8>> {
        let ty = self.ty()?;
        match ty.dtype {
            DType::Key => {
                let shape: Vec<usize> = ty.shape.iter().copied().chain([2]).collect();
                self.npy_file(op, (4, "u4"), &shape, &self.numbers(op, place)?, place)
            }
            DType::BF16 => self.npy_file(op, (2, "V2"), &ty.shape, &self.numbers(op, place)?, place),
            _ => self.npy_bytes(op, place),
        }
    }
    /// A header of elements of so many bytes and this code, then the elements.
    fn npy_file(
        &self,
        op: &'static str,
        (size, code): (usize, &str),
        shape: &[usize],
        slab: &Slab,
        place: Place,
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
        // the elements begin at a multiple of 64
        let len = (10 + header.len() + 1).next_multiple_of(64) - 10;
        let refused = |fault| Error::at(fault, op, vec![ty.to_string()], Some(place));
        let mut bytes = room(10 + len + ty.nbytes()).map_err(refused)?;
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[1, 0]);
        let short = u16::try_from(len).map_err(|_| {
            let fault =
                Fault::new(ErrorKind::Data, "a header of so many dimensions is too long for .npy files");
            Error::at(fault, op, vec![ty.to_string()], Some(place))
        })?;
        bytes.extend_from_slice(&short.to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(10 + len - 1, b' ');
        bytes.push(b'\n');
        bytes.extend_from_slice(slab.bytes().map_err(refused)?);
        Ok(bytes)
    }
}

/// Writes a file beside its place, then moves it there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = File::create(&part)
        .and_then(|mut f| f.write_all(bytes).and_then(|()| f.sync_all()))
        .and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

pub(crate) fn file(op: &str, path: &Path, why: impl std::fmt::Display, place: Place) -> Error {
    Error::at(Fault::new(ErrorKind::Data, format!("{}: {why}", path.display())), op, Vec::new(), Some(place))
}

pub(crate) fn data(why: impl std::fmt::Display) -> Fault {
    Fault::new(ErrorKind::Data, why.to_string())
}

/// The array in a file.
pub(crate) fn load(path: &Path) -> Result<Array, Fault> {
    let (mut file, length) = opened(path)?;
    let (header, begins) = read_header(&mut file)?;
    let Header { dtype, big, fortran, shape } = header;
    let ty = dtype.of(&shape);
    ty.addressable()?;
    let (takes, holds) = (ty.nbytes(), length.saturating_sub(begins));
    if takes as u64 != holds {
        return Err(data(format!("{ty} takes {takes} bytes, but the file holds {holds} behind its header")));
    }
    let slab = read_elements(&mut file, &ty, big)?;
    if !fortran || shape.rank() < 2 {
        return Ok(Array::concrete(slab, ty, None));
    }
    with_dtype!(dtype, T => {
        let turned = ArrayView::from_shape(IxDyn(&shape).f(), slab.elements::<T>()).map_err(data)?;
        Ok(Array::from(turned))
    })
}

/// A regular file and its length.
pub(crate) fn opened(path: &Path) -> Result<(File, u64), Fault> {
    // asked before it is opened: to open a pipe waits for whoever writes it
    let known = std::fs::metadata(path).map_err(data)?;
    if !known.is_file() {
        let fault = data("it is not a regular file, so its length is not known");
        return Err(
            fault.help("read it by other means, and make the array of a `Vec`: `Array::from(numbers)`")
        );
    }
    let file = File::open(path).map_err(data)?;
    let length = file.metadata().map_err(data)?.len();
    Ok((file, length))
}

/// The elements of a type, in row-major order, from where the file is; `big`: the most significant byte of each comes first.
pub(crate) fn read_elements(file: &mut File, ty: &ArrayType, big: bool) -> Result<Slab, Fault> {
    let takes = ty.nbytes();
    fits(takes)?;
    let mut buffer = Buffer::zeroed(takes)?;
    // SAFETY: the buffer has as many bytes, all of them zeros, and nobody else knows it yet
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr(), takes) };
    file.read_exact(bytes).map_err(data)?;
    if big != cfg!(target_endian = "big") {
        host::swap_bytes(bytes, ty.dtype.real().size());
    }
    if ty.dtype == DType::Bool && bytes.iter().any(|b| *b > 1) {
        return Err(data("a bool in it is neither true nor false"));
    }
    Ok(Slab::new(ty.dtype, ty.shape.clone(), 1, Arc::new(buffer)))
}

struct Header {
    dtype: DType,
    /// Whether the most significant byte comes first.
    big: bool,
    /// Whether the first dimension runs fastest.
    fortran: bool,
    shape: Shape,
}

/// The header, and where the elements begin.
fn read_header(file: &mut File) -> Result<(Header, u64), Fault> {
    let no_file = |_| data("it is no .npy file: the header is cut off");
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(no_file)?;
    if start[..6] != MAGIC[..] {
        return Err(data("it is no .npy file: these begin with \\x93NUMPY, before their header"));
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
        other => return Err(data(format!("its header is of version {other}; 1, 2 and 3 are known"))),
    };
    if length > LONGEST {
        return Err(data(format!("its header says that it has {length} bytes, more than any array needs")));
    }
    let mut text = vec![0; length];
    file.read_exact(&mut text).map_err(no_file)?;
    let text = std::str::from_utf8(&text).map_err(|_| data("its header is not text"))?;
    let header = header(&mut Cursor::new(text, true, refused))?;
    Ok((header, begins + length as u64))
}

fn refused(c: &Cursor<'_>, what: &str) -> Fault {
    let shown: String = c.text().trim_end().chars().take(200).collect();
    data(format!("its header is {shown:?}: {what} is expected at byte {}", c.bytes()))
}

/// A word in quotes, which has none within.
fn word<'a>(c: &mut Cursor<'a>) -> Result<&'a str, Fault> {
    let quote = ["'", "\""].into_iter().find(|quote| c.eat(quote));
    quote.and_then(|quote| c.until(quote)).ok_or_else(|| c.expected("a word in quotes"))
}

fn boolean(c: &mut Cursor<'_>) -> Result<bool, Fault> {
    if c.eat("True") {
        return Ok(true);
    }
    if c.eat("False") { Ok(false) } else { Err(c.expected("`True` or `False`")) }
}

fn sizes(c: &mut Cursor<'_>) -> Result<Vec<usize>, Fault> {
    c.need("(")?;
    let mut sizes = Vec::new();
    while !c.eat(")") {
        let before = *c;
        sizes.push(c.take(|c| c.is_ascii_digit()).parse().map_err(|_| before.expected("a size"))?);
        // a tuple of one has a comma
        if !c.eat(",") {
            if sizes.len() == 1 {
                return Err(c.expected("`,`"));
            }
            c.need(")")?;
            break;
        }
    }
    Ok(sizes)
}

/// The dictionary that a header is: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }`.
fn header(c: &mut Cursor<'_>) -> Result<Header, Fault> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    c.need("{")?;
    while !c.eat("}") {
        let before = *c;
        let key = word(c)?;
        c.need(":")?;
        let again = match key {
            "descr" => descr.replace(word(c)?).is_some(),
            "fortran_order" => fortran.replace(boolean(c)?).is_some(),
            "shape" => shape.replace(sizes(c)?).is_some(),
            _ => true,
        };
        if again {
            return Err(before.expected("one each of `descr`, `fortran_order` and `shape`"));
        }
        if !c.eat(",") {
            c.need("}")?;
            break;
        }
    }
    c.end()?;
    let missing = |what| move || data(format!("its header says no `{what}`"));
    let descr = descr.ok_or_else(missing("descr"))?;
    let fortran = fortran.ok_or_else(missing("fortran_order"))?;
    let shape = shape.ok_or_else(missing("shape"))?;
    let known = descr.split_at_checked(1).and_then(|(order, code)| {
        let (dtype, _) = TYPES.iter().find(|t| t.1 == code)?;
        let big = match order {
            "<" => false,
            ">" => true,
            "=" => cfg!(target_endian = "big"),
            "|" if dtype.size() == 1 => false,
            _ => return None,
        };
        Some((*dtype, big))
    });
    let Some((dtype, big)) = known else {
        let names: Vec<_> = TYPES.iter().map(|t| t.0.name()).collect();
        return Err(data(format!("its element type, `{descr}`, is none that arrays have here"))
            .help(format!("convert it in Python: `x.astype(…)` to one of {}", names.join(", "))));
    };
    Ok(Header { dtype, big, fortran, shape: shape.into() })
}
