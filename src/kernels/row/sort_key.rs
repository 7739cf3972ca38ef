//! Sort keys: integers that compare as the elements do.
//!
//! NaN comes last; −0 and 0 have the same key.

use super::radix_sort::RadixKey;
use crate::core::Element;
use half::{bf16, f16};

/// Element types that can be sorted.
pub(crate) trait Ordered: Element {
    /// The integer type of keys.
    type Key: RadixKey + Element + Default + Into<u64>;
    /// The number of bits in a key.
    const BITS: u32;
    /// Returns the key of the element.
    fn key(self) -> Self::Key;
    /// Returns the element of a key: 0 for the key of both zeros, and some NaN for the key of NaNs.
    fn from_key(key: Self::Key) -> Self;
    /// The key of both zeros, for types that have two.
    const ZERO: Option<Self::Key>;
    /// Returns true if the element is −0, which cannot be recovered from its key.
    fn negative_zero(self) -> bool;
}

macro_rules! whole { ($($t:ident $u:ident $flip:expr;)*) => {$(
    impl Ordered for $t {
        type Key = $u;
        const BITS: u32 = $u::BITS;
        const ZERO: Option<$u> = None;
        #[inline(always)]
        fn key(self) -> $u {
            self as $u ^ $flip
        }
        #[inline(always)]
        fn from_key(key: $u) -> $t {
            (key ^ $flip) as $t
        }
        #[inline(always)]
        fn negative_zero(self) -> bool {
            false
        }
    }
)*} }
whole! { i8 u8 1 << 7; i16 u16 1 << 15; i32 u32 1 << 31; i64 u64 1 << 63; u8 u8 0; u16 u16 0; u32 u32 0; u64 u64 0; }

macro_rules! floats { ($($t:ident $u:ident;)*) => {$(
    impl Ordered for $t {
        type Key = $u;
        const BITS: u32 = $u::BITS;
        const ZERO: Option<$u> = Some(1 << ($u::BITS - 1));
        #[inline(always)]
        fn key(self) -> $u {
            const SIGN_BIT: $u = 1 << ($u::BITS - 1);
            let bits = if self.negative_zero() { 0 } else { self.to_bits() };
            let key = if bits & SIGN_BIT != 0 { !bits } else { bits | SIGN_BIT };
            if self.is_nan() { $u::MAX } else { key }
        }
        #[inline(always)]
        fn from_key(key: $u) -> $t {
            const SIGN_BIT: $u = 1 << ($u::BITS - 1);
            $t::from_bits(if key & SIGN_BIT != 0 { key ^ SIGN_BIT } else { !key })
        }
        #[inline(always)]
        fn negative_zero(self) -> bool {
            self.to_bits() == 1 << ($u::BITS - 1)
        }
    }
)*} }
floats! { f16 u16; bf16 u16; f32 u32; f64 u64; }

impl Ordered for bool {
    type Key = u8;
    const BITS: u32 = 1;
    const ZERO: Option<u8> = None;
    #[inline(always)]
    fn key(self) -> u8 {
        u8::from(self)
    }
    #[inline(always)]
    fn from_key(key: u8) -> bool {
        key != 0
    }
    #[inline(always)]
    fn negative_zero(self) -> bool {
        false
    }
}

/// A key combined with an index, ordered by key, then by index.
pub(crate) trait KeyIndex: RadixKey {
    /// The position of the key's lowest bit.
    const KEY_SHIFT: u32;
    fn new(key: u64, index: usize) -> Self;
    fn index(self) -> usize;
}
/// The combination of a 32-bit key with a 32-bit index.
impl KeyIndex for u64 {
    const KEY_SHIFT: u32 = 32;
    #[inline(always)]
    fn new(key: u64, index: usize) -> u64 {
        key << 32 | index as u64
    }
    #[inline(always)]
    fn index(self) -> usize {
        self as u32 as usize
    }
}
impl KeyIndex for u128 {
    const KEY_SHIFT: u32 = 64;
    #[inline(always)]
    fn new(key: u64, index: usize) -> u128 {
        u128::from(key) << 64 | index as u128
    }
    #[inline(always)]
    fn index(self) -> usize {
        self as u64 as usize
    }
}

/// Returns true if keys of this number of bits, and the indices of a row, fit into 64 bits.
/// The row has `n` elements.
pub(crate) fn fits_64_bits(bits: u32, n: usize) -> bool {
    bits <= 32 && n as u64 <= 1 << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rising<T: Ordered>(list: &[T]) {
        for w in list.windows(2) {
            assert!(w[0].key() < w[1].key(), "{w:?}");
        }
        for x in list {
            assert_eq!(T::from_key(x.key()), *x);
        }
    }

    #[test]
    fn keys_are_in_the_order_of_elements() {
        rising(&[i8::MIN, -1, 0, 1, i8::MAX]);
        rising(&[i64::MIN, -1, 0, 1, i64::MAX]);
        rising(&[0, 1, u64::MAX]);
        rising(&[false, true]);
        rising(&[f32::NEG_INFINITY, -1.5, -1e-45, 0.0, 1e-45, 2.0, f32::INFINITY]);
        rising(&[f64::NEG_INFINITY, f64::MIN, -5e-324, 0.0, 1.0, f64::INFINITY]);
        rising(&[-2.0, -0.5, 0.0, 1.0, 60000.0].map(f16::from_f32));
        rising(&[-2.0, -0.5, 0.0, 1.0, 1e38].map(bf16::from_f32));
        assert_eq!((-0.0f32).key(), 0.0f32.key());
        assert_eq!(f64::NAN.key(), (-f64::NAN).key());
        assert!(f32::NAN.key() > f32::INFINITY.key() && f32::from_key(f32::NAN.key()).is_nan());
        assert!((-f16::NAN).key() > f16::INFINITY.key());
    }
}
