//! The work of the partitioner grows with n·log n in rows, columns and pieces, and at most threefold
//! for each further mesh axis. It is counted in boxes, progressions and candidates, not in seconds.

use crate::soak::runs_all;
use atmesh::partition::take_work;
use atmesh::prelude::*;
use atmesh::{Axes, ConvOptions, Padding, Spec, WindowOptions, concat, stack};

/// Returns the meshes of one to three axes, all auto.
fn meshes() -> Result<[Mesh; 3]> {
    Ok([
        Mesh::auto([("X", 8)])?,
        Mesh::auto([("X", 8), ("Y", 2)])?,
        Mesh::auto([("X", 8), ("Y", 2), ("Z", 2)])?,
    ])
}

/// Returns a sharding of a dimension over all axes of a mesh.
fn over_all(mesh: &Mesh, rank: usize, dim: usize) -> Spec {
    let all: Axes = mesh.axis_names().iter().copied().collect();
    Spec::from_dims((0..rank).map(|d| if d == dim { all.clone() } else { Axes::none() }).collect())
}

/// A program of a size: lowers it on a mesh.
type Program = fn(usize, &Mesh) -> Result<()>;

fn strided(n: usize, m: &Mesh) -> Result<()> {
    let last = n as i64 - n as i64 / 7;
    let f = jit(move |x: &Array| x.slice(ix![..last; 2]) * 2.0);
    f.lower(F32.array_type([n]).on(m, over_all(m, 1, 0))).map(drop)
}
fn pooled(n: usize, m: &Mesh) -> Result<()> {
    let options = || WindowOptions::default().strides([2]).padding(Padding::Same);
    let f = jit(move |x: &Array| x.avg_pool_with([4], options()));
    f.lower(F32.array_type([n]).on(m, over_all(m, 1, 0))).map(drop)
}
fn dilated(n: usize, m: &Mesh) -> Result<()> {
    let options = || ConvOptions::default().strides([2]).dilation([2]);
    let f = jit(move |x: &Array, w: &Array| x.conv_with(w, options()));
    let filter = F32.array_type([1, 1, 3]).on(m, p![]);
    f.lower((F32.array_type([1, 1, n]).on(m, over_all(m, 3, 2)), filter)).map(drop)
}
fn tiled(n: usize, m: &Mesh) -> Result<()> {
    let f = jit(|x: &Array| x.tile([3, 1]));
    f.lower(F32.array_type([n, 32]).on(m, over_all(m, 2, 1))).map(drop)
}
fn reshaped(n: usize, m: &Mesh) -> Result<()> {
    let f = jit(move |x: &Array| x.reshape([n, 16, 16]).constrain(p![_, _, "X"]));
    f.lower(F32.array_type([n, 2, 8, 16]).on(m, over_all(m, 4, 0))).map(drop)
}
fn uneven(n: usize, m: &Mesh) -> Result<()> {
    let f = jit(move |x: &Array| x.reshape([n, 3]).constrain(p!["X", _]));
    f.lower(F32.array_type([3, n]).on(m, p![_, "X"])).map(drop)
}

fn split(n: usize, m: &Mesh) -> Result<()> {
    let f = jit(move |x: &Array| x.split(vec![8; n], 0).iter().map(|p| p * 2.0).collect::<Vec<_>>());
    f.lower(F32.array_type([8 * n, 8]).on(m, over_all(m, 2, 0))).map(drop)
}
fn rows(n: usize, m: &Mesh) -> Result<()> {
    let f = jit(move |x: &Array| (0..n as i64).map(|k| x.slice(ix![k]).sum([0])).collect::<Vec<_>>());
    f.lower(F32.array_type([n, 64]).on(m, over_all(m, 2, 0))).map(drop)
}
fn windows(n: usize, m: &Mesh) -> Result<()> {
    let f = jit(move |x: &Array| (0..n as i64).map(|k| x.slice(ix![k..k + 3]) * 2.0).collect::<Vec<_>>());
    f.lower(F32.array_type([n + 32 - n % 32 + 32]).on(m, over_all(m, 1, 0))).map(drop)
}
fn joined(n: usize, m: &Mesh) -> Result<()> {
    let f = jit(move |x: &Array| concat((0..n).map(|k| x * (k as f32)), 0));
    f.lower(F32.array_type([32]).on(m, over_all(m, 1, 0))).map(drop)
}
fn stacked(n: usize, m: &Mesh) -> Result<()> {
    let f = jit(move |x: &Array| stack((0..n).map(|k| x * (k as f32)), 0));
    f.lower(F32.array_type([32, 8]).on(m, over_all(m, 2, 0))).map(drop)
}

/// Programs, each with the largest work per n·log2(n) of its elements or pieces.
type Cases<'a> = &'a [(&'a str, Program, f64)];

const BY_SIZE: Cases<'static> = &[
    ("a strided slice", strided, 40.0),
    ("a strided pooling", pooled, 40.0),
    ("a dilated convolution", dilated, 40.0),
    ("tile", tiled, 40.0),
    ("a reshape, then a split of the last dimension", reshaped, 40.0),
    ("a reshape without common factors", uneven, 40.0),
];
const BY_PIECES: Cases<'static> = &[
    ("split", split, 200.0),
    ("the sum of each row", rows, 300.0),
    ("sliding windows", windows, 2000.0),
    ("concat", joined, 200.0),
    ("stack", stacked, 150.0),
];

