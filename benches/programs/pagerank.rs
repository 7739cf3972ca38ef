//! PageRank: 20 steps on a random graph of 2^16 nodes and 2^20 edges, by sums of segments.

use super::{Options, norm};
use atmesh::prelude::*;
use std::hint::black_box;

const NODES: usize = 1 << 16;
const EDGES: usize = 1 << 20;
const STEPS: i32 = 20;

/// Runs all steps. `received` returns what each node receives, by the shares of all nodes.
fn rank(degree: &Array, received: impl Fn(&Array) -> Array) -> Array {
    let r = degree.full_like(1.0 / NODES as f32);
    fori_loop(0..STEPS, r, |_, r: Array| {
        let share = degree.gt(0.0).select(&r / degree.maximum(1.0), 0.0);
        let lost = degree.eq(0.0).select(&r, 0.0).sum(..);
        (0.15 + 0.85 * lost) / NODES as f32 + 0.85 * received(&share)
    })
}

pub(crate) fn pagerank(o: &Options) -> Result<()> {
    let [a, b] = Key::new(0).split();
    let from = a.randint([EDGES], 0..NODES as i64).ready()?;
    // The squares of uniform numbers make edges to some nodes more frequent.
    let to = (b.uniform([EDGES]).square() * NODES as f32).astype(I32).ready()?;
    let degree = from.bincount(NODES).astype(F32).ready()?;
    let run = jit(|from: &Array, to: &Array, degree: &Array| {
        rank(degree, |share| share.take(from, 0).segment_sum(to, NODES))
    });
    o.program("pagerank/one", &run, (&from, &to, &degree), Array::clone)?;
    let on = |mesh: &Mesh| [&from, &to, &degree].map(|x| x.put(mesh, p!["X"]));
    let [f, t, d] = on(&Mesh::auto([("X", 8)])?);
    o.program("pagerank/auto", &run, (&f, &t, &d), Array::clone)?;
    let run = jit(|from: &Array, to: &Array, degree: &Array| {
        rank(degree, |share| share.reshard(p![]).take_to(from, 0, p!["X"]).segment_sum_to(to, NODES, p!["X"]))
    });
    let [f, t, d] = on(&Mesh::new([("X", 8)])?);
    o.program("pagerank/explicit", &run, (&f, &t, &d), Array::clone)?;
    plain(o, &from.to_vec()?, &to.to_vec()?, &degree.to_vec()?)
}

/// Times the same steps as plain loops on one core.
fn plain(o: &Options, from: &[i32], to: &[i32], degree: &[f32]) -> Result<()> {
    let run = || {
        let mut r = vec![1.0 / NODES as f32; NODES];
        for _ in 0..STEPS {
            let each = r.iter().zip(degree);
            let share: Vec<f32> = each.clone().map(|(r, d)| if *d > 0.0 { r / d } else { 0.0 }).collect();
            let lost: f32 = each.filter(|x| *x.1 == 0.0).map(|x| x.0).sum();
            let mut received = vec![0f32; NODES];
            for (f, t) in from.iter().zip(to) {
                received[*t as usize] += share[*f as usize];
            }
            r = received.iter().map(|x| (0.15 + 0.85 * lost) / NODES as f32 + 0.85 * x).collect();
        }
        r
    };
    o.time("pagerank/one_plain", norm(&Array::from(run()))?, || {
        black_box(run());
        Ok(())
    })
}
