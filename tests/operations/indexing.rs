//! Dynamic indexing: the same bits on all engines and with all shardings; gradients, batches, and
//! caches in loops.

use crate::error_checks::Unquoted as _;
use crate::soak::part;
use atmesh::ops::indexing::{DynamicSlice, DynamicUpdateSlice};
use atmesh::prelude::*;
use atmesh::program::Prim;
use atmesh::{EngineKind, IndexMode, IndexOptions};
use std::sync::Arc;

const ENGINES: [EngineKind; 3] = [EngineKind::Reference, EngineKind::Lockstep, EngineKind::Threads];

fn apply(prim: impl Into<Prim>, xs: &[&Array]) -> Array {
    let xs: Vec<_> = xs.iter().map(|x| (*x).into()).collect();
    Array::apply(prim.into(), &xs).swap_remove(0)
}

/// Returns the box of these sizes that starts at index `i` in all these dimensions.
fn slice(x: &Array, i: &Array, dims: &[usize], sizes: &[usize]) -> Array {
    let prim =
        DynamicSlice { sizes: sizes.into(), dims: dims.into(), batch_dims: vec![], out_sharding: None };
    let mut xs = vec![x];
    xs.extend(dims.iter().map(|_| i));
    apply(Arc::new(prim) as Prim, &xs)
}
fn update(x: &Array, u: &Array, i: &Array, dims: &[usize]) -> Array {
    let mut xs = vec![x, u];
    xs.extend(dims.iter().map(|_| i));
    apply(
        Arc::new(DynamicUpdateSlice {
            dims: dims.into(),
            batch_dims: vec![],
            reducer: None,
            out_sharding: None,
        }) as Prim,
        &xs,
    )
}

fn bits(x: &Array) -> Vec<u32> {
    x.to_vec::<f32>().unwrap_or_else(|e| panic!("{e}")).into_iter().map(f32::to_bits).collect()
}

/// Runs a program on an array, unsharded and with several shardings, on all engines. Asserts equal
/// bits, and returns them.
fn everywhere(name: &str, x: &Array, i: &Array, f: fn(&Array, &Array) -> Array) -> Vec<u32> {
    let want = bits(&jit(f).engine(EngineKind::Reference).call((x, i)).unwrap());
    for n in part([5, 1, 4, 2, 8], 5) {
        let mesh = Mesh::auto([("X", n), ("Y", 2)]).unwrap();
        for spec in [p![], p!["X"], p![_, "X"], p!["X", "Y"], p!["Y", "X"]] {
            let y = x.put(&mesh, spec);
            for engine in ENGINES {
                let f = jit(f).engine(engine);
                let got =
                    f.call((&y, i)).unwrap_or_else(|e| panic!("{name} over {n}, {spec}, {engine}: {e}"));
                assert!(
                    bits(&got) == want,
                    "{name} over {n}, {spec}, {engine}: {:?}\n{}",
                    got.to_vec::<f32>(),
                    f.lower((&y, i)).unwrap().collectives()
                );
            }
        }
    }
    want
}

/// Returns elements that include a negative zero, infinities and a NaN.
fn table() -> Array {
    let mut x = Key::new(3).normal([12, 10]).to_vec::<f32>().unwrap();
    for (k, v) in [(3, -0.0), (14, f32::NAN), (35, f32::INFINITY), (77, f32::NEG_INFINITY), (110, -0.0)] {
        x[k] = v;
    }
    Array::from(x).reshape([12, 10])
}

#[test]
fn boxes_at_numbers() {
    let x = table();
    let v = bits(&x);
    for at in [-30, 0, 1, 4, 9, 40] {
        let i = Array::from(at);
        let from = |size: i32, n: i32| at.clamp(0, n - size) as usize;
        let (a, b) = (from(5, 12), from(3, 10));
        let got = everywhere("a box", &x, &i, |x, i| slice(x, i, &[0, 1], &[5, 3]));
        let want: Vec<u32> =
            (0..5).flat_map(|r| (0..3).map(move |c| (a + r) * 10 + b + c)).map(|k| v[k]).collect();
        assert_eq!(got, want, "at {at}");
        let got = everywhere("a row", &x, &i, |x, i| slice(x, i, &[0], &[1, 10]));
        assert_eq!(got, v[from(1, 12) * 10..][..10], "at {at}");
        everywhere("a column", &x, &i, |x, i| slice(x, i, &[1], &[12, 1]));
        let got = everywhere("rows replaced", &x, &i, |x, i| update(x, &x.slice(ix![2..4]), i, &[0]));
        let mut want = v.clone();
        want[from(2, 12) * 10..][..20].copy_from_slice(&v[20..40]);
        assert_eq!(got, want, "at {at}");
        everywhere("columns replaced", &x, &i, |x, i| {
            update(&(x * 0.5), &slice(x, i, &[1], &[12, 4]), i, &[1])
        });
        everywhere("a box replaced", &x, &i, |x, i| update(x, &x.slice(ix![..3, ..2]), i, &[0, 1]));
    }
}

