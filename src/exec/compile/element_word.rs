//! Unsigned integers as which elements are moved, whatever their type.

/// An unsigned integer with the size of an element.
pub(crate) trait ElementWord: Copy {
    /// Returns the word with these low bits.
    fn from_bits(bits: u128) -> Self;
}

macro_rules! words {
    ($($t:ty),*) => { $(impl ElementWord for $t {
        fn from_bits(bits: u128) -> $t { bits as $t }
    })* };
}
words!(u8, u16, u32, u64, u128);

/// Evaluates an expression in which `$word` is the word of `$bytes` bytes.
macro_rules! with_word {
    ($bytes:expr, $word:ident => $code:expr) => {
        match $bytes {
            1 => {
                type $word = u8;
                $code
            }
            2 => {
                type $word = u16;
                $code
            }
            4 => {
                type $word = u32;
                $code
            }
            8 => {
                type $word = u64;
                $code
            }
            _ => {
                type $word = u128;
                $code
            }
        }
    };
}
pub(crate) use with_word;