/// Checks the work of programs of these sizes on meshes of one to three axes.
fn check(programs: Cases<'_>, sizes: &[usize]) -> Result<()> {
    let mut wrong = Vec::new();
    for ((name, lower, most), n) in programs.iter().flat_map(|p| sizes.iter().map(move |n| (p, *n))) {
        let mut before = u64::MAX / 3;
        for mesh in &meshes()? {
            take_work();
            lower(n, mesh)?;
            let work = take_work();
            let each = work as f64 / (n as f64 * (n as f64).log2());
            let line = format!(
                "{name} of {n} on {} axes: {work} boxes and candidates, {each:.2} n·log n",
                mesh.axis_names().len()
            );
            println!("{line}");
            if each > *most || work > 3 * before {
                wrong.push(line);
            }
            before = work;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn work_does_not_grow_with_rows_squared() -> Result<()> {
    check(BY_SIZE, &[1 << 10, 1 << 15, 1 << 20])
}

#[test]
fn work_does_not_grow_with_pieces_squared() -> Result<()> {
    check(BY_PIECES, if runs_all() { &[32, 128, 512] } else { &[32, 256] })
}

/// A generator of pseudo-random numbers.
struct Dice(u64);
impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// Applies one random operation to a matrix of many rows.
fn step(dice: &mut Dice, x: &Array) -> Array {
    let (rows, columns) = (x.dim_size(0), x.dim_size(1));
    let (a, b) = (dice.below(5), dice.below(5));
    match dice.below(12) {
        0 if rows > 64 => {
            let (start, end) = ((rows * a / 16) as i64, (rows - rows * b / 16) as i64);
            let by = 1 + dice.below(4) as i64;
            x.slice(ix![start..end; by])
        }
        1 => x.flip(0),
        2 => x.roll((rows * a / 7 + b) as i64, 0),
        3 => x.pad(0.0, [(a as i64, b as i64, dice.below(3)), (0, 0, 0)]),
        4 if rows > 64 => {
            let options = WindowOptions::default().strides([1 + b, 1]).padding(Padding::Same);
            x.avg_pool_with([1 + a, 1], options)
        }
        5 if rows % (a + 2) == 0 => x.reshape([rows / (a + 2), columns * (a + 2)]),
        6 if columns % (a + 2) == 0 => x.reshape([rows * (a + 2), columns / (a + 2)]),
        7 => x.reshape([columns, rows]).t(),
        8 if rows * columns < 1 << 23 => x.tile([2 + a % 2, 1]),
        9 if rows * columns < 1 << 23 => concat([&(x * 2.0), x], 0),
        10 => {
            let axis = Axes::from("X");
            let dims = if a % 2 == 0 { vec![axis, Axes::none()] } else { vec![Axes::none(), axis] };
            x.constrain(Spec::from_dims(dims))
        }
        _ => {
            let options = ConvOptions::default().strides([1 + a]).dilation([1 + b]).padding(Padding::Same);
            let long = x.reshape([1, 1, rows * columns]);
            let long = long.conv_with(Array::ones([1, 1, 3]), options);
            long.reshape([long.dim_size(2), 1])
        }
    }
}

/// The largest work of a random program on one axis.
const MOST_WORK: u64 = 20_000;

/// Programs of random operations, of up to 2^20 rows: their work does not depend on the rows, and
/// grows threefold with each further axis.
#[test]
fn work_of_random_programs_does_not_grow_with_rows() -> Result<()> {
    let first: u64 = std::env::var("ATMESH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let cases: u64 = std::env::var("ATMESH_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    let (mut wrong, mut greatest) = (Vec::new(), 0);
    for seed in first..first + cases {
        let columns = [1, 3, 8, 12][seed as usize % 4];
        for rows in [3 << 8, 1 << 14, 1 << 20] {
            let mut most = MOST_WORK;
            for mesh in &meshes()? {
                let f = jit(|x: &Array| {
                    let mut dice = Dice(seed);
                    (0..1 + dice.below(4)).fold(x.clone(), |x, _| step(&mut dice, &x))
                });
                let ty = F32.array_type([rows, columns]).on(mesh, over_all(mesh, 2, 0));
                take_work();
                let lowered = f.lower(ty);
                let work = take_work();
                let axes = mesh.axis_names().len();
                let line = format!("seed {seed}, {rows} rows, {axes} axes: {work} of {most}");
                if let Err(e) = lowered {
                    wrong.push(format!("{line}: {e}"));
                }
                if work > most {
                    wrong.push(line);
                }
                // three times for each further axis; small programs have little to choose on one axis
                most = 3 * if axes == 1 { work.max(500) } else { most };
                greatest = greatest.max(work);
            }
        }
    }
    println!("at most {greatest} boxes and candidates");
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
