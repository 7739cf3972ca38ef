//! The access of a collective: which device's values a device reads, and which elements of them.

use crate::core::{Axes, Axis, DType, Scalar, Shape, util::small_sort};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, AxisDigit, Compute, DeviceGroups, LoopNest, ManualCollective, Reducer,
    ScalarCode, Source, StridedRange,
};
use crate::partition::{lower::manual::LoopList, program::Slot};

/// The indices `index / stride % size` of the devices along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digit {
    pub(crate) axis: Axis,
    pub(crate) stride: usize,
    pub(crate) size: usize,
}

/// The devices that communicate with each other.
pub(crate) enum Members {
    /// The devices that differ only in these digits, major first.
    Digits(Vec<Digit>),
    /// The devices of each group, by their indices along axes, the first axis being major.
    Lists(Vec<(Axis, usize)>, DeviceGroups),
}

impl Members {
    /// Returns all devices along the axes, the first axis being major.
    pub(crate) fn all(axes: &[(Axis, usize)]) -> Members {
        Members::Digits(
            axes.iter().map(|(axis, size)| Digit { axis: *axis, stride: 1, size: *size }).collect(),
        )
    }
    /// Returns the devices of a collective over axes of these sizes.
    ///
    /// Reductions add in the order of the devices, and ignore the order of a group's list.
    pub(crate) fn new(c: &ManualCollective, axes: &Axes, sizes: &[usize]) -> Members {
        let sized: Vec<(Axis, usize)> = axes.iter().zip(sizes.iter().copied()).collect();
        let Some(groups) = c.groups() else { return Members::all(&sized) };
        let groups = match c {
            ManualCollective::AllReduce { .. } => groups.sorted(),
            _ => groups.clone(),
        };
        let digit = |d: AxisDigit| Digit { axis: sized[d.axis].0, stride: d.stride, size: d.size };
        match groups.digits(sizes) {
            Some(digits) => Members::Digits(digits.into_iter().map(digit).collect()),
            None => Members::Lists(sized, groups),
        }
    }
    /// Returns the digits in which the devices differ, if they are given so.
    pub(crate) fn digits(&self) -> &[Digit] {
        match self {
            Members::Digits(digits) => digits,
            Members::Lists(..) => &[],
        }
    }
    /// Returns the digits of an axis, major first: those of the devices, and the rest.
    pub(crate) fn digits_of(&self, axis: Axis, size: usize) -> Vec<Digit> {
        let mut own: Vec<Digit> = self.digits().iter().copied().filter(|d| d.axis == axis).collect();
        small_sort::sort_by_key(&mut own, |d| std::cmp::Reverse(d.stride));
        let (mut all, mut above) = (Vec::new(), size);
        for d in own {
            let end = d.stride * d.size;
            if above > end {
                all.push(Digit { axis, stride: end, size: above / end });
            }
            all.push(d);
            above = d.stride;
        }
        if above > 1 || all.is_empty() {
            all.push(Digit { axis, stride: 1, size: above });
        }
        all
    }
    /// Returns the number of devices that communicate with each other, at most.
    pub(crate) fn count(&self) -> usize {
        match self {
            Members::Digits(digits) => digits.iter().map(|d| d.size).product(),
            Members::Lists(_, groups) => groups.max_size(),
        }
    }
}

/// The access of a collective under construction.
/// It consists of the loops of the result, and the index of each operand dimension.
pub(crate) struct CollectiveRead<'a> {
    /// The operand's dimensions without the hidden ones.
    block: &'a Shape,
    /// The devices that communicate with each other.
    members: Members,
    /// The loop of each digit of the result's hidden dimensions.
    result_loops: Vec<(Digit, usize)>,
    /// The loop at which each digit of the operand's hidden dimensions is read.
    /// Others are read at index 0.
    operand_loops: Vec<(Digit, usize)>,
    /// The loop over the devices of a group, if they are listed.
    member_loop: Option<usize>,
    /// The loops.
    /// First come the hidden dimensions of the result, then its dimensions (in pieces if several
    /// loops form one), then the reduced axes.
    pub(crate) loops: LoopList,
    /// The shape of the result.
    result_shape: Vec<usize>,
    /// The index expression of each block dimension.
    map: Vec<AffineExpr>,
    /// The dimension of which a device reads its own piece, and the length of a piece.
    own_piece: Option<(usize, i64)>,
    /// The reduction of the devices' values, and its loops' first index.
    reduced: Option<(Reducer, usize)>,
}

