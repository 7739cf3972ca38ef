//! k-means on points whose rows are sharded over 8 devices, with `segment_sum` for the new centres.
use atmesh::prelude::*;

const K: usize = 4;

// ANCHOR: step
/// Returns the mean of the points that are nearest to each centre.
fn step(x: &Array, centres: &Array) -> Array {
    let distance = (x.expand_dims(1) - centres).square().sum(2); // [n@X, K]
    let nearest = distance.argmin(1);
    // With a column of ones appended, sums and counts need only one all-reduce.
    let ones = x.pad(1.0, [(0, 0, 0), (0, 1, 0)]);
    let sums = ones.segment_sum_to(&nearest, K, p![]);
    sums.slice(ix![.., ..-1]) / sums.slice(ix![.., -1..]).maximum(1.0)
}
// ANCHOR_END: step

// ANCHOR: run
fn main() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let n = 4096;
    let [a, b, c] = Key::new(3).split();
    // Clouds of points around K positions.
    let places = Array::from([[0.0f32, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]]);
    let x = places.take(&a.randint([n], 0..K as i64), 0) + b.normal([n, 2]);
    let x = x.put(&mesh, p!["X"]);

    // Start from K random points: only these rows move.
    let some = c.permutation(&Array::arange(0..n as i32), 0).slice(ix![..K]);
    let first = x.at(ix![&some]).out_sharding(p![]).get();
    println!("{} {}", type_of(&x), type_of(&first));

    let run = jit(|x: &Array, first: &Array| fori_loop(0..20, first, |_, centres| step(x, &centres)));
    println!("{}", run.lower((&x, &first))?.collectives());
    let centres = run.call((&x, &first))?;
    let order = centres.dot(Array::from([1.0f32, 2.0])).argsort(0);
    println!("{}", centres.slice(ix![&order]).round().abs());

    // The same program on one device, for comparison.
    let whole = run.call((&x.reshard(p![]), &first))?;
    println!("the same on one device: {}", centres.allclose_with(&whole, 1e-4, 1e-4)?);
    Ok(())
}
// ANCHOR_END: run
