//! The links of a machine as a mesh uses them, and the price of a collective over them.
//!
//! A collective runs over *levels*: groups of devices that one kind of link connects. The levels
//! follow from the place of the mesh axes: consecutive devices are in one node, and they are
//! neighbours in the last dimension of a torus. Switches with equal figures are one level. The
//! rings of a collective are one level too, because they carry data at the same time.
//!
//! Faster levels are the inner ones. In a gather or a sum, each level moves what the levels inside
//! it leave: of n devices in nodes of k, a device receives `(n/k − 1) / (n − 1)` of its bytes from
//! other nodes. In an exchange, each pair of devices uses the slowest level between them. The
//! levels run at the same time, on different pieces of the data, so the slowest decides.

use super::link::Link;
use crate::core::{Axis, Mesh, SubAxis, types::gcd, util::small_sort};
use crate::partition::collective::CollectiveKind;
use std::hash::{Hash, Hasher};

/// The wiring of all devices of a machine, in the order of their numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wiring {
    /// All devices have the same link.
    Same(Link),
    /// Nodes of `size` devices. Each device has its own adapter to other nodes, and a collective
    /// reaches `adapters` of a node's adapters.
    Nodes {
        /// The number of devices of a node.
        size: usize,
        /// The link inside a node.
        inside: Link,
        /// The link of one adapter.
        outside: Link,
        /// The number of adapters of a node that one collective uses.
        adapters: usize,
    },
    /// A torus, whose last dimension has consecutive devices.
    Torus {
        /// The sizes of the dimensions.
        sizes: Vec<usize>,
        /// The link of each dimension.
        link: Link,
    },
}

/// The links between the devices of a mesh.
#[derive(Clone, Debug)]
pub(crate) struct MeshLinks {
    /// The mesh axes, each with the link that was given for it.
    axes: Vec<(Axis, SubAxis, Option<Link>)>,
    /// The wiring of the other axes, if known.
    wiring: Option<Wiring>,
}

/// The price of a collective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkPrice {
    /// The seconds of all messages that follow one another, regardless of their size.
    pub(crate) latency: f64,
    /// The bytes that the busiest device receives in a second.
    pub(crate) bytes_per_second: f64,
}

/// A level: groups of devices that one kind of link connects.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// The number of devices of a group.
    size: usize,
    link: Link,
    /// The bandwidth into a device if only the devices at the ends of a group receive.
    alone: f64,
}

impl LinkPrice {
    /// The price where there are no links.
    pub(crate) const FREE: LinkPrice = LinkPrice { latency: 0.0, bytes_per_second: f64::INFINITY };
}

impl MeshLinks {
    pub(super) fn new(mesh: &Mesh, given: &[(Axis, Link)], wiring: Option<Wiring>) -> MeshLinks {
        let one = |a: &Axis| {
            let link = given.iter().find(|l| l.0 == *a).map(|l| l.1);
            (*a, SubAxis { stride: mesh.stride_of(*a), size: mesh.extent(*a) }, link)
        };
        MeshLinks { axes: mesh.axis_names().iter().map(one).collect(), wiring }
    }
    /// Returns the first mesh axis with several devices of these sub-axes that has no link.
    pub(super) fn unlinked(&self, sub_axes: &[SubAxis]) -> Option<Axis> {
        let meets = |a: &SubAxis| sub_axes.iter().any(|s| part(*s, *a).size > 1);
        let of = self.axes.iter().find(|(_, a, link)| link.is_none() && meets(a));
        of.filter(|_| self.wiring.is_none()).map(|a| a.0)
    }
    /// Returns true if every collective costs the same for each byte.
    pub(crate) fn is_uniform(&self) -> bool {
        let all: Vec<SubAxis> = self.axes.iter().map(|a| a.1).collect();
        let levels = self.levels(&all);
        levels.len() < 2 && levels.iter().all(|l| !l.link.ring)
    }
    /// Returns the bytes that a device receives in a second along the slowest mesh axis.
    pub(crate) fn slowest_bytes_per_second(&self) -> f64 {
        let one = |a: &SubAxis| self.price(CollectiveKind::AllGather, &[*a]).bytes_per_second;
        self.axes.iter().map(|a| one(&a.1)).fold(f64::INFINITY, f64::min)
    }

