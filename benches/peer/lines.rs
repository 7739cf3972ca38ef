//! Times sorts and running sums of one row and of many rows, next to plain loops.

use super::{Options, time};
use atmesh::prelude::*;
use std::hint::black_box;
use std::thread::scope;

type Line = (&'static str, &'static str, &'static [usize], fn(&Array) -> Array);

const ALL: [Line; 9] = [
    ("lines/sort", "sort of 10^6 float32", &[1_000_000], |x| x.sort(0)),
    ("lines/sort_rows", "sort of 1000 lines of 1000 float32", &[1000, 1000], |x| x.sort(1)),
    ("lines/argsort", "argsort of 10^6 float32", &[1_000_000], |x| x.argsort(0)),
    ("lines/top_k", "the 10 greatest of 10^6 float32", &[1_000_000], |x| x.top_k(10, 0).0),
    ("lines/cumsum", "running sum of 2^24 float32", &[1 << 24], |x| x.cumsum(0)),
    ("lines/cumsum_back", "the same from the end", &[1 << 24], |x| x.cumsum_reverse(0)),
    ("lines/cumsum_rows", "running sums of 2^14 lines of 2^10 float32", &[1 << 14, 1 << 10], |x| x.cumsum(1)),
    ("lines/rfft_rows", "rfft of 1000 lines of 1024 float32", &[1000, 1024], |x| x.rfft(1)),
    ("lines/fft", "fft of 2^20 float32, made complex", &[1 << 20], |x| x.fft(0)),
];

/// Maps a float to an integer key with the same order.
fn key(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits >> 31 != 0 { !bits } else { bits | 1 << 31 }
}

pub(crate) fn lines(o: &Options) -> Result<()> {
    for (name, what, shape, f) in ALL {
        if o.wants(name) {
            let x = Key::new(0).normal(shape);
            let f = jit(f).engine(o.engine);
            calls!(o, name, what, f, &x)?;
        }
    }
    if o.wants("lines/sort_plain") {
        let x: Vec<f32> = Key::new(0).normal([1_000_000]).to_vec()?;
        let (mut keys, mut y) = (vec![0; x.len()], vec![0f32; x.len()]);
        time(o, "lines/sort_plain", "keys of 10^6 float32, sort_unstable, and back", || {
            keys.iter_mut().zip(&x).for_each(|(k, x)| *k = key(*x));
            keys.sort_unstable();
            let back = |k: u32| f32::from_bits(if k >> 31 != 0 { k ^ 1 << 31 } else { !k });
            y.iter_mut().zip(&keys).for_each(|(y, k)| *y = back(*k));
            black_box(&mut y);
            Ok(())
        })?;
    }
    if o.wants("lines/cumsum_plain") || o.wants("lines/copy_plain") {
        let x: Vec<f32> = Key::new(0).normal([1 << 24]).to_vec()?;
        let mut y = vec![0f32; x.len()];
        time(o, "lines/cumsum_plain", "running sum of 2^24 float32, a loop", || {
            let mut sum = 0.0;
            for (x, y) in x.iter().zip(&mut y) {
                sum += x;
                *y = sum;
            }
            black_box(&mut y);
            Ok(())
        })?;
        time(o, "lines/copy_plain", "a copy of 2^24 float32 by two threads", || {
            let half = x.len() / 2;
            let (first, second) = y.split_at_mut(half);
            scope(|s| {
                s.spawn(|| first.copy_from_slice(&x[..half]));
                second.copy_from_slice(&x[half..]);
            });
            black_box(&mut y);
            Ok(())
        })?;
    }
    Ok(())
}
