//! What must hold of every per-device program; checked in debug builds.

use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, SpmdProgram, Step, Stored};
use crate::partition::reads::{part_boxes, within};
use crate::partition::region::{Region, beyond, full};
use crate::program::sentence::{Body, Read, Sentence, Source};
use crate::sharding::atoms::{Atom, Atoms, sorted, without};

/// The first thing that is wrong with a program, if anything is.
pub(crate) fn check(p: &SpmdProgram) -> Result<(), String> {
    if p.steps.len() != p.whys.len() {
        return Err("each step has its origin".into());
    }
    for (s, stored) in p.slots.iter().enumerate() {
        layout(&stored.layout, &stored.shape).map_err(|e| format!("slot {s}: {e}"))?;
    }
    let mut made = vec![false; p.slots.len()];
    p.ins.iter().for_each(|s| made[*s] = true);
    let devices = some(p.devices);
    // what each of these devices has fetched of each value
    let mut fetched: Vec<Vec<Vec<Region>>> = vec![vec![Vec::new(); devices.len()]; p.slots.len()];
    for (k, step) in p.steps.iter().enumerate() {
        let at = |e: String| format!("step {k} ({}): {e}", p.whys[k].op);
        if let Some(s) = step.inputs().into_iter().find(|s| !made[*s]) {
            return Err(at(format!("slot {s} is read before it is made")));
        }
        for s in step.outputs() {
            if std::mem::replace(&mut made[s], true) {
                return Err(at(format!("slot {s} is made twice")));
            }
        }
        match step {
            Step::Fetch { src, needs } => {
                for n in needs {
                    let sentence = p.steps.get(n.reader).and_then(Step::sentence);
                    let read = sentence.and_then(|s| s.reads.get(n.read));
                    let reads = read.is_some_and(|r| r.sources().contains(src));
                    if n.reader <= k || !reads {
                        return Err(at(format!("step {} does not read slot {src}", n.reader)));
                    }
                }
                for (have, device) in fetched[*src].iter_mut().zip(&devices) {
                    have.extend(p.missing(*src, needs, *device));
                }
            }
            Step::Local { out, sentence, layout } => {
                local(p, *out, sentence, layout).map_err(at)?;
                held(p, k, sentence, &fetched).map_err(at)?;
            }
            Step::Reduce { src, out, .. } => {
                let (from, to) = (parts(&p.slots[*src]), parts(&p.slots[*out]));
                if from.is_empty() || without(&from, &to).is_none_or(|gone| gone.is_empty()) {
                    return Err(at(format!("parts over {from:?} do not become parts over {to:?}")));
                }
            }
            Step::Loop { body, fixed, carry, xs, out, ys, length, .. } => {
                let n = 1 + fixed.len() + carry.len() + xs.len();
                if body.ins.len() != n || body.outs.len() != out.len() + ys.len() || out.len() != carry.len()
                {
                    return Err(at("the body has other inputs or results".into()));
                }
                let plain: Vec<Slot> = fixed.iter().chain(carry).copied().collect();
                same(p, &plain, body, &body.ins[1..1 + plain.len()]).map_err(at)?;
                same(p, out, body, &body.outs[..out.len()]).map_err(at)?;
                same(p, carry, body, &body.outs[..out.len()]).map_err(at)?;
                let slices =
                    xs.iter().zip(&body.ins[1 + plain.len()..]).chain(ys.iter().zip(&body.outs[out.len()..]));
                for (whole, slice) in slices {
                    let (w, s) = (&p.slots[*whole], &body.slots[*slice]);
                    let (first, rest) = (w.layout.dims.first(), w.layout.dims.get(1..));
                    if w.shape.first() != Some(length)
                        || w.shape[1..] != s.shape[..]
                        || first.is_none_or(|l| !l.atoms.is_empty())
                        || rest != Some(&s.layout.dims[..])
                    {
                        return Err(at(format!("slot {whole} is not a stack of what the body has")));
                    }
                }
            }
            Step::While { cond, body, cond_fixed, body_fixed, carry, out } => {
                let all = |fixed: &[Slot]| [fixed, carry].concat();
                same(p, &all(cond_fixed), cond, &cond.ins).map_err(at)?;
                same(p, &all(body_fixed), body, &body.ins).map_err(at)?;
                same(p, carry, body, &body.outs).map_err(at)?;
                same(p, out, body, &body.outs).map_err(at)?;
            }
            Step::Branch { branches, ins, out, .. } => {
                for b in branches {
                    same(p, ins, b, &b.ins).map_err(at)?;
                    same(p, out, b, &b.outs).map_err(at)?;
                }
            }
            Step::Print { .. } => {}
        }
    }
    match p.outs.iter().find(|s| !made[**s]) {
        Some(s) => Err(format!("the result, slot {s}, is not made")),
        None => Ok(()),
    }
}

fn parts(s: &Stored) -> Atoms {
    s.layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default()
}

/// Digits of one layout are independent.
fn independent(atoms: &[Atom]) -> Result<(), String> {
    match atoms.iter().enumerate().find(|(i, a)| atoms[..*i].iter().any(|b| a.clashes(*b))) {
        Some((_, a)) => Err(format!("the digit {a:?} is used twice in one layout")),
        None => Ok(()),
    }
}

