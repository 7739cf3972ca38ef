//! The game of life on a board that is sharded over 4 devices; the partitioner finds the halos.
use atmesh::prelude::*;

// ANCHOR: step
/// Returns the next board. Its border stays dead.
fn step(board: &Array) -> Array {
    let rows = [ix![..-2], ix![1..-1], ix![2..]];
    let columns = || [ix![.., ..-2], ix![.., 1..-1], ix![.., 2..]];
    let mut around = Array::from(0);
    for row in rows {
        for column in columns() {
            around += board.slice(row.clone()).slice(column);
        }
    }
    let alive = board.slice(ix![1..-1, 1..-1]);
    // A cell lives with three in its 3 × 3 window, or with four if it is alive.
    let next = around.eq(3) | (around.eq(4) & alive.eq(1));
    board.at(ix![1..-1, 1..-1]).set(next.astype(I32))
}
// ANCHOR_END: step

// ANCHOR: run
fn show(board: &Array) -> Result<()> {
    for row in board.unstack(0) {
        let row: String = row.to_vec::<i32>()?.iter().map(|x| if *x == 1 { '#' } else { '.' }).collect();
        println!("{row}");
    }
    Ok(())
}

fn main() -> Result<()> {
    let mesh = Mesh::auto([("X", 2), ("Y", 2)])?;
    // A glider: its cells are set by index.
    let (i, j) = (Array::from([1, 2, 3, 3, 3]), Array::from([2, 3, 1, 2, 3]));
    let board = Array::zeros(I32.array_type([10, 12])).at(ix![&i, &j]).set(1).put(&mesh, p!["X", "Y"]);
    show(&board)?;
    let run = jit(|board: &Array| fori_loop(0..16, board, |_, board| step(&board)));
    println!("{}", run.lower(&board)?.collectives());
    let later = run.call(&board)?;
    show(&later)?;
    // After 16 steps the glider has moved four cells down and to the right.
    println!("{}", later.slice(ix![4.., 4..]).allclose(&board.slice(ix![..-4, ..-4]))?);
    Ok(())
}
// ANCHOR_END: run
