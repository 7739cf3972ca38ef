//! Two towers that learn which items a user takes: each pair of a batch has the items of all other
//! pairs as its wrong answers. Written from the book's pages on layers, optimizers and products.

use atmesh::optim::{self, OptState};
use atmesh::{nn, prelude::*};

const USERS: usize = 32;
const ITEMS: usize = 16;
const GROUPS: i32 = 4;

#[derive(Clone, Tree)]
struct Towers<T = Array> {
    users: T, // [32, 8]
    items: T, // [16, 8]
}

fn unit(x: Array) -> Array {
    &x / x.square().sum(Dims::keep(1)).sqrt()
}

/// Returns the similarity of each user of a batch with each of these items.
fn scores(towers: &Towers, users: &Array, items: &Array) -> Array {
    let (u, v) = (unit(nn::embed(&towers.users, users)), unit(nn::embed(&towers.items, items)));
    // rows over `data` times columns over `data` has no type: every user meets all items
    8.0 * u.dot(v.reshard(p![]).t())
}

/// Pair k of the batch is right at column k.
fn loss(towers: &Towers, users: &Array, items: &Array, right: &Array) -> Array {
    nn::softmax_cross_entropy_with_integer_labels(&scores(towers, users, items), right).mean(..)
}

/// Draws pairs: a user, and an item of the group of the user.
fn pairs(key: Key) -> (Array, Array) {
    let [a, b] = key.split();
    let users = a.randint([16], 0..USERS as i64);
    let items = &users % GROUPS + GROUPS * b.randint([16], 0..ITEMS as i64 / GROUPS as i64);
    (users, items)
}

/// Trains 80 steps with arrays that `place` puts on devices; returns the losses and the towers.
fn train(place: &dyn Fn(&Array, Spec) -> Array) -> Result<(Vec<f32>, Towers)> {
    let [uk, ik] = Key::new(5).split();
    let start = Towers { users: 0.5 * uk.normal([USERS, 8]), items: 0.5 * ik.normal([ITEMS, 8]) };
    let mut towers = tree::map(&start, |x| place(x, p![]));
    let opt = optim::chain([optim::clip_by_global_norm(1.0), optim::adamw(0.05)]);
    let mut state = opt.init(&towers)?;
    let step = jit(|towers: &Towers, state: &OptState, users: &Array, items: &Array, right: &Array| {
        let (loss, g) = value_and_grad(towers, |towers| loss(&towers, users, items, right));
        let (towers, state) = opt.step(towers, &g, state);
        (towers, state, loss)
    });
    let right = place(&Array::arange(0..16), p!["data"]);
    let mut losses = Vec::new();
    for n in 0..80 {
        let (users, items) = pairs(Key::new(6).fold_in(n));
        let (users, items) = (place(&users, p!["data"]), place(&items, p!["data"]));
        let loss;
        (towers, state, loss) = step.call((&towers, &state, &users, &items, &right))?;
        losses.push(loss.item::<f32>()?);
    }
    Ok((losses, towers))
}

/// Returns the share of users whose best item is of their group.
fn recall(towers: &Towers) -> Result<f32> {
    let (users, items) = (Array::arange(0..USERS as i32), Array::arange(0..ITEMS as i32));
    let best = scores(towers, &users, &items).argmax(1);
    (best % GROUPS).eq(users % GROUPS).mean(..).item::<f32>()
}

#[test]
fn towers_find_the_items_of_a_user() -> Result<()> {
    let mesh = Mesh::new([("data", 4)])?;
    let (one, towers) = train(&|x, _| x.clone())?;
    let (split, _) = train(&|x, spec| x.put(&mesh, spec))?;
    for (a, b) in one.iter().zip(&split) {
        assert!((a - b).abs() < 1e-3, "{a} and {b}");
    }
    assert!(one[79] < 0.7 * one[0], "{} and {}", one[0], one[79]);
    assert!(recall(&towers)? > 0.9, "{}", recall(&towers)?);
    Ok(())
}

/// What moves: the items of the batch to all devices and their gradients back, and the gradients of both
/// tables once.
#[test]
fn a_step_sums_each_table_once() -> Result<()> {
    let mesh = Mesh::new([("data", 4)])?;
    let towers = Towers {
        users: F32.array_type([1 << 12, 64]).on(&mesh, p![]),
        items: F32.array_type([1 << 12, 64]).on(&mesh, p![]),
    };
    let ids = || I32.array_type([1 << 16]).on(&mesh, p!["data"]);
    let step = jit(|towers: &Towers, users: &Array, items: &Array, right: &Array| {
        grad(towers, |towers| loss(&towers, users, items, right))
    });
    let lowered = step.lower((towers, ids(), ids(), ids()))?;
    let table = 4 << 18;
    let whole = lowered.collectives().iter().filter(|c| c.bytes_per_device == table * 3 / 2).count();
    assert_eq!(whole, 2, "{}", lowered.collectives());
    Ok(())
}
