use atmesh::prelude::*;
use atmesh::{ConvOptions, Padding};

fn main() -> Result<()> {
    println!("== one");
    one_dimension()?;
    println!("== two");
    two_dimensions()?;
    println!("== layouts");
    layouts()?;
    println!("== slopes");
    slopes()?;
    println!("== pools");
    pools()?;
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
fn one_dimension() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    // One signal of 16 elements with one feature; the dimensions are [batch, features, size].
    let x = Array::arange_of(F32.array_type([16]), 0, 1).reshape([1, 1, 16]).put(&mesh, p![_, _, "X"]);
    let smooth = Array::from([0.25f32, 0.5, 0.25]).reshape([1, 1, 3]);
    let same = || ConvOptions::default().padding(Padding::Same);
    let f = jit(|x: &Array| x.conv_with(&smooth, same()));
    let y = f.call(&x)?;
    println!("{}\n{y}", type_of(&y));
    println!("{}", f.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: one

// ANCHOR: two
fn same(x: &Array, w: &Array) -> Array {
    x.conv_with(w, ConvOptions::default().layout("NHWC", "HWIO", "NHWC").padding(Padding::Same))
}

fn two_dimensions() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let images = F32.array_type([2, 16, 16, 4]).on(&mesh, p![_, "X", "Y", _]);
    let filter = F32.array_type([3, 3, 4, 8]);
    let lowered = jit(same).lower((images, filter))?;
    println!("{}", lowered.collectives());
    Ok(())
}
// ANCHOR_END: two

// ANCHOR: layouts
fn layouts() -> Result<()> {
    let ways = [
        ("batch", p![("X", "Y"), _, _, _], p![]),
        ("rows", p![_, ("X", "Y"), _, _], p![]),
        ("rows and columns", p![_, "X", "Y", _], p![]),
        ("features made", p![], p![_, _, _, ("X", "Y")]),
        ("features summed", p![_, _, _, ("X", "Y")], p![]),
    ];
    for (what, images, filter) in ways {
        let mesh = Mesh::new([("X", 4), ("Y", 4)])?;
        let x = F32.array_type([32, 64, 64, 32]).on(&mesh, images);
        let w = F32.array_type([3, 3, 32, 32]).on(&mesh, filter);
        let lowered = jit(same).lower((x, w))?;
        let bytes: u64 = lowered.collectives().iter().map(|c| c.bytes_per_device).sum();
        let kinds: Vec<String> = lowered.collectives().iter().map(|c| c.kind.to_string()).collect();
        println!("{what:18}{bytes:9} bytes per device  {}", kinds.join(", "));
    }
    Ok(())
}
// ANCHOR_END: layouts

// ANCHOR: slopes
fn slopes() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = F32.array_type([8, 32, 32, 4]).on(&mesh, p![_, "X", _, _]);
    let w = F32.array_type([3, 3, 4, 4]);
    let loss = |x: Array, w: Array| same(&x, &w).square().mean(..);
    let f = jit(move |x: &Array, w: &Array| grad((x, w), |(x, w): (Array, Array)| loss(x, w)));
    println!("{}", f.lower((x, w))?.collectives());
    Ok(())
}
// ANCHOR_END: slopes

// ANCHOR: pools
fn pools() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::arange_of(F32.array_type([16]), 0, 1).reshape([4, 4]).put(&mesh, p!["X", _]);
    println!("{}\n{}", x.max_pool([2, 2]), x.avg_pool([2, 2]));
    // Windows of three rows with stride 1 overlap, so they read one row of each neighbour.
    let f = jit(|x: &Array| x.window_max_with([3, 1], atmesh::WindowOptions::default().padding([(1, 1), (0, 0)])));
    println!("{}", f.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: pools

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = F32.array_type([1, 64, 1]).on(&mesh, p![_, "X", _]);
    for dilation in [1, 2, 4] {
        let how = ConvOptions::default().layout("NHC", "HIO", "NHC");
        let f = jit(move |x: &Array| {
            let how = how.clone().dilation([dilation]).padding(Padding::Same);
            x.conv_with(Array::ones([3, 1, 1]), how)
        });
        for c in f.lower(x.clone())?.collectives() {
            println!("dilation {dilation}: {} bytes per device", c.bytes_per_device);
        }
    }
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = F32.array_type([1, 8, 64]).on(&mesh, p![_, _, "X"]);
    let how = || ConvOptions::default().padding(Padding::Same);
    let (depth, point) = (F32.array_type([8, 1, 3]), F32.array_type([16, 8, 1]));
    let f = jit(|x: &Array, depth: &Array, point: &Array| {
        x.conv_with(depth, how().groups(8)).conv_with(point, how())
    });
    println!("{}", f.lower((x, depth, point))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let images = Array::ones([2, 16, 16, 3]); // batch, height, width, features
    let filter = Array::ones([3, 3, 3, 8]); // height, width, features in, features out
    if let Err(e) = images.conv_with(&filter, ConvOptions::default().padding(Padding::Same)).ty() {
        println!("{e}");
    }
    println!("{}", type_of(same(&images, &filter)));
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = F32.array_type([2, 16, 16, 4]).on(&mesh, p![_, "X", _, _]);
    for rows in [1, 3] {
        let lowered = jit(same).lower((x.clone(), F32.array_type([rows, 3, 4, 8])))?;
        println!("{rows} rows: {} collectives", lowered.collectives().len());
    }
    Ok(())
}
// ANCHOR_END: exercise3
