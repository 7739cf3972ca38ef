//! `unchecked()`: a result that is declared equal on all devices is each device's own value, and is
//! not communicated again.

use atmesh::prelude::*;
use atmesh::{CollectiveDim, CollectiveKind, Complex};

fn pairs(n: usize, bit: usize) -> Vec<(usize, usize)> {
    (0..n).map(|i| (i, i ^ bit)).collect()
}

/// Computes a sum by recursive doubling: after three exchanges all eight devices have it, which no
/// type can prove.
fn doubling(x: &Array) -> Array {
    (0..3).fold(x.clone(), |x, k| &x + x.ppermute("X", pairs(8, 1 << k)))
}

/// Computes a sum by recursive halving, then doubling.
fn halving(x: &Array) -> Array {
    let me = axis_index("X");
    let (mut x, mut len) = (x.clone(), 16);
    for k in (0..3).rev() {
        let upper = (&me & (1 << k)).ne(0);
        len /= 2;
        let (low, high) = (x.slice(ix![.., ..len]), x.slice(ix![.., len..]));
        let (keep, give) = (upper.select(&high, &low), upper.select(&low, &high));
        x = keep + give.ppermute("X", pairs(8, 1 << k));
    }
    for k in 0..3 {
        let upper = (&me & (1 << k)).ne(0);
        let other = x.ppermute("X", pairs(8, 1 << k));
        x = upper.select(concat([&other, &x], 1), concat([&x, &other], 1));
    }
    x
}

#[test]
fn sums_by_hand_move_what_their_permutes_move() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Key::new(1).normal([8, 16]).put(&mesh, p!["X"]);
    let sum = x.sum(0);
    for engine in [Lockstep, Threads] {
        for (what, f, bytes) in
            [("doubling", doubling as fn(&Array) -> Array, 3 * 64), ("halving", halving, 2 * (32 + 16 + 8))]
        {
            let by_hand = shard_map(&mesh, p!["X"], p![], f).unchecked().engine(engine);
            let lowered = by_hand.lower(&x)?;
            let all = lowered.collectives();
            assert!(
                all.iter().all(|c| c.kind == CollectiveKind::Permute && c.op == "ppermute"),
                "{what}:\n{all}"
            );
            assert_eq!(all.bytes(), bytes, "{what}:\n{all}");
            let y = by_hand.call(&x)?;
            assert!(y.reshape([16]).allclose_with(&sum, 1e-5, 1e-5)?, "{what}");
        }
    }
    Ok(())
}

/// Consumers of the result: sharded, several, in a surrounding loop, and in a gradient.
#[test]
fn readers_take_what_their_devices_have() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Key::new(2).normal([8, 16]).put(&mesh, p!["X"]);
    let own = 3 * 64;
    let f = || shard_map(&mesh, p!["X"], p![], doubling).unchecked();
    type To<'a> = Box<dyn Fn(&Array) -> Array + 'a>;
    let whole = |x: &Array| f().call(x).unwrap_or_else(|e| panic!("{e}"));
    let readers: [(&str, To<'_>); 4] = [
        ("split", Box::new(|x| whole(x).reshard(p![_, "X"]))),
        ("added to rows", Box::new(|x| whole(x).broadcast_to([8, 16]) + x)),
        (
            "two readers",
            Box::new(|x| {
                let y = whole(x);
                y.sin() + y.reshard(p![_, "X"]).reshard(p![])
            }),
        ),
        ("transposed", Box::new(|x| whole(x).t())),
    ];
    for (what, g) in &readers {
        let lowered = jit(|x: &Array| g(x)).lower(&x)?;
        let gathered = if *what == "two readers" { 64 - 8 } else { 0 };
        assert_eq!(
            lowered.collectives().bytes(),
            own + gathered,
            "{what}:\n{}\n{lowered}",
            lowered.collectives()
        );
        let plain = x.sum(0).reshape([1, 16]);
        let want = match *what {
            "split" => plain,
            "added to rows" => plain.broadcast_to([8, 16]) + &x,
            "two readers" => plain.sin() + &plain,
            _ => plain.t(),
        };
        assert!(
            jit(|x: &Array| g(x)).call(&x)?.reshard(p![]).allclose_with(&want.reshard(p![]), 1e-5, 1e-5)?,
            "{what}"
        );
    }
    Ok(())
}

/// Over one of two axes; with every element type; a value that the types prove to be equal is not
/// moved, either.
#[test]
fn one_of_two_axes_and_every_element_type() -> Result<()> {
    let mesh = Mesh::new([("X", 4), ("Y", 2)])?;
    let rows = Key::new(3).normal([8, 4]) * 9.0;
    for dtype in [F32, F64, BF16, F16, I8, I32, U64, Bool, C64, C128] {
        let x = rows.round().astype(dtype);
        let x = if dtype.is_complex() { &x * Array::from(Complex::new(1f32, -0.5)).astype(dtype) } else { x };
        let x = x.put(&mesh, p![("Y", "X")]);
        // Equal over Y after an exchange of both.
        let both = |x: &Array| {
            let other = x.ppermute("Y", [(0, 1), (1, 0)]);
            let first = axis_index("Y").eq(0);
            concat([first.select(x, &other), first.select(&other, x)], 0)
        };
        let f = shard_map(&mesh, p![("Y", "X")], p!["X"], both).unchecked();
        let lowered = f.lower(&x)?;
        let all = lowered.collectives();
        assert!(all.iter().all(|c| c.op == "ppermute"), "{dtype}: {all}");
        let checked = shard_map(&mesh, p![("Y", "X")], p![("X", "Y")], both).call(&x)?;
        let (y, twice) = (f.call(&x)?.reshard(p![]), checked.reshard(p![]));
        let first = twice.reshape([4, 2, 2, 4]).slice(ix![.., 0]).reshape([8, 4]);
        assert!(y.eq(&first).all(..).item::<bool>()?, "{dtype}");
    }
    let x = || F32.array_type([8, 16]).on(&mesh, p!["X"]);
    let known = shard_map(&mesh, p!["X"], p![], |x: &Array| x.all_gather("X", CollectiveDim::tiled(0)).sin())
        .unchecked();
    let all = known.lower(x())?.collectives().clone();
    assert!(all.iter().all(|c| c.op == "all_gather"), "{all}");
    Ok(())
}

/// If the promise is false, both engines use the first device's value: results still have the same
/// bits.
#[test]
fn a_promise_that_is_not_kept_gives_one_result() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Array::arange(0..32).astype(F32).put(&mesh, p!["X"]);
    for engine in [Lockstep, Threads] {
        let f = shard_map(&mesh, p!["X"], p![], |x: &Array| x * 2.0).unchecked().engine(engine);
        assert_eq!(f.lower(&x)?.collectives().bytes(), 0);
        assert_eq!(f.call(&x)?.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0]);
    }
    Ok(())
}
