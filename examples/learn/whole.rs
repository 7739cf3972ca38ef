use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== kmeans");
    kmeans()?;
    println!("== attention");
    attention()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

/// Runs ten rounds of k-means on 256 points around four centres, with sharded rows.
fn kmeans() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let places = Array::from([[0.0f32, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]]);
    // ANCHOR: kmeans
    let x = concat([&places; 64], 0) + Key::new(0).normal([256, 2]);
    let centres = x.slice(ix![..4]).put(&mesh, p![]); // the first four points: one from each cloud
    let x = x.put(&mesh, p!["X", _]);
    let round = |x: &Array, centres: &Array| {
        let difference = x.reshape([256, 1, 2]) - centres.reshape([1, 4, 2]);
        let nearest = difference.square().sum(2).argmin(1).one_hot(4); // [256@X,4]: 1 at the nearest centre
        let counts = nearest.sum(0); // summed over all devices
        nearest.t().dot_to(x, p![]) / counts.reshape([4, 1])
    };
    let cluster = jit(|x: &Array, c: &Array| fori_loop(0..10, c, |_, c| round(x, &c)));
    let found = cluster.call((&x, &centres))?;
    println!("{}, near the places: {}", type_of(&found), found.allclose_with(&places, 0.0, 0.5)?);
    println!("{}", cluster.lower((&x, &centres))?.collectives());
    // ANCHOR_END: kmeans
    Ok(())
}

// ANCHOR: attention
/// Computes attention with eight heads, two on each device, from queries to a share of the result.
fn attention() -> Result<()> {
    let mesh = Mesh::new([("heads", 4)])?;
    let (sequence, width, heads, d) = (16, 32, 8, 4);
    let [xk, qk, kk, vk, ok] = Key::new(0).split();
    let x = xk.normal([sequence, width]).put(&mesh, p![]);
    let project = |key: Key| (0.2 * key.normal([heads, width, d])).put(&mesh, p!["heads", _, _]);
    let (wq, wk, wv) = (project(qk), project(kk), project(vk));
    let wo = (0.2 * ok.normal([heads, d, width])).put(&mesh, p!["heads", _, _]);

    let layer = jit(move |x: &Array, wo: &Array| {
        let [q, k, v] = [&wq, &wk, &wv].map(|w| einsum("sw,hwd->hsd", [x, w]));
        let scores = einsum("hqd,hkd->hqk", [&q, &k]) / (d as f32).sqrt();
        let mixed = einsum("hqk,hkd->hqd", [&scores.softmax(-1), &v]); // still [8@heads,16,4]
        einsum_to("hqd,hdw->qw", [&mixed, wo], p![]) // the sum over heads is the only collective
    });
    println!("{}", type_of(layer.call((&x, &wo))?));
    println!("{}", layer.lower((&x, &wo))?.collectives());
    Ok(())
}
// ANCHOR_END: attention

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    // Shard the sequence instead of the heads: every query needs all keys and values.
    let mesh = Mesh::new([("X", 4)])?;
    let [q, k, v] = Key::new(0).split::<3>().map(|key| key.normal([8, 16, 4]).put(&mesh, p![_, "X", _]));
    let f = jit(|q: &Array, k: &Array, v: &Array| {
        let (k, v) = (k.reshard(p![]), v.reshard(p![]));
        let scores = einsum("hqd,hkd->hqk", [q, &k]) / 2.0;
        einsum("hqk,hkd->hqd", [&scores.softmax(-1), &v])
    });
    println!("{}", type_of(f.call((&q, &k, &v))?));
    println!("{}", f.lower((&q, &k, &v))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    // Any number of centres, and the distance by which the last round moved them.
    let mesh = Mesh::new([("X", 8)])?;
    let x = Key::new(0).normal([256, 2]).put(&mesh, p!["X", _]);
    let centres = Key::new(1).normal([3, 2]).put(&mesh, p![]);
    let round = |x: &Array, centres: &Array| {
        let difference = x.reshape([256, 1, 2]) - centres.reshape([1, 3, 2]);
        let nearest = difference.square().sum(2).argmin(1).one_hot(3);
        nearest.t().dot_to(x, p![]) / nearest.sum(0).reshape([3, 1])
    };
    let until = jit(|x: &Array, centres: &Array| {
        let far = Array::from(1.0f32);
        while_loop((centres.clone(), far), |(_, far)| far.gt(1e-3), |(old, _)| {
            let new = round(x, &old);
            let far = (&new - &old).abs().max(..);
            (new, far)
        })
    });
    let (_, far) = until.call((&x, &centres))?;
    println!("still: {}", far.item::<f32>()? <= 1e-3);
    println!("{}", until.lower((&x, &centres))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let scores = Key::new(0).normal([8, 16, 16]); // heads, queries, keys
    for dim in [1, 2] {
        let sums = scores.softmax(dim).sum(2);
        println!("softmax({dim}): rows add up to 1: {}", sums.allclose_with(&Array::ones([8, 16]), 1e-5, 1e-5)?);
    }
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::new([("heads", 4)])?;
    println!("{}", Array::ones([2, 32, 16]).put(&mesh, p!["heads", _, _]).ty().is_err());
    Ok(())
}
// ANCHOR_END: exercise3
