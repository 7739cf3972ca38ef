//! Gradient descent on typed parameters: each gradient has the type of its parameter.
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use atmesh::value_and_grad;

mesh! { struct Pod { Data: 2, Model: 2 } }

#[derive(Clone, Tree)]
struct Params {
    w: T![f32; 16, 8@Model],
    v: T![f32; 8@Model],
}
type Examples = T![f32; 32@Data, 16];
type Targets = T![f32; 32@Data];

// ANCHOR: step
fn loss(p: &Params, x: &Examples, y: &Targets) -> T![f32;] {
    let h: T![f32; 32@Data, 8@Model] = x.matmul(&p.w).tanh();
    let out: T![f32; 32@Data] = h.matmul_to(&p.v, P![Data]);
    (out - y).square().mean(..)
}

fn step(p: &Params, x: &Examples, y: &Targets) -> (Params, T![f32;]) {
    let (loss, g) = value_and_grad(p, |p| loss(&p, x, y));
    // `g.w` has the type of `p.w`: a different type would not compile.
    (Params { w: &p.w - g.w * 0.5, v: &p.v - g.v * 0.5 }, loss)
}
// ANCHOR_END: step

fn main() -> Result<()> {
    let pod = Pod::mesh()?;
    let [a, b, c] = Key::new(3).split();
    let x: Examples = a.normal([32, 16]).put(&pod, p!["Data"]).typed()?;
    let y: Targets = x.sum(D1).tanh();
    let mut p = Params {
        w: (b.normal([16, 8]) * 0.3).put(&pod, p![_, "Model"]).typed()?,
        v: (c.normal([8]) * 0.3).put(&pod, p!["Model"]).typed()?,
    };
    let train = jit(|p: &Params, x: &Examples, y: &Targets| step(p, x, y));
    let mut losses = Vec::new();
    for _ in 0..100 {
        let (next, loss) = train.call((&p, &x, &y))?;
        p = next;
        losses.push(loss.item()?);
    }
    println!("loss {:.3} at first, {:.3} after 100 steps", losses[0], losses[99]);
    println!("{}", type_of(&p));
    assert!(losses[99] < losses[0] / 2.0);
    Ok(())
}
