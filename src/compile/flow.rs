//! Pass 1, pieces: a per-device program as a list of items over slabs, every read as boxes with one affine map each.
//!
//! Here partial values get their leading dimension, 16-bit sums and products are widened, reads that a product or a sum cannot
//! take are given a value of their own, and nested programs become items.

use super::index::{Ix, MAX, NONE, extents};
use crate::mesh::{Axes, Mesh};
use crate::partition::{DimLayout, Layout, Printed, Slot, Why};
use crate::program::Line;
use crate::program::sentence::{Bound, Code, Combine, Source};
use crate::sorted;
use crate::types::{DType, Scalar, Shape};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::sync::Arc;

/// How far apart the elements of a value are, for each of its dimensions.
pub(crate) type Strides<'s> = dyn Fn(Slot, &[usize]) -> Ix + 's;

/// A stored value as memory sees it.
#[derive(Clone, Debug)]
pub(crate) struct Value<'p> {
    /// The element type in memory.
    pub(crate) dtype: DType,
    /// The shape; a partial value has a leading dimension over the parts.
    pub(crate) shape: Shape,
    /// How many parts.
    pub(crate) copies: usize,
    /// The digits that tell the parts apart.
    pub(crate) parts: DimLayout,
    /// Elements from one index to the next.
    pub(crate) strides: Ix,
    /// The value whose memory it shares, in the same linear order.
    pub(crate) alias: Option<Slot>,
    /// How the program lays it out; nothing for those added.
    pub(crate) layout: Option<&'p Layout>,
    /// The step that makes it: where it comes from, and whether it combines parts of several devices. Nothing for inputs and those added.
    pub(crate) step: Option<(&'p Why, bool)>,
}

/// A box of the reader's loops in which a read is one affine map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    /// What is read there.
    pub(crate) from: Source,
    /// The box.
    pub(crate) lo: Ix,
    /// Its end.
    pub(crate) hi: Ix,
    /// The element at index 0 of all loops.
    pub(crate) off: i64,
    /// Elements a step of each loop.
    pub(crate) st: Ix,
    /// For each dimension of the source the loop that it follows at step 1, else `NONE`.
    pub(crate) along: [u8; MAX],
    /// How far the source's index is ahead of that loop.
    pub(crate) shift: Ix,
    /// Dimensions of the source.
    pub(crate) rank: usize,
}

impl Piece {
    /// One of a source with so many dimensions, over all of these loops, that follows none of them.
    pub(crate) fn over(from: Source, ext: &Ix, rank: usize) -> Piece {
        let (along, shift) = ([NONE; MAX], [0; MAX]);
        Piece { from, lo: [0; MAX], hi: *ext, off: 0, st: [0; MAX], along, shift, rank }
    }
    /// The shift, if dimension d of the source is read at loop d with step 1 and there are `n` loops.
    pub(crate) fn unit(&self, n: usize) -> Option<Ix> {
        (self.rank == n && (0..n).all(|d| self.along[d] as usize == d)).then_some(self.shift)
    }
    /// The loop of each dimension, if all `n` loops are used once, unshifted.
    pub(crate) fn permutation(&self, n: usize) -> Option<[u8; MAX]> {
        let mut seen = [false; MAX];
        let fine = self.rank == n
            && (0..n).all(|d| {
                let l = self.along[d];
                l != NONE && self.shift[d] == 0 && !std::mem::replace(&mut seen[l as usize], true)
            });
        fine.then_some(self.along)
    }
    /// Whether the box is all of these loops.
    pub(crate) fn covers(&self, ext: &Ix, n: usize) -> bool {
        (0..n).all(|d| self.lo[d] <= 0 && self.hi[d] >= ext[d])
    }
}

/// A read: disjoint pieces, and what is elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operand {
    /// The element type.
    pub(crate) dtype: DType,
    /// Where there is no piece.
    pub(crate) fill: Scalar,
    /// The pieces.
    pub(crate) pieces: SmallVec<[Piece; 1]>,
}

