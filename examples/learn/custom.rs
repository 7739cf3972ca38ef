use atmesh::prelude::*;
use atmesh::{CustomOp, ErrorKind, custom_op, nd};

fn main() -> Result<()> {
    println!("== first");
    first()?;
    println!("== sharded");
    sharded()?;
    println!("== sums");
    sums()?;
    println!("== slopes");
    slopes()?;
    println!("== wrong");
    wrong();
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: medians
/// Defines an operation that takes the median of three neighbours along a row; the ends stay.
fn smooth() -> CustomOp {
    custom_op("smooth", "...j->...j", |ins, outs| {
        let (x, mut y) = (ins[0].view::<f32>(), outs[0].view::<f32>());
        y.assign(&x);
        for j in 1..x.len().saturating_sub(1) {
            let mut three = [x[[j - 1]], x[[j]], x[[j + 1]]];
            three.sort_by(f32::total_cmp);
            y[[j]] = three[1];
        }
    })
}
// ANCHOR_END: medians

// ANCHOR: first
fn first() -> Result<()> {
    let x = Array::from([[1.0f32, 9.0, 2.0, 3.0], [5.0, 5.0, 0.0, 5.0]]);
    println!("{}", smooth().call(&x));
    // The program prints it under its name, like any operation.
    println!("{}", jit(|x: &Array| smooth().call(x) * 2.0).trace(&x)?.program());
    Ok(())
}
// ANCHOR_END: first

// ANCHOR: sharded
fn sharded() -> Result<()> {
    // Multiplies each row of x by the matrix m: `i` indexes rows, `j` and `k` are within a row.
    let times = custom_op("times", "ij,jk->ik", |ins, outs| {
        let (row, m) = (ins[0].view::<f32>(), ins[1].view::<f32>());
        for (y, column) in outs[0].view::<f32>().iter_mut().zip(m.axis_iter(nd::Axis(1))) {
            *y = row.iter().zip(column).map(|(a, b)| a * b).sum();
        }
    })
    .over("i");
    let mesh = Mesh::new([("X", 4)])?;
    let (x, m) = (Array::ones([8, 2]).put(&mesh, p!["X"]), Array::ones([2, 3]));
    println!("{}", type_of(times.call((&x, &m))));
    // A dimension that the kernel processes as a whole must not be sharded.
    let m = Array::ones([4, 4]).put(&mesh, p![_, "X"]);
    println!("{}", times.call((&x.reshape([4, 4]), &m)));
    // `vmap` adds one more label to the loops of the operation.
    println!("{}", type_of(vmap(Array::ones([5, 8, 2]), |x| times.call((&x, &Array::ones([2, 3]))))));
    Ok(())
}
// ANCHOR_END: sharded

// ANCHOR: sums
fn sums() -> Result<()> {
    // Counts the equal elements of two rows: a sum over `j`, which no result has.
    let agree = custom_op("agree", "ij,kj->ik", |ins, outs| {
        let (x, y) = (ins[0].view::<i32>(), ins[1].view::<i32>());
        for (n, y) in outs[0].view::<i32>().iter_mut().zip(y.axis_iter(nd::Axis(0))) {
            *n = x.iter().zip(y).filter(|(a, b)| a == b).count() as i32;
        }
    })
    .over("i")
    .sums_over("j");
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::from([[1, 2, 3, 4], [1, 2, 1, 2]]).put(&mesh, p![_, "X"]);
    let y = Array::from([[1, 2, 1, 4]]).put(&mesh, p![_, "X"]);
    println!("{}", agree.call((&x, &y)));
    let n = agree.call_to((&x, &y), p![]);
    println!("{n} {}", type_of(&n));
    println!("{}", jit(|x: &Array, y: &Array| agree.call_to((x, y), p![])).lower((&x, &y))?.collectives());
    Ok(())
}
// ANCHOR_END: sums

// ANCHOR: slopes
fn slopes() -> Result<()> {
    // Computes x³, with a rule that maps cotangents of the result to cotangents of x.
    let cube = custom_op("cube", "...->...", |ins, outs| {
        outs[0].view::<f32>()[[]] = ins[0].view::<f32>()[[]].powi(3);
    })
    .derivative(|ins, _, cts| &cts[0] * 3.0 * ins[0].square());
    let x = Array::from([1.0f32, 2.0]);
    println!("{}", grad(&x, |x| cube.call(&x).sum(..)));
    println!("{}", jvp(&x, Array::ones([2]), |x| cube.call(&x)).1); // the same rule, transposed
    println!("{}", vmap(&x, |x| grad(&x, |x| grad(&x, |x: Array| cube.call(&x)))));
    println!("{}", grad(&x, |x| smooth().call(&x).sum(..)));
    Ok(())
}
// ANCHOR_END: slopes

// ANCHOR: wrong
fn wrong() {
    let idle = custom_op("idle", "...j->...", |_, _| ());
    let error = idle.call(Array::ones([2, 3])).ty().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    println!("{error}");
}
// ANCHOR_END: wrong

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    // Finds the longest run of equal elements in each row, and its value.
    let longest = custom_op("longest_run", "...j->...,...", |ins, outs| {
        let x = ins[0].view::<i32>();
        let (mut best, mut run) = ((0, 0), 0);
        for (j, e) in x.iter().enumerate() {
            run = if j > 0 && x[[j - 1]] == *e { run + 1 } else { 1 };
            if run > best.0 {
                best = (run, *e);
            }
        }
        outs[0].view::<i32>()[[]] = best.0;
        outs[1].view::<i32>()[[]] = best.1;
    });
    let found = longest.call_all(Array::from([[7, 7, 1, 7], [3, 2, 2, 2]]));
    println!("{}\n{}", found[0], found[1]);
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    // The kernel gets rows of the last dimension; the dimensions before it may be sharded.
    let range = custom_op("range", "...j->...", |ins, outs| {
        let x = ins[0].view::<f32>();
        let (least, most) = x.iter().fold((f32::MAX, f32::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
        outs[0].view::<f32>()[[]] = most - least;
    });
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = Key::new(0).normal([4, 8, 100]).put(&mesh, p!["X", "Y"]);
    let f = jit(move |x: &Array| range.call(x));
    println!("{}, {} collectives", type_of(f.call(&x)?), f.lower(&x)?.collectives().len());
    println!("{}", f.call(&x)?.allclose(&(x.max(-1) - x.min(-1)))?);
    Ok(())
}
// ANCHOR_END: exercise2
