//! Pass 1, from a per-device program to a flow: which step becomes which items.
//!
//! Reads are in `read`, sums and products in `fold`, takes and puts in `seek`, nested programs in `control`.

mod control;
mod fold;
mod lines;
mod read;
mod seek;

use super::flow::{Flow, Item, Map, Operand, Strides, Uses, Value};
use super::index::{extents, fits};
use super::turn::turn_products;
use crate::diagnostic::Result;
use crate::mesh::Mesh;
use crate::partition::{DimLayout, Slot, SpmdProgram, Step};
use crate::program::sentence::{Arg, Body, Code, Combine, Fun, Inst, Sentence, Source};
use crate::types::{DType, Scalar, Shape};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Builds a flow.
struct Building<'p, 's> {
    flow: Flow<'p>,
    strides: &'s Strides<'s>,
    mesh: Option<&'p Mesh>,
    /// Readers among the program's steps.
    readers: Vec<u32>,
    /// Which item makes a value.
    maker: Vec<u32>,
    /// The same value in a wider type, for those that were narrowed at the end.
    wide: Vec<(Slot, Slot)>,
}

/// The items of a program.
pub(crate) fn build<'p>(p: &'p SpmdProgram, strides: &Strides<'_>) -> Result<Flow<'p>> {
    let mut b = Building {
        flow: Flow { values: Vec::with_capacity(p.slots.len()), ..Flow::default() },
        strides,
        mesh: p.mesh.as_ref(),
        readers: vec![0; p.slots.len()],
        maker: vec![u32::MAX; p.slots.len()],
        wide: Vec::new(),
    };
    b.slots(p)?;
    for s in &p.steps {
        b.count(s, 0);
    }
    for o in &p.outs {
        b.readers[*o] += 1;
    }
    b.flow.ins = p.ins.clone();
    b.flow.outs = p.outs.clone();
    for s in &p.steps {
        b.step(s, 0)?;
    }
    b.finish();
    Ok(b.flow)
}

