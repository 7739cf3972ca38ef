use atmesh::prelude::*;
use atmesh::{AxisGroups, Lowered, RaggedRows, smap};

fn main() -> Result<()> {
    println!("== cut");
    cut()?;
    println!("== varying");
    varying()?;
    println!("== invarying");
    invarying()?;
    println!("== bug1");
    forgotten_sum()?;
    println!("== bug2");
    summed_twice()?;
    println!("== bug3");
    index_outside()?;
    println!("== schedules");
    schedules()?;
    println!("== groups");
    groups()?;
    println!("== moves");
    moves()?;
    println!("== rows");
    rows()?;
    println!("== smap");
    one_axis_at_a_time()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: cut
fn cut() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let a = Array::arange(0..8).put(&mesh, p!["X"]);
    let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        println!("the body sees {}", type_of(x)); // printed once, while tracing
        debug_print!("block {}", x); // runs on every device
        x + 100 * axis_index("X")
    });
    println!("{}: {}", type_of(&a), a);
    let y = f.call(&a)?;
    println!("{}: {}", type_of(&y), y);
    Ok(())
}
// ANCHOR_END: cut

// ANCHOR: varying
fn varying() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let f = shard_map(&mesh, (p!["X"], p![]), p!["X"], |a: &Array, b: &Array| {
        println!("a: {}, b: {}", type_of(a), type_of(b));
        println!("a + b: {}", type_of(a + b)); // varies where one operand does
        println!("psum: {}", type_of(a.psum("X"))); // equal on all devices: it no longer varies
        println!("all_gather: {}", type_of(a.all_gather("X", CollectiveDim::tiled(0))));
        println!("axis_index: {}", type_of(axis_index("Y")));
        a + b
    });
    let (a, b) = (Array::arange(0..4).put(&mesh, p!["X"]), Array::from([1, 2]).put(&mesh, p![]));
    println!("{}", f.call((&a, &b))?);
    Ok(())
}
// ANCHOR_END: varying

// ANCHOR: invarying
fn invarying() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::arange(0..4).put(&mesh, p!["X"]);
    let f = shard_map(&mesh, p!["X"], p![], |x: &Array| {
        let whole = x.all_gather("X", CollectiveDim::tiled(0).invarying());
        println!("{}", type_of(&whole));
        println!("made varying again: {}", type_of(whole.pvary("X")));
        whole
    });
    println!("{}", f.call(&x)?);
    Ok(())
}
// ANCHOR_END: invarying

// ANCHOR: bug1
/// Returns the sum of each block as a replicated value: an error, unless `psum` adds the sums.
fn forgotten_sum() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0..8).put(&mesh, p!["X"]);
    let wrong = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..));
    if let Err(e) = wrong.call(&x) {
        println!("{e}");
    }
    let right = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..).psum("X"));
    println!("{}", right.call(&x)?);
    Ok(())
}
// ANCHOR_END: bug1

