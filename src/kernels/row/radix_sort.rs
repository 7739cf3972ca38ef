//! A radix sort of integers, by digits of eight bits, lowest digit first.

use std::ops::Range;

/// Integers that have digits of eight bits.
pub(crate) trait RadixKey: Ord + Copy {
    /// Returns the eight bits from bit `from` on.
    fn digit(self, from: u32) -> usize;
}
macro_rules! digits { ($($t:ty)*) => { $(
    impl RadixKey for $t {
        #[inline(always)]
        fn digit(self, from: u32) -> usize {
            (self >> from) as usize & 255
        }
    }
)* } }
digits! { u8 u16 u32 u64 u128 }

/// The minimum number of elements per digit for a radix sort.
/// For fewer elements, a comparison sort is faster.
const MIN_ELEMENTS_PER_DIGIT: usize = 64;

/// Sorts integers by the given bits.
///
/// Integers that are equal in these bits must be in order already, and all higher bits must be 0.
/// The second slice is scratch space of the same length.
pub(crate) fn sort<D: RadixKey>(list: &mut [D], scratch: &mut [D], bits: Range<u32>) {
    let digits = bits.len().div_ceil(8);
    let n = list.len();
    if n < MIN_ELEMENTS_PER_DIGIT * digits || u32::try_from(n).is_err() || scratch.len() != n {
        return sort_by_comparison(list);
    }
    match digits {
        1 => by_digits::<D, 1>(list, scratch, bits.start),
        2 => by_digits::<D, 2>(list, scratch, bits.start),
        3..=4 => by_digits::<D, 4>(list, scratch, bits.start),
        _ => by_digits::<D, 8>(list, scratch, bits.start),
    }
}

/// Sorts a short list by comparisons.
pub(crate) fn sort_by_comparison<D: Ord>(list: &mut [D]) {
    list.sort_unstable()
}

fn by_digits<D: RadixKey, const N: usize>(list: &mut [D], scratch: &mut [D], start: u32) {
    let n = list.len();
    let bits = |d: usize| start + 8 * d as u32;
    let mut counts = [[0u32; 256]; N];
    for x in list.iter() {
        for (d, counts) in counts.iter_mut().enumerate() {
            counts[x.digit(bits(d))] += 1;
        }
    }
    let mut moved = false;
    for (d, counts) in counts.iter_mut().enumerate() {
        // skip this pass: every integer has the same digit
        if counts.iter().any(|c| *c as usize == n) {
            continue;
        }
        let mut offset = 0;
        for c in counts.iter_mut() {
            offset += std::mem::replace(c, offset);
        }
        let (from, to) = if moved { (&*scratch, &mut *list) } else { (&*list, &mut *scratch) };
        for x in from {
            let offset = &mut counts[x.digit(bits(d))];
            to[*offset as usize] = *x;
            *offset += 1;
        }
        moved = !moved;
    }
    if moved {
        list.copy_from_slice(scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns pseudorandom integers, whose digits are limited by `mask`.
    fn numbers(n: usize, mask: u64) -> Vec<u64> {
        let mut k = 88_172_645_463_325_252u64;
        let next = |_| {
            k ^= k << 13;
            k ^= k >> 7;
            k ^= k << 17;
            k & mask
        };
        (0..n).map(next).collect()
    }

    #[test]
    fn digits_sort_as_comparisons_do() {
        for n in [0, 1, 63, 300, 2000] {
            for mask in [u64::MAX, 0xff, 0xff00_00ff, 1, 0] {
                let x = numbers(n, mask);
                let mut expected = x.clone();
                expected.sort_unstable();
                let mut list = x.clone();
                sort(&mut list, &mut vec![0; n], 0..64);
                assert_eq!(list, expected, "{n} {mask:x}");
                let mut list: Vec<u16> = x.iter().map(|x| *x as u16).collect();
                let mut expected = list.clone();
                expected.sort_unstable();
                sort(&mut list, &mut vec![0; n], 0..16);
                assert_eq!(list, expected, "{n} {mask:x}");
            }
        }
    }

    #[test]
    fn equal_ones_stay_in_order() {
        let keys = numbers(1000, 0x70f0_000f);
        let mut list: Vec<u64> = keys.iter().enumerate().map(|(k, x)| x << 32 | k as u64).collect();
        let mut expected = list.clone();
        expected.sort_by_key(|x| x >> 32);
        sort(&mut list, &mut [0; 1000], 32..64);
        assert_eq!(list, expected);
    }
}
