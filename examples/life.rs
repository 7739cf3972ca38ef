//! The game of life by plain indexing, on a board that is split over 4 devices; the partitioner finds the halos.
use atmesh::prelude::*;

// ANCHOR: step
/// The next board. Its border stays dead.
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
    // three around it and itself, or three with itself
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
    // a glider: its cells are set by their indices
    let (i, j) = (Array::from([1, 2, 3, 3, 3]), Array::from([2, 3, 1, 2, 3]));
    let board = Array::zeros(I32.of([10, 12])).at(ix![&i, &j]).set(1).put(&mesh, p!["X", "Y"]);
    show(&board)?;
    let run = jit(|board: &Array| fori_loop(0..16, board, |_, board| step(&board)));
    println!("{}", run.lower(&board)?.collectives());
    let later = run.call(&board)?;
    show(&later)?;
    // after 16 steps it is the same four cells further down and to the right
    println!("{}", later.slice(ix![4.., 4..]).allclose(&board.slice(ix![..-4, ..-4]))?);
    Ok(())
}
// ANCHOR_END: run