    /// Returns the price of a collective over these sub-axes of the mesh.
    ///
    /// Axes without a link cost nothing.
    pub(crate) fn price(&self, kind: CollectiveKind, sub_axes: &[SubAxis]) -> LinkPrice {
        let levels = self.levels(sub_axes);
        let latencies = levels.iter().map(|l| l.link.latency * rounds(kind, l));
        match kind {
            CollectiveKind::Permute | CollectiveKind::Halo => LinkPrice {
                latency: latencies.fold(0.0, f64::max),
                bytes_per_second: levels.iter().map(|l| l.alone).fold(f64::INFINITY, f64::min),
            },
            CollectiveKind::AllGather
            | CollectiveKind::ReduceScatter
            | CollectiveKind::AllReduce
            | CollectiveKind::AllToAll
            | CollectiveKind::Exchange => {
                LinkPrice { latency: latencies.sum(), bytes_per_second: bytes_per_second(kind, &levels) }
            }
        }
    }

    /// Returns the levels of these sub-axes.
    fn levels(&self, sub_axes: &[SubAxis]) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        let mut others: Vec<SubAxis> = Vec::new();
        for (_, axis, given) in &self.axes {
            let parts = sub_axes.iter().map(|s| part(*s, *axis)).filter(|p| p.size > 1);
            let Some(link) = given else {
                others.extend(parts);
                continue;
            };
            let size = parts.map(|p| p.size).product();
            add_level(&mut levels, Level { size, link: *link, alone: link.bandwidth });
        }
        match &self.wiring {
            None => {}
            // each axis of rings is one dimension of a torus
            Some(Wiring::Same(link)) => {
                for s in others {
                    add_level(&mut levels, Level { size: s.size, link: *link, alone: link.bandwidth });
                }
            }
            Some(Wiring::Nodes { size, inside, outside, adapters }) => {
                let [within, between] = split_nodes(&others, *size);
                let reached = outside.bandwidth * *adapters as f64 / *size as f64;
                let alone = outside.bandwidth.min(reached * within as f64);
                add_level(&mut levels, Level { size: within, link: *inside, alone: inside.bandwidth });
                add_level(&mut levels, Level { size: between, link: outside.at(reached), alone });
            }
            Some(Wiring::Torus { sizes, link }) => {
                for (size, share) in torus_rings(&others, sizes) {
                    let bandwidth = link.bandwidth * share;
                    levels.push(Level { size, link: link.at(bandwidth), alone: bandwidth });
                }
            }
        }
        levels
    }
    /// Returns everything that a price depends on.
    fn key(&self) -> Vec<u64> {
        let mut key = Vec::new();
        for (_, a, link) in &self.axes {
            key.extend([a.stride as u64, a.size as u64, u64::from(link.is_some())]);
            key.extend(link.iter().flat_map(|l| l.bits()));
        }
        match &self.wiring {
            None => key.push(0),
            Some(Wiring::Same(link)) => key.extend([1].into_iter().chain(link.bits())),
            Some(Wiring::Nodes { size, inside, outside, adapters }) => {
                key.extend([2, *size as u64, *adapters as u64]);
                key.extend(inside.bits().into_iter().chain(outside.bits()));
            }
            Some(Wiring::Torus { sizes, link }) => {
                key.extend([3, sizes.len() as u64]);
                key.extend(sizes.iter().map(|n| *n as u64).chain(link.bits()));
            }
        }
        key
    }
}

