//! Gradient descent on typed parameters: each gradient has the type of its parameter's cotangent,
//! so the types say when the gradients are summed over the devices.
use atmesh::prelude::*;
use atmesh::typed::{self, prelude::*};

mesh! { struct Pod { Data: 2, Model: 2 } }

/// The parameters. A gradient is the same struct with other field types.
#[derive(Clone, Tree)]
struct Params<W, V> {
    w: W,
    v: V,
}
type Weights = Params<T![f32; 16, 8@Model], T![f32; 8@Model]>;
type Examples = T![f32; 32@Data, 16];
type Targets = T![f32; 32@Data];

// ANCHOR: step
fn loss(p: &Weights, x: &Examples, y: &Targets) -> T![f32;] {
    let h: T![f32; 32@Data, 8@Model] = x.matmul(&p.w).tanh();
    let out: T![f32; 32@Data] = h.matmul_to(&p.v, P![Data]);
    (out - y).square().mean(..)
}

fn step(p: &Weights, x: &Examples, y: &Targets) -> (Weights, T![f32;]) {
    let (loss, g) = typed::value_and_grad(p, |p| loss(&p, x, y));
    // `g.w` has the type of `p.w`: a different type would not compile.
    (Params { w: &p.w - g.w * 0.5, v: &p.v - g.v * 0.5 }, loss)
}
// ANCHOR_END: step

// ANCHOR: delayed
/// Weights whose gradients are not summed over `Data`, and these gradients.
type Reduced = Params<T![f32; 16, 8@Model; R: Data], T![f32; 8@Model; R: Data]>;
type Partial = Params<T![f32; 16, 8@Model; U: Data], T![f32; 8@Model; U: Data]>;

/// Returns the gradient of one part of a batch: each device's summand.
fn part(p: &Reduced, x: &Examples, y: &Targets) -> Partial {
    typed::grad(p, |p| {
        let h: T![f32; 32@Data, 8@Model] = x.matmul(&p.w).tanh();
        let out: T![f32; 32@Data] = h.matmul_to(&p.v, P![Data]);
        (out - y).square().mean(..)
    })
}

/// Takes one step for a batch of two parts, and sums the gradients over the devices once.
fn delayed(p: &Weights, parts: [(&Examples, &Targets); 2]) -> Weights {
    let marked = Params { w: p.w.reshard(P![=, =; R: Data]), v: p.v.reshard(P![=; R: Data]) };
    let [a, b] = parts.map(|(x, y)| part(&marked, x, y));
    let sum: Partial = Params { w: a.w + b.w, v: a.v + b.v };
    let (w, v) = (sum.w, sum.v);
    Params { w: &p.w - w.reshard(P![=, =]) * 0.25, v: &p.v - v.reshard(P![=]) * 0.25 }
}
// ANCHOR_END: delayed

/// Takes the same step, with a sum over the devices for each part.
fn at_once(p: &Weights, parts: [(&Examples, &Targets); 2]) -> Weights {
    let [a, b] = parts.map(|(x, y)| typed::grad(p, |p| loss(&p, x, y)));
    Params { w: &p.w - (a.w + b.w) * 0.25, v: &p.v - (a.v + b.v) * 0.25 }
}

fn main() -> Result<()> {
    let pod = Pod::mesh()?;
    let [a, b, c] = Key::new(3).split();
    let x: Examples = a.normal([32, 16]).put(&pod, p!["Data"]).typed()?;
    let y: Targets = x.sum(D1).tanh();
    let mut p = Params {
        w: (b.normal([16, 8]) * 0.3).put(&pod, p![_, "Model"]).typed()?,
        v: (c.normal([8]) * 0.3).put(&pod, p!["Model"]).typed()?,
    };
    let train = jit(|p: &Weights, x: &Examples, y: &Targets| step(p, x, y));
    let mut losses = Vec::new();
    for _ in 0..100 {
        let (next, loss) = train.call((&p, &x, &y))?;
        p = next;
        losses.push(loss.item()?);
    }
    println!("loss {:.3} at first, {:.3} after 100 steps", losses[0], losses[99]);
    println!("{}", type_of(&p));
    assert!(losses[99] < losses[0] / 2.0);

    let (x2, y2) = (x.flip(D0), y.flip(D0));
    let late = jit(|p: &Weights, x: &Examples, y: &Targets, x2: &Examples, y2: &Targets| {
        delayed(p, [(x, y), (x2, y2)])
    });
    let early = jit(|p: &Weights, x: &Examples, y: &Targets, x2: &Examples, y2: &Targets| {
        at_once(p, [(x, y), (x2, y2)])
    });
    let over_data = |program: &Jit<'_, _, _>| -> Result<usize> {
        let lowered = program.lower((&p, &x, &y, &x2, &y2))?;
        Ok(lowered.collectives().iter().filter(|c| c.axes.to_string().contains("Data")).count())
    };
    println!(
        "sums over Data in a step of two parts: {} at once, {} delayed",
        over_data(&early)?,
        over_data(&late)?
    );
    let (p, q) = (late.call((&p, &x, &y, &x2, &y2))?, early.call((&p, &x, &y, &x2, &y2))?);
    let difference = (p.w - q.w).abs().max(..).maximum(&(p.v - q.v).abs().max(..)).item()?;
    assert!(difference < 1e-5, "{difference}");
    Ok(())
}
