use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== one");
    one_dimension()?;
    println!("== wide");
    wide()?;
    println!("== two");
    two_dimensions()?;
    println!("== layouts");
    layouts()?;
    println!("== life");
    life()?;
    println!("== explicit");
    explicit()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: one
fn step(x: &Array) -> Array {
    let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
    x.at(ix![1..-1]).set(inner)
}

fn one_dimension() -> Result<()> {
    let mesh = Mesh::auto([("x", 4)])?;
    let rod =
        Array::from([0.0f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 16.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let rod = rod.put(&mesh, p!["x"]);
    let simulate = jit(|x: &Array| fori_loop(0..3, x, |_, x| step(&x)));
    println!("{rod}\n{}", simulate.call(&rod)?);
    println!("{}", simulate.lower(&rod)?.collectives());
    Ok(())
}
// ANCHOR_END: one

// ANCHOR: wide
fn wide() -> Result<()> {
    let mesh = Mesh::auto([("x", 4)])?;
    for reach in [1, 2, 3] {
        // Adds up all neighbours within this distance, on a ring of points.
        let f = jit(move |x: &Array| {
            let neighbours = (-reach..=reach).map(|k| x.roll(k, 0));
            neighbours.reduce(|a, b| a + b).expect("there is at least the point itself")
        });
        let report = f.lower(F32.array_type([64]).on(&mesh, p!["x"]))?;
        for c in report.collectives() {
            println!("reach {reach}: {} of {} bytes per device, {} messages", c.kind, c.bytes_per_device, c.messages);
        }
    }
    Ok(())
}
// ANCHOR_END: wide

// ANCHOR: two
fn heat(x: &Array) -> Array {
    let middle = x.slice(ix![1..-1, 1..-1]);
    let (up, down) = (x.slice(ix![..-2, 1..-1]), x.slice(ix![2.., 1..-1]));
    let (left, right) = (x.slice(ix![1..-1, ..-2]), x.slice(ix![1..-1, 2..]));
    x.at(ix![1..-1, 1..-1]).set(0.5 * middle + 0.125 * (up + down + left + right))
}

fn two_dimensions() -> Result<()> {
    let mesh = Mesh::auto([("x", 2), ("y", 4)])?;
    let plate = Array::zeros([8, 16]).at(ix![3..5, 6..10]).set(64.0).put(&mesh, p!["x", "y"]);
    let simulate = jit(|x: &Array| fori_loop(0..2, x, |_, x| heat(&x)));
    println!("{}", simulate.call(&plate)?.slice(ix![.., 4..12]).astype(I32));
    println!("{}", simulate.lower(&plate)?.collectives());
    Ok(())
}
// ANCHOR_END: two

// ANCHOR: layouts
fn layouts() -> Result<()> {
    let side = 4096;
    for (x, y) in [(64, 1), (16, 4), (8, 8)] {
        let mesh = Mesh::without_devices([("x", x), ("y", y)])?.with_auto(["x", "y"])?;
        let plate = F32.array_type([side, side]).on(&mesh, p![]);
        let lowered = jit(|x: &Array| heat(&x.constrain(p!["x", "y"]))).lower(plate)?;
        let bytes: u64 =
            lowered.collectives().iter().filter(|c| c.kind == atmesh::CollectiveKind::Halo).map(|c| c.bytes_per_device).sum();
        println!("{x:2} × {y}: blocks of {:4} × {:4}, halos of {bytes:5} bytes", side / x, side / y);
    }
    Ok(())
}
// ANCHOR_END: layouts

// ANCHOR: life
fn generation(x: &Array) -> Array {
    // The board is a torus: opposite edges are neighbours.
    let rows = x.roll(1, 0) + x + x.roll(-1, 0);
    let around = rows.roll(1, 1) + &rows + rows.roll(-1, 1) - x;
    (around.eq(3) | (around.eq(2) & x.eq(1))).astype(I32)
}

fn life() -> Result<()> {
    let mesh = Mesh::auto([("x", 2), ("y", 2)])?;
    let glider = Array::from([[0, 1, 0], [0, 0, 1], [1, 1, 1]]);
    let board = Array::zeros(I32.array_type([8, 8])).at(ix![..3, ..3]).set(glider).put(&mesh, p!["x", "y"]);
    for n in [0, 4, 12] {
        let after = fori_loop(0..n, &board, |_, x| generation(&x));
        println!("after {n}:");
        for row in after.to_ndarray::<i32>()?.rows() {
            println!("{}", row.iter().map(|v| if *v == 1 { "█" } else { "·" }).collect::<String>());
        }
    }
    let lowered = jit(|x: &Array| fori_loop(0..12, x, |_, x| generation(&x))).lower(&board)?;
    println!("{}", lowered.collectives());
    Ok(())
}
// ANCHOR_END: life

// ANCHOR: explicit
fn explicit() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let u = Array::zeros([16]).put(&mesh, p!["X"]);
    let step = |u: &Array| {
        let (left, right) = (u.shift(1, 0, 0.0), u.shift(-1, 0, 0.0));
        let next = u + 0.25 * (left - 2.0 * u + right);
        next.at(ix![0]).set(1.0).at(ix![-1]).set(0.0) // both ends are held
    };
    let run = jit(|u: &Array| fori_loop(0..200, u, |_, u| step(&u)));
    println!("{}: {:.2}", type_of(run.call(&u)?), run.call(&u)?);
    println!("{}", run.lower(&u)?.collectives());
    Ok(())
}
// ANCHOR_END: explicit

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    // Coefficients per point are a second array with the same sharding: they are not sent.
    let mesh = Mesh::auto([("x", 2), ("y", 4)])?;
    let f = jit(|x: &Array, k: &Array| {
        let around = x.slice(ix![..-2, 1..-1])
            + x.slice(ix![2.., 1..-1])
            + x.slice(ix![1..-1, ..-2])
            + x.slice(ix![1..-1, 2..]);
        let middle = x.slice(ix![1..-1, 1..-1]);
        x.at(ix![1..-1, 1..-1]).set(&middle + k.slice(ix![1..-1, 1..-1]) * (around - 4.0 * &middle))
    });
    let grid = || F32.array_type([64, 64]).on(&mesh, p!["x", "y"]);
    println!("{}", f.lower((grid(), grid()))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::auto([("x", 4)])?;
    let x = Key::new(0).uniform([64]).put(&mesh, p!["x"]);
    let plain = jit(|x: &Array| step(&step(x)));
    println!("{}", plain.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::new([("x", 4)])?;
    let rod = Array::ones([16]).put(&mesh, p!["x"]);
    if let Err(e) = rod.slice(ix![1..-1]).ty() {
        println!("{e}");
    }
    println!("{}", type_of(rod.shift(1, 0, 0.0) + rod.shift(-1, 0, 0.0)));
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::auto([("x", 4)])?;
    for points in [16, 1600] {
        let f = jit(|x: &Array| x.roll(1, 0) + x.roll(-1, 0));
        println!("{}", f.lower(F32.array_type([points]).on(&mesh, p!["x"]))?.collectives().bytes());
    }
    Ok(())
}
// ANCHOR_END: exercise3