impl PartialEq for MeshLinks {
    fn eq(&self, other: &MeshLinks) -> bool {
        self.key() == other.key()
    }
}
impl Eq for MeshLinks {}
impl Hash for MeshLinks {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// Returns the bytes that a device receives in a second in a collective over these levels, in which
/// all devices of a group take part.
fn bytes_per_second(kind: CollectiveKind, levels: &[Level]) -> f64 {
    let exchanges = matches!(kind, CollectiveKind::AllToAll | CollectiveKind::Exchange);
    let (rings, switches): (Vec<&Level>, Vec<&Level>) = levels.iter().partition(|l| l.link.ring);
    // the size and the bandwidth of each group of levels that carry data at the same time
    let mut groups: Vec<(f64, f64)> = switches.iter().map(|l| (l.size as f64, l.link.bandwidth)).collect();
    if !rings.is_empty() {
        let size = rings.iter().map(|l| l.size as f64).product();
        let bandwidths = rings.iter().map(|l| l.link.bandwidth);
        let bandwidth = match exchanges {
            true => rings.iter().map(|l| l.link.bandwidth / hops(l)).fold(f64::INFINITY, f64::min),
            false => bandwidths.sum(),
        };
        groups.push((size, bandwidth));
    }
    small_sort::sort_by(&mut groups, |a, b| b.1.total_cmp(&a.1));
    let n: f64 = groups.iter().map(|g| g.0).product();
    let (mut inside, mut outside) = (1.0, n);
    let mut least = f64::INFINITY;
    for (size, bandwidth) in groups {
        outside /= size;
        // the share of the bytes that these levels carry
        let share = (size - 1.0) * if exchanges { inside } else { outside } / (n - 1.0);
        least = least.min(bandwidth / share);
        inside *= size;
    }
    least
}

/// Returns the part of a sub-axis that belongs to a mesh axis; its size is 1 if there is none.
fn part(s: SubAxis, axis: SubAxis) -> SubAxis {
    let (low, high) = (s.stride.max(axis.stride), (s.stride * s.size).min(axis.stride * axis.size));
    SubAxis { stride: low, size: if high > low { high / low } else { 1 } }
}

/// Adds a level. A switch with the same figures as another one is the same switch.
fn add_level(levels: &mut Vec<Level>, level: Level) {
    let same = levels.iter_mut().find(|l| !level.link.ring && l.link == level.link);
    match same {
        Some(known) => known.size *= level.size,
        None if level.size > 1 => levels.push(level),
        None => {}
    }
}

/// Returns the number of devices of a group that share a node of `size`, and the number of nodes.
fn split_nodes(sub_axes: &[SubAxis], size: usize) -> [usize; 2] {
    sub_axes.iter().fold([1, 1], |[within, between], s| {
        // devices of a node that are this far apart
        let room = if size.is_multiple_of(s.stride) { size / s.stride } else { 1 };
        let here = gcd(s.size, room);
        [within * here, between * (s.size / here)]
    })
}

/// Returns the rings of a torus that connect the devices of a group: the number of devices on each,
/// and the share of the ring's bandwidth that the group has.
///
/// Devices that are only a part of a ring have no link from the last to the first, which halves the
/// bandwidth. Groups whose devices are d apart share the links of the ring with d − 1 others.
fn torus_rings(sub_axes: &[SubAxis], sizes: &[usize]) -> Vec<(usize, f64)> {
    // for each dimension, the number of devices of the group, and their distance
    let mut found = vec![(1usize, usize::MAX); sizes.len()];
    for s in sub_axes {
        let (mut left, mut stride, mut step) = (s.size, s.stride, 1usize);
        for (dim, n) in sizes.iter().enumerate().rev() {
            let end = step.saturating_mul(*n);
            if left > 1 && stride < end {
                let distance = (stride / step).max(1);
                // a group that does not divide the dimension counts as one that is all in it
                let here = match gcd(left, n / distance) {
                    1 => left,
                    here => here,
                };
                found[dim] = (found[dim].0 * here, found[dim].1.min(distance));
                (left, stride) = (left / here, stride.saturating_mul(here));
            }
            step = end;
        }
    }
    let share = |((size, distance), n): ((usize, usize), &usize)| {
        let closed = if size.saturating_mul(distance) == *n { 1.0 } else { 0.5 };
        (size, closed / distance as f64)
    };
    found.into_iter().zip(sizes).filter(|(f, _)| f.0 > 1).map(share).collect()
}

/// Returns the number of messages of a collective that follow one another on a level.
fn rounds(kind: CollectiveKind, level: &Level) -> f64 {
    let n = level.size;
    let once = if level.link.ring { n.saturating_sub(1) as f64 } else { (n.max(1) as f64).log2().ceil() };
    match kind {
        CollectiveKind::AllGather
        | CollectiveKind::ReduceScatter
        | CollectiveKind::AllToAll
        | CollectiveKind::Exchange => once,
        CollectiveKind::AllReduce => 2.0 * once,
        CollectiveKind::Permute | CollectiveKind::Halo => 1.0,
    }
}

/// Returns how many times a ring carries each byte of an exchange.
/// With links in both directions, a byte travels a quarter of the ring on average, over links that
/// it shares.
fn hops(ring: &Level) -> f64 {
    (ring.size as f64 / 4.0).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::mesh::Axes;
    use crate::core::sharding::sub_axes::from_axes;

    const KINDS: [CollectiveKind; 5] = [
        CollectiveKind::AllGather,
        CollectiveKind::AllReduce,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,
        CollectiveKind::Exchange,
    ];

    /// Returns the next number below `n`.
    fn below(seed: &mut u64, n: usize) -> usize {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 33) as usize % n
    }
    /// Returns powers of two whose product is `n`.
    fn factors(seed: &mut u64, mut n: usize) -> Vec<usize> {
        let mut all = Vec::new();
        while n > 1 {
            let size = 2usize << below(seed, n.trailing_zeros() as usize);
            all.push(size);
            n /= size;
        }
        all
    }