impl<'p> Building<'p, '_> {
    fn slots(&mut self, p: &'p SpmdProgram) -> Result<()> {
        let first = self.flow.values.len();
        for s in &p.slots {
            let parts = match &s.layout.partial {
                Some((_, atoms)) => DimLayout { atoms: atoms.clone(), block: 1, origin: 0 },
                None => DimLayout { atoms: SmallVec::new(), block: 1, origin: 0 },
            };
            let k = self.value(s.dtype.storage(), s.shape.clone(), parts)?;
            self.flow.values[k].layout = Some(&s.layout);
        }
        for (step, why) in p.steps.iter().zip(&p.whys) {
            let combines = matches!(step, Step::Reduce { .. });
            step.outputs().iter().for_each(|s| self.flow.values[first + s].step = Some((why, combines)));
        }
        Ok(())
    }
    fn value(&mut self, dtype: DType, shape: Shape, parts: DimLayout) -> Result<Slot> {
        let copies = parts.ways();
        let shape =
            if copies > 1 { std::iter::once(copies).chain(shape.iter().copied()).collect() } else { shape };
        fits(shape.rank())?;
        let k = self.flow.values.len();
        let strides = (self.strides)(k, &shape);
        self.flow.values.push(Value {
            dtype,
            shape,
            copies,
            parts,
            strides,
            alias: None,
            layout: None,
            step: None,
        });
        if self.readers.len() <= k {
            self.readers.resize(k + 1, 0);
            self.maker.resize(k + 1, u32::MAX);
        }
        Ok(k)
    }
    fn push(&mut self, item: Item<'p>) {
        for r in item.results() {
            self.maker[r] = self.flow.items.len() as u32;
        }
        self.flow.items.push(item);
    }
    /// Readers, to know what may be fused. `at`: the first slot of the program that the step belongs to.
    fn count(&mut self, step: &Step, at: Slot) {
        let mut one = |s: Slot| self.readers[at + s] += 1;
        match step {
            Step::Fetch { .. } => {}
            Step::Local { sentence, .. } => {
                let mut seen: SmallVec<[Slot; 4]> = SmallVec::new();
                for p in sentence.reads.iter().flat_map(|r| &r.parts) {
                    if let Source::Value(s) = p.from
                        && !seen.contains(&s)
                    {
                        seen.push(s);
                        one(s);
                    }
                }
            }
            Step::Reduce { src, .. } => one(*src),
            Step::Loop { fixed, carry, xs, .. } => fixed.iter().chain(carry).chain(xs).for_each(|s| one(*s)),
            Step::While { cond_fixed, body_fixed, carry, .. } => {
                cond_fixed.iter().chain(body_fixed).chain(carry).for_each(|s| one(*s));
            }
            Step::Branch { which, ins, .. } => {
                one(*which);
                ins.iter().for_each(|s| one(*s));
            }
            Step::Print { values, .. } => values.iter().for_each(|v| one(v.slot)),
        }
    }
    fn step(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        match step {
            Step::Fetch { .. } => Ok(()),
            Step::Local { out, sentence, layout } => self.local(*out + at, sentence, layout, at),
            Step::Reduce { src, out, combine } => self.reduce(*src + at, *out + at, *combine),
            Step::Loop { .. } => self.enter_loop(step, at),
            Step::While { .. } => self.enter_while(step, at),
            Step::Branch { .. } => self.enter_branch(step, at),
            Step::Print { template, values, manual } => {
                let values = values.iter().map(|v| (v.slot + at, v)).collect();
                self.push(Item::Print { template, values, manual, mesh: self.mesh });
                Ok(())
            }
        }
    }
    fn local(&mut self, out: Slot, s: &'p Sentence, layout: &[DimLayout], at: Slot) -> Result<()> {
        match &s.body {
            Body::Reshape => {
                let Some(Source::Value(src)) = s.reads.first().and_then(|r| r.parts.first()).map(|p| p.from)
                else {
                    // nothing is read: an empty value, or a constant
                    return self.map(out, s, Cow::Owned(Code::copy(s.dtype)), at);
                };
                self.flow.values[out].alias = Some(src + at);
                Ok(())
            }
            Body::Map(code) => self.map(out, s, Cow::Borrowed(code), at),
            Body::Fold { combine, code } => {
                let narrow = matches!(s.dtype, DType::F16 | DType::BF16);
                let rounds = narrow && matches!(combine, Combine::Add | Combine::Mul);
                let (dtype, code) = if rounds {
                    let mut code = code.clone();
                    let last = Arg::Inst(code.insts.len() - 1);
                    code.push(Fun::Convert, s.dtype, DType::F32, &[last]);
                    (DType::F32, Cow::Owned(code))
                } else {
                    (s.dtype, Cow::Borrowed(code))
                };
                self.fold(out, s, layout, Some((*combine, code)), dtype, at)
            }
            Body::Take { at: bound } => self.seek(out, s, layout, (bound, None), at),
            Body::Put { at: bound, combine } => self.seek(out, s, layout, (bound, Some(*combine)), at),
            Body::Product { accumulate } => {
                let dtype = match accumulate {
                    DType::F16 | DType::BF16 => DType::F32,
                    DType::Bool => DType::U8,
                    d => *d,
                };
                self.fold(out, s, layout, None, dtype, at)
            }
            Body::Lines(l) => self.lines(out, s, l, at),
        }
    }
    fn map(&mut self, out: Slot, s: &'p Sentence, code: Cow<'p, Code>, at: Slot) -> Result<()> {
        let v = &self.flow.values[out];
        let lead = usize::from(v.copies > 1);
        let (n, ext) = (v.shape.rank(), extents(&v.shape));
        let mut reads = Vec::with_capacity(s.reads.len());
        for r in &s.reads {
            reads.push(self.operand(r, &ext, n, lead, Some(out), at)?);
        }
        let map = Map { out, n, ext, reads, code, lead };
        match self.copied(&map) {
            Some(src) => self.flow.values[out].alias = Some(src),
            None => self.push(Item::Map(map)),
        }
        Ok(())
    }
    /// The value that a map copies as it is: what gathers replicas, say, or multiplies by a cotangent of 1. Both are one in shared memory.
    fn copied(&self, m: &Map<'_>) -> Option<Slot> {
        let [inst] = &m.code.insts[..] else { return None };
        let read = match (inst.fun, &m.reads[..], &inst.args[..]) {
            (Fun::Copy, [read], [Arg::Read(0)]) => read,
            (Fun::Mul, [a, b], [Arg::Read(0), Arg::Read(1)]) if self.ones(a, m) => b,
            (Fun::Mul, [a, b], [Arg::Read(0), Arg::Read(1)]) if self.ones(b, m) => a,
            _ => return None,
        };
        self.in_step(read, m).filter(|s| self.flow.values[*s].dtype == self.flow.values[m.out].dtype)
    }
    /// The value that a map reads in step with what it makes: element by element.
    fn in_step(&self, read: &Operand, m: &Map<'_>) -> Option<Slot> {
        let [p] = &read.pieces[..] else { return None };
        let Source::Value(s) = p.from else { return None };
        let fits = self.alike(s, m.out)
            && p.off == 0
            && p.st == self.flow.values[s].strides
            && p.covers(&m.ext, m.n);
        fits.then_some(s)
    }
    /// Whether a map reads 1 everywhere, as a float of those that are multiplied by it as they are.
    fn ones(&self, read: &Operand, m: &Map<'_>) -> bool {
        matches!(read.dtype, DType::F32 | DType::F64) && self.number(read, m) == Some(Scalar::one(read.dtype))
    }
    /// The number that a map reads everywhere.
    fn number(&self, read: &Operand, m: &Map<'_>) -> Option<Scalar> {
        let [p] = &read.pieces[..] else { return None };
        if !p.covers(&m.ext, m.n) {
            return None;
        }
        match p.from {
            Source::Const(c) => Some(c),
            Source::Value(s) => {
                let by = self.map_of(s)?;
                let [Inst { fun: Fun::Copy, args, .. }] = &by.code.insts[..] else { return None };
                match (&args[..], &by.reads[..]) {
                    _ if self.flow.values[s].copies != 1 => None,
                    ([Arg::Const(c)], _) => Some(*c),
                    ([Arg::Read(0)], [of]) => self.number(of, by),
                    _ => None,
                }
            }
        }
    }
    /// The map that makes a value.
    fn map_of(&self, s: Slot) -> Option<&Map<'p>> {
        match self.flow.items.get(*self.maker.get(self.flow.root(s))? as usize)? {
            Item::Map(m) => Some(m),
            _ => None,
        }
    }
    /// Whether two values have one shape, and none is partial.
    fn alike(&self, a: Slot, b: Slot) -> bool {
        let (a, b) = (&self.flow.values[a], &self.flow.values[b]);
        a.shape == b.shape && a.strides == b.strides && a.copies == 1 && b.copies == 1
    }

    /// Drops what nobody reads, and counts readers.
    fn finish(&mut self) {
        let f = &mut self.flow;
        f.count();
        let mut keep = vec![true; f.items.len()];
        for (k, item) in f.items.iter().enumerate().rev() {
            let dead =
                item.results().iter().all(|r| f.uses[f.root(*r)] == Uses::NONE && f.uses[*r] == Uses::NONE);
            if dead && !item.prints() {
                keep[k] = false;
                for s in item.sources() {
                    let root = f.root(s);
                    f.uses[root].readers -= 1;
                }
            }
        }
        let mut k = 0;
        f.items.retain(|_| {
            k += 1;
            keep[k - 1]
        });
        turn_products(f, self.strides);
    }
}
