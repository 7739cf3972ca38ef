use atmesh::prelude::*;
use atmesh::{IndexOptions, IndexMode};

fn main() -> Result<()> {
    println!("== rows");
    rows()?;
    println!("== lookup");
    lookup()?;
    println!("== explicit");
    explicit()?;
    println!("== cache");
    cache()?;
    println!("== slopes");
    slopes()?;
    println!("== segments");
    segments()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

fn rows() -> Result<()> {
    // ANCHOR: rows
    let table = Array::arange(0..12).reshape([4, 3]);
    let f = jit(|table: &Array, i: &Array, ids: &Array| {
        let row = table.slice(ix![i]); // [3]
        let two = table.slice(ix![&i..; 2]); // [2, 3]: a window of two rows
        let many = table.slice(ix![ids]); // [5, 3]
        (row, two, many)
    });
    let ids = Array::from([3, 0, 3, -1, 9]);
    let (row, two, many) = f.call((&table, &Array::from(1), &ids))?;
    println!("{row}\n{two}\n{many}");
    // `take` returns the minimum for a row past the end; with `Clip`, it returns the nearest row.
    let (past, options) = (Array::from([3, 9]), IndexOptions::default().mode(IndexMode::Clip));
    println!("{}\n{}", table.take(&past, 0), table.take_with(&past, 0, options));
    // ANCHOR_END: rows
    Ok(())
}

// ANCHOR: lookup
/// Prints the collectives of reading `ids` rows of 64 elements from a row-sharded table.
fn report(rows: usize, ids: usize) -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let table = F32.array_type([rows, 64]).on(&mesh, p!["X"]);
    let ids = I32.array_type([ids]).on(&mesh, p![]);
    let lowered = jit(|table: &Array, ids: &Array| table.take(ids, 0)).lower((table, ids))?;
    println!("{}", lowered.collectives());
    Ok(())
}

fn lookup() -> Result<()> {
    report(65_536, 16)?; // a large table, a few rows
    report(64, 4_096) // a small table, many rows
}
// ANCHOR_END: lookup

// ANCHOR: explicit
fn explicit() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let ids = Array::from([5, 0, 7]);
    // Columns are sharded: each device has its columns of every row.
    let columns = Array::ones([8, 16]).put(&mesh, p![_, "X"]);
    println!("{}", type_of(columns.take(&ids, 0)));
    // Rows are sharded: the sharding of the result must be given.
    let rows = Array::ones([8, 16]).put(&mesh, p!["X"]);
    println!("{}", type_of(rows.take_to(&ids, 0, p![_, "X"])));
    // The lookup without its sum: the result stays unreduced and is summed later.
    println!("{}", type_of(rows.take_to(&ids, 0, p![; U: "X"])));
    Ok(())
}
// ANCHOR_END: explicit

// ANCHOR: cache
fn cache() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let cache = Array::zeros([1 << 12, 64]).put(&mesh, p!["X"]);
    let fill = jit(|cache: &Array| {
        fori_loop(0..4096, cache, |i, cache| {
            let row = Array::ones([64]) * i.astype(F32);
            cache.at(ix![i]).set(row)
        })
    });
    println!("{} collectives", fill.lower(&cache)?.collectives().len());
    println!("{}", fill.call(&cache)?.slice(ix![4095, ..4]));
    Ok(())
}
// ANCHOR_END: cache

// ANCHOR: slopes
fn slopes() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let table = Array::ones([8, 2]).put(&mesh, p!["X"]);
    let ids = Array::from([1, 6, 1]);
    let f = jit(|table: &Array, ids: &Array| grad(table, |t| t.take(ids, 0).square().sum(..)));
    println!("{}", f.call((&table, &ids))?);
    println!("{}", f.lower((&table, &ids))?.collectives());
    Ok(())
}
// ANCHOR_END: slopes

// ANCHOR: segments
fn segments() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    // Edges of a graph: from, to. Each node adds up the values of its neighbours.
    let (from, to) = (Array::from([0, 1, 2, 2, 3, 3, 0, 1]), Array::from([1, 2, 0, 3, 0, 1, 2, 3]));
    let edges = |e: &Array| e.put(&mesh, p!["X"]);
    let nodes = Array::from([[1.0f32, 0.0], [2.0, 0.0], [4.0, 1.0], [8.0, 1.0]]);
    let f = jit(|x: &Array, from: &Array, to: &Array| x.take(from, 0).segment_sum(to, 4));
    let inputs = (&nodes, &edges(&from), &edges(&to));
    println!("{}", f.call(inputs)?);
    println!("{}", f.lower(inputs)?.collectives());
    Ok(())
}
// ANCHOR_END: segments

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let words = Array::from([2, 0, 2, 1, 2, 0]);
    println!("{}", words.bincount(4));
    println!("{}", Array::zeros([4]).at(ix![&words]).add(1.0));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let table = F32.array_type([65_536, 64]).on(&mesh, p![_, "X"]);
    let ids = I32.array_type([16]).on(&mesh, p![]);
    let lowered = jit(|table: &Array, ids: &Array| table.take(ids, 0)).lower((table, ids))?;
    println!("{} collectives", lowered.collectives().len());
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let table = Array::ones([8, 16]).put(&mesh, p!["X"]);
    if let Err(e) = table.take(&Array::from([5, 0, 7]), 0).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    for rows in [65_536, 131_072] {
        let table = F32.array_type([rows, 64]).on(&mesh, p!["X"]);
        let ids = I32.array_type([16]).on(&mesh, p![]);
        let lowered = jit(|table: &Array, ids: &Array| table.take(ids, 0)).lower((table, ids))?;
        println!("{rows} rows: {} bytes", lowered.collectives().bytes());
    }
    Ok(())
}
// ANCHOR_END: exercise3
