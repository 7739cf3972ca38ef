//! Sorting whole numbers by their digits of eight bits, the lowest digit first.

use crate::sorted;
use std::ops::Range;

/// Numbers that have digits.
pub(super) trait Digits: Ord + Copy {
    /// The eight bits from this one on.
    fn digit(self, from: u32) -> usize;
}
macro_rules! digits { ($($t:ty)*) => { $(
    impl Digits for $t {
        #[inline(always)]
        fn digit(self, from: u32) -> usize {
            (self >> from) as usize & 255
        }
    }
)* } }
digits! { u8 u16 u32 u64 u128 }

/// Numbers for each digit from which on digits are faster than comparisons.
const LONG: usize = 64;

/// Sorts numbers, of which those that are equal in these bits are in order already, and which have no bits above them. `room` is as long.
pub(super) fn sort<D: Digits>(list: &mut [D], room: &mut [D], bits: Range<u32>) {
    let digits = bits.len().div_ceil(8);
    let n = list.len();
    if n < LONG * digits || u32::try_from(n).is_err() || room.len() != n {
        return by_comparison(list);
    }
    match digits {
        1 => by_digits::<D, 1>(list, room, bits.start),
        2 => by_digits::<D, 2>(list, room, bits.start),
        3..=4 => by_digits::<D, 4>(list, room, bits.start),
        _ => by_digits::<D, 8>(list, room, bits.start),
    }
}

/// Sorts a short list.
pub(super) fn by_comparison<D: Ord>(list: &mut [D]) {
    if on_a_page!() { sorted::sort(list) } else { list.sort_unstable() }
}

fn by_digits<D: Digits, const N: usize>(list: &mut [D], room: &mut [D], start: u32) {
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
        // a digit that all have says nothing
        if counts.iter().any(|c| *c as usize == n) {
            continue;
        }
        let mut place = 0;
        for c in counts.iter_mut() {
            place += std::mem::replace(c, place);
        }
        let (from, to) = if moved { (&*room, &mut *list) } else { (&*list, &mut *room) };
        for x in from {
            let place = &mut counts[x.digit(bits(d))];
            to[*place as usize] = *x;
            *place += 1;
        }
        moved = !moved;
    }
    if moved {
        list.copy_from_slice(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers with many equal digits, or with few.
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
                let mut want = x.clone();
                want.sort_unstable();
                let mut list = x.clone();
                sort(&mut list, &mut vec![0; n], 0..64);
                assert_eq!(list, want, "{n} {mask:x}");
                let mut list: Vec<u16> = x.iter().map(|x| *x as u16).collect();
                let mut want = list.clone();
                want.sort_unstable();
                sort(&mut list, &mut vec![0; n], 0..16);
                assert_eq!(list, want, "{n} {mask:x}");
            }
        }
    }

    #[test]
    fn equal_ones_stay_in_order() {
        let keys = numbers(1000, 0x70f0_000f);
        let mut list: Vec<u64> = keys.iter().enumerate().map(|(k, x)| x << 32 | k as u64).collect();
        let mut want = list.clone();
        want.sort_by_key(|x| x >> 32);
        sort(&mut list, &mut [0; 1000], 32..64);
        assert_eq!(list, want);
    }
}
