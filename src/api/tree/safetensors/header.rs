//! The header of a `.safetensors` file: the names, types and offsets of its tensors, and metadata.
//!
//! Two entries of the metadata are digests (XXH64, in hexadecimal digits). `xxh64` is a JSON object
//! with the digest of each tensor. `xxh64.header` is the digest of the header in which its own
//! digits are zeros.

use super::digest::xxh64;
use crate::api::array::files::atomic_file::data_error;
use crate::core::Fault;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, Write};

/// The metadata entry with the digest of each tensor.
const TENSOR_DIGESTS: &str = "xxh64";
/// The metadata entry with the digest of the header.
const HEADER_DIGEST: &str = "xxh64.header";
/// The text before the digits of [`HEADER_DIGEST`] in a header.
const HEADER_DIGEST_START: &[u8] = b"\"xxh64.header\":\"";
/// The number of digits of a digest.
const NUM_DIGITS: usize = 16;
/// The metadata entry that says which library's layout the tensors have.
const FORMAT: &str = "format";
/// The header size, in bytes, is a multiple of this number.
const ALIGNMENT_BYTES: usize = 8;
/// The maximum size of a header, in bytes. A larger header is rejected as corrupt.
const MAX_HEADER_BYTES: u64 = 100 << 20;

/// Returns an error if an entry of the user's metadata has a reserved name.
pub(super) fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), Fault> {
    match [TENSOR_DIGESTS, HEADER_DIGEST].into_iter().find(|name| metadata.contains_key(*name)) {
        Some(name) => Err(fault!(Data, "the metadata entry `{name}` is reserved for digests")
            .help("give the entry another name")),
        None => Ok(()),
    }
}

/// A header that is written before its tensors, and again when their digests are known.
pub(super) struct NewHeader {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, TensorInfo)>,
    /// The digest of each tensor, in the order of `tensors`; those that are not known yet are 0.
    digests: Vec<u64>,
}

impl NewHeader {
    /// Creates the header for tensors in this order.
    pub(super) fn new<'a>(
        metadata: &BTreeMap<String, String>,
        tensors: impl IntoIterator<Item = (&'a str, Dtype, &'a [usize], usize)>,
    ) -> NewHeader {
        let (mut at, mut infos) = (0, Vec::new());
        for (name, dtype, shape, nbytes) in tensors {
            let info = TensorInfo { dtype, shape: shape.to_vec(), data_offsets: (at, at + nbytes) };
            at += nbytes;
            infos.push((name.to_string(), info));
        }
        let mut metadata = metadata.clone();
        metadata.entry(FORMAT.into()).or_insert_with(|| "pt".into());
        let digests = vec![0; infos.len()];
        NewHeader { metadata, tensors: infos, digests }
    }
    /// Sets the digest of the tensor with this index.
    pub(super) fn set_digest(&mut self, tensor: usize, digest: u64) {
        self.digests[tensor] = digest;
    }
    /// Returns the number of tensors.
    pub(super) fn len(&self) -> usize {
        self.tensors.len()
    }
    /// Returns the offset of a tensor from the first one, in bytes.
    pub(super) fn offset(&self, tensor: usize) -> usize {
        self.tensors[tensor].1.data_offsets.0
    }
    /// Returns the size of a tensor in bytes.
    pub(super) fn nbytes(&self, tensor: usize) -> usize {
        let (start, end) = self.tensors[tensor].1.data_offsets;
        end - start
    }
    /// Returns the offset of the first tensor in the file, in bytes.
    pub(super) fn data_start(&self) -> Result<u64, Fault> {
        Ok(8 + self.text(&hex(0))?.len() as u64)
    }
    /// Writes the header at the start of a file; its length does not depend on the digests.
    pub(super) fn write(&self, file: &mut File) -> Result<(), Fault> {
        file.rewind().map_err(data_error)?;
        let blank = self.text(&"0".repeat(NUM_DIGITS))?;
        let bytes = self.text(&hex(xxh64(blank.as_bytes())))?;
        if bytes.len() as u64 > MAX_HEADER_BYTES {
            return Err(fault!(Data, "the header takes {} bytes, more than readers accept", bytes.len())
                .help("write fewer tensors into a file: `SaveOptions::default().max_file_bytes(n)`"));
        }
        file.write_all(&(bytes.len() as u64).to_le_bytes()).map_err(data_error)?;
        file.write_all(bytes.as_bytes()).map_err(data_error)
    }
    /// Returns the text of the header, with these digits as the digest of the header.
    fn text(&self, header_digest: &str) -> Result<String, Fault> {
        let names = self.tensors.iter().map(|(name, _)| name.as_str());
        let digests: BTreeMap<&str, String> = names.zip(self.digests.iter().map(|d| hex(*d))).collect();
        let mut metadata: BTreeMap<&str, &str> =
            self.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let digests = json(&digests)?;
        metadata.insert(TENSOR_DIGESTS, &digests);
        metadata.insert(HEADER_DIGEST, header_digest);
        let mut text = format!("{{\"__metadata__\":{}", json(&metadata)?);
        for (name, info) in &self.tensors {
            text += &format!(",{}:{}", json(name)?, json(info)?);
        }
        text.push('}');
        // padding goes before the end of the text, so that the digest includes it
        let padding = text.len().next_multiple_of(ALIGNMENT_BYTES) - text.len();
        Ok(text + &" ".repeat(padding))
    }
}

