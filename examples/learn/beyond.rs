use atmesh::stablehlo::{Options, Annotate};
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== text");
    text()?;
    println!("== ports");
    ports()?;
    println!("== save");
    save()?;
    println!("== exercise1");
    exercise_1();
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: text
fn text() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([8, 4]).put(&mesh, p!["X"]);
    let module = jit(|x: &Array| (x * 2.0).sum(0)).trace(&x)?.to_stablehlo_with(Options::default())?;
    println!("{module}");
    Ok(())
}
// ANCHOR_END: text

// ANCHOR: net
#[derive(Tree, Clone)]
struct Net {
    up: Array,
    down: Array,
}

fn loss(net: &Net, x: &Array) -> Array {
    let h = x.dot(&net.up).tanh();
    h.dot_to(&net.down, p!["data", _]).square().mean(..)
}

fn step(net: &Net, x: &Array) -> (Array, Net) {
    let (loss, g) = value_and_grad(net, |net| loss(&net, x));
    (loss, tree::map2(net, &g, |w, g| w - 0.1 * g))
}

fn started() -> Result<(Net, Array)> {
    let mesh = Mesh::new([("data", 2), ("model", 4)])?;
    let [a, b, c] = Key::new(1).split();
    let up = a.normal([16, 32]).put(&mesh, p![_, "model"]);
    let down = b.normal([32, 16]).put(&mesh, p!["model", _]);
    Ok((Net { up, down }, c.normal([8, 16]).put(&mesh, p!["data", _])))
}
// ANCHOR_END: net

// ANCHOR: ports
fn ports() -> Result<()> {
    let (net, x) = started()?;
    let module = jit(step).trace((&net, &x))?.to_stablehlo()?;
    println!("{} devices", module.devices());
    for (what, ports) in [("in", module.arguments()), ("out", module.results())] {
        for p in ports {
            println!("{what:3} {:7} {:24} {}", p.name, p.ty, p.sharding.as_deref().unwrap_or(""));
        }
    }
    Ok(())
}
// ANCHOR_END: ports

// ANCHOR: save
fn save() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("beyond-{}", std::process::id()));
    let (net, x) = started()?;
    let jitted = jit(step);
    jitted.trace((&net, &x))?.to_stablehlo()?.save(&folder)?;
    // Save the inputs, and print the loss of the first step for comparison.
    for (name, a) in [("up", &net.up), ("down", &net.down), ("x", &x)] {
        a.save_npy(folder.join(format!("{name}.npy")))?;
    }
    println!("loss {}", jitted.call((&net, &x))?.0);
    let files = std::fs::read_dir(&folder).map_err(atmesh::Error::other)?;
    let mut names: Vec<_> = files.filter_map(|f| f.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    println!("{}", names.join(" "));
    std::fs::remove_dir_all(&folder).map_err(atmesh::Error::other)
}
// ANCHOR_END: save

// ANCHOR: exercise1
fn exercise_1() {
    let run = || -> Result<_> {
        let mesh = Mesh::auto([("X", 4)])?;
        let x = Array::ones([102]).put(&mesh, p!["X"]);
        jit(|x: &Array| x + 1.0).trace(&x)?.to_stablehlo()
    };
    println!("{}", run().expect_err("XLA splits evenly"));
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let (net, x) = started()?;
    for annotate in [Annotate::Requested, Annotate::Explicit, Annotate::All] {
        let module = jit(step).trace((&net, &x))?.to_stablehlo_with(Options::default().shardings(annotate))?;
        let n = module.text().matches("sdy.sharding_constraint").count();
        println!("{annotate:?}: {n} constraints in {} lines", module.text().lines().count());
    }
    Ok(())
}
// ANCHOR_END: exercise2
