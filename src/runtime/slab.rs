//! Slabs: the stored global value of an array.

use super::Buffer;
use crate::types::{DType, Element, Shape};
use std::sync::{Arc, OnceLock};

/// A stored value in global row-major order, shared: every device's block is a view of it, replicas are one.
///
/// A value in parts has one copy of the shape for each part, in rank order. A slab may be a *view*: whole
/// blocks of another slab's buffer in another order (what `ppermute` and `all_gather` return without moving a byte).
#[derive(Clone, Debug)]
pub struct Slab(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dtype: DType,
    shape: Shape,
    copies: usize,
    buffer: Arc<Buffer>,
    /// Bytes of a block, and for each block of this value the byte where it lies in the buffer.
    blocks: Option<(usize, Arc<[usize]>)>,
    dense: OnceLock<Arc<Buffer>>,
}

impl Slab {
    /// A slab over all of a buffer. `dtype` is a storage type; `copies` is 1 but for values in parts.
    pub fn new(dtype: DType, shape: Shape, copies: usize, buffer: Arc<Buffer>) -> Slab {
        Slab(Arc::new(Inner { dtype, shape, copies, buffer, blocks: None, dense: OnceLock::new() }))
    }
    /// A view: block k of the value lies at byte `blocks[k]` of the buffer.
    pub fn view(dtype: DType, shape: Shape, buffer: Arc<Buffer>, block: usize, blocks: Arc<[usize]>) -> Slab {
        Slab(Arc::new(Inner {
            dtype,
            shape,
            copies: 1,
            buffer,
            blocks: Some((block, blocks)),
            dense: OnceLock::new(),
        }))
    }
    /// The element type in memory.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// The global shape.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }
    /// How many parts the value is in.
    pub fn copies(&self) -> usize {
        self.0.copies
    }
    /// Bytes of the value: all parts.
    pub fn nbytes(&self) -> usize {
        self.0.shape.elements() * self.0.dtype.size() * self.0.copies
    }
    /// The blocks of a view.
    pub fn blocks(&self) -> Option<(usize, &Arc<[usize]>)> {
        self.0.blocks.as_ref().map(|(n, b)| (*n, b))
    }
    /// The buffer in which the value, or the blocks of a view, lie.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.0.buffer
    }
    /// The value in one piece, row-major: the buffer itself, or for a view a copy that is made once.
    pub fn dense(&self) -> &Arc<Buffer> {
        let Some((block, blocks)) = &self.0.blocks else { return &self.0.buffer };
        self.0.dense.get_or_init(|| {
            let mut whole = Buffer::new(self.nbytes());
            for (k, at) in blocks.iter().enumerate() {
                // SAFETY: blocks lie within the buffer, and the copies within the new one
                unsafe {
                    let from = self.0.buffer.as_ptr().add(*at);
                    std::ptr::copy_nonoverlapping(from, whole.as_mut_ptr().add(k * block), *block);
                }
            }
            Arc::new(whole)
        })
    }
    /// The elements, row-major (all parts). Panics if `T` is not the storage type.
    pub fn elements<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.0.dtype, "a slab is read as what it is");
        let n = self.0.shape.elements() * self.0.copies;
        // SAFETY: the buffer holds n elements of this type, aligned to 64 bytes, and lives as long as self
        unsafe { std::slice::from_raw_parts(self.dense().as_ptr().cast(), n) }
    }
    /// A slab of these elements.
    pub fn from_elements<T: Element>(shape: Shape, data: &[T]) -> Slab {
        assert_eq!(data.len(), shape.elements(), "as many elements as the shape has");
        let mut buffer = Buffer::new(size_of_val(data));
        // SAFETY: the buffer has as many bytes as data
        unsafe {
            let from: *const u8 = data.as_ptr().cast();
            std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), size_of_val(data));
        }
        Slab::new(T::DTYPE, shape, 1, Arc::new(buffer))
    }
}
