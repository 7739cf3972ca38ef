//! Steps of the heat equation on a grid of devices: each block exchanges a rim with its neighbours,
//! and the types say which dims have one.
use atmesh::prelude::*;
use atmesh::typed::prelude::*;

mesh! { struct Grid { X: 2, Y: 4 } }
/// The temperatures of a plate: a block of rows and columns on each device.
type Plate<N, M> = T![f64; N@X, M@Y];
type Small = Plate<N![12], N![16]>;

// ANCHOR: step
/// One step on blocks of any size that the axes divide.
fn step<N: Tiles<X>, M: Tiles<Y>>(u: &Plate<N, M>, rate: f64) -> Plate<N, M> {
    Grid.shard_map((u,), P![X, Y], |(u,)| {
        let rows = u.halo::<N![1], _, _>(D0, X);
        let vertical = rows.before::<N![1], _>(D0) + rows.after::<N![1], _>(D0);
        let columns = u.halo::<N![1], _, _>(D1, Y);
        let horizontal = columns.before::<N![1], _>(D1) + columns.after::<N![1], _>(D1);
        &u + (vertical + horizontal - &u * 4.0) * rate
    })
}
// ANCHOR_END: step

/// The same step by shifts of the whole array.
fn step_by_shifts<N: Size, M: Size>(u: &Plate<N, M>, rate: f64) -> Plate<N, M> {
    let vertical = u.shift(1, D0, 0.0) + u.shift(-1, D0, 0.0);
    let horizontal = u.shift(1, D1, 0.0) + u.shift(-1, D1, 0.0);
    u + (vertical + horizontal - u * 4.0) * rate
}

fn main() -> Result<()> {
    let grid = Grid::mesh()?;
    // A hot square in the middle of a cold plate.
    let rows = <T![i32; 12@X, 16@Y]>::iota(&grid, D0);
    let columns = <T![i32; 12@X, 16@Y]>::iota(&grid, D1);
    let hot = rows.ge(4).bitand(&rows.lt(8)).bitand(&columns.ge(6).bitand(&columns.lt(10)));
    let start: Small = hot.convert::<f64>() * 100.0;

    let run = jit(|u: &Small| fori_loop(0..20, u.clone(), |_, u: Small| step(&u, 0.2)));
    let end = run.call(&start)?;
    println!("{}", type_of(&end));
    let warm: T![i32; 12@X, 16@Y] = end.rint().convert::<i32>();
    println!("{}", warm.untyped());

    let twin = fori_loop(0..20, start, |_, u: Small| step_by_shifts(&u, 0.2));
    assert_eq!(end.to_vec()?, twin.to_vec()?);
    // Each step sends the first and the last row and column of a block once.
    println!("{}", jit(|u: &Small| step(u, 0.2)).lower(&end)?.collectives());
    Ok(())
}
