//! Sorting of short lists with little code.
//!
//! Each instance of the standard library's `sort_by` compiles to ten functions, and the crate sorts
//! many types by many orders. The lists are short (axes, dimensions, rows of reports), so one
//! shared function sorts them all, through a trait object that compares and swaps two indices. The
//! sort is stable.

use std::cmp::Ordering;

/// The maximum length of a list that is sorted by insertion.
const MAX_INSERTION_SORT_LEN: usize = 16;

/// A list as the sorting function accesses it: by comparing and swapping two indices.
trait SortTarget {
    fn compare(&self, a: usize, b: usize) -> Ordering;
    fn swap(&mut self, a: usize, b: usize);
}

/// A slice, and the function that compares its elements.
struct SliceWithOrder<'a, T, F>(&'a mut [T], F);

impl<T, F: Fn(&T, &T) -> Ordering> SortTarget for SliceWithOrder<'_, T, F> {
    fn compare(&self, a: usize, b: usize) -> Ordering {
        (self.1)(&self.0[a], &self.0[b])
    }
    fn swap(&mut self, a: usize, b: usize) {
        self.0.swap(a, b);
    }
}

/// Sorts the `n` elements of a list.
fn sort_by_swaps(n: usize, list: &mut dyn SortTarget) {
    if n <= MAX_INSERTION_SORT_LEN {
        for i in 1..n {
            let mut j = i;
            while j > 0 && list.compare(j, j - 1).is_lt() {
                list.swap(j, j - 1);
                j -= 1;
            }
        }
        return;
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| list.compare(*a, *b));
    let mut to = vec![0; n];
    for (index, k) in order.into_iter().enumerate() {
        to[k] = index;
    }
    for i in 0..n {
        while to[i] != i {
            let j = to[i];
            list.swap(i, j);
            to.swap(i, j);
        }
    }
}

/// Sorts a list by this order.
/// The sort is stable.
pub(crate) fn sort_by<T>(list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    sort_by_swaps(list.len(), &mut SliceWithOrder(list, compare));
}

/// Sorts a list by keys.
/// The sort is stable.
pub(crate) fn sort_by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(list, |a, b| key(a).cmp(&key(b)));
}

/// Sorts a list by its elements' order.
/// The sort is stable.
pub(crate) fn sort<T: Ord>(list: &mut [T]) {
    sort_by(list, T::cmp);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_as_by_the_standard_library() {
        let mut k = 1u32;
        for n in (0..40).chain([200]) {
            let next = |i| {
                k = k.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (k >> 28, i)
            };
            let list: Vec<(u32, usize)> = (0..n).map(next).collect();
            let (mut ours, mut expected) = (list.clone(), list.clone());
            sort_by_key(&mut ours, |x| x.0);
            expected.sort_by_key(|x| x.0);
            assert_eq!(ours, expected);
            let (mut ours, mut expected) = (list.clone(), list);
            sort(&mut ours);
            expected.sort();
            assert_eq!(ours, expected);
            sort_by(&mut ours, |a, b| b.cmp(a));
            expected.reverse();
            assert_eq!(ours, expected);
        }
    }
}
