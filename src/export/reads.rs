//! Reads as tensors over loops: slices, reversals, transposes, paddings and concatenations of what is read.

use super::writer::{Ssa, Writer};
use super::{Out, unsupported};
use crate::program::sentence::{Affine, Part, Read, Source, Span};
use crate::sorted;
use crate::types::{DType, Scalar};

/// More elements than this are not made on the way to what is read.
const MOST: i64 = 1 << 40;

/// Behind the last step.
fn end(s: &Span) -> i64 {
    s.lo + (s.len() - 1) * s.step + 1
}

/// The loops that a read depends on, in order: those that its positions name, and those that not all of a part covers.
pub(super) fn depends(read: &Read, extents: &[usize]) -> Vec<usize> {
    let on = |l: &usize| {
        read.parts.iter().any(|p| {
            p.span[*l] != Span::all(extents[*l]) || p.map.iter().any(|a| a.terms.iter().any(|t| t.0 == *l))
        })
    };
    (0..extents.len()).filter(on).collect()
}

/// If it reads a whole operand with one loop a dimension: which operand, and each dimension's loop.
fn stored(read: &Read, operands: &[Ssa]) -> Option<(Ssa, Vec<usize>)> {
    let [part] = &read.parts[..] else { return None };
    let Source::Value(k) = part.from else { return None };
    let x = &operands[k];
    if x.splat.is_some() {
        return None;
    }
    let of = |(a, n): (&Affine, &usize)| match a.terms[..] {
        [(l, 1)] if a.at == 0 && part.span[l] == Span::all(*n) => Some(l),
        _ => None,
    };
    let loops = part.map.iter().zip(&x.shape).map(of).collect::<Option<Vec<_>>>()?;
    let mut once = loops.clone();
    sorted::sort(&mut once);
    once.dedup();
    (once.len() == loops.len()).then(|| (x.clone(), loops))
}

impl Writer {
    /// A read over as few loops as say it, in any order: the tensor, and the loop of each of its dimensions.
    pub(super) fn slim(
        &mut self,
        read: &Read,
        extents: &[usize],
        operands: &[Ssa],
    ) -> Out<(Ssa, Vec<usize>)> {
        if let Some(found) = stored(read, operands) {
            return Ok(found);
        }
        let loops = depends(read, extents);
        Ok((self.read(read, extents, &loops, operands)?, loops))
    }
    /// A read as a tensor over these loops, which are those that it depends on and maybe others, in rising order.
    pub(super) fn read(
        &mut self,
        r: &Read,
        extents: &[usize],
        loops: &[usize],
        operands: &[Ssa],
    ) -> Out<Ssa> {
        let place = |l: usize| loops.iter().position(|m| *m == l);
        let slim = |p: &Part| Part {
            from: p.from,
            span: loops.iter().map(|l| p.span[*l]).collect(),
            map: p
                .map
                .iter()
                .map(|a| Affine {
                    at: a.at,
                    terms: a.terms.iter().filter_map(|(l, c)| Some((place(*l)?, *c))).collect(),
                })
                .collect(),
        };
        let parts: Vec<Part> =
            r.parts.iter().filter(|p| p.span.iter().all(|s| !s.is_empty())).map(slim).collect();
        let whole: Vec<(i64, i64)> = loops.iter().map(|l| (0, extents[*l] as i64)).collect();
        self.assemble(&parts.iter().collect::<Vec<_>>(), &whole, r, operands)
    }

