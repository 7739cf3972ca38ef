use atmesh::ImplicitReshard;
use atmesh::prelude::*;
use std::panic::AssertUnwindSafe;

fn main() -> Result<()> {
    println!("== meshes");
    meshes()?;
    println!("== communication");
    communication()?;
    println!("== more");
    more()?;
    println!("== deny");
    deny()?;
    println!("== gradient");
    gradient()?;
    println!("== tolerance");
    tolerance()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: meshes
/// The function under test: a softmax over features, and a mean over examples.
fn layer(x: &Array) -> Array {
    x.softmax(1).mean(0)
}

fn meshes() -> Result<()> {
    let x = Key::new(0).normal([8, 6]);
    let expected = layer(&x);
    for (n, spec) in [(2, p!["X", _]), (4, p!["X", _]), (3, p![_, "X"])] {
        let mesh = Mesh::new([("X", n)])?;
        let got = layer(&x.put(&mesh, spec));
        println!("{n} devices, {spec}: {}, agrees: {}", type_of(&got), got.allclose(&expected)?);
    }
    Ok(())
}
// ANCHOR_END: meshes

// ANCHOR: communication
fn communication() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = F32.array_type([64, 32]).on(&mesh, p!["X", _]);
    let lowered = jit(layer).lower(x)?;
    assert_collectives!(lowered, AllReduce("X") x 1);
    assert_eq!(lowered.collectives().bytes(), 2 * 32 * 4 * 3 / 4); // 2V(n-1)/n
    println!("{}", lowered.collectives());
    Ok(())
}
// ANCHOR_END: communication

// ANCHOR: more
fn more() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = F32.array_type([64, 32]).on(&mesh, p!["X", _]);
    let wrong = jit(|x: &Array| x.softmax(0).mean(0)).lower(x)?; // over the split dimension
    let test = AssertUnwindSafe(|| assert_collectives!(wrong, AllReduce("X") x 1));
    let check = std::panic::catch_unwind(test);
    if let Err(message) = check {
        println!("{}", message.downcast_ref::<String>().map_or("", |text| text));
    }
    Ok(())
}
// ANCHOR_END: more

// ANCHOR: deny
fn deny() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let x = F32.array_type([64, 64]).on(&mesh, p!["X", _]);
    let strict = jit(|x: &Array| x + x.t()).implicit_reshard(ImplicitReshard::Deny(1024));
    if let Err(e) = strict.lower(x) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: deny

// ANCHOR: gradient
fn gradient() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let [xk, vk] = Key::new(0).split();
    let (x, v) = (xk.normal(F64.array_type([4, 3])), vk.normal(F64.array_type([4, 3])));
    let (x, v) = (x.put(&mesh, p!["X"]), v.put(&mesh, p!["X"]));
    let f = |x: &Array| layer(x).square().sum(..);
    let slope = (grad(&x, |x| f(&x)) * &v).sum(..).item::<f64>()?;
    let h = 1e-5;
    let finite = (f(&(&x + h * &v)) - f(&(&x - h * &v))).item::<f64>()? / (2.0 * h);
    println!("{}", (slope - finite).abs() < 1e-8);
    Ok(())
}
// ANCHOR_END: gradient

// ANCHOR: tolerance
fn tolerance() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Key::new(1).normal([1000]);
    let split = x.put(&mesh, p!["X"]);
    println!("elementwise: same bits {}", x.exp().array_equal(&split.exp())?);
    println!("a maximum:   same bits {}", x.max(..).array_equal(&split.max(..))?);
    println!("a sum:       same bits {}", x.sum(..).array_equal(&split.sum(..))?);
    println!("a sum:       close     {}", x.sum(..).allclose(&split.sum(..))?);
    Ok(())
}
// ANCHOR_END: tolerance

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let draw = |mesh: &Mesh| Key::new(5).normal(F32.array_type([8]).on(mesh, p!["X"]));
    let (two, eight) = (Mesh::new([("X", 2)])?, Mesh::new([("X", 8)])?);
    println!("{}", draw(&two).array_equal(&draw(&eight))?);
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let x = Key::new(0).normal([64]);
    let split = x.put(&Mesh::new([("X", 4)])?, p!["X"]);
    println!("{} {}", (2.0 * &split).array_equal(&(2.0 * &x))?, split.sum(..).allclose(&x.sum(..))?);
    Ok(())
}
// ANCHOR_END: exercise2
