//! The header of a `.npy` file, in Python syntax.

use super::atomic_file::data_error;
use crate::core::{ArrayType, Cursor, DType, Fault, Result, Shape};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

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

/// Returns the header of the file of an array, with all bytes before its elements.
pub(super) fn npy_head(ty: &ArrayType) -> Result<Vec<u8>, Fault> {
    let Some((_, code)) = NPY_DTYPES.iter().find(|t| t.0 == ty.dtype) else {
        let fault = fault!(Dtype, "{} cannot be stored in .npy files", ty.dtype);
        return Err(match ty.dtype {
            DType::Key => fault.help("save the key's two words: `key.data()`"),
            _ => fault.help("convert it first: `.astype(F32)`"),
        });
    };
    let order = match ty.dtype.size() {
        1 => '|',
        _ if cfg!(target_endian = "big") => '>',
        _ => '<',
    };
    let sizes: Vec<String> = ty.shape.iter().map(usize::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", sizes.join(", "));
    let header = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': {shape}, }}");
    // the elements start at a multiple of 64 bytes
    let len = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[1, 0]);
    let short = u16::try_from(len)
        .map_err(|_| fault!(Data, "a header for this number of dimensions is too long for .npy files"))?;
    bytes.extend_from_slice(&short.to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(10 + len - 1, b' ');
    bytes.push(b'\n');
    Ok(bytes)
}

/// The header of a `.npy` file.
pub(super) struct Header {
    /// The element type.
    pub(super) dtype: DType,
    /// True if the elements are big-endian.
    pub(super) big_endian: bool,
    /// True if the elements are in column-major order.
    pub(super) fortran_order: bool,
    /// The shape.
    pub(super) shape: Shape,
}

impl Header {
    /// Returns the type of the array, if its size can be addressed.
    pub(super) fn array_type(&self) -> Result<ArrayType, Fault> {
        let ty = self.dtype.array_type(&self.shape);
        ty.check_addressable()?;
        Ok(ty)
    }
}

/// Reads the header; returns it and its length in bytes.
pub(super) fn read_header(file: &mut File) -> Result<(Header, u64), Fault> {
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

/// Returns true if another array begins at this offset, and goes back to the current position.
pub(super) fn begins_with_magic(file: &mut File, offset: u64) -> Result<bool, Fault> {
    let back = file.stream_position().map_err(data_error)?;
    let mut start = [0; MAGIC.len()];
    file.seek(SeekFrom::Start(offset)).map_err(data_error)?;
    let is_magic = file.read_exact(&mut start).is_ok() && start == *MAGIC;
    file.seek(SeekFrom::Start(back)).map_err(data_error)?;
    Ok(is_magic)
}
