//! Buffers: aligned memory from a pool.

/// A block of bytes, 64-byte aligned, returned to the process-wide pool when dropped.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u64>,
    len: usize,
}
impl Buffer {
    /// A buffer of `len` bytes of any content that is valid for every element type but bool.
    pub fn new(len: usize) -> Buffer {
        Buffer { bytes: vec![0; len.div_ceil(8)], len }
    }
    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Where it begins.
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }
    /// Where it begins, to write.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().cast()
    }
}
