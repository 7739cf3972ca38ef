//! Pseudo-random numbers from a seed.

/// A generator of pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            rng.number();
        }
        rng
    }
    pub(crate) fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// Returns a number in 0..n.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.number() >> 11) as usize % n.max(1)
    }
    /// Returns an element of the list.
    pub(crate) fn choose<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
    /// Returns true once in n times, on average.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
