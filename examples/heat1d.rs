//! The 1-D heat equation in auto mode, in manual mode, and as plain Rust on device threads.
use atmesh::nd::{self, Array1, ArrayView1, s};
use atmesh::prelude::*;

const N: usize = 102; // 100 points and both ends
const STEPS: i32 = 100;

fn main() -> Result<()> {
    let x = Key::new(0).uniform([N]);
    let a = automatic(&x)?;
    let b = by_hand(&x)?;
    let c = native(&x)?;
    println!("auto:   {}", a.slice(ix![..6]));
    println!("manual: {}", b.slice(ix![..6]));
    println!("native: {}", c.slice(ix![..6]));
    println!("all close: {} {}", a.allclose(&b)?, a.allclose(&c)?);
    as_printed(&x)
}

// The partitioner finds the halos. Over auto axes, 102 points need not be divisible by 8.
// ANCHOR: auto
fn automatic(x: &Array) -> Result<Array> {
    let mesh = Mesh::auto([("x", 8)])?;
    let x = x.put(&mesh, p!["x"]);

    let simulate = jit(|x: &Array| {
        fori_loop(0..STEPS, x, |_, x| {
            let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
            x.at(ix![1..-1]).set(inner)
        })
    });
    let lowered = simulate.lower(&x)?;
    println!("{}", lowered.collectives());
    assert_collectives!(lowered, Halo("x") x 1);
    simulate.call(&x)
}
// ANCHOR_END: auto

// ANCHOR: manual
// Each device gets the cells next to its block from its neighbours.
fn by_hand(x: &Array) -> Result<Array> {
    let mesh = Mesh::new([("x", 6)])?; // 6 blocks of 17
    let simulate =
        jit(shard_map(&mesh, p!["x"], p!["x"], |x: &Array| fori_loop(0..STEPS, x, |_, x| step(&x))));
    simulate.call(x.put(&mesh, p!["x"]))
}

fn step(x: &Array) -> Result<Array> {
    let from_left = x.slice(ix![-1..]).ppermute("x", Permutation::shift(1));
    let from_right = x.slice(ix![..1]).ppermute("x", Permutation::shift(-1));
    let padded = concat([&from_left, x, &from_right], 0);
    let next = 0.5 * x + 0.25 * padded.slice(ix![..-2]) + 0.25 * padded.slice(ix![2..]);

    // The two ends of the rod keep their temperature.
    let (me, last) = (axis_index("x"), axis_size("x")? as i32 - 1);
    let next = cond(me.eq(0), || next.at(ix![0]).set(x.slice(ix![0])), || next.clone());
    Ok(cond(me.eq(last), || next.at(ix![-1]).set(x.slice(ix![-1])), || next.clone()))
}
// ANCHOR_END: manual

// ANCHOR: native
// Like an MPI program: a buffer with halo cells, sends and receives, and a plain Rust loop.
fn native(x: &Array) -> Result<Array> {
    let mesh = Mesh::new([("x", 6)])?;
    let simulate = spmd(&mesh, p!["x"], p!["x"], |dev: &Device, x: ArrayView1<f32>| {
        let n = x.len();
        let mut data = Array1::zeros(n + 2);
        data.slice_mut(s![1..=n]).assign(&x);
        let (left, right) = (dev.neighbor("x", -1)?, dev.neighbor("x", 1)?);
        let first = if left.is_none() { 2 } else { 1 };
        let last = if right.is_none() { n - 1 } else { n };

        for _ in 0..STEPS {
            if let Some(right) = right {
                dev.send(right, &data.slice(s![n..=n]))?;
            }
            if let Some(left) = left {
                dev.recv_into(left, data.slice_mut(s![..1]))?;
                dev.send(left, &data.slice(s![1..2]))?;
            }
            if let Some(right) = right {
                dev.recv_into(right, data.slice_mut(s![n + 1..]))?;
            }
            let old = data.clone();
            nd::Zip::from(data.slice_mut(s![first..=last]))
                .and(old.slice(s![first..=last]))
                .and(old.slice(s![first - 1..last]))
                .and(old.slice(s![first + 1..=last + 1]))
                .for_each(|new, &here, &left, &right| *new = 0.5 * here + 0.25 * left + 0.25 * right);
        }
        Ok(data.slice(s![1..=n]).to_owned())
    });
    simulate.call(x)
}
// ANCHOR_END: native

// ANCHOR: printed
// The message passing as the tutorial prints it, with its two conditions swapped: device 1 waits
// for a message that device 0 never sends. The run ends with a list of who waits for whom.
fn as_printed(x: &Array) -> Result<()> {
    let mesh = Mesh::new([("x", 6)])?;
    let simulate = spmd(&mesh, p!["x"], p!["x"], |dev: &Device, x: ArrayView1<f32>| {
        let mut data = x.to_owned();
        let n = data.len();
        let (left, right) = (dev.neighbor("x", -1)?, dev.neighbor("x", 1)?);
        // `if id > 1 … dest=id + 1`: all but the first; the last has no right neighbour.
        if let (Some(_), Some(right)) = (left, right) {
            dev.send(right, &data.slice(s![n - 1..]))?;
        }
        // `if id != last_id … id - 1`: all but the last; the first has no left neighbour.
        if let (Some(left), Some(_)) = (left, right) {
            dev.recv_into(left, data.slice_mut(s![..1]))?;
        }
        Ok(data)
    });
    match simulate.call(x) {
        Err(e) => println!("{e}"),
        Ok(_) => println!("it paired up after all"),
    }
    Ok(())
}
// ANCHOR_END: printed