    /// The box `bounds` of a read, from the parts that are in it.
    fn assemble(&mut self, parts: &[&Part], bounds: &[(i64, i64)], r: &Read, operands: &[Ssa]) -> Out<Ssa> {
        let shape: Vec<usize> = bounds.iter().map(|(lo, hi)| (hi - lo) as usize).collect();
        match parts {
            [] => return Ok(self.constant(r.dtype, r.fill, &shape)),
            [part] => {
                let value = self.piece(part, r, operands)?;
                return Ok(self.padded(&value, part, bounds, r.fill));
            }
            _ => {}
        }
        // an operand that stays where it is, with other parts laid over it: a mask moves nothing, where a concatenation along a
        // sharded dimension gathers
        let stays = |p: &Part| {
            let Source::Value(k) = p.from else { return None };
            let whole =
                operands[k].splat.is_none() && operands[k].shape == shape && bounds.iter().all(|b| b.0 == 0);
            let same = |(d, a): (usize, &Affine)| {
                a.terms[..] == [(d, 1)] && a.at == p.span[d].lo && p.span[d].step == 1
            };
            (whole && p.map.len() == shape.len() && p.map.iter().enumerate().all(same)).then_some(k)
        };
        if let Some(k) = parts.iter().find_map(|p| stays(p)) {
            let mut all = operands[k].clone();
            for part in parts.iter().filter(|p| stays(p) != Some(k)) {
                all = self.over(part, bounds, r, operands, &all)?;
            }
            return Ok(all);
        }
        // a cut through the box that goes through no part
        for d in 0..bounds.len() {
            let slabs = slabs(parts, d);
            if slabs.len() < 2 {
                continue;
            }
            let mut pieces = Vec::new();
            for (g, (lo, group)) in slabs.iter().enumerate() {
                let lo = if g == 0 { bounds[d].0 } else { *lo };
                let hi = slabs.get(g + 1).map_or(bounds[d].1, |next| next.0);
                let mut slab = bounds.to_vec();
                slab[d] = (lo, hi);
                pieces.push(self.assemble(group, &slab, r, operands)?);
            }
            return Ok(self.concatenate(&pieces, d));
        }
        // parts that interlock: each is laid over what was before
        let mut all = self.constant(r.dtype, r.fill, &shape);
        for part in parts {
            all = self.over(part, bounds, r, operands, &all)?;
        }
        Ok(all)
    }
    /// The part where it is, else `under`: the mask is made of positions, and joins what reads it.
    fn over(
        &mut self,
        part: &Part,
        bounds: &[(i64, i64)],
        r: &Read,
        operands: &[Ssa],
        under: &Ssa,
    ) -> Out<Ssa> {
        let value = self.piece(part, r, operands)?;
        let value = self.padded(&value, part, bounds, r.fill);
        let shape = under.shape.clone();
        let mut mask: Option<Ssa> = None;
        for (d, s) in part.span.iter().enumerate() {
            let (lo, last) = (s.lo - bounds[d].0, end(s) - bounds[d].0);
            if lo == 0 && last == shape[d] as i64 && s.step == 1 {
                continue;
            }
            let at = self.iota(d, DType::I32, &shape);
            let mut tests = vec![("GE", at.clone(), lo), ("LT", at.clone(), last)];
            tests.retain(|(op, _, n)| !(*op == "GE" && *n == 0 || *op == "LT" && *n == shape[d] as i64));
            if s.step > 1 {
                let (first, step) = (self.int(DType::I32, lo, &shape), self.int(DType::I32, s.step, &shape));
                let from = self.same("subtract", &[&at, &first]);
                tests.push(("EQ", self.same("remainder", &[&from, &step]), 0));
            }
            for (op, x, n) in tests {
                let n = self.int(DType::I32, n, &shape);
                let hit = self.compare(op, &x, &n);
                mask = Some(match mask {
                    None => hit,
                    Some(m) => self.same("and", &[&m, &hit]),
                });
            }
        }
        Ok(match mask {
            None => value,
            Some(mask) => self.select(&mask, &value, under),
        })
    }
    /// A part in a box: nothing but the fill is beside it.
    fn padded(&mut self, x: &Ssa, part: &Part, bounds: &[(i64, i64)], fill: Scalar) -> Ssa {
        let width = |(s, b): (&Span, &(i64, i64))| [s.lo - b.0, b.1 - end(s), s.step - 1];
        let widths: Vec<[i64; 3]> = part.span.iter().zip(bounds).map(width).collect();
        self.pad(x, fill, &widths)
    }