impl Operand {
    /// Whether it is one map, or one constant, over all loops.
    pub(crate) fn simple(&self, ext: &Ix, n: usize) -> bool {
        match &self.pieces[..] {
            [] => true,
            [p] => p.covers(ext, n),
            _ => false,
        }
    }
}

/// An elementwise step.
#[derive(Clone, Debug)]
pub(crate) struct Map<'p> {
    /// What it makes.
    pub(crate) out: Slot,
    /// How many loops: the dimensions of `out`.
    pub(crate) n: usize,
    /// Their sizes.
    pub(crate) ext: Ix,
    /// What is read.
    pub(crate) reads: Vec<Operand>,
    /// What is computed.
    pub(crate) code: Cow<'p, Code>,
    /// The loop that is loop 0 of the code's indices: 1 behind the dimension of the parts.
    pub(crate) lead: usize,
}

/// What one rank adds: a box of the loops.
#[derive(Clone, Debug)]
pub(crate) struct RankBox {
    /// Where it begins.
    pub(crate) lo: Ix,
    /// Where it ends.
    pub(crate) hi: Ix,
}

/// A fold or a product.
#[derive(Clone, Debug)]
pub(crate) struct Fold<'p> {
    /// What it makes.
    pub(crate) out: Slot,
    /// The element type it computes in.
    pub(crate) dtype: DType,
    /// How many loops.
    pub(crate) n: usize,
    /// How many of them the result has.
    pub(crate) rank: usize,
    /// Their sizes.
    pub(crate) ext: Ix,
    /// What is read; each is one map.
    pub(crate) reads: Vec<Operand>,
    /// What is combined, and how; nothing: a product of both reads.
    pub(crate) code: Option<(Combine, Cow<'p, Code>)>,
    /// For each part of the result, the boxes of the ranks that make it, in the order of addition.
    pub(crate) copies: Vec<Vec<RankBox>>,
}

impl Fold<'_> {
    /// Renames the loops of the result: loop l becomes loop `to[l]`. What is added, and in which order, stays.
    pub(crate) fn rename(&mut self, to: &[u8; MAX]) {
        let rank = self.rank;
        let turn = |x: &mut Ix| {
            let old = *x;
            for l in 0..rank {
                x[to[l] as usize] = old[l];
            }
        };
        turn(&mut self.ext);
        for p in self.reads.iter_mut().flat_map(|r| &mut r.pieces) {
            turn(&mut p.lo);
            turn(&mut p.hi);
            turn(&mut p.st);
            for l in p.along.iter_mut().filter(|l| (**l as usize) < rank) {
                *l = to[*l as usize];
            }
        }
        for b in self.copies.iter_mut().flatten() {
            turn(&mut b.lo);
            turn(&mut b.hi);
        }
    }
    /// How it combines.
    pub(crate) fn combine(&self) -> Combine {
        self.code.as_ref().map_or(Combine::Add, |c| c.0)
    }
}

/// Whole lines through a function, all results of it that are asked for. Its loops run over lines first, those of partial values before
/// them, then along what goes in.
#[derive(Clone, Debug)]
pub(crate) struct LinesItem {
    /// The function.
    pub(crate) of: Arc<dyn Line>,
    /// How many loops run over lines.
    pub(crate) over: usize,
    /// How many loops.
    pub(crate) n: usize,
    /// Their sizes.
    pub(crate) ext: Ix,
    /// What is read; each is one map of one value.
    pub(crate) reads: Vec<Operand>,
    /// The same as it was asked for: results of one function have equal ones.
    pub(crate) asked: Vec<Operand>,
    /// What it makes.
    pub(crate) outs: Vec<LinesOut>,
}

