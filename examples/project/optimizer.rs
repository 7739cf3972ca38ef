use crate::model::*;
use atmesh::optim::{self, OptState, Optimizer};
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== rates");
    rates()?;
    println!("== schedule");
    schedule()?;
    println!("== clip");
    clip()?;
    println!("== state");
    state()?;
    println!("== error");
    error()
}

fn print(losses: &[f32]) {
    for (i, loss) in losses.iter().enumerate().filter(|(i, _)| i % 5 == 0) {
        println!("step {i:2}: loss {loss:.3}");
    }
}

// ANCHOR: train
fn losses() -> Result<()> {
    print(&train(step, 21, &unsplit([("device", 1)])?)?);
    Ok(())
}
// ANCHOR_END: train

/// Returns the mean of the last five losses of 20 steps.
fn after(opt: &Optimizer) -> Result<f32> {
    let mesh = unsplit([("device", 1)])?;
    let (text, mut m, mut sum) = (Text::read()?, start(&mesh), 0.0);
    // ANCHOR: rates
    let mut state = opt.init(&m)?;
    let step = jit(|m: &Gpt, state: &OptState, ids: &Array, next: &Array| {
        let (loss, g) = value_and_grad(m, |m| loss(&m, ids, next));
        let (m, state) = opt.step(m, &g, state);
        (loss, m, state)
    });
    for i in 0..20 {
        let [ids, next] = text.batch(i, SMALL, &mesh);
        let loss;
        (loss, m, state) = step.call((&m, &state, &ids, &next))?;
        sum += if i < 15 { 0.0 } else { loss.item::<f32>()? };
    }
    // ANCHOR_END: rates
    Ok(sum / 5.0)
}

// ANCHOR: compare
fn rates() -> Result<()> {
    for rate in [0.01, 0.1, 1.0] {
        println!("sgd  {rate:5}: loss {:.2}", after(&optim::sgd(rate))?);
    }
    for rate in [0.001, 0.01, 0.1] {
        println!("adam {rate:5}: loss {:.2}", after(&optim::adam(rate))?);
    }
    Ok(())
}
// ANCHOR_END: compare

// ANCHOR: schedule
fn schedule() -> Result<()> {
    let rate = optim::warmup_cosine_decay_schedule(0.0, 1e-2, 5, 40, 1e-3);
    for count in [0, 1, 5, 20, 40, 100] {
        println!("after {count:3} steps: {:.4}", rate.at(count).item::<f32>()?);
    }
    Ok(())
}
// ANCHOR_END: schedule

// ANCHOR: clip
fn clip() -> Result<()> {
    let g = Array::from([3.0f32, 4.0]); // its norm is 5
    let opt = optim::clip_by_global_norm(1.0);
    let (clipped, _) = opt.update(&g, &opt.init(&g)?, &g);
    println!("{clipped}");
    Ok(())
}
// ANCHOR_END: clip

// ANCHOR: state
fn state() -> Result<()> {
    let state = optimizer().init(&start(&unsplit([("device", 1)])?))?;
    for (path, array) in tree::paths(&state).iter().zip(tree::leaves(&state)).take(4) {
        println!("{path:24} {}", type_of(array));
    }
    Ok(())
}
// ANCHOR_END: state

// ANCHOR: error
fn error() -> Result<()> {
    let m = start(&unsplit([("device", 1)])?);
    let state = optim::sgd(0.1).init(&m)?;
    let (m, _) = optimizer().step(&m, &m, &state);
    if let Err(e) = m.layers.up.ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
