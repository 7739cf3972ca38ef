//! Sorting short lists of many types, compiled once.
//!
//! Each type and each order that `sort_by` of the standard library is called with makes ten functions. The lists here are axes, dimensions and rows
//! of reports: one function sorts them all, and asks for two places to be compared or swapped. Equal ones stay in order.

use std::cmp::Ordering;

/// Up to so many are put in order one by one.
const FEW: usize = 16;

/// A list as what sorts it sees it.
trait List {
    fn by(&self, a: usize, b: usize) -> Ordering;
    fn swap(&mut self, a: usize, b: usize);
}

/// A list and its order.
struct Of<'a, T, F>(&'a mut [T], F);

impl<T, F: Fn(&T, &T) -> Ordering> List for Of<'_, T, F> {
    fn by(&self, a: usize, b: usize) -> Ordering {
        (self.1)(&self.0[a], &self.0[b])
    }
    fn swap(&mut self, a: usize, b: usize) {
        self.0.swap(a, b);
    }
}

/// Sorts n elements.
fn arrange(n: usize, list: &mut dyn List) {
    if n <= FEW {
        for i in 1..n {
            let mut j = i;
            while j > 0 && list.by(j, j - 1).is_lt() {
                list.swap(j, j - 1);
                j -= 1;
            }
        }
        return;
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| list.by(*a, *b));
    let mut to = vec![0; n];
    for (place, k) in order.into_iter().enumerate() {
        to[k] = place;
    }
    for i in 0..n {
        while to[i] != i {
            let j = to[i];
            list.swap(i, j);
            to.swap(i, j);
        }
    }
}

/// Sorts by this order.
pub(crate) fn sort_by<T>(list: &mut [T], by: impl Fn(&T, &T) -> Ordering) {
    arrange(list.len(), &mut Of(list, by));
}

/// Sorts by keys.
pub(crate) fn sort_by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(list, |a, b| key(a).cmp(&key(b)));
}

/// Sorts by the elements' own order.
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
            let (mut ours, mut wanted) = (list.clone(), list.clone());
            sort_by_key(&mut ours, |x| x.0);
            wanted.sort_by_key(|x| x.0);
            assert_eq!(ours, wanted);
            let (mut ours, mut wanted) = (list.clone(), list);
            sort(&mut ours);
            wanted.sort();
            assert_eq!(ours, wanted);
            sort_by(&mut ours, |a, b| b.cmp(a));
            wanted.reverse();
            assert_eq!(ours, wanted);
        }
    }
}
