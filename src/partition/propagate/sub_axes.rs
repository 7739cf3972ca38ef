//! Arithmetic of sub-axes: prefixes, conflicts and agreement.
//!
//! The sub-axes of a dimension are ordered major first. A sub-axis is a *major part* of another if
//! both end at the same `stride · size` and its size divides the other's. Axes, sub-axes, and axes
//! of other meshes over the same devices are treated alike: nothing here depends on the axis that a
//! sub-axis belongs to.

use crate::core::{SubAxes, SubAxis};

/// Returns the upper end of a sub-axis: the stride of the next one above it.
fn upper_stride(a: SubAxis) -> usize {
    a.stride * a.size
}

/// Returns true if `p` is `q` or a major part of it.
fn is_major_part(p: SubAxis, q: SubAxis) -> bool {
    upper_stride(p) == upper_stride(q) && q.size.is_multiple_of(p.size)
}

/// Returns the major part of a sub-axis with the given size, which must divide its size.
pub(super) fn major_part(a: SubAxis, size: usize) -> SubAxis {
    SubAxis { stride: upper_stride(a) / size, size }
}

/// Returns the rest of a sub-axis below its major part of the given size.
pub(super) fn minor_part(a: SubAxis, size: usize) -> SubAxis {
    SubAxis { stride: a.stride, size: a.size / size }
}

/// Returns the largest major part of a sub-axis that overlaps none in `taken`, if any.
pub(super) fn free_major_part(a: SubAxis, taken: &[SubAxis]) -> Option<SubAxis> {
    let mut clear = a;
    for t in taken.iter().filter(|t| t.size > 1) {
        if !clear.overlaps(*t) {
            continue;
        }
        // keep the part above the overlapping sub-axis
        let (top, above) = (upper_stride(clear), upper_stride(*t));
        if above >= top || !top.is_multiple_of(above) {
            return None;
        }
        clear = SubAxis { stride: above, size: top / above };
    }
    // a part that does not divide the sub-axis would not nest
    (a.size.is_multiple_of(clear.size) && taken.iter().all(|t| t.size <= 1 || !clear.overlaps(*t)))
        .then_some(clear)
}

/// Appends a sub-axis at the minor end.
/// Adjacent parts of one sub-axis are joined.
pub(super) fn push_minor(list: &mut SubAxes, a: SubAxis) {
    match list.last_mut() {
        Some(last) if last.stride == upper_stride(a) => {
            *last = SubAxis { stride: a.stride, size: last.size * a.size }
        }
        _ => list.push(a),
    }
}

/// Returns true if `p` is a prefix of `q`.
/// The last sub-axis of `p` may be a major part of the one in `q`.
pub(super) fn is_prefix(p: &[SubAxis], q: &[SubAxis]) -> bool {
    let Some((last, before)) = p.split_last() else { return true };
    p.len() <= q.len() && *before == q[..before.len()] && is_major_part(*last, q[before.len()])
}

/// Reduces `agreed` to what it has in common with the sub-axes of one more tensor, `new`.
///
/// `may` allows this tensor to extend the agreed sub-axes. `open` is true as long as an extension
/// is possible; it becomes false at the first disagreement.
pub(super) fn agree(agreed: &mut SubAxes, new: &[SubAxis], may: bool, open: &mut bool) {
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
        if is_major_part(*n, c) {
            // `new` ends within `agreed`, which is not a conflict, or it continues differently, so
            // that only the common part is kept
            if new.len() > i + 1 {
                agreed.truncate(i);
                agreed.push(*n);
                *open = false;
            }
            return;
        }
        if is_major_part(c, *n) && may && *open && agreed.len() == i + 1 {
            agreed[i] = *n;
            continue;
        }
        agreed.truncate(if is_major_part(c, *n) { i + 1 } else { i });
        *open = false;
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atom(stride: usize, size: usize) -> SubAxis {
        SubAxis { stride, size }
    }

    #[test]
    fn free_major_parts_avoid_taken_sub_axes() {
        let (x, y, all) = (atom(2, 4), atom(1, 2), atom(1, 8));
        assert_eq!(free_major_part(x, &[y]), Some(x));
        assert_eq!(free_major_part(all, &[y]), Some(x), "the part above y");
        assert_eq!(free_major_part(all, &[x]), None, "its beginning is taken");
        assert_eq!(free_major_part(x, &[atom(2, 2)]), Some(atom(4, 2)));
        assert_eq!(free_major_part(x, &[atom(4, 2)]), None);
        // six devices as 2 × 3 and as 3 × 2 have sub-axes that do not nest
        assert_eq!(free_major_part(atom(3, 2), &[atom(1, 2)]), None);
    }
    #[test]
    fn agreement_keeps_what_is_common() {
        let (x, y, z) = (atom(4, 2), atom(2, 2), atom(1, 2));
        let fold = |lists: &[&[SubAxis]]| {
            let (mut agreed, mut open) = (SubAxes::new(), true);
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
        let (x, mut list) = (atom(2, 4), SubAxes::new());
        push_minor(&mut list, major_part(x, 2));
        push_minor(&mut list, minor_part(x, 2));
        assert_eq!(list.as_slice(), [x]);
        assert!(is_prefix(&[major_part(x, 2)], &list) && !is_prefix(&list, &[major_part(x, 2)]));
    }
}