    /// The law: a collective over all devices has one price, however the mesh divides them.
    #[test]
    fn the_mesh_does_not_change_the_price_of_a_sum_over_all() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let mut seed = 36;
        for case in 0..2000 {
            let n = 2usize << below(&mut seed, 12);
            let (fast, slow) = (Link::switch(8e9).latency(1e-6), Link::switch(1e9).latency(1e-5));
            let wiring = match below(&mut seed, 3) {
                0 => Wiring::Same(fast),
                1 => {
                    let size = 1usize << below(&mut seed, 5);
                    let adapters = 1 + below(&mut seed, size);
                    Wiring::Nodes { size, inside: fast, outside: slow, adapters }
                }
                _ => Wiring::Torus { sizes: factors(&mut seed, n), link: Link::ring(1e9) },
            };
            let price = |sizes: &[usize], kind| {
                let axes = names.iter().zip(sizes).map(|(a, n)| (*a, *n));
                let mesh = Mesh::without_devices(axes).unwrap();
                let all: Axes = mesh.axis_names().iter().copied().collect();
                let links = MeshLinks::new(&mesh, &[], Some(wiring.clone()));
                links.price(kind, &from_axes(&mesh, all.iter()))
            };
            let shape = factors(&mut seed, n);
            for kind in KINDS {
                let (one, many) = (price(&[n], kind), price(&shape, kind));
                let same = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9 || a == b;
                assert!(
                    same(one.bytes_per_second, many.bytes_per_second) && same(one.latency, many.latency),
                    "case {case}, {kind} on {shape:?} with {wiring:?}: {many:?}, and on one axis {one:?}"
                );
                assert!(one.bytes_per_second > 0.0);
            }
        }
    }

    #[test]
    fn one_switch_for_all_is_uniform() {
        let mesh = Mesh::without_devices([("a", 4), ("b", 8)]).unwrap();
        let [a, b] = [Axis::from("a"), Axis::from("b")];
        let uniform = |given: &[(Axis, Link)], wiring| MeshLinks::new(&mesh, given, wiring).is_uniform();
        let (one, other) = (Link::switch(1e9), Link::switch(2e9));
        assert!(uniform(&[(a, one), (b, one)], None) && uniform(&[], Some(Wiring::Same(one))));
        assert!(!uniform(&[(a, one), (b, other)], None) && !uniform(&[(a, other)], Some(Wiring::Same(one))));
        assert!(!uniform(&[], Some(Wiring::Same(Link::ring(1e9)))));
        let nodes = |size| Wiring::Nodes { size, inside: other, outside: one, adapters: size };
        assert!(
            uniform(&[], Some(nodes(32))) && !uniform(&[], Some(nodes(8))) && uniform(&[], Some(nodes(1)))
        );
    }
}
