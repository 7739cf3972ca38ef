//! How digits of the device position begin with, exclude and agree with each other.
//!
//! A dimension's digits are ordered major first. A digit *begins* another when it is the major part of it: both end at the same
//! `stride · size`, and the size of one divides the other's. Axes, pieces of axes and axes of other meshes over the same devices
//! are all the same here, so nothing below asks which axis a digit is of.

use crate::sharding::{Atom, Atoms};

/// The stride of the next digit above: where a digit ends.
fn end(a: Atom) -> usize {
    a.stride * a.size
}

/// Whether `p` is `q` or the major part of it.
fn begins(p: Atom, q: Atom) -> bool {
    end(p) == end(q) && q.size.is_multiple_of(p.size)
}

/// The major part of a digit, of this size, which must divide its size.
pub(super) fn major_part(a: Atom, size: usize) -> Atom {
    Atom { stride: end(a) / size, size }
}

/// What is left of a digit below its major part of this size.
pub(super) fn minor_part(a: Atom, size: usize) -> Atom {
    Atom { stride: a.stride, size: a.size / size }
}

/// The largest major part of a digit that one layout can use beside all those taken.
pub(super) fn clear_of(a: Atom, taken: &[Atom]) -> Option<Atom> {
    let mut clear = a;
    for t in taken.iter().filter(|t| t.size > 1) {
        if !clear.clashes(*t) {
            continue;
        }
        // only what is above the digit that is taken
        let (top, above) = (end(clear), end(*t));
        if above >= top || !top.is_multiple_of(above) {
            return None;
        }
        clear = Atom { stride: above, size: top / above };
    }
    // a part that begins later no longer nests as the whole did
    (a.size.is_multiple_of(clear.size) && taken.iter().all(|t| t.size <= 1 || !clear.clashes(*t)))
        .then_some(clear)
}

/// One more digit at the minor end; neighbouring parts of one digit join.
pub(super) fn push(list: &mut Atoms, a: Atom) {
    match list.last_mut() {
        Some(last) if last.stride == end(a) => *last = Atom { stride: a.stride, size: last.size * a.size },
        _ => list.push(a),
    }
}

/// Whether `p` is where `q` begins: equal digits, but for the last of `p`, which may be a major part.
pub(super) fn is_prefix(p: &[Atom], q: &[Atom]) -> bool {
    let Some((last, before)) = p.split_last() else { return true };
    p.len() <= q.len() && *before == q[..before.len()] && begins(*last, q[before.len()])
}

/// Folds the digits that one tensor has for a loop into those on which all so far agree. `may`: whether this tensor may lengthen
/// them; `open`: whether any may still, which ends for good at the first disagreement.
pub(super) fn agree(agreed: &mut Atoms, new: &[Atom], may: bool, open: &mut bool) {
    for (i, n) in new.iter().enumerate() {
        let Some(c) = agreed.get(i).copied() else {
            if may && *open {
                agreed.extend_from_slice(&new[i..]);
            }
            return;
        };
        if c == *n {
            continue;
        }
        if begins(*n, c) {
            // the new list ends within ours: nothing against ours; or goes on elsewhere: the common part is all
            if new.len() > i + 1 {
                agreed.truncate(i);
                agreed.push(*n);
                *open = false;
            }
            return;
        }
        if begins(c, *n) && may && *open && agreed.len() == i + 1 {
            agreed[i] = *n;
            continue;
        }
        agreed.truncate(if begins(c, *n) { i + 1 } else { i });
        *open = false;
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atom(stride: usize, size: usize) -> Atom {
        Atom { stride, size }
    }

    #[test]
    fn what_is_clear_of_what_is_taken() {
        let (x, y, all) = (atom(2, 4), atom(1, 2), atom(1, 8));
        assert_eq!(clear_of(x, &[y]), Some(x));
        assert_eq!(clear_of(all, &[y]), Some(x), "the part above y");
        assert_eq!(clear_of(all, &[x]), None, "its beginning is taken");
        assert_eq!(clear_of(x, &[atom(2, 2)]), Some(atom(4, 2)));
        assert_eq!(clear_of(x, &[atom(4, 2)]), None);
        // of six devices, 2 × 3 and 3 × 2 cut them in ways that do not nest
        assert_eq!(clear_of(atom(3, 2), &[atom(1, 2)]), None);
    }
    #[test]
    fn agreement_keeps_what_is_common() {
        let (x, y, z) = (atom(4, 2), atom(2, 2), atom(1, 2));
        let fold = |lists: &[&[Atom]]| {
            let (mut agreed, mut open) = (Atoms::new(), true);
            lists.iter().for_each(|l| agree(&mut agreed, l, true, &mut open));
            agreed.to_vec()
        };
        let (xy, xz) = ([atom(2, 4)], [x, z]);
        assert_eq!(fold(&[&xy, &xz]), [x]);
        assert_eq!(fold(&[&xz, &xy]), [x]);
        assert_eq!(fold(&[&[x], &xy]), xy);
        assert_eq!(fold(&[&xy, &[x]]), xy);
        assert_eq!(fold(&[&[x], &[y]]), []);
        assert_eq!(fold(&[&[x], &[y], &[x]]), [], "once they disagree nothing more is added");
    }
    #[test]
    fn parts_join_again() {
        let (x, mut list) = (atom(2, 4), Atoms::new());
        push(&mut list, major_part(x, 2));
        push(&mut list, minor_part(x, 2));
        assert_eq!(list.as_slice(), [x]);
        assert!(is_prefix(&[major_part(x, 2)], &list) && !is_prefix(&list, &[major_part(x, 2)]));
    }
}
