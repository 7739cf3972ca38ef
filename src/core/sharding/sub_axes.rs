//! Sub-axes: factors of mesh axes, given by stride and size among device positions.
//!
//! A device position is the row-major index of the device's coordinates. A sub-axis is one of these
//! coordinates, or a factor of one. Layouts are computed in terms of sub-axes because those can
//! represent parts of axes, and axes of different meshes over the same devices. The term is
//! Shardy's.

use super::Spec;
use crate::core::dtype::gcd;
use crate::core::mesh::{Axes, Axis, Mesh};
use crate::core::util::small_sort;
use smallvec::SmallVec;

/// A sub-axis: the index `position / stride % size` of a device position.
///
/// A mesh axis, a factor of a mesh axis, and an axis of another mesh over the same devices are all
/// sub-axes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SubAxis {
    /// The distance in device positions between neighbours.
    pub stride: usize,
    /// The number of index values.
    pub size: usize,
}

/// A list of sub-axes that split a dimension, major first.
pub type SubAxes = SmallVec<[SubAxis; 2]>;

impl SubAxis {
    /// Returns the index of a device position along the sub-axis.
    pub fn index_of(self, position: usize) -> usize {
        position / self.stride % self.size
    }
    /// Returns true if the two overlap, or factorize one axis in incompatible ways.
    /// One layout cannot use both.
    pub fn overlaps(self, other: SubAxis) -> bool {
        let (hi, lo) = if self.stride >= other.stride { (self, other) } else { (other, self) };
        !hi.stride.is_multiple_of(lo.stride * lo.size)
    }
}

/// Returns the number of shards that these sub-axes make.
pub fn num_shards(sub_axes: &[SubAxis]) -> usize {
    sub_axes.iter().map(|a| a.size).product()
}

/// Merges neighbouring factors of one axis and drops size 1, so that equal splits compare equal.
pub fn canonicalize(sub_axes: impl IntoIterator<Item = SubAxis>) -> SubAxes {
    let mut joined = SubAxes::new();
    for x in sub_axes.into_iter().filter(|x| x.size > 1) {
        match joined.last_mut() {
            Some(p) if p.stride == x.stride * x.size => {
                *p = SubAxis { stride: x.stride, size: p.size * x.size }
            }
            _ => joined.push(x),
        }
    }
    joined
}

/// Removes the sub-axes `gone` and returns the rest, in canonical form.
/// `None` if one of them is not contained.
pub fn subtract(sub_axes: &[SubAxis], removed: &[SubAxis]) -> Option<SubAxes> {
    let mut left = SubAxes::from_slice(sub_axes);
    for g in removed {
        let end = g.stride * g.size;
        let holds =
            |a: &SubAxis| g.stride.is_multiple_of(a.stride) && (a.stride * a.size).is_multiple_of(end);
        let k = left.iter().position(holds)?;
        let a = left[k];
        left[k] = SubAxis { stride: end, size: a.stride * a.size / end };
        left.insert(k + 1, SubAxis { stride: a.stride, size: g.stride / a.stride });
    }
    Some(canonicalize(left))
}

/// Returns the sub-axes that both have in common, in the order of the first.
pub fn intersection(sub_axes: &[SubAxis], others: &[SubAxis]) -> SubAxes {
    let mut both = SubAxes::new();
    for a in sub_axes {
        let meet = |b: &SubAxis| {
            let (lo, hi) = (a.stride.max(b.stride), (a.stride * a.size).min(b.stride * b.size));
            let nested = lo.is_multiple_of(a.stride.min(b.stride)) && hi.is_multiple_of(lo);
            (nested && hi > lo).then(|| SubAxis { stride: lo, size: hi / lo })
        };
        let mut here: SubAxes = others.iter().filter_map(meet).collect();
        small_sort::sort_by_key(&mut here, |x| std::cmp::Reverse(x.stride));
        both.extend(here);
    }
    both
}

