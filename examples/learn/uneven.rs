use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== auto");
    auto()?;
    println!("== error");
    error()?;
    println!("== pad");
    pad()?;
    println!("== mean");
    mean()?;
    println!("== lengths");
    lengths()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: auto
fn auto() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let x = Array::arange(1.0..11.0f32).put(&mesh, p!["X"]);
    println!("{}", x.visualize());
    for shard in x.shards()? {
        println!("{} holds {}", shard.device, shard.data);
    }
    println!("sum {}, mean {}", x.sum(..), x.mean(..));
    Ok(())
}
// ANCHOR_END: auto

// ANCHOR: error
fn error() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    if let Err(e) = Array::arange(1.0..11.0f32).put(&mesh, p!["X"]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error

// ANCHOR: pad
fn pad() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(1.0..11.0f32);
    let padded = x.pad(0.0, [(0, 2, 0)]).put(&mesh, p!["X"]); // 12 elements
    println!("{}: sum {}, mean {}", type_of(&padded), padded.sum(..), padded.mean(..));
    Ok(())
}
// ANCHOR_END: pad

// ANCHOR: mean
fn mean() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(1.0..11.0f32).pad(0.0, [(0, 2, 0)]).put(&mesh, p!["X"]);
    let is_real = Array::arange(0..12).lt(10).put(&mesh, p!["X"]);
    println!("mean {}", is_real.select(&x, 0.0).sum(..) / is_real.count_nonzero(..).astype(F32));
    println!("minimum {} of {}", is_real.select(&x, f64::INFINITY).min(..), x.min(..));
    Ok(())
}
// ANCHOR_END: mean

// ANCHOR: lengths
/// Returns the mean of each row over its first elements.
fn row_means(x: &Array, lengths: &Array) -> Array {
    let position = Array::arange(0..5);
    let is_real = position.lt(lengths.reshape([4, 1])); // [4, 5]
    is_real.select(x, 0.0).sum(1) / lengths.astype(F32)
}

fn lengths() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::ones([4, 5]).put(&mesh, p!["X", _]);
    let lengths = Array::from([5, 2, 3, 1]).put(&mesh, p!["X"]);
    let means = row_means(&x, &lengths);
    println!("{}: {means}", type_of(&means));
    Ok(())
}
// ANCHOR_END: lengths

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let x = Array::arange(0.0..13.0f32).put(&mesh, p!["X"]);
    let sizes: Vec<usize> = x.shards()?.iter().map(|s| s.index[0].len()).collect();
    println!("{sizes:?}");
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let x = Array::arange(1.0..14.0f32);
    let padded = x.pad(0.0, [(0, 3, 0)]);
    println!("{} {} {}", x.mean(..), padded.mean(..), padded.sum(..) / 13.0);
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let x = Array::from([-3.0f32, -1.0, -2.0]);
    println!("{} {}", x.pad(0.0, [(0, 1, 0)]).max(..), x.pad(f32::NEG_INFINITY, [(0, 1, 0)]).max(..));
    Ok(())
}
// ANCHOR_END: exercise3
