//! Copies between memory and the lanes of a product: its lanes, and its sums.

/// Lanes at equal distances.
pub(super) struct LaneRun {
    /// The first lane.
    pub(super) lane: usize,
    /// The number of lanes.
    pub(super) len: usize,
    /// The offset of the first lane, in elements.
    pub(super) offset: isize,
    /// The elements from one lane to the next.
    pub(super) step: isize,
}

/// Splits offsets into runs at equal distances.
pub(super) fn lane_runs(offsets: &[isize]) -> Vec<LaneRun> {
    let mut all: Vec<LaneRun> = Vec::new();
    for (lane, &offset) in offsets.iter().enumerate() {
        match all.last_mut() {
            Some(r) if r.len == 1 => (r.len, r.step) = (2, offset - r.offset),
            Some(r) if offset == r.offset + r.len as isize * r.step => r.len += 1,
            _ => all.push(LaneRun { lane, len: 1, offset, step: 1 }),
        }
    }
    all
}

/// Copies `terms` terms of lanes to `to`, where a term has `width` lanes.
///
/// Lanes after the last one are 0.
///
/// # Safety
/// The terms of the lanes, at multiples of `step`, are in memory after `from`, and `to` has space
/// for them.
#[inline(always)]
pub(super) unsafe fn pack_lanes<T: Copy + Default>(
    (to, width): (*mut T, usize),
    (from, step): (*const T, isize),
    runs: &[LaneRun],
    terms: usize,
) {
    let used = runs.last().map_or(0, |r| r.lane + r.len);
    // SAFETY: all elements are in memory (caller contract).
    unsafe {
        for r in runs {
            let (to, from) = (to.add(r.lane), from.wrapping_offset(r.offset));
            if step == 1 && r.step != 1 {
                // eight lanes at a time, so that few cache lines are written to
                for l in (0..r.len).step_by(8) {
                    let each = r.len.min(l + 8) - l;
                    let at: [*const T; 8] = std::array::from_fn(|i| {
                        from.wrapping_offset((l + i.min(each - 1)) as isize * r.step)
                    });
                    let to = to.add(l);
                    let mut first = 0;
                    if size_of::<T>() == 4 && each == 8 {
                        first = terms / 4 * 4;
                        for t in (0..first).step_by(4) {
                            transpose(at.map(|p| p.add(t).cast()), to.add(t * width).cast(), width);
                        }
                    }
                    for t in first..terms {
                        let row: [T; 8] = std::array::from_fn(|i| *at[i].add(t));
                        if each == 8 {
                            to.add(t * width).cast::<[T; 8]>().write_unaligned(row);
                        } else {
                            for (i, x) in row[..each].iter().enumerate() {
                                *to.add(t * width + i) = *x;
                            }
                        }
                    }
                }
                continue;
            }
            for t in 0..terms {
                let (to, from) = (to.add(t * width), from.wrapping_offset(t as isize * step));
                match r.step {
                    1 => (0..r.len).for_each(|i| *to.add(i) = *from.add(i)),
                    2 => (0..r.len).for_each(|i| *to.add(i) = *from.add(2 * i)),
                    s => (0..r.len).for_each(|i| *to.add(i) = *from.wrapping_offset(i as isize * s)),
                }
            }
        }
        for t in 0..terms {
            (used..width).for_each(|l| *to.add(t * width + l) = T::default());
        }
    }
}

/// Copies four terms of eight lanes: term `t` of lane `l` is element `width·t + l` of the copy.
///
/// # Safety
/// Four elements are in memory at each of `lanes`, `to` has space for the copy, and the processor
/// has AVX.
#[target_feature(enable = "avx")]
#[inline]
unsafe fn transpose(lanes: [*const u32; 8], to: *mut u32, width: usize) {
    use std::arch::x86_64::*;
    // SAFETY: the elements are in memory (caller contract).
    unsafe {
        let half = |l: usize| _mm_loadu_ps(lanes[l].cast());
        let row = |l: usize| _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(half(l)), half(l + 4));
        let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        let terms = [
            _mm256_shuffle_ps::<0x44>(ab, cd),
            _mm256_shuffle_ps::<0xee>(ab, cd),
            _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
            _mm256_shuffle_ps::<0xee>(ab_high, cd_high),
        ];
        for (t, x) in terms.into_iter().enumerate() {
            _mm256_storeu_ps(to.add(t * width).cast(), x);
        }
    }
}

/// Writes sums to the result: row `r` and lane `l` is element `r·width + l` of `sums`.
///
/// # Safety
/// The sums are in memory, and all elements of the result are writable.
#[inline(always)]
pub(super) unsafe fn write_sums<T: Copy>(
    to: *mut T,
    rows: &[isize],
    lanes: &[isize],
    (sums, width): (*const T, usize),
) {
    let adjacent = |x: &[isize]| x.windows(2).filter(|p| p[1] == p[0] + 1).count();
    // SAFETY: the elements are in memory (caller contract).
    unsafe {
        if adjacent(lanes) * rows.len() >= adjacent(rows) * lanes.len() {
            for q in lane_runs(lanes) {
                for (r, at) in rows.iter().enumerate() {
                    let (to, from) = (to.wrapping_offset(at + q.offset), sums.add(r * width + q.lane));
                    match q.step {
                        1 => (0..q.len).for_each(|i| *to.add(i) = *from.add(i)),
                        s => (0..q.len).for_each(|i| *to.wrapping_offset(i as isize * s) = *from.add(i)),
                    }
                }
            }
            return;
        }
        for q in lane_runs(rows) {
            // a cache line of each lane at a time
            for from in (0..q.len).step_by(16) {
                for (l, at) in lanes.iter().enumerate() {
                    let (to, sums) = (to.wrapping_offset(at + q.offset), sums.add(q.lane * width + l));
                    for i in from..q.len.min(from + 16) {
                        *to.wrapping_offset(i as isize * q.step) = *sums.add(i * width);
                    }
                }
            }
        }
    }
}
