//! Word vectors: an embedding table with rows sharded over 8 devices, and its gradient descent.
use atmesh::prelude::*;
use atmesh::{IndexMode, IndexOptions};

const WORDS: usize = 4096;
const SIZE: usize = 16;

// ANCHOR: loss
/// Returns a loss that makes the dot product large for words that occur together, else small.
fn loss(table: &Array, word: &Array, near: &Array, far: &Array) -> Array {
    // Looking up all rows together takes one all-reduce of what each device has.
    let rows = table.take_to(&concat([word, near, far], 0), 0, p![]);
    let n = word.shape().map_or(0, |s| s[0]) as i64;
    let [word, near, far] = [ix![..n], ix![n..2 * n], ix![2 * n..]].map(|part| rows.slice(part));
    let apart = |a: &Array, b: &Array| (a * b).sum(1);
    (apart(&word, &far).softplus() + (-apart(&word, &near)).softplus()).mean(..)
}

fn step(table: &Array, word: &Array, near: &Array, far: &Array) -> (Array, Array) {
    let (loss, slope) = value_and_grad(table, |table| loss(&table, word, near, far));
    (table - slope * 20.0, loss)
}
// ANCHOR_END: loss

// ANCHOR: run
fn main() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let [a, b, c, d] = Key::new(0).split();
    let table = (a.normal([WORDS, SIZE]) * 0.5).put(&mesh, p!["X"]);
    // Words from the same eighth of the vocabulary occur together.
    let part = WORDS as i32 / 8;
    let word = b.randint([256], 0..WORDS as i64);
    let near = &word / part * part + c.randint([256], 0..part as i64);
    let far = d.randint([256], 0..WORDS as i64);

    let f = jit(step);
    println!("{}", f.lower((&table, &word, &near, &far))?.collectives());
    let (mut t, mut losses) = (table.clone(), Vec::new());
    for _ in 0..60 {
        let (next, loss) = f.call((&t, &word, &near, &far))?;
        (t, losses) = (next, [losses, vec![loss.item::<f32>()?]].concat());
    }
    println!("loss {:.2}, then {:.2}", losses[0], losses[59]);
    println!("{}", type_of(&t));

    // Out-of-range ids give NaN by default; `Clip` gives the last row instead.
    let ids = Array::from([3, 9999]);
    println!("{}", t.take_to(&ids, 0, p![]).is_nan().any(1));
    let clip = IndexOptions::default().mode(IndexMode::Clip).out_sharding(p![]);
    println!("{}", t.take_with(&ids, 0, clip).is_nan().any(1));
    Ok(())
}
// ANCHOR_END: run