// ANCHOR: bug2
/// Sums a total a second time: the result is too large, by a factor of the number of devices.
fn summed_twice() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0..8).put(&mesh, p!["X"]);
    let wrong = shard_map(&mesh, p!["X"], p![], |x: &Array| {
        let total = x.sum(..).psum("X");
        println!("before the second psum: {}", type_of(&total)); // no V: nothing is left to sum
        total.psum("X")
    });
    println!("{}, four times 28", wrong.call(&x)?);
    println!("{}", wrong.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: bug2

// ANCHOR: bug3
/// Asks for the device's index outside per-device code, which is an error.
fn index_outside() -> Result<()> {
    if let Err(e) = (Array::arange(0..8) + axis_index("X")).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: bug3

// ANCHOR: schedules
/// Computes rows[M@X, K] · columns[K, N@X] → [M, N@X], after gathering all rows on each device.
fn gathered(a: &Array, b: &Array) -> Array {
    a.all_gather("X", CollectiveDim::tiled(0)).dot(b)
}

/// Like `gathered`, but receives one block of `a` at a time, while multiplying by the previous one.
fn ring(a: &Array, b: &Array) -> Result<Array> {
    let (n, me) = (axis_size("X")?, axis_index("X"));
    let (rows, columns) = (a.shape()?[0], b.shape()?[1]);
    let c = Array::zeros([n, rows, columns]).pvary("X"); // one slice for the rows of each device
    let c = c.at(ix![&me]).set(a.dot(b)); // its own rows first
    let (_, c) = fori_loop(1..n as i32, (a, c), |step, (block, c)| {
        let block = block.ppermute("X", Permutation::ring(1));
        let owner = (&me - step + n as i32) % n as i32; // the device whose rows have arrived
        let c = c.at(ix![owner]).set(block.dot(b));
        (block, c)
    });
    Ok(c.reshape([n * rows, columns]))
}

/// Computes a[M, K@X] · b[K@X, N]: sums the devices' products; each device keeps its rows.
fn scattered(a: &Array, b: &Array) -> Array {
    a.dot(b).psum_scatter("X", CollectiveDim::tiled(0))
}

fn schedules() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let (a, b) = (Key::new(0).normal([16, 32]), Key::new(1).normal([32, 8]));
    let product = a.dot(&b);
    let tell = |what: &str, program: Lowered<(Array, Array), Array>, c: Array| -> Result<()> {
        let all = program.collectives();
        let kind = all.iter().next().map_or("none", |c| c.kind.name());
        println!(
            "{what}: {} × {kind}, {} bytes per device, peak {}; right: {}",
            all.iter().map(|c| c.count).sum::<u64>(),
            all.bytes(),
            all.peak_bytes(),
            c.allclose(&product)?
        );
        Ok(())
    };
    let specs = (p!["X", _], p![_, "X"]);
    let args = (a.put(&mesh, p!["X", _]), b.put(&mesh, p![_, "X"]));
    let f = jit(shard_map(&mesh, specs, p![_, "X"], gathered));
    tell("gathered ", f.lower(&args)?, f.call(&args)?)?;
    let f = jit(shard_map(&mesh, specs, p![_, "X"], ring));
    tell("ring     ", f.lower(&args)?, f.call(&args)?)?;
    let args = (a.put(&mesh, p![_, "X"]), b.put(&mesh, p!["X", _]));
    let f = jit(shard_map(&mesh, (p![_, "X"], p!["X", _]), p!["X", _], scattered));
    tell("scattered", f.lower(&args)?, f.call(&args)?)
}
// ANCHOR_END: schedules

// ANCHOR: groups
/// Sums over neighbours: devices 0 and 1 have one sum, and devices 2 and 3 another one.
fn groups() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0..8).put(&mesh, p!["X"]);
    let pairs = AxisGroups::new("X", [[0, 1], [2, 3]]);
    let sums = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        println!("{} becomes {}", type_of(x), type_of(x.psum(&pairs))); // it still varies
        x.psum(&pairs)
    });
    println!("{}", sums.call(&x)?);
    println!("{}", sums.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: groups

// ANCHOR: moves
fn moves() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0..4).put(&mesh, p!["X"]);
    let on_each = |f: fn(&Array) -> Array| shard_map(&mesh, p!["X"], p!["X"], f).call(&x);
    println!("from device 2: {}", on_each(|x| x.pbroadcast("X", 2))?);
    println!("from devices 3, 0, 1, 2: {}", on_each(|x| x.pshuffle("X", [3, 0, 1, 2]))?);
    Ok(())
}
// ANCHOR_END: moves

// ANCHOR: rows
/// Sends 0 rows of device 0, 1 row of device 1, 2 of device 2 and 3 of device 3 to device 0.
fn rows() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0..12).put(&mesh, p!["X"]);
    let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        let (me, first) = (axis_index("X"), Array::from([1, 0, 0, 0]));
        let rows = RaggedRows {
            input_offsets: Array::from([0, 0, 0, 0]),
            send_sizes: &first * &me, // one entry for each receiver
            output_offsets: &first * Array::from([0, 0, 1, 3]).take(&me, 0), // where on the receiver
            recv_sizes: Array::from([0, 1, 2, 3]) * me.eq(0).astype(I32), // one for each sender
        };
        x.ragged_all_to_all("X", &Array::zeros(I32.array_type([6])), &rows)
    });
    println!("{}", f.call(&x)?);
    Ok(())
}
// ANCHOR_END: rows

// ANCHOR: smap
/// Divides rows by their sums: columns are split over Y, rows over X, one axis at a time.
fn one_axis_at_a_time() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let normed = |x: &Array| x / x.sum(Dims::keep(1)).psum("Y");
    let f = smap(&mesh, "X", 0, 0, |rows: &Array| smap(&mesh, "Y", 1, 1, normed).call(rows));
    println!("{}", f.call(Array::from([[1.0f32, 3.0], [2.0, 2.0]]))?);
    Ok(())
}
// ANCHOR_END: smap

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::from([3.0f32, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]).put(&mesh, p!["X"]);
    let softmax = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        let e = (x - x.max(..).pmax("X")).exp();
        &e / e.sum(..).psum("X")
    });
    println!("the same: {}", softmax.call(&x)?.allclose(&x.softmax(0))?);
    assert_collectives!(softmax.lower(&x)?, AllReduce("X") x 2);
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0..8).put(&mesh, p!["X"]);
    // Block k is sent to device 3 - k, and reversed there.
    let reversed = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        x.flip(0).ppermute("X", [(0, 3), (1, 2), (2, 1), (3, 0)])
    });
    println!("{}", reversed.call(&x)?);
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([8]).put(&mesh, p!["X"]);
    println!("{}", type_of(x.sum(..)));
    let f = shard_map(&mesh, p!["X"], p![], |x: &Array| {
        println!("{}", type_of(x.sum(..)));
        x.sum(..).psum("X")
    });
    println!("{}", f.call(&x)?);
    Ok(())
}
// ANCHOR_END: exercise3