/// Returns the sub-axes in device order, each once, in canonical form.
/// This is the order of partial values. A sub-axis may occur both by itself and as a factor of a
/// longer one.
pub(crate) fn in_device_order(mut sub_axes: SubAxes) -> SubAxes {
    small_sort::sort_by_key(&mut sub_axes, |a| std::cmp::Reverse((a.size, a.stride)));
    let mut once = SubAxes::new();
    for a in sub_axes {
        if subtract(&once, &[a]).is_none() {
            once.push(a);
        }
    }
    small_sort::sort_by_key(&mut once, |a| std::cmp::Reverse(a.stride));
    canonicalize(once)
}

/// Splits the sub-axes of each list into factors of prime size, major first.
///
/// A sub-axis of size 6 is 2 times 3, or 3 times 2. Each one is split where others start or end, so
/// that the factors of different lists are equal or disjoint wherever they can be.
pub(crate) fn split_into_primes(lists: &mut [&mut SubAxes]) {
    let mut bounds: SmallVec<[usize; 8]> =
        lists.iter().flat_map(|list| list.iter()).flat_map(|a| [a.stride, a.stride * a.size]).collect();
    small_sort::sort_by_key(&mut bounds, |bound| std::cmp::Reverse(*bound));
    bounds.dedup();
    for list in lists {
        let mut factors = SubAxes::new();
        for a in list.iter() {
            let mut end = a.stride * a.size;
            for bound in bounds.iter().filter(|bound| **bound > a.stride && bound.is_multiple_of(a.stride)) {
                if *bound < end && end.is_multiple_of(*bound) {
                    push_primes(&mut factors, SubAxis { stride: *bound, size: end / bound });
                    end = *bound;
                }
            }
            push_primes(&mut factors, SubAxis { stride: a.stride, size: end / a.stride });
        }
        **list = factors;
    }
}

/// Appends the factors of prime size of a sub-axis, in rising order.
fn push_primes(factors: &mut SubAxes, a: SubAxis) {
    let (mut n, mut p) = (a.size, 2);
    while n > 1 {
        if n.is_multiple_of(p) {
            n /= p;
            factors.push(SubAxis { stride: a.stride * n, size: p });
        } else {
            p += 1;
        }
    }
}

/// Takes the leading sub-axes that split loops of the given sizes, which run along one dimension,
/// the outermost first. Returns those of each loop, and the rest.
pub(crate) fn distribute(
    sub_axes: &[SubAxis],
    sizes: impl IntoIterator<Item = usize>,
) -> (Vec<SubAxes>, SubAxes) {
    let mut left: SubAxes = sub_axes.iter().rev().copied().collect();
    let mut take = |mut size: usize| {
        let mut here = SubAxes::new();
        while let Some(a) = left.pop() {
            let shared = gcd(size, a.size);
            let rest = a.size / shared;
            if rest > 1 {
                left.push(SubAxis { stride: a.stride, size: rest });
            }
            if shared == 1 {
                break;
            }
            here.push(SubAxis { stride: a.stride * rest, size: shared });
            size /= shared;
        }
        here
    };
    let each = sizes.into_iter().map(&mut take).collect();
    left.reverse();
    (each, left)
}

/// Returns true if one layout cannot contain both sets of sub-axes.
pub(crate) fn overlap(a: &[SubAxis], b: &[SubAxis]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.overlaps(*y)))
}

/// Returns the leading sub-axes that do not overlap those in use.
pub(crate) fn truncate_to_free(a: &[SubAxis], used: &[SubAxis]) -> SubAxes {
    a.iter().copied().take_while(|x| !overlap(&[*x], used)).collect()
}

/// Returns the sub-axes of mesh axes, in canonical form.
pub fn from_axes(mesh: &Mesh, axes: impl IntoIterator<Item = Axis>) -> SubAxes {
    canonicalize(axes.into_iter().map(|a| SubAxis { stride: mesh.stride_of(a), size: mesh.extent(a) }))
}

/// Returns for each dimension the sub-axes that split it under a spec.
pub fn from_spec(mesh: &Mesh, spec: Spec) -> Vec<SubAxes> {
    spec.dims().iter().map(|axes| from_axes(mesh, axes.iter())).collect()
}

