//! One `.safetensors` file that is open for reading.

use super::digest::Xxh64;
use super::header::FileHeader;
use super::stored_dtype;
use crate::api::array::Array;
use crate::api::array::files::atomic_file::{data_error, open_regular};
use crate::api::array::files::blocks::{CHUNK_BYTES, read_block, read_elements};
use crate::core::{ArrayType, Fault, Shape, util::small_sort};
use safetensors::tensor::TensorInfo;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An open file and its header.
pub(super) struct TensorFile {
    pub(super) path: PathBuf,
    pub(super) header: FileHeader,
    file: File,
    /// The tensors whose data has been compared with its digest.
    verified: HashSet<String>,
}

impl TensorFile {
    pub(super) fn open(path: &Path) -> Result<TensorFile, Fault> {
        let (mut file, length) = open_regular(path)?;
        let header = FileHeader::read(&mut file, length)?;
        Ok(TensorFile { path: path.into(), header, file, verified: HashSet::new() })
    }
    fn info(&self, name: &str) -> Result<&TensorInfo, Fault> {
        self.header.info(name).ok_or_else(|| missing_tensor(self.header.names()))
    }
    /// Returns the type of the array that [`TensorFile::read`] returns.
    pub(super) fn tensor_type(&self, name: &str) -> Result<ArrayType, Fault> {
        let info = self.info(name)?;
        let ty = stored_dtype(info.dtype)?.array_type(info.shape.clone());
        ty.check_addressable()?;
        Ok(ty)
    }
    fn seek_to(&mut self, name: &str) -> Result<(), Fault> {
        let start = self.header.data_start + self.info(name)?.data_offsets.0 as u64;
        self.file.seek(SeekFrom::Start(start)).map_err(data_error)?;
        Ok(())
    }
    /// Reads one tensor, and nothing else of the file, and compares it with its digest.
    pub(super) fn read(&mut self, name: &str) -> Result<Array, Fault> {
        let ty = self.tensor_type(name)?;
        self.seek_to(name)?;
        let data = read_elements(&mut self.file, &ty, false)?;
        if self.header.digest(name).is_some() && !self.verified.contains(name) {
            let mut digest = Xxh64::new();
            digest.update(data.bytes()?);
            self.compare_digest(name, &digest)?;
        }
        Ok(Array::concrete(data, ty, None))
    }
    /// Compares a tensor with its digest, if it has one, without keeping its data in memory.
    pub(super) fn verify(&mut self, name: &str) -> Result<(), Fault> {
        if self.header.digest(name).is_none() || self.verified.contains(name) {
            return Ok(());
        }
        let (start, end) = self.info(name)?.data_offsets;
        let digest = digest_of_part(&mut self.file, self.header.data_start + start as u64, end - start)?;
        self.compare_digest(name, &digest)
    }
    fn compare_digest(&mut self, name: &str, digest: &Xxh64) -> Result<(), Fault> {
        if self.header.digest(name).is_none_or(|known| known == digest.finish()) {
            self.verified.insert(name.into());
            return Ok(());
        }
        Err(fault!(Data, "the data differs from its digest: the file is damaged")
            .help("copy or save the file again, or load an earlier one"))
    }
    /// Reads the block of a tensor with this index range in each dimension, and no other data.
    pub(super) fn read_block(&mut self, name: &str, index: &[Range<usize>]) -> Result<Array, Fault> {
        let ty = self.tensor_type(name)?;
        check_index(&ty.shape, index)?;
        let start = self.header.data_start + self.info(name)?.data_offsets.0 as u64;
        let data = read_block(&mut self.file, start, &ty, index, false)?;
        let local = ty.dtype.array_type(data.shape());
        Ok(Array::concrete(data, local, None))
    }
}

/// Returns the digest of a part of a file, without keeping its data in memory.
pub(super) fn digest_of_part(file: &mut File, start: u64, nbytes: usize) -> Result<Xxh64, Fault> {
    file.seek(SeekFrom::Start(start)).map_err(data_error)?;
    let (mut left, mut digest, mut chunk) = (nbytes, Xxh64::new(), vec![0; nbytes.min(CHUNK_BYTES)]);
    while left > 0 {
        let part = &mut chunk[..left.min(CHUNK_BYTES)];
        file.read_exact(part).map_err(data_error)?;
        digest.update(part);
        left -= part.len();
    }
    Ok(digest)
}

/// Returns an error unless the ranges are a block of an array of this shape.
fn check_index(shape: &Shape, index: &[Range<usize>]) -> Result<(), Fault> {
    let within = |(range, size): (&Range<usize>, &usize)| range.start <= range.end && range.end <= *size;
    match index.len() == shape.rank() && index.iter().zip(shape.iter()).all(within) {
        true => Ok(()),
        false => Err(fault!(Shape, "{index:?} is not a block of an array of shape {shape}")
            .help("give a range within each dimension")),
    }
}

/// Returns the error for a tensor that is not among these.
pub(super) fn missing_tensor(mut names: Vec<String>) -> Fault {
    const MAX_NAMES: usize = 8;
    small_sort::sort(&mut names);
    let more = if names.len() > MAX_NAMES { ", …" } else { "" };
    names.truncate(MAX_NAMES);
    let names = if names.is_empty() { "none".into() } else { names.join(", ") };
    data_error("the file has no array of this name").help(format!("it has {names}{more}"))
}