/// A result of lines.
#[derive(Clone, Debug)]
pub(crate) struct LinesOut {
    /// Which of the function's.
    pub(crate) result: usize,
    /// What it makes.
    pub(crate) out: Slot,
    /// The dimensions of the value, those over lines first, in the order of the function.
    pub(crate) dims: SmallVec<[usize; 4]>,
}

/// What is taken, or put, at places known at run time.
#[derive(Clone, Debug)]
pub(crate) struct Seek {
    /// What it makes.
    pub(crate) out: Slot,
    /// How many loops.
    pub(crate) n: usize,
    /// How many of them the result has.
    pub(crate) rank: usize,
    /// Their sizes.
    pub(crate) ext: Ix,
    /// What is read; each is one map of one value, or the number from which a put begins.
    pub(crate) reads: Vec<Operand>,
    /// Loops that have one step.
    pub(crate) at: Vec<Bound>,
    /// What is added to each of their numbers where it is negative.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) back: Ix,
    /// Of a put: how it is combined with what was there.
    pub(crate) put: Option<Option<Combine>>,
    /// The parts of the result.
    pub(crate) parts: Vec<SeekPart>,
    /// What is taken where another part has the element.
    pub(crate) neutral: Scalar,
}

/// A part of what is taken or put.
#[derive(Clone, Debug)]
pub(crate) struct SeekPart {
    /// Boxes of loops: of a take the steps that it has (none: all); of a put those that it makes, one after the other.
    pub(crate) boxes: Vec<RankBox>,
    /// How far ahead, in elements, its parts of reads 0 and 1 are.
    pub(crate) ahead: [i64; 2],
}

impl Seek {
    /// The value from which a put begins, if the result may be in its place: nothing else that it reads is there.
    pub(crate) fn over(&self, flow: &Flow<'_>) -> Option<Slot> {
        self.put?;
        let root = |o: &Operand| match &o.pieces[..] {
            [Piece { from: Source::Value(v), .. }] => Some(flow.root(*v)),
            _ => None,
        };
        let was = root(&self.reads[0])?;
        self.reads[1..].iter().all(|o| root(o) != Some(was)).then_some(was)
    }
}

/// A part of a read that steps over loops: copied by itself.
#[derive(Clone, Debug)]
pub(crate) struct PackPart {
    /// What is copied.
    pub(crate) from: Source,
    /// Steps.
    pub(crate) ext: Ix,
    /// First element read, and elements a step.
    pub(crate) src: (i64, Ix),
    /// First element written, and elements a step.
    pub(crate) dst: (i64, Ix),
}

/// A loop of known length. Pairs are of the outer and the inner slot.
#[derive(Clone, Debug)]
pub(crate) struct LoopItem<'p> {
    /// What runs.
    pub(crate) body: Box<Flow<'p>>,
    /// The inner slot of the step's number.
    pub(crate) step: Slot,
    /// The first number.
    pub(crate) start: i64,
    /// How many steps.
    pub(crate) length: usize,
    /// From last to first.
    pub(crate) reverse: bool,
    /// The same at every step.
    pub(crate) fixed: Vec<(Slot, Slot)>,
    /// Carries.
    pub(crate) carry: Vec<Carry>,
    /// Sliced.
    pub(crate) xs: Vec<(Slot, Slot)>,
    /// Stacked.
    pub(crate) ys: Vec<(Slot, Slot)>,
}

/// A value that goes from step to step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carry {
    /// The first one, outside.
    pub(crate) first: Slot,
    /// What a step reads.
    pub(crate) from: Slot,
    /// What a step makes.
    pub(crate) to: Slot,
    /// The last one, outside.
    pub(crate) last: Slot,
}

