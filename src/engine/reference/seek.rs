//! Takes and puts by definition.

use super::value::Value;
use super::{Reader, over, ravel, scalar};
use crate::program::sentence::{Bound, Combine, Sentence};
use crate::types::Scalar;

/// The loop that a number binds, its step at this index of the others, and whether anything is there.
fn found(b: &Bound, s: &Sentence, index: &[i64], reader: &Reader) -> (usize, i64, bool) {
    let number = reader.read(&s.reads[b.by], index).to_i128().clamp(i64::MIN.into(), i64::MAX.into());
    let (step, is) = b.step(number as i64, b.window.map_or(0, |w| index[w]));
    (b.index, step, is)
}

/// The element taken at this index of the result; `None` where another part has it. `ranges` are a part's own steps of the bound loops.
pub(super) fn take(
    s: &Sentence,
    at: &[Bound],
    ranges: &[(i64, i64)],
    index: &[i64],
    reader: &Reader,
) -> Option<Scalar> {
    let mut index = index.to_vec();
    let mut there = true;
    for b in at {
        let (l, step, is) = found(b, s, &index, reader);
        let (lo, hi) = ranges[l - s.rank];
        // the part that has the nearest step gives the fill; where there are no steps the first one does
        let own = if b.most < 0 { lo == 0 } else { (lo..hi).contains(&step) };
        if !own {
            return None;
        }
        (index[l], there) = (step, there && is);
    }
    Some(if there { reader.read(&s.reads[0], &index) } else { s.reads[0].fill })
}

/// What was there, with the updates of these steps of the loops beyond the rank put where they belong.
pub(super) fn put(
    s: &Sentence,
    (at, combine): (&[Bound], Option<Combine>),
    ranges: &[(i64, i64)],
    reader: &Reader,
    made: &mut Value,
) {
    let shape = &s.extents[..s.rank];
    let all = |d: usize| if d < s.rank { (0, s.extents[d] as i64) } else { (0, 1) };
    let mut result: Vec<Scalar> = Vec::new();
    let mut index = vec![0i64; s.extents.len()];
    over(&mut index, 0, s.rank, &all, &mut |i| result.push(reader.read(&s.reads[0], i)));
    let steps = |d: usize| match d.checked_sub(s.rank) {
        Some(k) => ranges[k],
        None if s.binds(d) => (0, 1),
        None => all(d),
    };
    let mut index = vec![0i64; s.extents.len()];
    over(&mut index, 0, s.extents.len(), &steps, &mut |i| {
        let (mut place, mut there) = (i.to_vec(), true);
        for b in at {
            let (l, step, is) = found(b, s, i, reader);
            (place[l], there) = (step, there && is);
        }
        if there {
            let k = ravel(place[..s.rank].iter().map(|x| *x as usize), shape);
            let x = reader.read(&s.reads[1], i);
            result[k] = combine.map_or(x, |c| scalar::combined(c, s.dtype, result[k], x));
        }
    });
    result.into_iter().for_each(|x| made.push(scalar::cut(x, s.dtype.storage())));
}
