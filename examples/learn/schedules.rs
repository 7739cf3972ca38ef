use atmesh::Lowered;
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== gathered");
    agree("gathered", gathered)?;
    println!("== ring");
    agree("ring", ring)?;
    println!("== both");
    agree("both directions", both)?;
    println!("== time");
    time()?;
    println!("== scattered");
    scattered()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

type Schedule = fn(&Array, &Array) -> Result<Array>;

/// Compares a schedule with the product, and prints its collectives.
fn agree(name: &str, schedule: Schedule) -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let (a, b) = (Key::new(0).normal([16, 32]), Key::new(1).normal([32, 8]));
    let f = jit(shard_map(&mesh, (p!["X", _], p![_, "X"]), p![_, "X"], schedule));
    let args = (a.put(&mesh, p!["X", _]), b.put(&mesh, p![_, "X"]));
    println!("{name} is right: {}", f.call(&args)?.allclose(&a.dot(&b))?);
    for c in f.lower(&args)?.collectives() {
        println!("{} × {} of {} bytes", c.count, c.kind, c.bytes_per_device);
    }
    Ok(())
}

// ANCHOR: gathered
/// a[M@X, K] · b[K, N@X] → [M, N@X]: every device needs all rows of `a`.
fn gathered(a: &Array, b: &Array) -> Result<Array> {
    let rows = a.all_gather("X", CollectiveDim::tiled(0));
    Ok(rows.dot(b))
}
// ANCHOR_END: gathered

// ANCHOR: ring
fn ring(a: &Array, b: &Array) -> Result<Array> {
    let (n, me) = (axis_size("X")?, axis_index("X"));
    let (rows, columns) = (a.shape()?[0], b.shape()?[1]);
    let c = Array::zeros(a.dtype()?.array_type([n, rows, columns])).pvary("X"); // a slice per device
    let c = c.at(ix![&me]).set(a.dot(b)); // its own rows
    let (_, c) = fori_loop(1..n as i32, (a, c), |step, (block, c)| {
        let block = block.ppermute("X", Permutation::ring(1)); // from the left
        let owner = (&me - step + n as i32) % n as i32; // whose rows have arrived
        (block.clone(), c.at(ix![owner]).set(block.dot(b)))
    });
    Ok(c.reshape([n * rows, columns]))
}
// ANCHOR_END: ring

// ANCHOR: both
/// Half of each block travels to the right, and half to the left.
fn both(a: &Array, b: &Array) -> Result<Array> {
    let (n, me) = (axis_size("X")? as i32, axis_index("X"));
    let (half, columns) = (a.shape()?[0] / 2, b.shape()?[1]);
    let (top, low) = (a.slice(ix![..half as i64]), a.slice(ix![half as i64..]));
    let c = Array::zeros(a.dtype()?.array_type([n as usize, 2, half, columns])).pvary("X");
    let c = c.at(ix![&me]).set(a.dot(b).reshape([2, half, columns]));
    let (_, _, c) = fori_loop(1..n, (top, low, c), |step, (top, low, c)| {
        let top = top.ppermute("X", Permutation::ring(1));
        let low = low.ppermute("X", Permutation::ring(-1));
        let (left, right) = ((&me - &step + n) % n, (&me + &step) % n);
        let c = c.at(ix![left, 0]).set(top.dot(b)).at(ix![right, 1]).set(low.dot(b));
        (top, low, c)
    });
    Ok(c.reshape([2 * half * n as usize, columns]))
}
// ANCHOR_END: both

// ANCHOR: time
fn time() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let machine = Machine::h100().links(Link::ring(100e9));
    let all: [(&str, Schedule); 3] = [("gathered", gathered), ("ring", ring), ("both", both)];
    for (name, schedule) in all {
        let a = BF16.array_type([1 << 14, 1 << 13]).on(&mesh, p!["X", _]);
        let b = BF16.array_type([1 << 13, 1 << 16]).on(&mesh, p![_, "X"]);
        let f = jit(shard_map(&mesh, (p!["X", _], p![_, "X"]), p![_, "X"], schedule));
        let plan = f.lower((a, b))?.plan(&machine)?;
        let ms = |seconds: f64| 1e3 * seconds;
        println!(
            "{name:8} {:5.2} ms, of which {:4.2} ms wait for messages",
            ms(plan.seconds()),
            ms(plan.exposed_seconds())
        );
    }
    Ok(())
}
// ANCHOR_END: time

// ANCHOR: scattered
fn scattered() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    // a[M, K@X] · b[K@X, N] → [M@X, N]: the results travel, not the operands
    let body = |a: &Array, b: &Array| a.dot(b).psum_scatter("X", CollectiveDim::tiled(0));
    let f = jit(shard_map(&mesh, (p![_, "X"], p!["X", _]), p!["X", _], body));
    for k in [32, 512] {
        let a = F32.array_type([16, k]).on(&mesh, p![_, "X"]);
        let b = F32.array_type([k, 8]).on(&mesh, p!["X", _]);
        println!("K = {k:3}: {} bytes; gathered {}", bytes(&f.lower((a, b))?), 16 * k * 4 * 3 / 4);
    }
    Ok(())
}
// ANCHOR_END: scattered

fn bytes(program: &Lowered<(Array, Array), Array>) -> u64 {
    program.collectives().bytes()
}

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let body = |a: &Array, b: &Array| {
        let c = Array::zeros([4, 8]); // the same on all devices
        fori_loop(0..4, c, |_, c| c + a.dot(b)) // and now it is not
    };
    let f = shard_map(&mesh, (p!["X", _], p![_, "X"]), p![_, "X"], body);
    let (a, b) = (Array::ones([16, 32]), Array::ones([32, 32]));
    if let Err(e) = f.call((a.put(&mesh, p!["X", _]), b.put(&mesh, p![_, "X"]))) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let (a, b) = (Key::new(0).normal([16, 32]), Key::new(1).normal([32, 8]));
    let f = jit(|a: &Array, b: &Array| a.dot_to(b, p![_, "X"]));
    let args = (a.put(&mesh, p!["X", _]), b.put(&mesh, p![_, "X"]));
    println!("{}", f.lower(&args)?.collectives());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let f = jit(shard_map(&mesh, (p!["X", _], p![_, "X"]), p![_, "X"], ring as Schedule));
    let slope = jit(|a: &Array, b: &Array| grad(a, |a| f.call((&a, b)).map(|c| c.square().sum(..))));
    let args = (Array::ones([16, 32]).put(&mesh, p!["X", _]), Array::ones([32, 8]).put(&mesh, p![_, "X"]));
    let same = |a: &Array, b: &Array| grad(a, |a| a.dot(b).square().sum(..));
    let right = same(&Array::ones([16, 32]), &Array::ones([32, 8]));
    println!("{} {}", type_of(slope.call(&args)?), slope.call(&args)?.allclose(&right)?);
    Ok(())
}
// ANCHOR_END: exercise2