/// A loop while a condition holds.
#[derive(Clone, Debug)]
pub(crate) struct WhileItem<'p> {
    /// The condition.
    pub(crate) cond: Box<Flow<'p>>,
    /// The body.
    pub(crate) body: Box<Flow<'p>>,
    /// The same at every step, of the condition.
    pub(crate) cond_fixed: Vec<(Slot, Slot)>,
    /// The condition's inner slots of the carries.
    pub(crate) cond_carry: Vec<Slot>,
    /// The same at every step, of the body.
    pub(crate) body_fixed: Vec<(Slot, Slot)>,
    /// Carries of the body.
    pub(crate) carry: Vec<Carry>,
}

/// One of several programs.
#[derive(Clone, Debug)]
pub(crate) struct BranchItem<'p> {
    /// Which.
    pub(crate) which: Slot,
    /// The programs.
    pub(crate) arms: Vec<Flow<'p>>,
    /// What they read, outside.
    pub(crate) ins: Vec<Slot>,
    /// What they make, outside.
    pub(crate) outs: Vec<Slot>,
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Item<'p> {
    /// Elementwise.
    Map(Map<'p>),
    /// A fold or product.
    Fold(Fold<'p>),
    /// Whole lines.
    Lines(LinesItem),
    /// Taken or put at places known at run time.
    Seek(Seek),
    /// A read that steps, as a value.
    Pack { out: Slot, fill: Scalar, parts: Vec<PackPart> },
    /// Control.
    Loop(LoopItem<'p>),
    /// Control.
    While(WhileItem<'p>),
    /// Control.
    Branch(BranchItem<'p>),
    /// Prints.
    Print {
        template: &'p str,
        /// Where the values are, and what they are.
        values: Vec<(Slot, &'p Printed)>,
        /// The manual axes.
        manual: &'p Axes,
        mesh: Option<&'p Mesh>,
    },
}

impl<'p> Item<'p> {
    /// The flows inside it.
    pub(crate) fn flows(&self) -> Vec<&Flow<'p>> {
        match self {
            Item::Loop(l) => vec![&l.body],
            Item::While(w) => vec![&w.cond, &w.body],
            Item::Branch(b) => b.arms.iter().collect(),
            Item::Map(_)
            | Item::Fold(_)
            | Item::Lines(_)
            | Item::Seek(_)
            | Item::Pack { .. }
            | Item::Print { .. } => Vec::new(),
        }
    }
    /// What it reads, each once.
    pub(crate) fn sources(&self) -> SmallVec<[Slot; 4]> {
        let mut v: SmallVec<[Slot; 4]> = SmallVec::new();
        let reads = |v: &mut SmallVec<[Slot; 4]>, reads: &[Operand]| {
            for p in reads.iter().flat_map(|r| &r.pieces) {
                if let Source::Value(s) = p.from
                    && !v.contains(&s)
                {
                    v.push(s);
                }
            }
        };
        match self {
            Item::Map(m) => reads(&mut v, &m.reads),
            Item::Fold(f) => reads(&mut v, &f.reads),
            Item::Lines(l) => reads(&mut v, &l.reads),
            Item::Seek(s) => reads(&mut v, &s.reads),
            Item::Pack { parts, .. } => {
                v.extend(
                    parts.iter().filter_map(|p| if let Source::Value(s) = p.from { Some(s) } else { None }),
                );
            }
            Item::Loop(l) => {
                v.extend(l.fixed.iter().chain(&l.xs).map(|p| p.0).chain(l.carry.iter().map(|c| c.first)));
            }
            Item::While(w) => {
                v.extend(w.cond_fixed.iter().chain(&w.body_fixed).map(|p| p.0));
                v.extend(w.carry.iter().map(|c| c.first));
            }
            Item::Branch(b) => {
                v.push(b.which);
                v.extend(b.ins.iter().copied());
            }
            Item::Print { values, .. } => v.extend(values.iter().map(|v| v.0)),
        }
        if v.len() > 1 && !matches!(self, Item::Map(_) | Item::Fold(_) | Item::Seek(_)) {
            sorted::sort(&mut v);
            v.dedup();
        }
        v
    }
    /// What it makes.
    pub(crate) fn results(&self) -> SmallVec<[Slot; 2]> {
        match self {
            Item::Map(Map { out, .. })
            | Item::Fold(Fold { out, .. })
            | Item::Seek(Seek { out, .. })
            | Item::Pack { out, .. } => SmallVec::from_slice(&[*out]),
            Item::Lines(l) => l.outs.iter().map(|o| o.out).collect(),
            Item::Loop(l) => l.carry.iter().map(|c| c.last).chain(l.ys.iter().map(|y| y.1)).collect(),
            Item::While(w) => w.carry.iter().map(|c| c.last).collect(),
            Item::Branch(b) => b.outs.iter().copied().collect(),
            Item::Print { .. } => SmallVec::new(),
        }
    }
    /// Whether it prints, in itself or in a nested program.
    pub(crate) fn prints(&self) -> bool {
        let inside = |f: &Flow| f.items.iter().any(Item::prints);
        match self {
            Item::Print { .. } => true,
            Item::Loop(l) => inside(&l.body),
            Item::While(w) => inside(&w.cond) || inside(&w.body),
            Item::Branch(b) => b.arms.iter().any(inside),
            _ => false,
        }
    }
}

/// Who wants a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Uses {
    /// How many items read it.
    pub(crate) readers: u32,
    /// Whether it is a result.
    pub(crate) result: bool,
}

impl Uses {
    /// Nobody does.
    pub(crate) const NONE: Uses = Uses { readers: 0, result: false };
    /// Just one item does.
    pub(crate) const ONCE: Uses = Uses { readers: 1, result: false };
}

/// A program as items.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow<'p> {
    /// All values: the program's slots, then those that were added.
    pub(crate) values: Vec<Value<'p>>,
    /// The steps, in order.
    pub(crate) items: Vec<Item<'p>>,
    /// Inputs.
    pub(crate) ins: Vec<Slot>,
    /// Results.
    pub(crate) outs: Vec<Slot>,
    /// Who wants each value.
    pub(crate) uses: Vec<Uses>,
}

impl Flow<'_> {
    /// The value whose memory s shares.
    pub(crate) fn root(&self, mut s: Slot) -> Slot {
        while let Some(a) = self.values[s].alias {
            s = a;
        }
        s
    }
    pub(crate) fn count(&mut self) {
        let mut uses = vec![Uses::NONE; self.values.len()];
        for i in &self.items {
            for s in i.sources() {
                uses[self.root(s)].readers += 1;
            }
        }
        for o in &self.outs {
            uses[self.root(*o)].result = true;
        }
        self.uses = uses;
    }
    /// Gives every result a value of its own, made by an item: control writes results where it wants them.
    pub(crate) fn distinct_outs(&mut self, strides: &Strides<'_>) {
        let made: std::collections::HashSet<Slot> = self.items.iter().flat_map(Item::results).collect();
        for k in 0..self.outs.len() {
            let (o, root) = (self.outs[k], self.root(self.outs[k]));
            if made.contains(&root) && !self.outs[..k].contains(&root) {
                self.outs[k] = root;
                continue;
            }
            let v = self.values[o].clone();
            let (n, ext) = (v.shape.rank(), extents(&v.shape));
            let mut p = Piece { st: v.strides, ..Piece::over(Source::Value(o), &ext, n) };
            for d in 0..n {
                p.along[d] = d as u8;
            }
            let new = self.values.len();
            let dtype = v.dtype;
            let strides = strides(new, &v.shape);
            self.values.push(Value { alias: None, strides, ..v });
            let read = Operand { dtype, fill: Scalar::zero(dtype), pieces: smallvec![p] };
            let code = Cow::Owned(Code::copy(dtype));
            self.items.push(Item::Map(Map { out: new, n, ext, reads: vec![read], code, lead: 0 }));
            self.outs[k] = new;
        }
        self.count();
    }
}
