use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== captured");
    captured()?;
    println!("== unrolled");
    unrolled()?;
    println!("== toy");
    toy()?;
    println!("== numpy");
    numpy()?;
    println!("== beyond");
    beyond()?;
    println!("== subnormal");
    subnormal()?;
    println!("== errors");
    errors()?;
    println!("== prints");
    prints()?;
    println!("== exercise1");
    exercise_1()
}

// ANCHOR: captured
fn captured() -> Result<()> {
    let x = Array::ones([3]);
    let mut rate = 0.5;
    let fixed = jit(move |x: &Array| rate * x);
    let free = jit(|x: &Array, rate: &Array| rate * x);
    println!("{} {}", fixed.call(&x)?, free.call((&x, rate))?);
    rate = 0.25;
    println!("{} {}", fixed.call(&x)?, free.call((&x, rate))?);
    Ok(())
}
// ANCHOR_END: captured

// ANCHOR: unrolled
fn unrolled() -> Result<()> {
    let x = Array::ones([4]);
    let rust = jit(|x: &Array| (0..100).fold(x.clone(), |x, _| 0.5 * x + 1.0));
    let looped = jit(|x: &Array| fori_loop(0..100, x, |_, x| 0.5 * x + 1.0));
    for f in [rust, looped] {
        println!("{} lines", f.trace(&x)?.program().to_string().lines().count());
    }
    Ok(())
}
// ANCHOR_END: unrolled

// ANCHOR: toy
fn toy() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 8)])?;
    let step = jit(|w: &Array, x: &Array| grad(w, |w| x.dot(w).square().mean(..)));
    for batch in [8, 64, 4096] {
        let x = F32.array_type([batch, 64]).on(&mesh, p!["data"]);
        let w = F32.array_type([64, 64]).on(&mesh, p![]);
        let lowered = step.lower((w, x))?;
        let rows: Vec<String> =
            lowered.collectives().iter().map(|c| format!("{} {} B", c.kind, c.bytes_per_device)).collect();
        println!("batch {batch:4}: {}", rows.join(", "));
    }
    Ok(())
}
// ANCHOR_END: toy

// ANCHOR: numpy
fn numpy() -> Result<()> {
    let (x, y) = (Array::from([7, -7]), Array::from([2, 2]));
    println!("x / y     {}, floor_divide {}", &x / &y, x.floor_divide(&y));
    println!("x % y     {}, remainder    {}", &x % &y, x.remainder(&y));
    let halves = Array::from([0.5f32, 1.5, 2.5]);
    println!("round     {}, rint         {}", halves.round(), halves.rint());
    println!("i8 + i8   {}", Array::from([100i8]) + Array::from([100i8]));
    let error = (Array::from([1]) + Array::from([0.5f32])).ty().err().map(|e| e.to_string());
    println!("{}", error.unwrap_or_default());
    Ok(())
}
// ANCHOR_END: numpy

// ANCHOR: beyond
fn beyond() -> Result<()> {
    let (x, ids) = (Array::arange(0.0..4.0f32), Array::from([0, 9, -1]));
    println!("slice {}", x.slice(ix![&ids]));
    println!("take  {}", x.take(&ids, 0));
    println!("set   {}", x.at(ix![&ids]).set(8.0));
    if let Err(e) = x.slice(ix![9]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: beyond

// ANCHOR: subnormal
fn subnormal() -> Result<()> {
    let fade = |x: &Array| fori_loop(0..140, x, |_, x| 0.5 * x);
    let (keep, flush) = (jit(fade), jit(fade).flush_subnormals(true));
    println!("{:e}, {:e}", keep.call(1.0f32)?.item::<f32>()?, flush.call(1.0f32)?.item::<f32>()?);
    Ok(())
}
// ANCHOR_END: subnormal

// ANCHOR: errors
fn errors() -> Result<()> {
    let (a, b) = (Array::ones([2]), Array::ones([3]));
    let sum = &a + &b; // nothing is reported here
    let twice = 2.0 * sum; // nor here
    if let Err(e) = twice.to_vec::<f32>() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: errors

// ANCHOR: prints
fn prints() -> Result<()> {
    let f = jit(|x: &Array| {
        println!("traced: {}", type_of(x));
        2 * x
    });
    for x in [Array::from([1]), Array::from([2]), Array::from([1, 2])] {
        println!("result: {}", f.call(&x)?);
    }
    Ok(())
}
// ANCHOR_END: prints

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let (x, y) = (Array::from([7.0f32, -7.0]), Array::from([2.0f32, 2.0]));
    println!("{} {} {}", &x / &y, x.floor_divide(&y), x.remainder(&y));
    Ok(())
}
// ANCHOR_END: exercise1
