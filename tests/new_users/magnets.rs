//! Spins on a torus that flip by Metropolis' rule, split both ways: the book's pages on stencils,
//! random numbers and loops are all that the program needs.

use atmesh::prelude::*;

const SIDE: usize = 16;

/// One sweep: first the even cells of a chessboard flip, then the odd ones, so that no two neighbours
/// flip together.
fn sweep(spins: &Array, board: &Array, key: &Key, cold: f64) -> Array {
    (0..2).fold(spins.clone(), |spins, parity| {
        let around = spins.roll(1, 0) + spins.roll(-1, 0) + spins.roll(1, 1) + spins.roll(-1, 1);
        let cost = 2.0 * &spins * around;
        let chance = key.fold_in(parity).uniform([SIDE, SIDE]);
        let flips = chance.lt((-cold * cost).exp()) & board.eq(parity);
        flips.select(-&spins, &spins)
    })
}

/// Runs 60 sweeps. `cold` is the inverse temperature.
fn simulate(spins: &Array, board: &Array, cold: f64) -> Array {
    let key = Key::new(12);
    fori_loop(0..60, spins, |step, spins| sweep(&spins, board, &key.fold_in(step), cold))
}

fn start() -> (Array, Array) {
    let board =
        (Array::iota(I32.array_type([SIDE, SIDE]), 0) + Array::iota(I32.array_type([SIDE, SIDE]), 1)) % 2;
    (Array::ones([SIDE, SIDE]), board)
}

fn magnetisation(spins: &Array) -> Result<f32> {
    spins.mean(..).item::<f32>()
}

#[test]
fn spins_stay_ordered_in_the_cold_only() -> Result<()> {
    let (spins, board) = start();
    let run = |cold: f64| magnetisation(&simulate(&spins, &board, cold));
    let (cold, warm) = (run(1.0)?, run(0.1)?);
    assert!(cold > 0.99, "{cold}");
    assert!(warm.abs() < 0.3, "{warm}");
    // Onsager: (1 - sinh(2 β)^-4)^(1/8) = 0.911 at β = 0.5
    let middle = run(0.5)?;
    assert!((middle - 0.911).abs() < 0.06, "{middle}");
    Ok(())
}

/// Bits do not depend on the mesh, and only rims are exchanged.
#[test]
fn a_split_board_gives_the_same_spins() -> Result<()> {
    let (spins, board) = start();
    let alone = simulate(&spins, &board, 0.4);
    let mesh = Mesh::auto([("x", 2), ("y", 2)])?;
    let split = |x: &Array| x.put(&mesh, p!["x", "y"]);
    let f = jit(|spins: &Array, board: &Array| simulate(spins, board, 0.4));
    assert!(f.call((&split(&spins), &split(&board)))?.array_equal(&alone)?);
    let lowered = f.lower((&split(&spins), &split(&board)))?;
    assert_collectives!(lowered, Halo(("x", "y")) x 2);
    Ok(())
}