    /// One part: what it reads, over its own steps.
    fn piece(&mut self, p: &Part, r: &Read, operands: &[Ssa]) -> Out<Ssa> {
        let counts: Vec<usize> = p.span.iter().map(|s| s.len() as usize).collect();
        let mut x = match p.from {
            Source::Const(c) => return Ok(self.constant(r.dtype, c, &counts)),
            Source::Value(k) => operands[k].clone(),
        };
        if let Some(c) = x.splat.filter(|_| p.map.iter().all(|a| a.terms.len() < 2)) {
            return Ok(self.constant(r.dtype, c, &counts));
        }
        // windows first: their dimension becomes two, that of the steps in front
        let mut map: Vec<Affine> = Vec::new();
        for a in &p.map {
            match a.terms[..] {
                [_, _] => {
                    x = self.written(&[x]).swap_remove(0);
                    x = self.windows(&x, map.len(), a, &counts, r.fill)?;
                    map.push(Affine::of(0, a.terms[1].0, 1));
                    map.push(Affine::of(0, a.terms[0].0, 1));
                }
                [_] | [] => map.push(a.clone()),
                _ => return Err(unsupported("a position that depends on three loops has no StableHLO")),
            }
        }
        let (mut bounds, mut turned, mut loops) = (vec![], vec![], vec![]);
        for (d, Affine { at, terms }) in map.iter().enumerate() {
            bounds.push(match terms[..] {
                [(l, c)] => {
                    let last = at + (counts[l] as i64 - 1) * c;
                    if loops.contains(&l) {
                        return Err(unsupported("a read along a diagonal has no StableHLO"));
                    }
                    loops.push(l);
                    if c < 0 && counts[l] > 1 {
                        turned.push(d);
                    }
                    [*at.min(&last), *at.max(&last) + 1, c.abs().max(1)]
                }
                _ => [*at, *at + 1, 1],
            });
        }
        let mut value = self.slice(&x, &bounds);
        if !turned.is_empty() {
            let text = format!(
                "stablehlo.reverse {}, dims = {} : {}",
                value.name,
                super::text::list(&turned),
                value.ty()
            );
            value = self.op(text, value.dtype, &value.shape);
        }
        Ok(self.placed(&value, &loops, &counts))
    }
    /// A tensor whose dimensions are these loops, but for some of size 1, as one over all loops of these sizes.
    pub(super) fn placed(&mut self, x: &Ssa, loops: &[usize], sizes: &[usize]) -> Ssa {
        // those read at one place only drop out
        let kept: Vec<usize> = loops.iter().map(|l| sizes[*l]).collect();
        let mut sorted = loops.to_vec();
        sorted::sort(&mut sorted);
        if loops.is_sorted() && (0..sizes.len()).all(|l| loops.contains(&l) || sizes[l] == 1) {
            return self.reshape(x, sizes);
        }
        let x = self.reshape(x, &kept);
        let order: Vec<usize> = sorted.iter().filter_map(|l| loops.iter().position(|m| m == l)).collect();
        let x = self.transpose(&x, &order);
        self.broadcast(&x, &sorted, sizes)
    }
    /// Windows along dimension `d`: it becomes a dimension of the second loop's steps and one of the first loop's. What is outside
    /// is the fill.
    fn windows(&mut self, x: &Ssa, d: usize, a: &Affine, counts: &[usize], fill: Scalar) -> Out<Ssa> {
        let [(outer, stride), (inner, dilation)] = a.terms[..] else {
            return Err(unsupported("a window of other than two loops"));
        };
        let (n, m) = (counts[outer] as i64, counts[inner] as i64);
        let (far, near) = ((n - 1) * stride, (m - 1) * dilation);
        let least = a.at + far.min(0) + near.min(0);
        let most = a.at + far.max(0) + near.max(0);
        let size = x.shape[d] as i64;
        let (low, high) = ((-least).max(0), (most + 1 - size).max(0));
        if low.max(high) > MOST {
            return Err(unsupported("windows that reach so far beyond their operand are not written"));
        }
        let mut widths = vec![[0, 0, 0]; x.shape.len()];
        widths[d] = [low, high, 0];
        let x = self.pad(x, fill, &widths);
        let mut taps = Vec::new();
        for t in 0..m {
            let first = a.at + low + t * dilation;
            let last = first + (n - 1) * stride;
            let mut bounds: Vec<[i64; 3]> = x.shape.iter().map(|n| [0, *n as i64, 1]).collect();
            bounds[d] = [first.min(last), first.max(last) + 1, stride.abs().max(1)];
            let mut tap = self.slice(&x, &bounds);
            if stride < 0 && n > 1 {
                let text = format!("stablehlo.reverse {}, dims = [{d}] : {}", tap.name, tap.ty());
                tap = self.op(text, tap.dtype, &tap.shape);
            }
            let mut shape = tap.shape.clone();
            shape.insert(d, 1);
            taps.push(self.reshape(&tap, &shape));
        }
        Ok(self.concatenate(&taps, d))
    }
}

/// Parts in groups along dimension `d`, such that a cut between two groups goes through no part; where each begins.
fn slabs<'a>(parts: &[&'a Part], d: usize) -> Vec<(i64, Vec<&'a Part>)> {
    let mut order = parts.to_vec();
    sorted::sort_by_key(&mut order, |p| p.span[d].lo);
    let mut groups: Vec<(i64, i64, Vec<&Part>)> = Vec::new();
    for p in order {
        let (lo, end) = (p.span[d].lo, end(&p.span[d]));
        match groups.last_mut() {
            Some(g) if lo < g.1 => {
                g.1 = g.1.max(end);
                g.2.push(p);
            }
            _ => groups.push((lo, end, vec![p])),
        }
    }
    groups.into_iter().map(|(lo, _, parts)| (lo, parts)).collect()
}
