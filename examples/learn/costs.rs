use atmesh::Lowered;
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== formulas");
    formulas()?;
    println!("== exchange");
    exchange()?;
    println!("== time");
    time();
    println!("== roofline");
    roofline();
    println!("== bound");
    bound()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2();
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: formulas
/// Returns the bytes that each of `n` devices receives, if the full value has `v` bytes.
fn all_gather(v: u64, n: u64) -> u64 {
    v * (n - 1) / n
}
fn reduce_scatter(v: u64, n: u64) -> u64 {
    v * (n - 1) / n
}
fn all_reduce(v: u64, n: u64) -> u64 {
    reduce_scatter(v, n) + all_gather(v, n)
}
fn all_to_all(v: u64, n: u64) -> u64 {
    v * (n - 1) / (n * n)
}
fn permute(v: u64, n: u64) -> u64 {
    v / n
}

fn formulas() -> Result<()> {
    let n = 8;
    let mesh = Mesh::new([("X", n)])?;
    let grid = Mesh::new([("X", 2), ("Y", 4)])?;
    let rows = |m: &Mesh, shape: [usize; 2], spec: Spec| F32.array_type(shape).on(m, spec);
    let v = 4 * 64 * 32; // bytes of a float32[64,32]
    let n = n as u64;
    let x = || rows(&mesh, [64, 32], p!["X", _]);
    let block = |f: fn(&Array) -> Array, out: Spec| shard_map(&mesh, p!["X", _], out, f).lower(x());
    let compare = |what: &str, program: Lowered<Array, Array>, formula: u64| {
        let report = program.collectives();
        let kinds: Vec<&str> = report.iter().map(|c| c.kind.name()).collect();
        println!("{what:22} {:15} {:5} bytes, formula {formula:5}", kinds.join(", "), report.bytes());
        assert_eq!(report.bytes(), formula, "{what}");
    };

    compare("gather rows", jit(|x: &Array| x.reshard(p![])).lower(x())?, all_gather(v, n));
    compare("turn rows to columns", jit(|x: &Array| x.reshard(p![_, "X"])).lower(x())?, all_to_all(v, n));
    compare("sum of rows, on all", jit(|x: &Array| x.sum_to(0, p![])).lower(x())?, all_reduce(4 * 32, n));
    let split = jit(|x: &Array| x.sum_to(0, p!["X"]));
    compare("sum of rows, split", split.lower(x())?, reduce_scatter(4 * 32, n));
    compare("psum of blocks", block(|x| x.psum("X"), p![])?, all_reduce(v / n, n));
    compare("next block", block(|x| x.ppermute("X", Permutation::ring(1)), p!["X", _])?, permute(v, n));
    let product = jit(|x: &Array| x.t().dot_to(x, p![]));
    compare("product, both split", product.lower(x())?, all_reduce(4 * 32 * 32, n));
    let product = jit(|x: &Array| x.t().dot_to(x, p!["X", _]));
    compare("product, scattered", product.lower(x())?, reduce_scatter(4 * 32 * 32, n));
    // On a mesh of 2 × 4: over one axis, and over both.
    let both = rows(&grid, [64, 32], p!["X", "Y"]);
    compare("gather along Y", jit(|x: &Array| x.reshard(p!["X", _])).lower(both)?, all_gather(v / 2, 4));
    let both = rows(&grid, [64, 32], p![("X", "Y"), _]);
    compare("sum along both", jit(|x: &Array| x.sum_to(0, p![])).lower(both)?, all_reduce(4 * 32, n));
    Ok(())
}
// ANCHOR_END: formulas

// ANCHOR: exchange
/// Plans an all-to-all of 1 GiB on a switch and on a ring.
fn exchange() -> Result<()> {
    let (switch, ring) = (Machine::new("switch"), Machine::new("ring"));
    let (switch, ring) = (switch.links(Link::switch(100e9)), ring.links(Link::ring(100e9)));
    for devices in [4, 16, 64] {
        let mesh = Mesh::without_devices([("X", devices)])?;
        let x = F32.array_type([1 << 14, 1 << 14]).on(&mesh, p!["X", _]);
        let turn = jit(|x: &Array| x.reshard(p![_, "X"])).lower(x)?;
        let ms = |machine| turn.plan(machine).map(|plan| 1e3 * plan.collective_seconds());
        let bytes = turn.collectives().bytes() >> 20;
        println!("{devices:2} devices: {bytes:3} MiB, {:.2} ms and {:.2} ms", ms(&switch)?, ms(&ring)?);
    }
    Ok(())
}
// ANCHOR_END: exchange

