//! A fast hasher for small keys that are not chosen by an adversary.
//! Hash tables compare keys as well, so a collision costs time but never gives a wrong result.

use std::hash::Hasher;

#[derive(Default)]
pub(crate) struct FastHasher(u64);

impl FastHasher {
    /// Creates the hash of one word.
    pub(crate) fn from_u64(n: u64) -> FastHasher {
        FastHasher(n)
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        // hash tables use both the low and the high bits
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
