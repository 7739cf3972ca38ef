//! Gather and scatter, straight from their definitions.

use super::{ElementReader, for_each_index, ravel, scalar, value::ReferenceValue};
use crate::core::Scalar;
use crate::ir::program::{DynamicIndex, LoopNest, Reducer};

/// Returns the loop that a dynamic index controls, its step, and whether the index is in bounds.
/// `index` holds the steps of the other loops.
fn resolve_index(
    b: &DynamicIndex,
    s: &LoopNest,
    index: &[i64],
    reader: &ElementReader,
) -> (usize, i64, bool) {
    let number = reader.read(&s.accesses[b.operand], index).to_i128().clamp(i64::MIN.into(), i64::MAX.into());
    let (step, is) = b.resolve(number as i64, b.window.map_or(0, |w| index[w]));
    (b.loop_id, step, is)
}

/// Returns the element gathered for one index of the result.
/// Returns `None` if another partial value holds the element. `ranges` are this partial value's
/// ranges of the loops with dynamic indices.
pub(super) fn gather(
    s: &LoopNest,
    at: &[DynamicIndex],
    ranges: &[(i64, i64)],
    index: &[i64],
    reader: &ElementReader,
) -> Option<Scalar> {
    let mut index = index.to_vec();
    let mut there = true;
    for b in at {
        let (l, step, is) = resolve_index(b, s, &index, reader);
        let (lo, hi) = ranges[l - s.rank];
        // the partial value that contains the nearest step returns the fill; if there are no steps,
        // the first partial value does
        let own = if b.max_start < 0 { lo == 0 } else { (lo..hi).contains(&step) };
        if !own {
            return None;
        }
        (index[l], there) = (step, there && is);
    }
    Some(if there { reader.read(&s.accesses[0], &index) } else { s.accesses[0].fill })
}

/// Appends the base array with the updates scattered into it to `made`.
/// `ranges` are the ranges of the loops after the dimensions of the result.
pub(super) fn scatter(
    s: &LoopNest,
    (at, combine): (&[DynamicIndex], Option<Reducer>),
    ranges: &[(i64, i64)],
    reader: &ElementReader,
    made: &mut ReferenceValue,
) {
    let shape = &s.extents[..s.rank];
    let all = |d: usize| if d < s.rank { (0, s.extents[d] as i64) } else { (0, 1) };
    let mut result: Vec<Scalar> = Vec::new();
    let mut index = vec![0i64; s.extents.len()];
    for_each_index(&mut index, 0, s.rank, &all, &mut |i| result.push(reader.read(&s.accesses[0], i)));
    let steps = |d: usize| match d.checked_sub(s.rank) {
        Some(k) => ranges[k],
        None if s.is_dynamic_loop(d) => (0, 1),
        None => all(d),
    };
    let mut index = vec![0i64; s.extents.len()];
    for_each_index(&mut index, 0, s.extents.len(), &steps, &mut |i| {
        let (mut place, mut there) = (i.to_vec(), true);
        for b in at {
            let (l, step, is) = resolve_index(b, s, i, reader);
            (place[l], there) = (step, there && is);
        }
        if there {
            let k = ravel(place[..s.rank].iter().map(|x| *x as usize), shape);
            let x = reader.read(&s.accesses[1], i);
            result[k] = combine.map_or(x, |c| scalar::combine(c, s.dtype, result[k], x));
        }
    });
    result.into_iter().for_each(|x| made.push(scalar::round_to_dtype(x, s.dtype.storage())));
}
