use atmesh::nd::{self, Array1, ArrayView1, s};
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== first");
    first()?;
    println!("== messages");
    messages()?;
    println!("== together");
    together()?;
    println!("== waiting");
    waiting()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

fn first() -> Result<()> {
    // ANCHOR: first
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0..8);
    // Plain Rust on one thread per device: the block is an ndarray view, the result an ndarray.
    let f = spmd(&mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<i32>| {
        let me = dev.axis_index("X")? as i32;
        let mut mine = x.to_owned();
        for v in mine.iter_mut() {
            while *v % 7 != 0 {
                *v += me + 1; // any code: loops, branches, other crates
            }
        }
        Ok(mine)
    });
    println!("{}", f.call(&x)?);
    // ANCHOR_END: first
    Ok(())
}

// ANCHOR: messages
fn messages() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    // A running sum: each device waits for the sum of the devices before it.
    let prefix = spmd(&mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<i32>| {
        let mut before = Array1::<i32>::zeros(1);
        if let Some(left) = dev.neighbor("X", -1)? {
            dev.recv_into(left, before.view_mut())?;
        }
        let mut sums = x.to_owned();
        sums[0] += before[0];
        for i in 1..sums.len() {
            sums[i] += sums[i - 1];
        }
        if let Some(right) = dev.neighbor("X", 1)? {
            dev.send(right, &sums.slice(s![-1..]))?;
        }
        Ok(sums)
    });
    println!("{}", prefix.call(Array::from([1, 2, 3, 4, 5, 6, 7, 8]))?);
    Ok(())
}
// ANCHOR_END: messages

// ANCHOR: together
fn together() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    // Collectives are blocking calls: all devices make the same ones, in the same order.
    let normalized = spmd(&mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<f32>| {
        let mut rounds = 0;
        let mut x = x.to_owned();
        loop {
            let sum = dev.psum_scalar(x.sum(), "X")?;
            if (sum - 1.0).abs() < 1e-6 || rounds == 100 {
                break; // all devices have the same sum, so all leave together
            }
            x.mapv_inplace(|v| v / sum);
            rounds += 1;
        }
        dev.barrier("X")?;
        Ok(x)
    });
    println!("{}", normalized.call(Array::from([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]))?);
    Ok(())
}
// ANCHOR_END: together

// ANCHOR: waiting
fn waiting() -> Result<()> {
    let mesh = Mesh::new([("X", 3)])?;
    // The first device leaves early: the others would wait forever.
    let wrong = spmd(&mesh, p!["X"], p![], |dev: &Device, x: ArrayView1<f32>| {
        if dev.axis_index("X")? == 0 {
            return Ok(nd::arr0(0.0));
        }
        Ok(nd::arr0(dev.psum_scalar(x.sum(), "X")?))
    });
    if let Err(e) = wrong.call(Array::ones([3])) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: waiting

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    // The maximum travels once round the ring.
    let largest = spmd(&mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<i32>| {
        let mut best = Array1::from_elem(1, x.iter().copied().max().unwrap_or(i32::MIN));
        let (next, previous) = (dev.neighbor_periodic("X", 1)?, dev.neighbor_periodic("X", -1)?);
        for _ in 1..dev.axis_size("X")? {
            dev.send(next, &best)?;
            let other: Array1<i32> = dev.recv(previous)?;
            best[0] = best[0].max(other[0]);
        }
        Ok(best)
    });
    println!("{}", largest.call(Array::from([3, 1, 4, 1, 5, 9, 2, 6]))?);
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    // Both send before they receive: messages are buffered, so a send never waits.
    let swap = spmd(&mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<i32>| {
        let other = dev.neighbor_periodic("X", 1)?;
        dev.send(other, &x)?;
        dev.recv::<i32, nd::Ix1>(other)
    });
    println!("{}", swap.call(Array::from([1, 2, 3, 4]))?);
    Ok(())
}
// ANCHOR_END: exercise2
