//! The blocks of an array that a process writes to a file or reads from it.
//!
//! A file has the whole array in row-major order. A process that is alone handles it as one block.
//! Of several processes, each writes blocks of its devices to their places in the file: a block
//! that several devices hold is written by the first one. Each reads the blocks of its devices.

use super::atomic_file::data_error;
use super::peers::FilePeers;
use crate::api::array::Array;
use crate::api::array::shards::OwnBlock;
use crate::core::sharding::{Block, blocks_unchecked};
use crate::core::{ArrayType, DType, Error, Fault, Result, Shape, Sharding, SourceLocation};
use crate::exec::runtime::parallel_copy::{self, block_runs};
use crate::exec::runtime::{ArrayData, Buffer, check_available};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;

/// The number of bytes that are written or digested at a time.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// The number of bytes that are read at a time if a block is not contiguous in the file.
const READ_AHEAD_BYTES: usize = CHUNK_BYTES / 4;

/// Returns the blocks of an array on a mesh that this process writes. Each block has one writer.
fn blocks_to_write(
    peers: &FilePeers,
    array: &Array,
    (op, location): (&'static str, SourceLocation),
) -> Result<Vec<OwnBlock>> {
    let Some(Sharding { mesh, .. }) = array.sharding()? else { return Ok(Vec::new()) };
    let own = array.own_blocks(op, location)?.into_iter();
    // (of an unreduced array, the first device that holds a block has the sum)
    Ok(own.filter(|block| block.replica == 0 && peers.has_device(&mesh, block.position)).collect())
}

/// Writes this process's part of an array, whose elements begin at byte `start` of the file, and
/// calls `on_bytes` with the bytes that are written.
///
/// Returns true if this process has written all of the array, in order.
pub(crate) fn write_blocks(
    (file, start): (&mut File, u64),
    array: &Array,
    peers: &FilePeers,
    call: (&'static str, SourceLocation),
    mut on_bytes: impl FnMut(&[u8]),
) -> Result<bool, Fault> {
    let first_fault = |error: Error| match error.diagnostics().first() {
        Some(diagnostic) => diagnostic.fault.clone(),
        None => fault!(Internal, "an error without a diagnostic"),
    };
    let ty = array.ty().map_err(first_fault)?;
    let whole: Vec<Range<usize>> = ty.shape.iter().map(|n| 0..*n).collect();
    let mut write = |data: ArrayData, index: &[Range<usize>]| {
        let (run, starts) = block_runs(&ty.shape, index, ty.dtype.size());
        for (at, bytes) in starts.iter().zip(data.bytes()?.chunks_exact(run.max(1))) {
            file.seek(SeekFrom::Start(start + *at as u64)).map_err(data_error)?;
            for chunk in bytes.chunks(CHUNK_BYTES) {
                on_bytes(chunk);
                file.write_all(chunk).map_err(data_error)?;
            }
        }
        Ok::<_, Fault>(index == whole)
    };
    if peers.is_alone() || array.concrete_sharding().is_none() {
        // of an array on no mesh, each process has a copy
        return match peers.is_first() {
            true => write(array.host_data_once(call.0, call.1).map_err(first_fault)?, &whole),
            false => Ok(false),
        };
    }
    let mut is_complete = false;
    for block in blocks_to_write(peers, array, call).map_err(first_fault)? {
        is_complete |= write(block.data()?, &block.index)?;
    }
    Ok(is_complete)
}

/// Reads the elements of a type, in row-major order, from the current position.
///
/// `big` is true if the elements are big-endian.
pub(crate) fn read_elements(file: &mut File, ty: &ArrayType, big: bool) -> Result<ArrayData, Fault> {
    read_elements_with(ty, big, |bytes| file.read_exact(bytes))
}

/// Makes an array of this type from the bytes that `read` writes.
fn read_elements_with(
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

/// Reads the block with this index range of an array of type `ty`, whose elements begin at byte
/// `start` of the file, and no other data. `big` is true if the elements are big-endian.
pub(crate) fn read_block(
    file: &mut File,
    start: u64,
    ty: &ArrayType,
    index: &[Range<usize>],
    big: bool,
) -> Result<ArrayData, Fault> {
    let local: Shape = index.iter().map(Range::len).collect();
    let (run, starts) = block_runs(&ty.shape, index, ty.dtype.size());
    file.seek(SeekFrom::Start(start)).map_err(data_error)?;
    read_elements_with(&ty.dtype.array_type(local), big, |bytes| {
        if starts.len() == 1 {
            file.seek(SeekFrom::Start(start + starts[0] as u64))?;
            return file.read_exact(bytes);
        }
        let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, file);
        let mut at = 0;
        for (start, bytes) in starts.iter().zip(bytes.chunks_exact_mut(run.max(1))) {
            // the runs are in the order of the file
            reader.seek_relative((start - at) as i64)?;
            reader.read_exact(bytes)?;
            at = start + run;
        }
        Ok(())
    })
}

/// The different blocks of an array that the devices of this process hold.
pub(crate) struct StoredBlocks {
    sharding: Sharding,
    shape: Shape,
    blocks: Vec<(Vec<Range<usize>>, Array)>,
}

impl StoredBlocks {
    /// Reads the blocks, each once. The sharding is not unreduced.
    ///
    /// # Errors
    /// The sharding does not fit the shape, or `read` fails.
    pub(crate) fn read(
        peers: &FilePeers,
        sharding: &Sharding,
        shape: &Shape,
        mut read: impl FnMut(&[Range<usize>]) -> Result<Array, Fault>,
    ) -> Result<StoredBlocks, Fault> {
        let sharding = Sharding::try_new(&sharding.mesh, sharding.spec, shape)?;
        let mut blocks: Vec<(Vec<Range<usize>>, Array)> = Vec::new();
        for (position, Block { index, .. }) in blocks_unchecked(&sharding, shape).into_iter().enumerate() {
            if peers.has_device(&sharding.mesh, position) && !blocks.iter().any(|known| known.0 == index) {
                let read = read(&index)?;
                blocks.push((index, read));
            }
        }
        Ok(StoredBlocks { sharding, shape: shape.clone(), blocks })
    }
    /// Returns the array. All processes do this.
    pub(crate) fn into_array(self, op: &str, location: SourceLocation) -> Result<Array> {
        let StoredBlocks { sharding, shape, blocks } = self;
        Array::from_blocks_at(op, shape, &sharding, location, |index| {
            let known = blocks.iter().find(|known| known.0 == index);
            known.map(|known| known.1.clone()).ok_or_else(|| Error::internal("a block has not been read"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::tests::with_processes;
    use super::*;
    use crate::api::array::files::atomic_file::open_part;
    use crate::{Mesh, Spec, p};
    use std::panic::Location;

    const SHAPE: [usize; 3] = [4, 6, 5];

    fn example(spec: Spec) -> (Array, Sharding) {
        let mesh = Mesh::new([("X", 2), ("Y", 3)]).unwrap();
        let x = Array::arange(0..120).reshape(SHAPE).put(&mesh, spec);
        let sharding = x.sharding().unwrap().unwrap();
        (x, sharding)
    }
    fn specs() -> Vec<Spec> {
        vec![p![], p!["X"], p![_, "Y"], p!["X", "Y"], p![_, "Y", _], p![_, ("X", "Y")], p!["X", _, _]]
    }

    #[test]
    fn each_block_has_one_writer() {
        for spec in specs() {
            let (x, _) = example(spec);
            for (processes, each) in [(1, 6), (2, 3), (3, 2), (6, 1)] {
                let lists = with_processes(processes, each, |peers| {
                    let blocks = blocks_to_write(&peers, &x, ("test", Location::caller())).unwrap();
                    blocks.into_iter().map(|block| block.index).collect::<Vec<_>>()
                });
                let mut covered = vec![0; 120];
                for index in lists.iter().flatten() {
                    for i in index[0].clone() {
                        for j in index[1].clone() {
                            index[2].clone().for_each(|k| covered[(i * 6 + j) * 5 + k] += 1);
                        }
                    }
                }
                assert!(covered.iter().all(|n| *n == 1), "{spec}, {processes} processes: {covered:?}");
            }
        }
    }

    #[test]
    fn blocks_are_written_and_read_by_all_processes() {
        let folder = tempfile::tempdir().unwrap();
        for (k, spec) in specs().into_iter().enumerate() {
            let (x, sharding) = example(spec);
            let location = Location::caller();
            let ty = x.ty().unwrap();
            for (processes, each) in [(1, 6), (2, 3), (3, 2), (6, 1)] {
                let path = folder.path().join(format!("{k}-{processes}"));
                with_processes(processes, each, |peers| {
                    let mut file = open_part(&path).unwrap();
                    write_blocks((&mut file, 16), &x, &peers, ("test", location), |_| ()).unwrap();
                });
                let bytes = std::fs::read(&path).unwrap();
                let expected: Vec<u8> = (0..120i32).flat_map(i32::to_ne_bytes).collect();
                assert!(bytes[16..] == expected, "{spec}, {processes} processes");
                // each process reads its own blocks, of this sharding and of another one
                for wanted in [spec, p!["X", "Y"]] {
                    let (y, _) = example(wanted);
                    let sharding = Sharding { spec: wanted, ..sharding.clone() };
                    let lists = with_processes(processes, each, |peers| {
                        let mut file = File::open(&path).unwrap();
                        let read = |index: &[Range<usize>]| {
                            let data = read_block(&mut file, 16, &ty, index, cfg!(target_endian = "big"))?;
                            let local = ty.dtype.array_type(data.shape());
                            Ok(Array::concrete(data, local, None))
                        };
                        StoredBlocks::read(&peers, &sharding, &ty.shape, read).unwrap()
                    });
                    let shards = y.shards().unwrap();
                    for (process, list) in lists.iter().enumerate() {
                        let own = &shards[process * each..(process + 1) * each];
                        for (index, block) in &list.blocks {
                            let shard = own.iter().find(|shard| shard.index == *index).unwrap();
                            let elements = block.to_vec::<i32>().unwrap();
                            assert_eq!(elements, shard.data.to_vec::<i32>().unwrap(), "{spec}");
                        }
                        assert!(own.iter().all(|shard| list.blocks.iter().any(|b| b.0 == shard.index)));
                    }
                }
            }
        }
    }
}