fn json(value: &(impl Serialize + ?Sized)) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(data_error)
}
fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

/// The header of a file that is read.
pub(super) struct FileHeader {
    tensors: Metadata,
    /// The metadata without digests.
    pub(super) metadata: BTreeMap<String, String>,
    /// The digest of each tensor; empty if the file has none.
    digests: HashMap<String, u64>,
    /// The offset of the first element from the start of the file, in bytes.
    pub(super) data_start: u64,
}

impl FileHeader {
    /// Reads and checks the header of a file of `length` bytes.
    pub(super) fn read(file: &mut File, length: u64) -> Result<FileHeader, Fault> {
        let no_file = |why: String| fault!(Data, "it is not a .safetensors file: {why}");
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(|why| no_file(why.to_string()))?;
        let size = u64::from_le_bytes(size);
        if size > length.saturating_sub(8).min(MAX_HEADER_BYTES) {
            return Err(no_file(format!("a header of {size} bytes in a file of {length}")));
        }
        let mut text = Vec::new();
        file.take(size).read_to_end(&mut text).map_err(data_error)?;
        // the deserializer checks that sizes match the types, and that there are no gaps
        let tensors: Metadata = serde_json::from_slice(&text).map_err(|why| no_file(why.to_string()))?;
        let (data_start, takes) = (8 + size, tensors.data_len() as u64);
        if length - data_start != takes {
            let holds = length - data_start;
            return Err(fault!(Data, "its arrays take {takes} bytes, but it holds {holds} after its header")
                .help("copy or save the file again: it is cut off or has been written to"));
        }
        let mut metadata: BTreeMap<String, String> =
            tensors.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        check_header_digest(&mut text, &mut metadata)?;
        let digests = match metadata.remove(TENSOR_DIGESTS) {
            Some(text) => parse_digests(&text)?,
            None => HashMap::new(),
        };
        Ok(FileHeader { tensors, metadata, digests, data_start })
    }
    /// Returns the names of all tensors, in the order of their data.
    pub(super) fn names(&self) -> Vec<String> {
        self.tensors.offset_keys()
    }
    /// Returns the type and the offsets of a tensor, if the file has it.
    pub(super) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.info(name)
    }
    /// Returns the digest of a tensor, if the file has one.
    pub(super) fn digest(&self, name: &str) -> Option<u64> {
        self.digests.get(name).copied()
    }
}

fn damaged_header() -> Fault {
    fault!(Data, "its header differs from the digest of the header: the file is damaged")
        .help("copy or save the file again")
        .help("if another program wrote it, let that remove the entries `xxh64` and `xxh64.header`")
}

/// Compares a header with its digest, if it has one. Zeros replace the digits in the text.
fn check_header_digest(text: &mut [u8], metadata: &mut BTreeMap<String, String>) -> Result<(), Fault> {
    let Some(digest) = metadata.remove(HEADER_DIGEST) else {
        // a header with digests of tensors has its own too
        return if metadata.contains_key(TENSOR_DIGESTS) { Err(damaged_header()) } else { Ok(()) };
    };
    let mut windows = text.windows(HEADER_DIGEST_START.len());
    let start = windows.position(|window| window == HEADER_DIGEST_START).ok_or_else(damaged_header)?;
    let start = start + HEADER_DIGEST_START.len();
    text.get_mut(start..start + NUM_DIGITS).ok_or_else(damaged_header)?.fill(b'0');
    if hex(xxh64(text)) == digest { Ok(()) } else { Err(damaged_header()) }
}

fn parse_digests(text: &str) -> Result<HashMap<String, u64>, Fault> {
    let digests: HashMap<String, String> =
        serde_json::from_str(text).map_err(|why| fault!(Data, "its digests cannot be read: {why}"))?;
    let digit = |(name, digest): (String, String)| match u64::from_str_radix(&digest, 16) {
        Ok(digest) => Ok((name, digest)),
        Err(_) => Err(fault!(Data, "the digest of `{name}` is {digest:?}, not {NUM_DIGITS} digits")),
    };
    digests.into_iter().map(digit).collect()
}