// ANCHOR: time
/// Returns seconds: the latency `alpha` per message plus bytes divided by bandwidth.
fn seconds(bytes: f64, messages: f64) -> f64 {
    const ALPHA: f64 = 5e-6; // a message takes 5 µs however short it is
    const BETA: f64 = 450e9; // and 450 GB arrive per second
    messages * ALPHA + bytes / BETA
}

fn time() {
    let n = 8.0;
    println!("all-gather of V bytes in a ring of {n} devices");
    for v in [1e3, 1e6, 1e9] {
        let (latency, all) = (seconds(0.0, n - 1.0), seconds(v * (n - 1.0) / n, n - 1.0));
        println!(
            "V = {:9} kB: {:8.1} µs, of which {:3.0} % is latency",
            v / 1e3,
            all * 1e6,
            100.0 * latency / all
        );
    }
}
// ANCHOR_END: time

// ANCHOR: roofline
/// The rates of one GPU: operations, bytes from its memory, and bytes from other GPUs per second.
const FLOPS: f64 = 989e12; // bfloat16, an H100 by its data sheet
const MEMORY: f64 = 3.35e12;
const LINKS: f64 = 450e9;

fn roofline() {
    println!(
        "{:.0} operations in the time of one byte of memory, {:.0} of one byte of a link",
        FLOPS / MEMORY,
        FLOPS / LINKS
    );
    for m in [8.0, 128.0, 4096.0] {
        let (k, n) = (4096.0, 4096.0);
        let operations = 2.0 * m * k * n;
        let bytes = 2.0 * (m * k + k * n + m * n);
        let bound = if operations / FLOPS > bytes / MEMORY { "arithmetic" } else { "memory" };
        println!("[{m},{k}] · [{k},{n}]: {:.0} operations per byte, bound by {bound}", operations / bytes);
    }
}
// ANCHOR_END: roofline

// ANCHOR: bound
/// Bytes per second from GPUs of other nodes.
const NETWORK: f64 = 50e9;

/// Compares the time to gather sharded weights with that of the product.
fn bound() -> Result<()> {
    let (d, f) = (4096, 16384);
    let layer = jit(|x: &Array, w: &Array| x.dot(w.reshard(p![])));
    for (devices, rate) in [(8, LINKS), (64, NETWORK)] {
        let mesh = Mesh::without_devices([("X", devices)])?;
        println!(
            "{devices} devices at {} GB/s: {:.0} operations in the time of a byte",
            rate / 1e9,
            FLOPS / rate
        );
        for rows in [512, 2048, 8192, 32768] {
            let x = BF16.array_type([rows * devices, d]).on(&mesh, p!["X", _]);
            let w = BF16.array_type([d, f]).on(&mesh, p!["X", _]);
            let moved = layer.lower((x, w))?.collectives().bytes() as f64 / rate;
            let product = 2.0 * (rows * d * f) as f64 / FLOPS;
            let bound = if product > moved { "arithmetic" } else { "communication" };
            println!(
                "{rows:5} rows per device: product {:4.0} µs, gather {:4.0} µs: bound by {bound}",
                product * 1e6,
                moved * 1e6
            );
        }
    }
    Ok(())
}
// ANCHOR_END: bound

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 16)])?;
    let x = F32.array_type([1024, 1024]).on(&mesh, p!["X", _]);
    let report = jit(|x: &Array| x.reshard(p![_, "X"])).lower(x)?.collectives().bytes();
    println!("formula {}, report {report}", all_to_all(4 << 20, 16));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() {
    // V (n-1)/n / beta = (n-1) alpha: V = n alpha beta
    let v = 8.0 * 5e-6 * 450e9;
    println!("{:.0} MB", v / 1e6);
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let grid = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = F32.array_type([64, 32]).on(&grid, p!["X", "Y"]);
    let v = 4 * 64 * 32;
    let at_once = jit(|x: &Array| x.reshard(p![])).lower(x.clone())?;
    let in_two = jit(|x: &Array| x.reshard(p![_, "Y"]).reshard(p![])).lower(x)?;
    println!("at once {}, in two steps {}", at_once.collectives().bytes(), in_two.collectives().bytes());
    println!("formulas: {} and {} + {}", all_gather(v, 8), all_gather(v / 4, 2), all_gather(v, 4));
    Ok(())
}
// ANCHOR_END: exercise3

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = F32.array_type([64, 32]).on(&mesh, p!["X", _]);
    let gather = jit(|x: &Array| x.reshard(p![])).lower(x)?;
    let (value, block) = (4 * 64 * 32, 4 * 64 * 32 / 8);
    println!("{} bytes", gather.collectives().bytes());
    println!("V of the result: {}, of a block: {}", all_gather(value, 8), all_gather(block, 8));
    Ok(())
}
// ANCHOR_END: mistake
