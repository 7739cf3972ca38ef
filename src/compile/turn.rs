//! Products that are only read transposed are made that way.
//!
//! The gradient of a product is a product and a transposition. Where one map alone reads a product, with its dimensions in another
//! order, the product's loops are renamed: what reads it then runs on its tiles, and nothing goes through memory against the grain.

use super::flow::{Flow, Item, Map, Operand, Piece, Strides, Uses, Value};
use super::index::{MAX, extents};
use crate::partition::Slot;
use crate::program::sentence::{Arg, Fun, Source};
use crate::types::{Scalar, Shape};
use smallvec::smallvec;

/// Turns such products of a flow, whose uses are counted.
pub(crate) fn turn_products(flow: &mut Flow<'_>, strides: &Strides<'_>) {
    let mut made = vec![None; flow.values.len()];
    for (k, item) in flow.items.iter().enumerate() {
        if let Item::Fold(f) = item
            && f.code.is_none()
        {
            made[f.out] = Some(k);
        }
    }
    let mut gone = vec![false; flow.items.len()];
    for (k, gone) in gone.iter_mut().enumerate() {
        for s in flow.items[k].sources() {
            let Some(maker) = made.get(s).copied().flatten() else { continue };
            let Item::Map(m) = &flow.items[k] else { continue };
            let Some(to) = turned(flow, m, s) else { continue };
            let out = m.out;
            let target = if copies(flow, m) { out } else { turned_value(flow, s, &to, m.n, strides) };
            if let Item::Fold(f) = &mut flow.items[maker] {
                f.rename(&to);
                f.out = target;
            }
            if target == out {
                (*gone, made[out]) = (true, Some(maker));
                break;
            }
            let read = whole(&flow.values[target], target);
            if let Item::Map(m) = &mut flow.items[k] {
                for r in m.reads.iter_mut().filter(|r| reads(r, s)) {
                    *r = read.clone();
                }
            }
        }
    }
    let mut gone = gone.into_iter();
    flow.items.retain(|_| gone.next() != Some(true));
}

fn reads(o: &Operand, s: Slot) -> bool {
    o.pieces.iter().any(|p| p.from == Source::Value(s))
}

/// The loop of each dimension of s, if this map is all that reads it, and reads it in another order.
fn turned(flow: &Flow<'_>, m: &Map<'_>, s: Slot) -> Option<[u8; MAX]> {
    let v = &flow.values[s];
    if flow.root(s) != s || flow.uses[s] != Uses::ONCE || v.copies > 1 {
        return None;
    }
    let mut pieces = m.reads.iter().filter(|r| reads(r, s)).flat_map(|r| &r.pieces);
    let to = pieces.clone().next()?.permutation(m.n)?;
    let whole = |p: &Piece| p.from == Source::Value(s) && p.covers(&m.ext, m.n);
    (pieces.all(|p| whole(p) && p.permutation(m.n) == Some(to)) && (0..m.n).any(|d| to[d] as usize != d))
        .then_some(to)
}

/// Whether a map is a copy that keeps the type, of a value that is not partial.
fn copies(flow: &Flow<'_>, m: &Map<'_>) -> bool {
    let ([r], [inst]) = (&m.reads[..], &m.code.insts[..]) else { return false };
    let v = &flow.values[m.out];
    inst.fun == Fun::Copy
        && inst.args[..] == [Arg::Read(0)]
        && r.dtype == v.dtype
        && v.copies == 1
        && v.alias.is_none()
}

/// A new value: s with dimension d in place `to[d]`.
fn turned_value(flow: &mut Flow<'_>, s: Slot, to: &[u8; MAX], n: usize, strides: &Strides<'_>) -> Slot {
    let old = &flow.values[s];
    let from = |e: usize| (0..n).find(|d| to[*d] as usize == e).map_or(1, |d| old.shape[d]);
    let shape: Shape = (0..n).map(from).collect();
    let k = flow.values.len();
    let new = Value { strides: strides(k, &shape), shape, layout: None, ..old.clone() };
    flow.values.push(new);
    flow.uses.push(Uses::ONCE);
    k
}

/// All of a value, read in place.
fn whole(v: &Value<'_>, slot: Slot) -> Operand {
    let n = v.shape.rank();
    let mut p = Piece { st: v.strides, ..Piece::over(Source::Value(slot), &extents(&v.shape), n) };
    for d in 0..n {
        p.along[d] = d as u8;
    }
    Operand { dtype: v.dtype, fill: Scalar::zero(v.dtype), pieces: smallvec![p] }
}
