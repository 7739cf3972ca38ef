//! A graph neural network with its edges sharded over 8 devices: nodes average their neighbours.
use atmesh::prelude::*;

type Weights = (Array, Array);

// ANCHOR: layer
/// Sends the row of each edge's source node along the edge, and sums per destination node.
fn messages(x: &Array, from: &Array, to: &Array) -> Array {
    let nodes = x.shape().map_or(0, |s| s[0]);
    let said = x.take_to(from, 0, p!["X"]); // one row for each edge, on the edge's device
    said.segment_sum_to(to, nodes, p![]) // the sums of all devices, in one all-reduce
}

fn network((first, second): &Weights, x: &Array, from: &Array, to: &Array, degree: &Array) -> Array {
    let mean = |x: Array| (&x + messages(&x, from, to)) / degree;
    let hidden = mean(x.dot(first)).relu();
    mean(hidden.dot(second))
}
// ANCHOR_END: layer

// ANCHOR: run
fn main() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let (nodes, edges) = (64, 512);
    let [a, b, c, d, e] = Key::new(1).split();
    // Two groups of nodes; nine of ten edges stay within a group.
    let group = Array::arange(0..nodes) / (nodes / 2);
    let from = a.randint([edges], 0..nodes as i64);
    let other = b.bernoulli([edges], 0.1).astype(I32);
    let side = (group.take(&from, 0) + other) % 2;
    let to = side * (nodes / 2) + c.randint([edges], 0..nodes as i64 / 2);
    let degree = (to.bincount(nodes as usize).astype(F32) + 1.0).expand_dims(1);
    // The groups of eight nodes are known, four in each group.
    let known = Array::arange(0..8) * (nodes / 8);
    let x = Array::eye([nodes as usize, nodes as usize], 0);
    let weights = (d.normal([nodes as usize, 16]) * 0.1, e.normal([16, 2]) * 0.1);
    let (from, to) = (from.put(&mesh, p!["X"]), to.put(&mesh, p!["X"]));
    let [x, degree, known, group] = [x, degree, known, group].map(|x| x.put(&mesh, p![]));
    let weights = tree::put(&weights, &mesh, p![]);

    let train = jit(|w: &Weights, x: &Array, from: &Array, to: &Array| {
        fori_loop(0..300, w, |_, w: Weights| {
            let g = grad(&w, |w| {
                let said = network(&w, x, from, to, &degree).take(&known, 0).log_softmax(1);
                let right = group.take(&known, 0).expand_dims(1);
                -said.take_along_axis(&right, 1).mean(..)
            });
            tree::map2(&w, &g, |w, g| w - g * 2.0)
        })
    });
    println!("{}", train.lower((&weights, &x, &from, &to))?.collectives());
    let w = train.call((&weights, &x, &from, &to))?;
    let guess = network(&w, &x, &from, &to, &degree).argmax(1);
    println!(
        "{} of {nodes} nodes are in the group that they are taken for",
        guess.eq(&group).count_nonzero(..)
    );
    Ok(())
}
// ANCHOR_END: run