/// Devices that read in one pattern: a box of devices, and the device that each of them reads.
#[derive(Default)]
struct DeviceRun {
    /// The devices along each axis. Empty for all devices.
    devices: Vec<(Axis, StridedRange)>,
    /// The position of the read device along each of these axes.
    source: Vec<(Axis, AffineExpr)>,
    /// The iterations of the loop over the devices of a group. `None` for all.
    members: Option<StridedRange>,
    /// The position of the reading device in its group.
    position: AffineExpr,
}

fn loop_of(loops: &[(Digit, usize)], axis: Axis) -> Option<usize> {
    loops.iter().find(|x| x.0.axis == axis).map(|x| x.1)
}

impl<'a> CollectiveRead<'a> {
    /// Creates the access of a result with these hidden dimensions.
    pub(crate) fn new(block: &'a Shape, members: Members, hidden: &[(Axis, usize)]) -> CollectiveRead<'a> {
        let digits = hidden.iter().flat_map(|(a, n)| members.digits_of(*a, *n)).collect();
        let mut read = CollectiveRead::over_digits(block, members, digits);
        read.result_shape = hidden.iter().map(|h| h.1).collect();
        read
    }
    /// Creates the access of a result with a hidden dimension for each of these digits.
    pub(crate) fn over_digits(block: &'a Shape, members: Members, digits: Vec<Digit>) -> CollectiveRead<'a> {
        let sizes: Vec<usize> = digits.iter().map(|d| d.size).collect();
        let result_loops: Vec<(Digit, usize)> = digits.into_iter().zip(0..).collect();
        let stays = |x: &(Digit, usize)| match &members {
            Members::Digits(digits) => !digits.contains(&x.0),
            Members::Lists(axes, _) => axes.iter().all(|a| a.0 != x.0.axis),
        };
        let operand_loops = result_loops.iter().copied().filter(stays).collect();
        let (result_shape, loops) = (sizes.clone(), LoopList { extents: sizes, rank: 0 });
        CollectiveRead {
            block,
            members,
            result_loops,
            operand_loops,
            member_loop: None,
            loops,
            result_shape,
            map: Vec::new(),
            own_piece: None,
            reduced: None,
        }
    }
    /// Adds a dimension that the operand's block and the result share.
    fn pass_dim(&mut self, n: usize) {
        self.map.push(AffineExpr::linear(0, self.loops.add(n), 1));
        self.result_shape.push(n);
    }
    pub(crate) fn pass_all(&mut self) {
        for n in self.block.iter() {
            self.pass_dim(*n);
        }
    }
    /// Adds loops over the participating devices; digits are in the order of these axes, if given.
    fn add_device_loops(&mut self, order: Option<Vec<Axis>>) {
        match &self.members {
            Members::Digits(digits) => {
                let mut digits = digits.clone();
                if let Some(order) = order {
                    small_sort::sort_by_key(&mut digits, |d| order.iter().position(|a| *a == d.axis));
                }
                for d in digits {
                    self.operand_loops.push((d, self.loops.add(d.size)));
                }
            }
            Members::Lists(_, groups) => self.member_loop = Some(self.loops.add(groups.max_size())),
        }
    }
    /// Reduces the values of the participating devices, in the order of these axes.
    /// No dimension can be added after it.
    pub(crate) fn reduce_members(&mut self, reducer: Reducer, order: Vec<Axis>) {
        self.reduced = Some((reducer, self.loops.extents.len()));
        self.add_device_loops(Some(order));
    }
    /// Adds all dimensions.
    /// Each device reads its own piece of `dim`.
    pub(crate) fn split_dim(&mut self, dim: usize, tiled: bool) {
        for (d, &n) in self.block.iter().enumerate() {
            if d != dim {
                self.pass_dim(n);
            } else if tiled {
                let n = n / self.members.count();
                self.own_piece = Some((d, n as i64));
                self.pass_dim(n);
            } else {
                self.own_piece = Some((d, 1));
                self.map.push(AffineExpr::constant(0));
            }
        }
    }
    /// Adds all dimensions, with the devices' blocks concatenated along `dim`.
    pub(crate) fn concat_dim(&mut self, dim: usize, tiled: bool) {
        for d in 0..=self.block.rank() {
            if d == dim {
                self.add_device_loops(None);
                if !tiled {
                    self.result_shape.push(self.members.count());
                }
            }
            let Some(&n) = self.block.get(d) else { break };
            self.map.push(AffineExpr::linear(0, self.loops.add(n), 1));
            self.result_shape.push(if tiled && d == dim { n * self.members.count() } else { n });
        }
    }
    /// Adds all dimensions of an all-to-all.
    /// Each device reads its piece of `split` from all devices, concatenated along `concat`.
    pub(crate) fn all_to_all(&mut self, split: usize, concat: usize, tiled: bool) {
        // the result's dimensions before concatenation: those of the operand, without `split` if it
        // is removed
        let count = self.members.count();
        let mut at: Vec<Option<usize>> = vec![None; self.block.rank()];
        let rest: Vec<usize> = (0..self.block.rank()).filter(|d| tiled || *d != split).collect();
        for i in 0..=rest.len() {
            if i == concat {
                self.add_device_loops(None);
                if !tiled {
                    self.result_shape.push(count);
                }
            }
            let Some(&d) = rest.get(i) else { break };
            let n = if tiled && d == split { self.block[d] / count } else { self.block[d] };
            at[d] = Some(self.loops.add(n));
            self.result_shape.push(if tiled && i == concat { n * count } else { n });
        }
        for l in &at {
            self.map.push(l.map_or(AffineExpr::constant(0), |l| AffineExpr::linear(0, l, 1)));
        }
        self.own_piece = Some((split, at[split].map_or(1, |l| self.loops.extents[l] as i64)));
    }
    /// Returns the loop nest, and the shape of the result.
    pub(crate) fn into_nest(self, slot: Slot, dtype: DType, own: &[Axis]) -> (LoopNest, Vec<usize>) {
        let code = ScalarCode::copy(dtype);
        let (rank, fill, compute) = match self.reduced {
            None => (self.loops.extents.len(), Scalar::zero(dtype), Compute::Map(code)),
            Some((reducer, rank)) => (rank, reducer.neutral(dtype), Compute::Reduce { reducer, code }),
        };
        let runs = match &self.members {
            Members::Digits(_) => vec![DeviceRun { position: self.position(), ..DeviceRun::default() }],
            Members::Lists(axes, groups) => {
                groups.lists().iter().flat_map(|group| self.group_runs(axes, group)).collect()
            }
        };
        let pieces = runs.iter().map(|run| self.piece(slot, own, run)).collect();
        let accesses = vec![Access { dtype, pieces, fill }];
        (LoopNest { extents: self.loops.extents, rank, dtype, accesses, compute }, self.result_shape)
    }
    /// Returns the position of a device among those that differ in some digits.
    fn position(&self) -> AffineExpr {
        let (mut position, mut step) = (AffineExpr::default(), 1);
        for d in self.members.digits().iter().rev() {
            if let Some((_, l)) = self.result_loops.iter().find(|x| x.0 == *d) {
                position.terms.push((*l, step));
            }
            step *= d.size as i64;
        }
        position
    }
    /// Returns the piece of the access that a run of devices reads.
    fn piece(&self, slot: Slot, own: &[Axis], run: &DeviceRun) -> AccessPiece {
        let mut ranges = StridedRange::full_box(&self.loops.extents);
        for (axis, range) in &run.devices {
            if let Some(l) = loop_of(&self.result_loops, *axis) {
                ranges[l] = *range;
            }
        }
        if let (Some(l), Some(range)) = (self.member_loop, run.members) {
            ranges[l] = range;
        }
        let front = own.iter().map(|axis| match run.source.iter().find(|x| x.0 == *axis) {
            Some((_, position)) => position.clone(),
            None => AffineExpr {
                constant: 0,
                terms: (self.operand_loops.iter().filter(|x| x.0.axis == *axis))
                    .map(|(d, l)| (*l, d.stride as i64))
                    .collect(),
            },
        });
        let mut map: Vec<AffineExpr> = front.chain(self.map.iter().cloned()).collect();
        if let Some((dim, length)) = self.own_piece {
            let at = &mut map[own.len() + dim];
            at.constant += run.position.constant * length;
            at.terms.extend(run.position.terms.iter().map(|(l, c)| (*l, c * length)));
        }
        AccessPiece { source: Source::Value(slot), ranges, map }
    }
    /// Returns the runs of a group: one if its devices are evenly spaced along the only axis, and
    /// else one for each pair of a reading and a read device.
    fn group_runs(&self, axes: &[(Axis, usize)], group: &[usize]) -> Vec<DeviceRun> {
        let member = self.member_loop.unwrap_or(0);
        let step = group.get(1).map_or(1, |second| *second as i64 - group[0] as i64);
        let even = group.windows(2).all(|w| w[1] as i64 - w[0] as i64 == step);
        if let ([(axis, _)], true, true) = (axes, even, step > 0) {
            let (first, last) = (group[0] as i64, group[group.len() - 1] as i64);
            let l = loop_of(&self.result_loops, *axis).unwrap_or(0);
            return vec![DeviceRun {
                devices: vec![(*axis, StridedRange { lo: first, hi: last + 1, step })],
                source: vec![(*axis, AffineExpr::linear(first, member, step))],
                members: Some(StridedRange::full(group.len())),
                position: AffineExpr::linear(0, l, 1),
            }];
        }
        let single = |i: usize| StridedRange { lo: i as i64, hi: i as i64 + 1, step: 1 };
        let pair = |position: usize, k: usize| DeviceRun {
            devices: indices(axes, group[position]).map(|(a, i)| (a, single(i))).collect(),
            source: indices(axes, group[k]).map(|(a, i)| (a, AffineExpr::constant(i as i64))).collect(),
            members: Some(single(k)),
            position: AffineExpr::constant(position as i64),
        };
        (0..group.len()).flat_map(|p| (0..group.len()).map(move |k| pair(p, k))).collect()
    }
    /// Returns the access of a broadcast: all devices read the values of its source.
    pub(crate) fn broadcast_access(&self, slot: Slot, dtype: DType, own: &[Axis], source: usize) -> Access {
        let axes: Vec<(Axis, usize)> = self.members.digits().iter().map(|d| (d.axis, d.size)).collect();
        let source = indices(&axes, source).map(|(axis, i)| (axis, AffineExpr::constant(i as i64)));
        let run = DeviceRun { source: source.collect(), ..DeviceRun::default() };
        Access { dtype, pieces: vec![self.piece(slot, own, &run)], fill: Scalar::zero(dtype) }
    }
    /// Returns the access of a permutation.
    /// It has one piece for each run of pairs with a constant difference.
    pub(crate) fn permuted_access(
        &self,
        slot: Slot,
        dtype: DType,
        own: &[Axis],
        pairs: &[(usize, usize)],
    ) -> Access {
        let axes: Vec<(Axis, usize)> = self.members.digits().iter().map(|d| (d.axis, d.size)).collect();
        let minor = axes.last().map_or(1, |s| s.1);
        let mut pairs = pairs.to_vec();
        small_sort::sort_by_key(&mut pairs, |p| p.1);
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for (s, t) in pairs {
            match runs.last_mut() {
                Some(r) if (r.0 + r.2, r.1 + r.2) == (s, t) && s % minor != 0 && t % minor != 0 => r.2 += 1,
                _ => runs.push((s, t, 1)),
            }
        }
        let part = |(source, target, n): (usize, usize, usize)| {
            let length = |k: usize| if k + 1 == axes.len() { n as i64 } else { 1 };
            let devices = indices(&axes, target).enumerate().map(|(k, (axis, i))| {
                (axis, StridedRange { lo: i as i64, hi: i as i64 + length(k), step: 1 })
            });
            let source = indices(&axes, source).enumerate().map(|(k, (axis, i))| {
                let varies = loop_of(&self.result_loops, axis).filter(|_| length(k) > 1);
                (axis, varies.map_or(AffineExpr::constant(i as i64), |l| AffineExpr::linear(i as i64, l, 1)))
            });
            let run =
                DeviceRun { devices: devices.collect(), source: source.collect(), ..DeviceRun::default() };
            self.piece(slot, own, &run)
        };
        Access { dtype, pieces: runs.into_iter().map(part).collect(), fill: Scalar::zero(dtype) }
    }
}

/// Returns the index along each axis of a device, given by its index along all axes.
fn indices(axes: &[(Axis, usize)], device: usize) -> impl Iterator<Item = (Axis, usize)> {
    let strides = (0..axes.len()).map(|k| axes[k + 1..].iter().map(|a| a.1).product::<usize>());
    axes.iter().zip(strides).map(move |((axis, size), stride)| (*axis, device / stride.max(1) % size))
}
