//! Pieces of mesh axes as digits of the device number.

use super::Spec;
use crate::mesh::{Axes, Axis, Mesh};
use crate::sorted;
use smallvec::SmallVec;

/// A piece of a mesh axis: the digit `position / stride % size` of the device's position.
///
/// An axis, a part of an axis, an axis of another mesh over the same devices: all are atoms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Atom {
    /// The distance in positions between neighbours.
    pub stride: usize,
    /// How many values the digit takes.
    pub size: usize,
}

/// Digits that split a dimension, major first.
pub type Atoms = SmallVec<[Atom; 2]>;

impl Atom {
    /// The digit of a device position.
    pub fn digit(self, position: usize) -> usize {
        position / self.stride % self.size
    }
    /// Whether the two share a digit, or split one axis in ways that do not nest: one layout cannot use both.
    pub fn clashes(self, other: Atom) -> bool {
        let (hi, lo) = if self.stride >= other.stride { (self, other) } else { (other, self) };
        !hi.stride.is_multiple_of(lo.stride * lo.size)
    }
}

/// How many parts these digits make.
pub fn ways(atoms: &[Atom]) -> usize {
    atoms.iter().map(|a| a.size).product()
}

/// Neighbouring pieces of one axis joined, sizes of 1 left out: the form in which equal splits are equal.
pub fn canonical(atoms: impl IntoIterator<Item = Atom>) -> Atoms {
    let mut joined = Atoms::new();
    for x in atoms.into_iter().filter(|x| x.size > 1) {
        match joined.last_mut() {
            Some(p) if p.stride == x.stride * x.size => *p = Atom { stride: x.stride, size: p.size * x.size },
            _ => joined.push(x),
        }
    }
    joined
}

/// What is left of digits without others that are among them, canonical; `None` where one of these is not.
pub fn without(atoms: &[Atom], gone: &[Atom]) -> Option<Atoms> {
    let mut left = Atoms::from_slice(atoms);
    for g in gone {
        let end = g.stride * g.size;
        let holds = |a: &Atom| g.stride.is_multiple_of(a.stride) && (a.stride * a.size).is_multiple_of(end);
        let k = left.iter().position(holds)?;
        let a = left[k];
        left[k] = Atom { stride: end, size: a.stride * a.size / end };
        left.insert(k + 1, Atom { stride: a.stride, size: g.stride / a.stride });
    }
    Some(canonical(left))
}

/// The digits that are among others too, in their order.
pub fn common(atoms: &[Atom], others: &[Atom]) -> Atoms {
    let mut both = Atoms::new();
    for a in atoms {
        let meet = |b: &Atom| {
            let (lo, hi) = (a.stride.max(b.stride), (a.stride * a.size).min(b.stride * b.size));
            let nested = lo.is_multiple_of(a.stride.min(b.stride)) && hi.is_multiple_of(lo);
            (nested && hi > lo).then(|| Atom { stride: lo, size: hi / lo })
        };
        let mut here: Atoms = others.iter().filter_map(meet).collect();
        sorted::sort_by_key(&mut here, |x| std::cmp::Reverse(x.stride));
        both.extend(here);
    }
    both
}

/// Digits in the order of devices, each once, canonical: the order of a value's parts. One may be there alone and as a piece of a longer one.
pub(crate) fn sorted(mut atoms: Atoms) -> Atoms {
    sorted::sort_by_key(&mut atoms, |a| std::cmp::Reverse((a.size, a.stride)));
    let mut once = Atoms::new();
    for a in atoms {
        if without(&once, &[a]).is_none() {
            once.push(a);
        }
    }
    sorted::sort_by_key(&mut once, |a| std::cmp::Reverse(a.stride));
    canonical(once)
}

/// Digits of prime size, major first.
pub(crate) fn primes(atoms: &[Atom]) -> Atoms {
    let mut out = Atoms::new();
    for x in atoms {
        let (mut n, mut p) = (x.size, 2);
        while n > 1 {
            if n.is_multiple_of(p) {
                n /= p;
                out.push(Atom { stride: x.stride * n, size: p });
            } else {
                p += 1;
            }
        }
    }
    out
}

/// Whether two sets of digits can't be in one layout.
pub(crate) fn clash(a: &[Atom], b: &[Atom]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.clashes(*y)))
}

/// Digits up to the first that is in use.
pub(crate) fn cut(a: &[Atom], used: &[Atom]) -> Atoms {
    a.iter().copied().take_while(|x| !clash(&[*x], used)).collect()
}

/// The digits of these axes of a mesh, canonical.
pub fn of_axes(mesh: &Mesh, axes: impl IntoIterator<Item = Axis>) -> Atoms {
    canonical(axes.into_iter().map(|a| Atom { stride: mesh.step(a), size: mesh.extent(a) }))
}

/// The digits that split each dimension by a spec.
pub fn of_spec(mesh: &Mesh, spec: Spec) -> Vec<Atoms> {
    spec.dims().iter().map(|axes| of_axes(mesh, axes.iter())).collect()
}