fn layout(l: &Layout, shape: &[usize]) -> Result<(), String> {
    if l.dims.len() != shape.len() {
        return Err(format!("{} dimensions are laid out of {}", l.dims.len(), shape.len()));
    }
    let digits = l.dims.iter().flat_map(|d| d.atoms.iter().copied());
    let parts = l.partial.iter().flat_map(|p| p.1.iter().copied());
    independent(&digits.chain(parts).collect::<Vec<_>>())
}

/// Values of two programs are of one kind and one placement.
fn same(p: &SpmdProgram, outer: &[Slot], body: &SpmdProgram, inner: &[Slot]) -> Result<(), String> {
    if outer.len() != inner.len() {
        return Err(format!("{} values for {}", outer.len(), inner.len()));
    }
    match outer.iter().zip(inner).find(|(a, b)| p.slots[**a] != body.slots[**b]) {
        Some((a, b)) => Err(format!("slot {a} is {:?}, inside {:?}", p.slots[*a], body.slots[*b])),
        None => Ok(()),
    }
}

/// A local step's result is placed where its loops run, and partial as its operands and folded loops are.
fn local(p: &SpmdProgram, out: Slot, s: &Sentence, loops: &[DimLayout]) -> Result<(), String> {
    let stored = &p.slots[out];
    if loops.len() != s.extents.len() || s.rank > s.extents.len() {
        return Err("not every loop is laid out".into());
    }
    if s.extents[..s.rank] != stored.shape[..] || s.dtype.storage() != stored.dtype {
        return Err(format!(
            "a {:?} of {:?} is stored as {:?} {}",
            s.dtype, s.extents, stored.dtype, stored.shape
        ));
    }
    if loops[..s.rank] != stored.layout.dims[..] {
        return Err(format!("slot {out} lies otherwise than its loops run"));
    }
    independent(&loops.iter().flat_map(|l| l.atoms.iter().copied()).collect::<Vec<_>>())?;
    seeks(p, s, loops)?;
    let mut made: Atoms = loops[s.rank..].iter().flat_map(|l| l.atoms.iter().copied()).collect();
    for (k, r) in s.reads.iter().enumerate() {
        for src in r.sources() {
            made.extend(parts(&p.slots[src]));
        }
        for part in &r.parts {
            let Source::Value(src) = part.from else { continue };
            let from = &p.slots[src];
            if part.map.len() != from.shape.rank() || part.span.len() != s.extents.len() {
                return Err(format!("read {k} has another rank than slot {src}"));
            }
            let mut boxes = Vec::new();
            part_boxes(part, &from.shape, &full(&s.extents), &mut boxes);
            let all = full(&from.shape);
            if s.body.reads_by_position() && !boxes.iter().all(|b| within(b, &all)) {
                return Err(format!("read {k} goes beyond slot {src}, {}: {part:?}", from.shape));
            }
        }
    }
    let (wanted, made) = (sorted(parts(stored)), sorted(made));
    if made != wanted {
        return Err(format!("slot {out} is partial over {wanted:?}, but made in {made:?}"));
    }
    Ok(())
}

/// What takes and puts read is whole where it must be.
fn seeks(p: &SpmdProgram, s: &Sentence, loops: &[DimLayout]) -> Result<(), String> {
    for (k, r) in s.reads.iter().enumerate().filter(|(k, _)| !s.takes_parts(*k)) {
        if let Some(src) = r.sources().into_iter().find(|src| p.slots[*src].layout.partial.is_some()) {
            return Err(format!("read {k} is of slot {src}, which is partial"));
        }
    }
    let Body::Put { combine, .. } = s.body else { return Ok(()) };
    let split = loops[s.rank..].iter().any(|l| !l.atoms.is_empty());
    let neutral = combine.map(|c| c.neutral(s.dtype));
    if split && (neutral.is_none() || s.everywhere(0) != neutral) {
        return Err("updates are split, and are put over what was there".into());
    }
    Ok(())
}

/// The devices that are looked at.
fn some(n: usize) -> Vec<usize> {
    let mut devices = vec![0, 1 % n.max(1), n / 2, n.saturating_sub(1)];
    devices.dedup();
    devices
}

/// On some devices: all that a local step reads is held, or was fetched before.
fn held(p: &SpmdProgram, k: usize, s: &Sentence, fetched: &[Vec<Vec<Region>>]) -> Result<(), String> {
    for (d, device) in some(p.devices).into_iter().enumerate() {
        for src in s.reads.iter().flat_map(Read::sources) {
            let stored = &p.slots[src];
            let mut here = vec![stored.layout.region(&stored.shape, device)];
            here.extend(fetched[src][d].iter().cloned());
            if let Some(b) = beyond(p.needs(k, src, device), &mut here).first() {
                let loops = p.loops(k, device).unwrap_or_default();
                return Err(format!(
                    "device {device} does not hold {b:?} of slot {src}, which loops {loops:?} read"
                ));
            }
        }
    }
    Ok(())
}
