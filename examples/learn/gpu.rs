use atmesh::Precision;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== train");
    train(1)?;
    println!("== precision");
    precision()?;
    println!("== mistake");
    mistake();
    println!("== exercise1");
    train(4)
}

fn train(gpus: usize) -> Result<()> {
    // ANCHOR: train
    let mesh = Mesh::new([("data", gpus)])?; // a device of the mesh is a GPU
    let [a, b] = Key::new(0).split();
    let x = a.normal([256, 64]).put(&mesh, p!["data", _]);
    let mut w = b.normal([64, 8]).put(&mesh, p![]);
    let step = jit(|w: &Array, x: &Array| {
        let (loss, g) = value_and_grad(w, |w| x.dot(&w).tanh().square().mean(..));
        (w - g, loss)
    });
    for k in 0..=100 {
        let (next, loss) = step.call((&w, &x))?;
        w = next;
        if k % 50 == 0 {
            println!("step {k:3}: loss {:.3}", loss.item::<f32>()?);
        }
    }
    // ANCHOR_END: train
    Ok(())
}

// ANCHOR: precision
fn precision() -> Result<()> {
    let (x, w) = (F32.array_type([256, 64]), F32.array_type([64, 8]));
    for precision in [Precision::Highest, Precision::Default] {
        let options = DotOptions::default().precision(precision);
        let f = jit(move |x: &Array, w: &Array| x.matmul_with(w, options));
        let module = f.trace((&x, &w))?.to_stablehlo()?;
        let product = module.text().lines().find(|line| line.contains("dot_general"));
        println!("{precision:?}: {}", product.is_some_and(|line| line.contains("HIGHEST")));
    }
    Ok(())
}
// ANCHOR_END: precision

// ANCHOR: mistake
fn mistake() {
    let f = jit(|x: &Array| {
        let y = x.exp();
        debug_print!("{}", y);
        y.sum(..)
    });
    let module = f.trace(Array::ones([8])).and_then(|traced| traced.to_stablehlo());
    println!("{}", module.expect_err("XLA has no prints"));
}
// ANCHOR_END: mistake