/// A factor of one mesh axis.
/// The axis is the product of the factors that are major to this one, this one, and those minor to
/// it.
struct AxisPiece {
    /// The mesh axis.
    axis: Axis,
    /// The product of the sizes of the factors that are major to this one.
    major_size: usize,
    /// The size of this factor.
    size: usize,
    /// True if this factor is the complete axis.
    is_full_axis: bool,
}

/// Returns the axis factors that a sub-axis consists of, major first; it may span several axes.
/// Returns `None` if the sub-axis is not a product of factors of the mesh's axes.
fn axis_pieces(mesh: &Mesh, sub_axis: SubAxis) -> Option<SmallVec<[AxisPiece; 2]>> {
    // split off the axes from the minor end
    let (mut rest, mut at, mut pieces) = (sub_axis.size, sub_axis.stride, SmallVec::new());
    for (&axis, &size) in mesh.axis_names().iter().zip(mesh.axis_sizes()).rev() {
        let (stride, inside) = (mesh.stride_of(axis), at / mesh.stride_of(axis));
        if rest == 1 || size == 1 || at % stride != 0 || inside >= size || size % inside != 0 {
            continue;
        }
        let available = size / inside;
        let taken = if rest.is_multiple_of(available) { available } else { rest };
        if !available.is_multiple_of(taken) {
            break;
        }
        pieces.push(AxisPiece {
            axis,
            major_size: available / taken,
            size: taken,
            is_full_axis: taken == size,
        });
        (rest, at) = (rest / taken, at * taken);
    }
    pieces.reverse();
    (rest == 1).then_some(pieces)
}

/// Returns the mesh axes that these sub-axes consist of, major first; `None` if some are partial.
pub(crate) fn full_axes(mesh: &Mesh, sub_axes: &[SubAxis]) -> Option<Axes> {
    let mut axes = Axes::none();
    for sub_axis in sub_axes {
        for piece in axis_pieces(mesh, *sub_axis)? {
            axes.push(piece.is_full_axis.then_some(piece.axis)?);
        }
    }
    Some(axes)
}

/// Returns the mesh axes that overlap these sub-axes, in the order of the sub-axes.
pub(crate) fn touched_axes(mesh: &Mesh, sub_axes: &[SubAxis]) -> Axes {
    let mut axes = Axes::none();
    for d in sub_axes {
        let meets = |a: &Axis| {
            let (stride, size) = (mesh.stride_of(*a), mesh.extent(*a));
            size > 1 && d.stride < stride * size && stride < d.stride * d.size
        };
        axes.extend_unique(&mesh.axis_names().iter().copied().filter(meets).collect());
    }
    axes
}

