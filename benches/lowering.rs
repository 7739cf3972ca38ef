//! Times lowering of programs with strides, windows, reshapes and many pieces. A compiler that lists
//! what each device reads element by element takes time by the square or cube of the sizes here.
//!
//! `cargo bench --bench lowering`; `… -- split concat` runs the lines whose names contain a word.
use atmesh::prelude::*;
use atmesh::{ConvOptions, Padding, WindowOptions, checkpoint, concat, grad, stack};
use std::hint::black_box;
use std::time::Instant;

/// Runs a program and prints its time, if its name was asked for.
fn line(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if !words.is_empty() && !words.iter().any(|w| name.contains(w.as_str())) {
        return Ok(());
    }
    let start = Instant::now();
    run()?;
    println!("{:>8.3} s  {name}", start.elapsed().as_secs_f64());
    Ok(())
}

/// Strided slices, windows and reshapes, which grow by their sizes.
fn by_size(auto: &Mesh) -> Result<()> {
    let n = 655_360i64;
    let half = n - 10_000 * n / 65_536;
    line("slice of every second element, at once, on explicit axes, of 655,360", || {
        let x = Array::zeros(F32.array_type([n as usize])).put(&Mesh::new([("X", 2)])?, p!["X"]);
        black_box(x.slice(ix![..half; 2]).nbytes()?);
        Ok(())
    })?;
    line("slice and flip on explicit axes 2 x 4, of 655,360", || {
        let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
        let f = jit(move |x: &Array| {
            x.at(ix![..half; 2]).out_sharding(p![_]).get().flip(0).reshard(p![("X", "Y")])
        });
        f.lower(F32.array_type([n as usize]).on(&mesh, p![("X", "Y")])).map(drop)
    })?;
    let n = 163_840;
    line("avg_pool of 4, stride 2, of 163,840", || {
        let options = || WindowOptions::default().strides([2]).padding(Padding::Same);
        let f = jit(move |x: &Array| x.avg_pool_with([4], options()));
        f.lower(F32.array_type([n]).on(auto, p!["X"])).map(drop)
    })?;
    let conv = |n: usize, taps: usize, mesh: &Mesh, options: fn() -> ConvOptions| {
        let f = jit(move |x: &Array, w: &Array| x.conv_with(w, options()));
        let x = F32.array_type([1, 1, n]).on(mesh, p![_, _, "X"]);
        f.lower((x, F32.array_type([1, 1, taps]).on(mesh, p![]))).map(drop)
    };
    line("convolution of 10, stride 5, of 160,000", || {
        conv(160_000, 10, auto, || ConvOptions::default().strides([5]))
    })?;
    let dilated = || ConvOptions::default().strides([2]).dilation([2]).padding(Padding::Same);
    line("convolution of 3, stride 2, dilation 2, of 660,000", || conv(660_000, 3, auto, dilated))?;
    line("convolution of 3, stride 2, dilation 2, on explicit axes, of 660,000", || {
        conv(660_000, 3, &Mesh::new([("X", 2)])?, dilated)
    })?;
    line("tile of 3, of 240 x 257 x 12", || {
        let mesh = Mesh::auto([("X", 2), ("Y", 3)])?;
        let f = jit(|x: &Array| x.tile([3, 1, 1]));
        f.lower(F64.array_type([240, 257, 12]).on(&mesh, p!["X", _, "Y"])).map(drop)
    })?;
    line("reshape, then a split of the last dimension, of 4,096 rows", || {
        let mesh = Mesh::auto([("a", 2), ("b", 2)])?;
        let f = jit(|x: &Array| x.reshape([4096, 16, 16, 16]).constrain(p!["a", _, _, "b"]));
        f.lower(F32.array_type([4096, 2, 8, 16, 16]).on(&mesh, p![("a", "b")])).map(drop)
    })
}

/// Programs that grow by their pieces.
fn by_pieces(auto: &Mesh) -> Result<()> {
    line("split into 4,000 parts", || {
        let f = jit(|x: &Array| x.split(vec![8; 4000], 0).iter().map(|p| p * 2.0).collect::<Vec<_>>());
        f.lower(F32.array_type([32_000, 8]).on(auto, p!["X", _])).map(drop)
    })?;
    line("the sums of 1,280 rows", || {
        let f = jit(|x: &Array| (0..1280i64).map(|k| x.slice(ix![k]).sum([0])).collect::<Vec<_>>());
        f.lower(F32.array_type([1280, 64]).on(auto, p!["X", _])).map(drop)
    })?;
    line("concat of 8,000 computed pieces", || {
        let f = jit(|x: &Array| concat((0..8000).map(|k| x * (k as f32)), 0));
        f.lower(F32.array_type([8]).on(auto, p!["X"])).map(drop)
    })?;
    line("stack of 4,000 computed blocks", || {
        let f = jit(|x: &Array| stack((0..4000).map(|k| x * (k as f32)), 0));
        f.lower(F32.array_type([8, 8]).on(auto, p!["X"])).map(drop)
    })?;
    line("unstack of 20,000 rows, at once", || {
        black_box(Array::zeros(F32.array_type([20_000, 2])).unstack(0).len());
        Ok(())
    })?;
    let pieces: Vec<Array> = (0..20_000).map(|_| Array::zeros(F32.array_type([2]))).collect();
    line("concat of 20,000 pieces, at once", || concat(&pieces, 0).nbytes().map(drop))?;
    line("the gradient of 95 nested checkpoints, traced", || {
        fn nested(depth: usize, x: &Array) -> Array {
            if depth == 0 { x.sin() } else { checkpoint(x, |x| nested(depth - 1, &x).sin()) }
        }
        let f = jit(|x: &Array| grad(x, |x| nested(95, &x).sum([0])));
        f.trace(F32.array_type([8])).map(drop)
    })
}

fn main() -> Result<()> {
    let auto = Mesh::auto([("X", 4)])?;
    by_size(&auto)?;
    by_pieces(&auto)
}
