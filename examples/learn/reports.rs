use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== report");
    report()?;
    println!("== columns");
    columns()?;
    println!("== scale");
    scale()?;
    println!("== find");
    find()?;
    println!("== why");
    why()?;
    println!("== scopes");
    scopes()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: report
fn smooth(x: &Array) -> Array {
    fori_loop(0..10, x, |_, x| {
        let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * (x.slice(ix![..-2]) + x.slice(ix![2..]));
        let x = x.at(ix![1..-1]).set(inner);
        &x / x.square().sum(..).sqrt()
    })
}

fn report() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let x = Key::new(0).uniform([64]).put(&mesh, p!["X"]);
    println!("{}", jit(smooth).lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: report

// ANCHOR: columns
fn columns() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let lowered = jit(smooth).lower(F32.array_type([64]).on(&mesh, p!["X"]))?;
    for c in lowered.collectives() {
        println!("{} for {}, {} × {} bytes: {}", c.kind, c.op, c.count, c.bytes_per_device, c.reason);
    }
    println!("all: {} bytes on the busiest device", lowered.collectives().bytes());
    Ok(())
}
// ANCHOR_END: columns

// ANCHOR: scale
fn scale() -> Result<()> {
    for devices in [8, 65_536] {
        let mesh = Mesh::without_devices([("X", devices)])?;
        let x = F32.array_type([1 << 20]).on(&mesh, p!["X"]);
        println!("{}", jit(|x: &Array| x / x.square().sum(..).sqrt()).lower(x)?.collectives());
    }
    Ok(())
}
// ANCHOR_END: scale

// ANCHOR: find
/// A layer whose author believes that it communicates once.
fn layer(x: &Array, w: &Array, b: &Array) -> Array {
    let h = x.dot_to(w, p![]);
    (&h + b).softmax(-1)
}

fn find() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Array::ones([16, 64]).put(&mesh, p![_, "X"]);
    let w = Array::ones([64, 32]).put(&mesh, p!["X", _]);
    let b = Array::zeros([32]).put(&mesh, p![]);
    let lowered = jit(layer).lower((&x, &w, &b))?;
    assert_collectives!(lowered, AllReduce("X") x 1); // fails if there is another collective
    println!("{}", lowered.collectives());
    // Now the columns of `w` are sharded, and the softmax communicates twice.
    let lowered = jit(|x: &Array, w: &Array, b: &Array| (x.dot(w) + b).softmax(-1));
    let lowered = lowered.lower((x.put(&mesh, p![]), w.put(&mesh, p![_, "X"]), &b))?;
    println!("{}", lowered.collectives());
    Ok(())
}
// ANCHOR_END: find

// ANCHOR: why
fn why() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let (x, w) = (|| F32.array_type([512, 64]).on(&mesh, p!["X", _]), || F32.array_type([64, 32]).on(&mesh, p![]));
    let step = jit(|x: &Array, w: &Array| grad(w, |w| x.dot(w).square().sum(..)));
    println!("{}", step.lower((x(), w()))?.collectives());
    println!("{}", step.explain((x(), w()), 0)?);
    Ok(())
}
// ANCHOR_END: why

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let lowered = jit(smooth).lower(F32.array_type([64]).on(&mesh, p!["X"]))?;
    let halo = lowered.collectives().iter().find(|c| c.kind == atmesh::CollectiveKind::Halo);
    println!(
        "{} bytes a step: the width of a halo does not depend on the number of devices",
        halo.map_or(0, |c| c.bytes_per_device)
    );
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = F32.array_type([64, 64]).on(&mesh, p!["X", _]);
    for gathered in [false, true] {
        let f = jit(move |x: &Array| (if gathered { x.reshard(p![]) } else { x.clone() }).exp().sum(1));
        let lowered = f.lower(x.clone())?;
        println!(
            "gathered: {gathered}, {} bytes moved, peak {} bytes",
            lowered.collectives().bytes(),
            lowered.collectives().peak_bytes()
        );
    }
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: scopes
fn scopes() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Array::ones([64, 32]).put(&mesh, p!["X"]);
    let ws = vec![Array::ones([32, 32]).put(&mesh, p!["X"]); 2];
    let layers = |x: &Array, ws: &Vec<Array>| {
        ws.iter().enumerate().fold(x.clone(), |x, (k, w)| {
            named_scope(format!("layer{k}"), || x.dot(w.reshard(p![])).tanh())
        })
    };
    let step = |x: &Array, ws: &Vec<Array>| grad(ws, |ws| layers(x, &ws).square().sum(..));
    println!("{}", jit(step).lower((&x, &ws))?.collectives());
    Ok(())
}
// ANCHOR_END: scopes

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = F32.array_type([64, 32]).on(&mesh, p!["X", _]);
    let lowered = jit(|x: &Array| x.sum_to(0, p!["X"])).lower(x)?;
    let test = std::panic::AssertUnwindSafe(|| assert_collectives!(lowered, AllReduce("X") x 1));
    std::panic::set_hook(Box::new(|_| {}));
    let failure = std::panic::catch_unwind(test).expect_err("it is a reduce-scatter");
    drop(std::panic::take_hook());
    println!("{}", failure.downcast_ref::<String>().map_or("", |text| text));
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let lowered = jit(|x: &Array| x.softmax(0)).lower(F32.array_type([64]).on(&mesh, p!["X"]))?;
    println!("{}", lowered.collectives());
    Ok(())
}
// ANCHOR_END: exercise3
