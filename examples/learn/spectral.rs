use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== spread");
    spread()?;
    println!("== moves");
    moves()?;
    println!("== stencil");
    stencil()?;
    println!("== travel");
    travel()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: spread
const SIDE: usize = 64;

/// Returns the temperatures of a torus of circumference 2π after a time: each wave decays by itself.
fn heat(u: &Array, time: f64) -> Array {
    let k = Array::fftfreq(SIDE, 1.0 / SIDE as f64); // 0, 1, …, 31, -32, …, -1
    let squares = k.square().expand_dims(1) + k.square().expand_dims(0);
    (u.fftn(2) * (-time * squares).exp().astype(C64)).ifftn(2).real()
}

// ANCHOR_END: spread

fn start() -> Array {
    Array::zeros([SIDE, SIDE]).at(ix![24..40, 28..36]).set(64.0)
}

fn spread() -> Result<()> {
    // ANCHOR: spread
    let mesh = Mesh::auto([("X", 8)])?;
    let plate = start().put(&mesh, p!["X", _]); // a hot spot, its rows split over 8 devices
    let f = jit(|u: &Array| heat(u, 0.05));
    let after = f.call(&plate)?;
    println!("maximum {:.2}, mean {:.4}", after.max(..), after.mean(..));
    println!("the same on one device: {}", after.allclose_with(&heat(&start(), 0.05), 1e-4, 1e-4)?);
    // ANCHOR_END: spread
    Ok(())
}

// ANCHOR: moves
fn moves() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let plate = F32.array_type([SIDE, SIDE]).on(&mesh, p!["X", _]);
    println!("{}", jit(|u: &Array| heat(u, 0.05)).lower(plate)?.collectives());
    Ok(())
}
// ANCHOR_END: moves

// ANCHOR: stencil
/// Takes steps of the heat equation by neighbours; the cells have a width of 2π/64.
fn by_neighbours(u: &Array, time: f64, steps: i32) -> Array {
    let width = 2.0 * std::f64::consts::PI / SIDE as f64;
    let factor = time / (f64::from(steps) * width * width);
    fori_loop(0..steps, u, |_, u| {
        let around = u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1);
        &u + factor * (around - 4.0 * &u)
    })
}

fn stencil() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let exact = heat(&start(), 0.05);
    for steps in [16, 32, 128] {
        let f = jit(move |u: &Array| by_neighbours(u, 0.05, steps));
        let error = (f.call(start().put(&mesh, p!["X", _]))?.put(&mesh, p![]) - &exact).abs().max(..);
        let report = f.lower(F32.array_type([SIDE, SIDE]).on(&mesh, p!["X", _]))?;
        let bytes: u64 = report.collectives().iter().map(|c| c.count * c.bytes_per_device).sum();
        println!("{steps:3} steps: {bytes:5} bytes per device, largest error {error:.2}");
    }
    Ok(())
}
// ANCHOR_END: stencil

// ANCHOR: travel
fn travel() -> Result<()> {
    // A wave is shifted by its phase, so the whole plate moves by 16 cells: a quarter of 2π.
    let k = Array::fftfreq(SIDE, 1.0 / SIDE as f64);
    let angle = k * (-std::f64::consts::FRAC_PI_2);
    let turn = angle.cos().complex(angle.sin()).expand_dims(1);
    let moved = (start().fftn(2) * turn).ifftn(2).real();
    println!("{}", moved.allclose_with(&start().roll(16, 0), 1e-3, 1e-3)?);
    Ok(())
}
// ANCHOR_END: travel

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let plate = start().put(&mesh, p![_, "X"]);
    if let Err(e) = plate.rfft(1).ty() {
        println!("{e}");
    }
    println!("{} and {}", type_of(plate.fft(1)), type_of(plate.reshard(p!["X", _]).rfft(1)));
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let images = F32.array_type([16, SIDE, SIDE]).on(&mesh, p!["X", _, _]);
    let lowered = jit(|x: &Array| x.fftn(2).abs()).lower(images)?;
    println!("{} collectives", lowered.collectives().len());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let plate = C64.array_type([SIDE, SIDE]).on(&mesh, p!["X", _]);
    let back = jit(|x: &Array| x.fft(1).fft(0));
    let stays = jit(|x: &Array| x.fft(1).reshard(p![_, "X"]).fft(0));
    for f in [back, stays] {
        let report = f.lower(plate.clone())?;
        println!("{} all-to-alls", report.collectives().iter().map(|c| c.count).sum::<u64>());
    }
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    println!("{:.3} {:.3}", start().sum(..), heat(&start(), 2.0).sum(..));
    Ok(())
}
// ANCHOR_END: exercise3