#[test]
fn indices_at_run_time() {
    let x = table();
    for at in [-12, -3, 0, 7, 9] {
        let i = Array::from(at);
        everywhere("element", &x, &i, |x, i| x.slice(ix![i, i]));
        everywhere("row", &x, &i, |x, i| x.slice(ix![i]));
        everywhere("window", &x, &i, |x, i| x.slice(ix![&i..; 3, 2..5]));
        everywhere("set", &x, &i, |x, i| x.at(ix![.., i]).set(x.slice(ix![.., 0])));
        everywhere("set of a window", &x, &i, |x, i| x.at(ix![1..9;2, &i..; 3]).set(7.0));
        everywhere("add", &x, &i, |x, i| x.at(ix![i, ..;3]).add(1.5));
        everywhere("max", &x, &i, |x, i| x.at(ix![&i..; 2]).max(0.25));
        let row = x.slice(ix![&i]);
        assert_eq!(bits(&row), bits(&x.slice(ix![at.clamp(-12, 11)])), "at {at}");
    }
    // Every integer type can be an index.
    for d in [I8, I16, I32, I64, U8, U16, U32, U64] {
        let i = Array::from(7).astype(d);
        assert_eq!(bits(&x.slice(ix![&i])), bits(&x.slice(ix![7])), "{d}");
        assert_eq!(
            bits(&jit(|i: &Array| x.slice(ix![&i..; 4])).call(&i).unwrap()),
            bits(&x.slice(ix![7..11]))
        );
    }
    let far = Array::from(u64::MAX);
    assert_eq!(bits(&x.slice(ix![&far])), bits(&x.slice(ix![11])));
    let far = Array::from(i64::MIN);
    assert_eq!(bits(&x.slice(ix![&far])), bits(&x.slice(ix![0])));
}

/// Static slicing is done first, on each device: a window in a single row is looked up in that row.
#[test]
fn a_window_of_a_row_moves_no_other_rows() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let (x, i) = (table().put(&mesh, p![_, "X"]), Array::from(1));
    let run = |f: fn(&Array, &Array) -> Array| {
        let f = jit(f);
        Ok::<_, atmesh::Error>((bits(&f.call((&x, &i))?), f.lower((&x, &i))?.collectives().bytes()))
    };
    let at_once = run(|x, i| x.slice(ix![2, &i..; 3]))?;
    assert_eq!(at_once.0, bits(&table().slice(ix![2, 1..4])));
    assert_eq!(at_once, run(|x, i| x.slice(ix![2]).slice(ix![&i..; 3]))?);
    Ok(())
}

#[test]
fn all_element_types() {
    let i = Array::from(2);
    for d in [Bool, I8, U16, F16, BF16, F64, I64] {
        let x = (Array::arange(0..20).reshape([5, 4]) % 3).astype(d);
        for spec in [p![], p!["X"], p![_, "X"]] {
            let mesh = Mesh::auto([("X", 4)]).unwrap();
            let y = x.put(&mesh, spec);
            let f = jit(|x: &Array, i: &Array| (x.slice(ix![i]), x.at(ix![.., i]).set(x.slice(ix![.., 0]))));
            let (row, set) = f.call((&y, &i)).unwrap();
            let int = |a: &Array| a.astype(I32).to_vec::<i32>().unwrap();
            assert_eq!(int(&row), int(&x.slice(ix![2])), "{d} {spec}");
            assert_eq!(int(&set), int(&x.at(ix![.., 2]).set(x.slice(ix![.., 0]))), "{d} {spec}");
        }
    }
}

