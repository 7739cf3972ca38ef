use crate::model::*;
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== rows");
    rows()?;
    println!("== train");
    train()?;
    println!("== size");
    size()?;
    println!("== half");
    half()?;
    println!("== error");
    error()?;
    println!("== one_half");
    println!("ln 2 = {:.2}", 2f32.ln());
    Ok(())
}

// ANCHOR: rows
fn rows() -> Result<()> {
    let text = Text::read()?;
    let [ids, next] = text.batch(0, Sizes { batch: 2, ..SMALL }, &unsplit([("device", 1)])?);
    for rows in [ids, next] {
        let chars: String = rows.to_vec::<i32>()?.iter().map(|i| text.chars[*i as usize]).collect();
        println!("{chars:?}");
    }
    Ok(())
}
// ANCHOR_END: rows

// ANCHOR: step
fn step(m: &Gpt, ids: &Array, next: &Array) -> (Array, Gpt) {
    let (loss, g) = value_and_grad(m, |m| loss(&m, ids, next));
    (loss, tree::map2(m, &g, |w, g| w - 0.3 * g))
}
// ANCHOR_END: step

// ANCHOR: train
fn train() -> Result<()> {
    let mesh = unsplit([("device", 1)])?;
    let (text, mut m) = (Text::read()?, start(&mesh));
    println!("ln 95 = {:.3}", 95f32.ln());
    let step = jit(step).donate([0]);
    for i in 0..=40 {
        let [ids, next] = text.batch(i, SMALL, &mesh);
        let loss;
        (loss, m) = step.call((m, ids, next))?;
        if i % 10 == 0 {
            println!("step {i:2}: loss {:.3}", loss.item::<f32>()?);
        }
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: size
fn size() -> Result<()> {
    for s in [SMALL, LARGE] {
        let mut parameters = 0;
        gpt(s, |shape, _| parameters += shape.iter().product::<usize>());
        let step = lower(crate::model::step, s, &unsplit([("device", 1)])?)?;
        let [state, peak] = [16 * parameters as u64, step.collectives().peak_bytes()].map(|b| b as f64 / 1e9);
        println!("{parameters} parameters: {state:.4} GB with gradients and slots, {peak:.4} GB in a step");
    }
    Ok(())
}
// ANCHOR_END: size

// ANCHOR: half
fn half() -> Result<()> {
    for seq in [16, 32] {
        let step = lower(crate::model::step, Sizes { seq, ..SMALL }, &unsplit([("device", 1)])?)?;
        println!("{seq} characters in a row: {} kB", step.collectives().peak_bytes() / 1000);
    }
    Ok(())
}
// ANCHOR_END: half

// ANCHOR: error
fn error() -> Result<()> {
    let mesh = Mesh::new([("device", 1)])?.with_logical_axes([("batch", ()), ("embed", ())])?;
    let m = gpt(SMALL, |shape, dims| Array::ones(shape).put_stored(&mesh, dims));
    if let Err(e) = m.layers.up.ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