/// Prints sub-axes in terms of the mesh: `X`, `(X,Y)`, or `_` for none.
///
/// A factor of an axis is `X:(p)s`: it has size s, and the factors that are major to it have size p
/// (Shardy's notation). A sub-axis that cannot be expressed by the mesh's axes is `stride×size`.
pub fn name(mesh: &Mesh, sub_axes: &[SubAxis]) -> String {
    let mut names = Vec::new();
    for sub_axis in sub_axes {
        let named = |p: AxisPiece| match p.is_full_axis {
            true => p.axis.to_string(),
            false => format!("{}:({}){}", p.axis, p.major_size, p.size),
        };
        match axis_pieces(mesh, *sub_axis) {
            Some(pieces) => names.extend(pieces.into_iter().map(named)),
            None => names.push(format!("{}×{}", sub_axis.stride, sub_axis.size)),
        }
    }
    match names.as_slice() {
        [] => "_".into(),
        [one] => one.clone(),
        many => format!("({})", many.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtraction_removes_sub_axes() {
        let sub_axes = |a: &[(usize, usize)]| -> SubAxes {
            a.iter().map(|(stride, size)| SubAxis { stride: *stride, size: *size }).collect()
        };
        let left = |a: &[(usize, usize)], b: &[(usize, usize)]| subtract(&sub_axes(a), &sub_axes(b));
        assert_eq!(left(&[(1, 12)], &[(2, 3)]), Some(sub_axes(&[(6, 2), (1, 2)])));
        assert_eq!(left(&[(1, 12)], &[(6, 2), (1, 2)]), Some(sub_axes(&[(2, 3)])));
        assert_eq!(left(&[(8, 2), (1, 4)], &[(8, 2)]), Some(sub_axes(&[(1, 4)])));
        assert_eq!(left(&[(1, 4)], &[(1, 4)]), Some(sub_axes(&[])));
        assert_eq!(left(&[(1, 4)], &[(1, 8)]), None);
        assert_eq!(left(&[(2, 2)], &[(1, 2)]), None);
        assert_eq!(left(&[(1, 6)], &[(1, 4)]), None);
    }

    /// Tests that (X,Y) of a 3x2 mesh is X times Y if X or Y is in another list, and 2 times 3 if not.
    #[test]
    fn primes_start_where_other_sub_axes_start() {
        let (xy, x, y) =
            (SubAxis { stride: 1, size: 6 }, SubAxis { stride: 2, size: 3 }, SubAxis { stride: 1, size: 2 });
        let split = |others: &[SubAxis]| {
            let (mut list, mut others) = (SubAxes::from_slice(&[xy]), SubAxes::from_slice(others));
            split_into_primes(&mut [&mut list, &mut others]);
            list.to_vec()
        };
        assert_eq!(split(&[]), [SubAxis { stride: 3, size: 2 }, SubAxis { stride: 1, size: 3 }]);
        assert_eq!(split(&[x]), [x, y]);
        assert_eq!(split(&[y]), [x, y]);
        assert_eq!(split(&[y, x]), [x, y]);
    }

    #[test]
    fn loops_of_one_dimension_take_sub_axes_from_the_outermost_on() {
        let xy = SubAxis { stride: 1, size: 6 };
        let of_loops = |sizes: &[usize]| {
            let (each, rest) = distribute(&[xy], sizes.iter().copied());
            (each.iter().map(|a| num_shards(a)).collect::<Vec<_>>(), num_shards(&rest))
        };
        assert_eq!(of_loops(&[3, 8]), (vec![3, 2], 1));
        assert_eq!(of_loops(&[2, 12]), (vec![2, 3], 1));
        assert_eq!(of_loops(&[4, 5]), (vec![2, 1], 3));
    }

    /// Tests that neighbouring axes count once: as one merged sub-axis, or as two separate ones.
    #[test]
    fn overlapping_sub_axes_are_counted_once() {
        let merged = |a: &[(usize, usize)]| -> Vec<(usize, usize)> {
            let sub_axes = a.iter().map(|(stride, size)| SubAxis { stride: *stride, size: *size }).collect();
            in_device_order(sub_axes).iter().map(|a| (a.stride, a.size)).collect()
        };
        assert_eq!(merged(&[(1, 6), (3, 2), (1, 3)]), [(1, 6)]);
        assert_eq!(merged(&[(1, 2), (2, 3), (1, 6)]), [(1, 6)]);
        assert_eq!(merged(&[(1, 2), (4, 2), (4, 2)]), [(4, 2), (1, 2)]);
        assert_eq!(merged(&[(1, 2), (2, 2), (8, 1)]), [(1, 4)]);
    }

    #[test]
    fn sub_axes_are_named_after_axes_and_their_pieces() {
        let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
        let named = |a: &[(usize, usize)]| {
            let sub_axes: Vec<_> =
                a.iter().map(|(stride, size)| SubAxis { stride: *stride, size: *size }).collect();
            name(&mesh, &sub_axes)
        };
        assert_eq!(named(&[]), "_");
        assert_eq!(named(&[(4, 2)]), "X");
        assert_eq!(named(&[(1, 4)]), "Y");
        assert_eq!(named(&[(1, 8)]), "(X,Y)");
        assert_eq!(named(&[(1, 4), (4, 2)]), "(Y,X)");
        assert_eq!(named(&[(2, 2)]), "Y:(1)2");
        assert_eq!(named(&[(1, 2)]), "Y:(2)2");
    }
}
