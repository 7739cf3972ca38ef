use atmesh::nn::init;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== one");
    one()?;
    println!("== eight");
    eight()?;
    println!("== error");
    error()?;
    println!("== both");
    both()?;
    println!("== sizes");
    sizes()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: model
#[derive(Clone, Tree)]
struct Net<T = Array> {
    up: T,
    down: T,
}

fn loss(net: &Net, x: &Array, y: &Array) -> Array {
    let hidden = x.dot(&net.up).relu();
    (hidden.dot(&net.down) - y).square().mean(..)
}
// ANCHOR_END: model

// ANCHOR: step
fn step(net: &Net, x: &Array, y: &Array) -> (Array, Net) {
    let (loss, g) = value_and_grad(net, |net| loss(&net, x, y));
    (loss, tree::map2(net, &g, |w, g| w - 0.5 * g))
}
// ANCHOR_END: step

// ANCHOR: start
/// Returns a network with random weights, and examples of what it should compute: `|x|`.
fn start() -> (Net, Array, Array) {
    let [a, b, c] = Key::new(0).split();
    let net = Net { up: init::he_normal(&a, [16, 64]), down: init::he_normal(&b, [64, 16]) };
    let x = c.normal([1024, 16]);
    let y = x.abs();
    (net, x, y)
}
// ANCHOR_END: start

// ANCHOR: one
fn one() -> Result<()> {
    let (mut net, x, y) = start();
    let step = jit(step);
    for i in 0..=100 {
        let (loss, next) = step.call((&net, &x, &y))?;
        net = next;
        if i % 25 == 0 {
            println!("step {i:3}: loss {:.3}", loss.item::<f32>()?);
        }
    }
    Ok(())
}
// ANCHOR_END: one

// ANCHOR: eight
fn eight() -> Result<()> {
    let mesh = Mesh::new([("data", 8)])?;
    let (net, x, y) = start();
    let net = tree::put(&net, &mesh, p![]); // all weights on each device
    let (x, y) = (x.put(&mesh, p!["data", _]), y.put(&mesh, p!["data", _])); // 128 examples each
    let step = jit(step);
    let (loss, next) = step.call((&net, &x, &y))?;
    println!("loss {:.3}, up: {}", loss.item::<f32>()?, type_of(&next.up));
    println!("{}", step.lower((&net, &x, &y))?.collectives());
    Ok(())
}
// ANCHOR_END: eight

// ANCHOR: split
/// Splits examples over `data`, the columns of `up` and the rows of `down` over `model`.
fn split() -> Result<(Net, Array, Array)> {
    let mesh = Mesh::new([("data", 2), ("model", 4)])?;
    let (net, x, y) = start();
    let up = net.up.put(&mesh, p![_, "model"]);
    let down = net.down.put(&mesh, p!["model", _]);
    Ok((Net { up, down }, x.put(&mesh, p!["data", _]), y.put(&mesh, p!["data", _])))
}
// ANCHOR_END: split

// ANCHOR: error
fn error() -> Result<()> {
    let (net, x, y) = split()?;
    if let Err(e) = jit(step).call((&net, &x, &y)) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error

// ANCHOR: both
fn split_loss(net: &Net, x: &Array, y: &Array) -> Array {
    let hidden = x.dot(&net.up).relu();
    (hidden.dot_to(&net.down, p!["data", _]) - y).square().mean(..)
}

fn split_step(net: &Net, x: &Array, y: &Array) -> (Array, Net) {
    let (loss, g) = value_and_grad(net, |net| split_loss(&net, x, y));
    (loss, tree::map2(net, &g, |w, g| w - 0.5 * g))
}

fn both() -> Result<()> {
    let (net, x, y) = split()?;
    let step = jit(split_step);
    let (loss, next) = step.call((&net, &x, &y))?;
    println!("loss {:.3}, up: {}, down: {}", loss.item::<f32>()?, type_of(&next.up), type_of(&next.down));
    println!("{}", step.lower((&net, &x, &y))?.collectives());
    Ok(())
}
// ANCHOR_END: both

// ANCHOR: sizes
fn sizes() -> Result<()> {
    for (data, model) in [(8, 1), (2, 4), (1, 8)] {
        let mesh = Mesh::without_devices([("data", data), ("model", model)])?;
        let up = F32.array_type([1024, 4096]).on(&mesh, p![_, "model"]);
        let down = F32.array_type([4096, 1024]).on(&mesh, p!["model", _]);
        let x = F32.array_type([4096, 1024]).on(&mesh, p!["data", _]);
        let lowered = jit(split_step).lower((Net { up, down }, x.clone(), x))?;
        let (moved, held) = (lowered.collectives().bytes() >> 20, lowered.collectives().peak_bytes() >> 20);
        println!("{data} × {model}: {moved:3} MiB {:10} {held:3} MiB {}", bar(moved), bar(held));
    }
    Ok(())
}

fn bar(mib: u64) -> String {
    "▇".repeat(mib as usize / 8)
}
// ANCHOR_END: sizes

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let (net, x, _) = split()?;
    println!("{}", type_of(x.dot(&net.up)));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("data", 8)])?;
    let f = jit(|x: &Array| x.put(&mesh, p!["data", _]).sum(0));
    println!("{}", type_of(f.call(Array::ones([16, 2]))?));
    println!("{}", f.lower(Array::ones([16, 2]))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise2