/// A piece of one axis of a mesh: the digit of size `size` behind the first `before` values of the axis.
struct Piece {
    axis: Axis,
    before: usize,
    size: usize,
    whole: bool,
}

/// What a digit is of the mesh's axes, major first: it may span several. `None` where they do not make it.
fn pieces(mesh: &Mesh, atom: Atom) -> Option<SmallVec<[Piece; 2]>> {
    // axes are taken off from the minor end
    let (mut rest, mut at, mut pieces) = (atom.size, atom.stride, SmallVec::new());
    for (&axis, &size) in mesh.axis_names().iter().zip(mesh.axis_sizes()).rev() {
        let (stride, inside) = (mesh.step(axis), at / mesh.step(axis));
        if rest == 1 || size == 1 || at % stride != 0 || inside >= size || size % inside != 0 {
            continue;
        }
        let room = size / inside;
        let taken = if rest.is_multiple_of(room) { room } else { rest };
        if !room.is_multiple_of(taken) {
            break;
        }
        pieces.push(Piece { axis, before: room / taken, size: taken, whole: taken == size });
        (rest, at) = (rest / taken, at * taken);
    }
    pieces.reverse();
    (rest == 1).then_some(pieces)
}

/// The axes that these digits are, major first, if they are whole axes of the mesh.
pub(crate) fn whole_axes(mesh: &Mesh, atoms: &[Atom]) -> Option<Axes> {
    let mut axes = Axes::none();
    for atom in atoms {
        for piece in pieces(mesh, *atom)? {
            axes.push(piece.whole.then_some(piece.axis)?);
        }
    }
    Some(axes)
}

/// The axes that these digits are of, whole or in part, in the digits' order.
pub(crate) fn touched_axes(mesh: &Mesh, atoms: &[Atom]) -> Axes {
    let mut axes = Axes::none();
    for d in atoms {
        let meets = |a: &Axis| {
            let (stride, size) = (mesh.step(*a), mesh.extent(*a));
            size > 1 && d.stride < stride * size && stride < d.stride * d.size
        };
        axes.extend(&mesh.axis_names().iter().copied().filter(meets).collect());
    }
    axes
}

/// These digits in the words of the mesh: `X`, `(X,Y)`, `_` for none; a piece of an axis is `X:(p)s`, the digit of size s behind
/// the first p values of the axis; what no axis of the mesh contains is `stride×size`.
pub fn name(mesh: &Mesh, atoms: &[Atom]) -> String {
    let mut names = Vec::new();
    for atom in atoms {
        let named = |p: Piece| match p.whole {
            true => p.axis.to_string(),
            false => format!("{}:({}){}", p.axis, p.before, p.size),
        };
        match pieces(mesh, *atom) {
            Some(pieces) => names.extend(pieces.into_iter().map(named)),
            None => names.push(format!("{}×{}", atom.stride, atom.size)),
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
    fn digits_go_from_those_they_are_joined_with() {
        let atoms = |a: &[(usize, usize)]| -> Atoms {
            a.iter().map(|(stride, size)| Atom { stride: *stride, size: *size }).collect()
        };
        let left = |a: &[(usize, usize)], b: &[(usize, usize)]| without(&atoms(a), &atoms(b));
        assert_eq!(left(&[(1, 12)], &[(2, 3)]), Some(atoms(&[(6, 2), (1, 2)])));
        assert_eq!(left(&[(1, 12)], &[(6, 2), (1, 2)]), Some(atoms(&[(2, 3)])));
        assert_eq!(left(&[(8, 2), (1, 4)], &[(8, 2)]), Some(atoms(&[(1, 4)])));
        assert_eq!(left(&[(1, 4)], &[(1, 4)]), Some(atoms(&[])));
        assert_eq!(left(&[(1, 4)], &[(1, 8)]), None);
        assert_eq!(left(&[(2, 2)], &[(1, 2)]), None);
        assert_eq!(left(&[(1, 6)], &[(1, 4)]), None);
    }

    /// Two axes next to one another are one digit where they are joined, and two where each comes alone.
    #[test]
    fn parts_are_counted_once() {
        let parts = |a: &[(usize, usize)]| -> Vec<(usize, usize)> {
            let atoms = a.iter().map(|(stride, size)| Atom { stride: *stride, size: *size }).collect();
            sorted(atoms).iter().map(|a| (a.stride, a.size)).collect()
        };
        assert_eq!(parts(&[(1, 6), (3, 2), (1, 3)]), [(1, 6)]);
        assert_eq!(parts(&[(1, 2), (2, 3), (1, 6)]), [(1, 6)]);
        assert_eq!(parts(&[(1, 2), (4, 2), (4, 2)]), [(4, 2), (1, 2)]);
        assert_eq!(parts(&[(1, 2), (2, 2), (8, 1)]), [(1, 4)]);
    }

    #[test]
    fn digits_are_named_after_axes_and_their_pieces() {
        let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
        let named = |a: &[(usize, usize)]| {
            let atoms: Vec<_> =
                a.iter().map(|(stride, size)| Atom { stride: *stride, size: *size }).collect();
            name(&mesh, &atoms)
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