#[test]
fn sizes_of_nothing() {
    let x = Array::zeros(F32.array_type([3, 0]));
    let i = Array::from(1);
    assert!(x.slice(ix![&i]).to_vec::<f32>().unwrap().is_empty());
    assert_eq!(x.slice(ix![&i..; 2]).shape().unwrap()[..], [2, 0]);
    let y = Array::arange(0..6).reshape([3, 2]);
    assert_eq!(y.slice(ix![&i..; 0]).shape().unwrap()[..], [0, 2]);
    assert_eq!(y.at(ix![&i..; 0]).set(5).to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(y.slice(ix![&i..; 3]).to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(y.slice(ix![&i..; 4]).ty().unwrap_err().unquoted().contains("take at most 3"));
}

#[test]
fn gradients() {
    let x = Key::new(3).normal([12, 10]);
    let v = x.to_vec::<f32>().unwrap();
    let j = Array::from(4);
    let close = |g: Array, want: &dyn Fn(usize) -> f32| {
        let g = g.to_vec::<f32>().unwrap();
        assert!(g.iter().enumerate().all(|(k, g)| (g - want(k)).abs() < 1e-5), "{g:?}");
    };
    for mesh in [None, Some(Mesh::auto([("X", 4)]).unwrap()), Some(Mesh::new([("X", 4)]).unwrap())] {
        let x = mesh.as_ref().map_or(x.clone(), |m| x.put(m, p!["X"]));
        let g = grad(&x, |x| x.slice(ix![&j]).square().sum(..));
        close(g, &|k| if k / 10 == 4 { 2.0 * v[k] } else { 0.0 });
        let g = grad(&x, |x| x.at(ix![&j]).set(x.slice(ix![&Array::from(1)]) * 3.0).sum(..));
        close(g, &|k| if k / 10 == 4 { 0.0 } else { 1.0 } + if k / 10 == 1 { 3.0 } else { 0.0 });
        // In a loop over the rows.
        let g =
            grad(&x, |x| fori_loop(0..12, Array::from(0f32), |i, s| s + x.slice(ix![&i]).square().sum(..)));
        close(g, &|k| 2.0 * v[k]);
    }
}

#[test]
fn many_examples() {
    let x = Key::new(3).normal([4, 12]);
    let v = x.to_vec::<f32>().unwrap();
    let i = Array::from([3, 0, 7, 20]);
    let y = vmap((&x, &i), |(x, i)| x.slice(ix![&i..; 3])).to_vec::<f32>().unwrap();
    let want: Vec<f32> =
        [3, 0, 7, 9].iter().enumerate().flat_map(|(r, s)| v[r * 12 + s..][..3].to_vec()).collect();
    assert_eq!(y, want);
    // One table for all examples, and one table per example.
    let rows = vmap(&i, |i| x.slice(ix![&i])).to_vec::<f32>().unwrap();
    assert_eq!(rows[..12], v[36..48]);
    let two = vmap(&x, |row| vmap(&i, |i| row.slice(ix![&i]))).to_vec::<f32>().unwrap();
    let two_too = vmap(&i, |i| vmap(&x, |row| row.slice(ix![&i]))).to_vec::<f32>().unwrap();
    for (r, k) in (0..4).flat_map(|r| (0..4).map(move |k| (r, k))) {
        let want = v[r * 12 + [3, 0, 7, 11][k]];
        assert_eq!((two[r * 4 + k], two_too[k * 4 + r]), (want, want));
    }
    let put =
        vmap((&x, &i), |(x, i)| x.at(ix![&i..; 2]).set(Array::from([1.0f32, 2.0]))).to_vec::<f32>().unwrap();
    assert_eq!((put[3], put[4], put[12], put[13], put[46], put[47]), (1.0, 2.0, 1.0, 2.0, 1.0, 2.0));
}

/// Updates a row of a cache at each iteration, from its previous value.
fn filled(c: &Array) -> Array {
    fori_loop(0..1000, c, |i, c| {
        let row = c.slice(ix![&i]) + i.astype(F32) + 1.0;
        c.at(ix![&i]).set(row)
    })
}

/// The loop updates its carry in place; the caller's array stays unchanged.
#[test]
fn a_cache_in_a_loop() {
    let cache = Array::zeros(F32.array_type([1 << 10, 8]));
    let report = jit(filled).lower(&cache).unwrap().compile().unwrap().report().to_string();
    assert!(report.contains("scatter %") && !report.contains("copy and scatter"), "{report}");
    for engine in ENGINES {
        let got = jit(filled).engine(engine).call(&cache).unwrap().to_vec::<f32>().unwrap();
        assert!((0..1000).all(|r| got[r * 8] == r as f32 + 1.0) && got[1000 * 8] == 0.0, "{engine}");
    }
    assert!(cache.to_vec::<f32>().unwrap().iter().all(|x| *x == 0.0));
}

/// The update comes from other rows of the same array: it must not overwrite elements that are
/// still to be read.
#[test]
fn rows_of_itself() {
    let f = |c: &Array| fori_loop(0..4, c, |i, c| c.at(ix![&i]).set(c.slice(ix![&(3 - &i)]) + 1.0));
    let x = Array::arange(0..32).astype(F32).reshape([4, 8]);
    let want = bits(&jit(f).engine(EngineKind::Reference).call(&x).unwrap());
    for engine in ENGINES {
        assert_eq!(bits(&jit(f).engine(engine).call(&x).unwrap()), want, "{engine}");
    }
}

/// Consecutive updates without another reader in between share one buffer: that of the carry, of a
/// donated argument, or of the result.
#[test]
fn puts_in_a_row_are_in_one_place() {
    type Step = fn(Array, Array) -> Array;
    let one: Step = |i, c| c.at(ix![&i]).set(&i).at(ix![&(&i + 3)]).add(2).at(ix![&(7 - &i)]).mul(3);
    let swap: Step = |i, c| {
        let j = 7 - &i;
        let (a, b) = (c.slice(ix![&i]), c.slice(ix![&j]));
        c.at(ix![&i]).set(b).at(ix![&j]).set(a)
    };
    let window: Step = |i, c| c.at(ix![&i..; 3]).set(&i).at(ix![&(&i + 1)]).add(5);
    // If an intermediate value has another reader, or the second update depends on the first one's
    // result, there is a copy.
    let read: Step = |i, c| {
        let first = c.at(ix![&i]).set(&i);
        first.at(ix![&(&i + 1)]).set(first.slice(ix![&i]))
    };
    let both: Step = |i, c| {
        let first = c.at(ix![&i]).set(&i);
        first.at(ix![&(&i + 1)]).set(3) + first
    };
    let summed: Step = |i, c| {
        let first = c.at(ix![&i]).set(&i);
        first.at(ix![&(&i + 1)]).set((&first * 3).sum(..) % 1000)
    };
    let plain = [(one, 0), (swap, 0), (window, 0), (read, 0), (both, 2), (summed, 2)];
    for (step, copies) in plain {
        for shape in [&[8][..], &[8, 1 << 12]] {
            let values = |y: &Array| y.to_vec::<i32>().unwrap_or_else(|e| panic!("{e}"));
            let elements: usize = shape.iter().product();
            let x = (Array::arange(0..elements as i32) % 31).reshape(shape);
            let looped = move |c: &Array| fori_loop(0..4, c, step);
            let alone = move |c: &Array| step(Array::from(2), c.clone());
            let want = [looped(&x), alone(&x)].map(|y| values(&y));
            for engine in ENGINES {
                let f = jit(looped).engine(engine);
                assert_eq!(values(&f.call(&x).unwrap()), want[0], "{engine}");
                assert_eq!(values(&jit(alone).engine(engine).call(&x).unwrap()), want[1], "{engine}");
                for f in [jit(looped).engine(engine).donate(0), jit(alone).engine(engine).donate(0)] {
                    let y = f.call(&x + 0).unwrap();
                    assert!(want.contains(&values(&y)), "{engine}");
                }
            }
            let report = jit(looped).lower(&x).unwrap().compile().unwrap().report().to_string();
            assert_eq!(report.matches("copy and scatter").count(), copies, "{report}");
            let report = jit(alone).donate(0).lower(&x).unwrap().compile().unwrap().report().to_string();
            let most = if copies == 0 { 0 } else { 2 };
            assert!(report.matches("copy and scatter").count() <= most, "{report}");
        }
    }
    // On devices that hold rows.
    let mesh = Mesh::auto([("X", 4)]).unwrap();
    let x = Array::arange(0..64).reshape([8, 8]);
    let y = x.put(&mesh, p!["X"]);
    for step in [one, swap, window] {
        let f = jit(move |c: &Array| fori_loop(0..4, c, step));
        assert_eq!(
            f.call(&y).unwrap().to_vec::<i32>().unwrap(),
            f.call(&x).unwrap().to_vec::<i32>().unwrap()
        );
    }
}

/// If rows are added to a table that exceeds the caches, the updates are sorted first; each row
/// still receives its updates in order, as in a plain loop.
#[test]
fn rows_added_to_a_large_table_come_in_their_order() {
    let (rows, n, width) = (23_017, 40_000, 51);
    let number = |k: usize| ((k * 31) as f32 * 0.37).sin() * [1e3, 1.0, 1e-3, 7.7][k % 4];
    let table: Vec<f32> = (0..rows * width).map(number).collect();
    let with: Vec<f32> = (0..n * width).map(|k| number(k + 5)).collect();
    // A third of them hit one row; some are negative, some out of bounds.
    let ids: Vec<i32> =
        (0..n).map(|k| [k as i32 * 7919 % 24_000 - 300, 7][usize::from(k % 3 == 0)]).collect();
    let place = |i: i32| if i < 0 { i + rows as i32 } else { i };
    let added = |table: &[f32], clip: bool, row: &dyn Fn(usize, usize) -> Vec<f32>| {
        let mut made = table.to_vec();
        for (k, i) in ids.iter().enumerate() {
            let r = if clip { place(*i).clamp(0, rows as i32 - 1) } else { place(*i) };
            if (0..rows as i32).contains(&r) {
                let at = r as usize * width;
                made[at..at + width].iter_mut().zip(row(k, at)).for_each(|(x, u)| *x += u);
            }
        }
        made.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let rows_of = |k: usize, _: usize| with[k * width..(k + 1) * width].to_vec();
    let x = Array::from(table.clone()).reshape([rows, width]);
    let (u, i) = (Array::from(with.clone()).reshape([n, width]), Array::from(ids.clone()));
    let add = |x: &Array, i: &Array, u: &Array| x.at(ix![i]).add(u);
    let want = added(&table, false, &rows_of);
    assert!(bits(&jit(add).call((&x, &i, &u)).unwrap()) == want);
    assert!(bits(&jit(add).engine(EngineKind::Threads).call((&x, &i, &u)).unwrap()) == want);
    assert!(bits(&jit(add).donate(0).call((&x + 0.0, &i, &u)).unwrap()) == want);
    let zeros = |i: &Array, u: &Array| Array::zeros(F32.array_type([23_017, 51])).at(ix![i]).add(u);
    assert!(bits(&jit(zeros).call((&i, &u)).unwrap()) == added(&vec![0.0; rows * width], false, &rows_of));
    let clip = |x: &Array, i: &Array, u: &Array| x.at(ix![i]).mode(IndexMode::Clip).add(u);
    assert!(bits(&jit(clip).call((&x, &i, &u)).unwrap()) == added(&table, true, &rows_of));
    // The gradient of a lookup: updates are computed from gathered rows, one row at a time.
    let back = |x: &Array, i: &Array| {
        grad(x, |x| x.take_with(i, 0, IndexOptions::default().mode(IndexMode::Clip)).square().sum(..))
    };
    let twice = |_: usize, at: usize| table[at..at + width].iter().map(|x| 2.0 * x).collect();
    assert!(bits(&jit(back).call((&x, &i)).unwrap()) == added(&vec![0.0; rows * width], true, &twice));
}

/// Segment sums of rows whose other dimension is sharded: the reference rejects them although
/// nothing moves.
#[test]
fn segments_of_sharded_columns() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let x = Key::new(5).normal([16, 4]);
    let ids = Array::arange(0..16) % 3;
    let y = x.put(&mesh, p![_, "X"]);
    for (got, want) in [
        (y.segment_sum(&ids, 3), x.segment_sum(&ids, 3)),
        (y.segment_prod(&ids, 3), x.segment_prod(&ids, 3)),
        (y.segment_max(&ids, 4), x.segment_max(&ids, 4)),
        (y.segment_min(&ids, 4), x.segment_min(&ids, 4)),
    ] {
        assert_eq!(got.ty().unwrap().spec, p![_, "X"]);
        assert_eq!(bits(&got), bits(&want));
    }
}

/// Programs of a table, of indices that are partly repeated and partly out of bounds, and of a row
/// for each index. (Sums are of integers: with floats, the last bits differ if devices add partial
/// values.)
const LOOKUPS: [(&str, Lookup); 9] = [
    ("take", |t, i, _| t.take(i, 0)),
    ("take along columns", |t, i, _| t.take(i, 1)),
    ("rows", |t, i, _| t.slice(ix![i])),
    ("elements", |t, i, _| t.slice(ix![i, i])),
    ("along an axis", |t, i, _| t.take_along_axis(&i.reshape([40, 1]), 1)),
    ("set", |t, i, r| t.at(ix![i]).set(r)),
    ("greatest", |t, i, r| t.at(ix![i]).max(r)),
    ("sums", |t, i, r| (t.astype(I32).at(ix![i]).add(r.astype(I32))).astype(F32)),
    ("segments", |_, i, r| r.segment_min(i, 40)),
];
type Lookup = fn(&Array, &Array, &Array) -> Array;

#[test]
fn lookups_have_the_same_bits_wherever_tables_are() {
    let special = |x: Array| {
        let at = Array::arange(0..1600).reshape([40, 40]);
        let x = (&at % 7).eq(0).select(-0.0, x);
        (&at % 31).eq(0).select(f32::NAN, x)
    };
    let (table, rows) = (special(Key::new(1).normal([40, 40])), special(Key::new(2).normal([40, 40])));
    let ids = Array::arange(0..40) * 7 % 45 - 2;
    let wanted = LOOKUPS.map(|(_, f)| {
        bits(
            &jit(|(t, i, r): (Array, Array, Array)| f(&t, &i, &r))
                .engine(EngineKind::Reference)
                .call((&table, &ids, &rows))
                .unwrap(),
        )
    });
    let both = [("X", 2), ("Y", 4)];
    let one = |n| vec![("X", n)];
    for axes in part([one(2), one(1), one(5), one(4), both.to_vec(), one(8)], 4) {
        let mesh = Mesh::auto(axes.clone()).unwrap();
        let mut ways = vec![p![], p!["X"], p![_, "X"]];
        if axes.len() == 2 {
            ways = vec![p!["X", "Y"], p![("Y", "X")]];
        }
        for (k, table_at) in ways.iter().enumerate() {
            let rows_at = ways[(k + 1) % ways.len()];
            let ids_at = if k % 2 == 0 { p!["X"] } else { p![] };
            let args = (table.put(&mesh, *table_at), ids.put(&mesh, ids_at), rows.put(&mesh, rows_at));
            for engine in [EngineKind::Lockstep, EngineKind::Threads] {
                for ((name, f), want) in LOOKUPS.iter().zip(&wanted) {
                    let run = jit(|(t, i, r): (Array, Array, Array)| f(&t, &i, &r)).engine(engine);
                    let got = run.call((&args.0, &args.1, &args.2)).unwrap();
                    assert!(
                        bits(&got) == *want,
                        "{name} of {table_at}, {ids_at}, {rows_at} on {mesh}, {engine}"
                    );
                }
            }
        }
    }
}

/// An out-of-bounds read gives the fill value, whatever the operand is: a scalar, or a padded,
/// concatenated, strided or converted array.
#[test]
fn nothing_is_nothing_in_any_operand() -> Result<()> {
    type Source = (&'static str, fn(&Array) -> Array);
    let sources: [Source; 6] = [
        ("a number", |x| Array::full_like(x, 3)),
        ("padding alone", |x| x.slice(ix![..0]).pad(3, [(2, 2, 0)])),
        ("joined", |x| concat([x, x], 0)),
        ("strided", |x| x.pad(0, [(1, 1, 1)])),
        ("shifted", |x| x.shift(1, 0, 0)),
        ("a row of each", |x| x.slice(ix![0]).broadcast_to([4])),
    ];
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let read = |x: &Array| x.astype(DType::F64).to_vec::<f64>();
    for dtype in [DType::F32, DType::BF16, DType::I8, DType::I64, DType::U16, DType::Bool] {
        let x = (Array::arange(0..4) + 1).astype(dtype).put(&mesh, p![]);
        let nothing = read(&Array::zeros([1]).astype(dtype).take(&Array::from([5]), 0))?[0].to_bits();
        for (name, of) in sources {
            if dtype == DType::Bool && matches!(name, "a number" | "padding alone" | "shifted" | "strided") {
                continue;
            }
            let taken = |x: &Array| of(x).take(&Array::from([0, 90, -1, -91]), 0);
            for engine in ENGINES {
                let got: Vec<u64> =
                    read(&jit(taken).engine(engine).call(&x)?)?.iter().map(|n| n.to_bits()).collect();
                let [first, last] = [ix![0], ix![-1]].map(|at| read(&of(&x).slice(at)));
                assert_eq!([got[0], got[2]], [first?[0].to_bits(), last?[0].to_bits()], "{dtype:?} {name}");
                assert_eq!([got[1], got[3]], [nothing; 2], "{dtype:?} {name} on {engine:?}");
            }
        }
    }
    Ok(())
}
/// The fill value must not be added once per device: the minimum integer added to itself wraps to
/// 0.
#[test]
fn nothing_is_not_a_part_of_a_sum() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let parts = |dtype| (Array::arange(0..4) + 1).astype(dtype).put(&mesh, p![].unreduced("X"));
    let take = |x: &Array, mode| {
        x.take_with(&Array::from([1, 9]), 0, IndexOptions::default().mode(mode)).reshard(p![])
    };
    let rejected = take(&parts(DType::I32), IndexMode::Fill).ty().unwrap_err().unquoted();
    assert!(rejected.contains("the fill value would be added once per device"), "{rejected}");
    assert_eq!(take(&parts(DType::I32), IndexMode::Clip).to_vec::<i32>()?, [2, 4]);
    // NaN plus NaN is NaN.
    let floats = take(&parts(DType::F32), IndexMode::Fill).to_vec::<f32>()?;
    assert!(floats[0] == 2.0 && floats[1].is_nan(), "{floats:?}");
    Ok(())
}
#[test]
fn histograms_count_by_parts_of_float64() {
    // Element types with few bits, and many bins.
    let x = Array::arange(0..257).astype(F64);
    let mut want = vec![0i32; 1000];
    (0..257).for_each(|k| want[((k as f64 / 0.256) as usize).min(999)] += 1);
    let mesh = Mesh::new([("X", 2)]).unwrap();
    for dtype in [BF16, F16, F32, F64] {
        let (counts, ends) = x.astype(dtype).histogram(1000, 0.0..256.0);
        assert_eq!(counts.to_vec::<i32>().unwrap(), want, "{dtype}");
        assert_eq!(type_of(&ends).to_string(), format!("{dtype}[1001]"));
        let even = x.astype(dtype).slice(ix![..256]).put(&mesh, p!["X"]).histogram(1000, 0.0..256.0).0;
        assert_eq!(even.sum(..).item::<i32>().unwrap(), 256, "{dtype}");
    }
    let wrong = |bins, range| x.histogram(bins, range).0.ty().expect_err("it is rejected").unquoted();
    assert!(wrong(0, 0.0..1.0).contains("0 bins"));
    assert!(wrong(1 << 31, 0.0..1.0).contains("2147483648 bins"));
    assert!(wrong(3, 1.0..1.0).contains("there are no bins in the range"));
    assert!(wrong(3, f64::NAN..1.0).contains("there are no bins in the range"));
}

/// A combining update at an index is one operation, with the bits of reading, combining and
/// writing.
#[test]
fn combined_at_a_number() {
    type Update = fn(&Array, &Array) -> Array;
    let x = table();
    let cases: [(&str, Update, Update); 6] = [
        ("add", |x, i| x.at(ix![i]).add(1.5), |x, i| x.at(ix![i]).set(x.slice(ix![i]) + 1.5)),
        ("mul", |x, i| x.at(ix![i]).mul(-0.5), |x, i| x.at(ix![i]).set(x.slice(ix![i]) * -0.5)),
        (
            "max",
            |x, i| x.at(ix![.., i]).max(0.25),
            |x, i| x.at(ix![.., i]).set(x.slice(ix![.., i]).maximum(0.25)),
        ),
        (
            "min",
            |x, i| x.at(ix![&i..; 3]).min(0.25),
            |x, i| x.at(ix![&i..; 3]).set(x.slice(ix![&i..; 3]).minimum(0.25)),
        ),
        (
            "a box",
            |x, i| x.at(ix![&i..; 2, 1..4]).add(x.slice(ix![..2, ..3])),
            |x, i| x.at(ix![&i..; 2, 1..4]).set(x.slice(ix![&i..; 2, 1..4]) + x.slice(ix![..2, ..3])),
        ),
        (
            "one",
            |x, i| x.at(ix![i, 3]).mul(x.slice(ix![2, 2])),
            |x, i| x.at(ix![i, 3]).set(x.slice(ix![i, 3]) * x.slice(ix![2, 2])),
        ),
    ];
    for (name, one, three) in cases {
        for at in [-30, -1, 0, 4, 40] {
            let i = Array::from(at);
            let got = everywhere(name, &x, &i, one);
            assert_eq!(got, bits(&three(&x, &i)), "{name} at {at}");
        }
        let program = jit(one).trace((&x, &Array::from(1))).unwrap();
        assert_eq!(program.program().to_string().matches("dynamic_").count(), 1, "{name}");
        // Gradients, and gradients per example.
        let y = Key::new(4).normal([12, 10]);
        let slope =
            |f: Update, i: &Array| grad(&y, |x| (f(&x, i).square() * &y).sum(..)).to_vec::<f32>().unwrap();
        for at in [0, 4, 9] {
            let i = Array::from(at);
            let near = |(a, b): (f32, f32)| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
            assert!(slope(one, &i).into_iter().zip(slope(three, &i)).all(near), "{name} at {at}");
        }
        let (ys, i) = (Key::new(5).normal([3, 12, 10]), Array::from([0, 5, 9]));
        let each = |f: Update| vmap((&ys, &i), |(x, i)| f(&x, &i));
        assert_eq!(bits(&each(one)), bits(&each(three)), "{name} of examples");
        let reads_parts = ["a box", "one"].contains(&name);
        for mesh in [Mesh::new([("X", 2)]).unwrap(), Mesh::new([("X", 2), ("Y", 2)]).unwrap()] {
            for spec in [p!["X"], p![_, "X"]].into_iter().filter(|_| !reads_parts) {
                let y = x.put(&mesh, spec);
                let got = one(&y, &Array::from(4));
                assert_eq!(got.ty().unwrap_or_else(|e| panic!("{name}: {e}")).spec, y.ty().unwrap().spec);
                assert_eq!(bits(&got), bits(&three(&x, &Array::from(4))), "{name} {spec}");
            }
        }
    }
    // A loop of such updates works in place.
    let f = |c: &Array| fori_loop(0..1000, c, |i, c| c.at(ix![&i]).add(c.slice(ix![&i]) * 0.5 + 1.0));
    let report = jit(f).lower(Array::zeros([1 << 10, 8])).unwrap().compile().unwrap().report().to_string();
    assert!(!report.contains("copy and scatter"), "{report}");
    let rejected = Array::from([true]).at(ix![&Array::from(0)]).add(true);
    assert_eq!(rejected.ty().unwrap_err().kind(), atmesh::ErrorKind::Dtype);
}

/// Reading rows of a sharded dimension by index is an error; it suggests a form that moves only
/// these rows, which is accepted.
#[test]
fn errors_name_the_form_with_a_sharding() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let x = table().put(&mesh, p!["X", "Y"]);
    let (ids, rows) = (Array::from([3, 0, 3]), Array::ones([3, 10]).put(&mesh, p![_, "Y"]));
    let error_text = |y: Array| y.ty().unwrap_err().unquoted();
    let text = error_text(x.slice(ix![&ids]));
    assert!(text.contains(r#"`x.at(ix![&i]).out_sharding(p![_, "Y"]).get()`"#), "{text}");
    let y = x.at(ix![&ids]).out_sharding(p![_, "Y"]).get();
    assert_eq!(bits(&y), bits(&table().slice(ix![&ids])));
    assert!(error_text(x.at(ix![&ids]).get()).contains(".get()`"));
    assert!(error_text(x.take(&ids, 0)).contains(r#"`x.take_to(&indices, d, p![_, "Y"])`"#));
    let text = error_text(x.at(ix![&ids]).add(&rows));
    assert!(text.contains(r#"`x.at(ix![&i]).out_sharding(p!["X", "Y"]).add(…)`"#), "{text}");
    let y = x.at(ix![&ids]).out_sharding(p!["X", "Y"]).add(&rows);
    assert_eq!(bits(&y), bits(&table().at(ix![&ids]).add(Array::ones([3, 10]))));
}

/// If several updates start from the same value, only one may reuse its buffer, and only if there
/// are no later reads.
#[test]
fn several_puts_that_begin_from_one_value_do_not_share_it() {
    fn made(x: &Array, i: &Array) -> (Array, Array, Array) {
        let v = x.at(ix![i]).add(2.0);
        let rows = v.take(&Array::from([0, 2]), 0).sin();
        let a = v.at(ix![&Array::from([1, 0])]).add(&rows);
        let b = v.at(ix![&Array::from([2, 1])]).max(rows + 0.25);
        (v, a, b)
    }
    fn all(values: &[Array]) -> Array {
        concat(values.iter().map(|y| y.ravel()), 0)
    }
    type Program = fn(&Array, &Array) -> Array;
    let programs: [(&str, Program); 5] = [
        ("two", |x, i| {
            let (_, a, b) = made(x, i);
            all(&[a, b])
        }),
        ("two, turned", |x, i| {
            let (_, a, b) = made(x, i);
            all(&[b.t(), a.t()])
        }),
        ("two, and what they begin from", |x, i| {
            let (v, a, b) = made(x, i);
            all(&[v, a, b])
        }),
        ("two, and a map of it", |x, i| {
            let (v, a, b) = made(x, i);
            all(&[a, v * 0.5, b])
        }),
        ("two, and a put over one", |x, i| {
            let (v, a, b) = made(x, i);
            let c = a.at(ix![i]).set(b.slice(ix![0]));
            all(&[c, v.max(0), b])
        }),
    ];
    let (x, i) = (table(), Array::from(3));
    for (name, f) in programs {
        let want = bits(&f(&x, &i));
        assert_eq!(everywhere(name, &x, &i, f), want, "{name}");
        // As separate results, on every engine.
        for engine in ENGINES {
            let (v, a, b) = jit(made).engine(engine).call((&x, &i)).unwrap();
            assert_eq!(
                [v, a, b].map(|y| bits(&y)),
                <[Array; 3]>::from(made(&x, &i)).map(|y| bits(&y)),
                "{engine}"
            );
        }
    }
}
