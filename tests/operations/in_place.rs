//! Loops that update a part of a large carry: it is updated in place where each element is read only
//! where it is written, and the bits are those of updates one by one. The initial value stays.

use atmesh::prelude::*;

const ENGINES: [EngineKind; 2] = [EngineKind::Lockstep, EngineKind::Threads];

/// Returns two arguments of loops, which are larger than the 256 KiB from which on carries are updated
/// in place.
fn fields() -> (Array, Array) {
    let h = Array::arange(0..260 * 256).astype(F32).sin().reshape([260, 256]).ready().unwrap();
    let e = (&h * 3.0).cos().ready().unwrap();
    (h, e)
}

/// A step of a loop whose carry is `h`, which reads `e`.
type Update = fn(&Array, &Array) -> Array;

#[test]
fn updates_of_a_part_have_the_same_bits_on_every_engine_and_mesh() {
    let (h, e) = fields();
    let updates: [(&str, Update); 9] = [
        ("rows", |h, e| h.at(ix![..-1]).add(0.5 * (e.slice(ix![1..]) - e.slice(ix![..-1])))),
        ("columns", |h, e| h.at(ix![.., ..-1]).add(0.5 * (e.slice(ix![.., 1..]) - e.slice(ix![.., ..-1])))),
        ("inside", |h, e| h.at(ix![1..-1, 1..-1]).mul(e.slice(ix![..-2, 2..]))),
        ("a row", |h, e| h.at(ix![7]).set(2.0 * h.slice(ix![7]) - e.slice(ix![3]))),
        ("a column", |h, e| h.at(ix![.., 5]).add(e.slice(ix![.., 6]))),
        ("the row above", |h, e| h.at(ix![1..]).set(h.slice(ix![..-1]) + e.slice(ix![1..]))),
        ("the column after", |h, _| h.at(ix![.., ..-1]).add(0.25 * h.slice(ix![.., 1..]))),
        ("another row", |h, e| h.at(ix![7]).set(h.slice(ix![8]) - e.slice(ix![3]))),
        ("neighbours", |h, e| {
            let around = h.slice(ix![..-2, 1..-1]) + h.slice(ix![2.., 1..-1]);
            h.at(ix![1..-1, 1..-1]).add(0.25 * (around - e.slice(ix![1..-1, 1..-1])))
        }),
    ];
    for (name, update) in updates {
        let f = |h: &Array, e: &Array| fori_loop(0..2, h, |_, h: Array| update(&h, e));
        let run = |engine: EngineKind, h: &Array, e: &Array| {
            jit(f).engine(engine).call((h, e)).unwrap().to_vec::<f32>().unwrap()
        };
        // One update after the other, each of which makes a new array.
        let want = update(&update(&h, &e), &e).to_vec::<f32>().unwrap();
        let mesh = Mesh::auto([("X", 4)]).unwrap();
        for engine in ENGINES {
            assert_eq!(run(engine, &h, &e), want, "{name}, {engine:?}");
            let (h, e) = (h.put(&mesh, p!["X"]), e.put(&mesh, p!["X"]));
            assert_eq!(run(engine, &h, &e), want, "{name}, sharded, {engine:?}");
        }
    }
}

/// A step of a loop with two carries.
type Step = fn(Array, Array) -> (Array, Array);

#[test]
fn values_that_others_read_are_overwritten_after_the_last_read() {
    let steps: [(&str, Step); 7] = [
        ("in turns", |h, e| {
            let h = h.at(ix![..-1]).add(0.5 * (e.slice(ix![1..]) - e.slice(ix![..-1])));
            let e = e.at(ix![1..]).add(0.5 * (h.slice(ix![1..]) - h.slice(ix![..-1])));
            (h, e)
        }),
        ("the old value, where it is stored", |h, e| {
            let new = h.at(ix![.., 1..]).add(0.5 * e.slice(ix![.., 1..]));
            (new, 0.5 * h + e)
        }),
        ("the old value, elsewhere", |h, e| {
            let new = h.at(ix![.., 1..]).add(0.5 * e.slice(ix![.., 1..]));
            (new, e + h.flip(0))
        }),
        ("changing places", |h, e| (e.at(ix![2..]).add(h.slice(ix![2..])), h.at(ix![..9]).mul(2.0))),
        ("of different parts", |h, e| {
            let sum = 0.5 * (&h + &e);
            (h.at(ix![3..9]).set(sum.slice(ix![3..9])), e.at(ix![.., 5..8]).set(sum.slice(ix![.., 5..8])))
        }),
        ("of an extreme of all", |h, e| (h.at(ix![1..]).add(0.01 * h.max(..)), e)),
        ("one of two branches", |h, e| {
            let is_positive = h.at(ix![1, 1]).get().gt(0.0);
            let first = || h.at(ix![..-1]).add(e.slice(ix![1..]));
            (cond(is_positive, first, || h.at(ix![1..]).mul(e.slice(ix![1..]))), e.clone())
        }),
    ];
    let (h, e) = fields();
    let mesh = Mesh::auto([("X", 4)]).unwrap();
    for (name, step) in steps {
        let f = |h: Array, e: Array| fori_loop(0..3, (h, e), |_, (h, e)| step(h, e));
        let until = |h: Array, e: Array| {
            let start = ((h, e), Array::from(0));
            while_loop(start, |(_, n)| n.lt(3), |((h, e), n)| (step(h, e), n + 1)).0
        };
        let bits = |(h, e): (Array, Array)| [h.to_vec::<f32>().unwrap(), e.to_vec::<f32>().unwrap()];
        let want = bits((0..3).fold((h.clone(), e.clone()), |(h, e), _| step(h, e)));
        for engine in ENGINES {
            assert_eq!(bits(jit(f).engine(engine).call((&h, &e)).unwrap()), want, "{name}, {engine:?}");
            assert_eq!(bits(jit(until).engine(engine).call((&h, &e)).unwrap()), want, "{name}, {engine:?}");
            let args = || (&h + 0.0, &e + 0.0);
            let given = jit(f).donate([0, 1]).engine(engine).call(args()).unwrap();
            assert_eq!(bits(given), want, "{name}, donated, {engine:?}");
            let args = (h.put(&mesh, p!["X"]), e.put(&mesh, p!["X"]));
            assert_eq!(bits(jit(f).engine(engine).call(&args).unwrap()), want, "{name}, sharded, {engine:?}");
        }
    }
}

#[test]
fn a_part_is_updated_in_one_buffer() {
    // The last two read an element after or before it is written.
    let updates: [(&str, Update, bool); 6] = [
        ("rows", |h, e| h.at(ix![..-1]).add(0.5 * (e.slice(ix![1..]) - e.slice(ix![..-1]))), true),
        ("columns", |h, e| h.at(ix![.., 1..]).mul(e.slice(ix![.., ..-1])), true),
        ("inside", |h, e| h.at(ix![1..-1, 1..-1]).mul(e.slice(ix![..-2, 2..])), true),
        ("a row", |h, e| h.at(ix![7]).set(2.0 * h.slice(ix![7]) - e.slice(ix![3])), true),
        ("the row above", |h, e| h.at(ix![1..]).set(h.slice(ix![..-1]) + e.slice(ix![1..])), false),
        ("the column after", |h, _| h.at(ix![.., ..-1]).add(0.25 * h.slice(ix![.., 1..])), false),
    ];
    let (h, e) = fields();
    let bytes = 4 * 260 * 256;
    for (name, update, in_place) in updates {
        let f = |h: &Array, e: &Array| fori_loop(0..3, h, |_, h: Array| update(&h, e));
        let lowered = jit(f).lower((&h, &e)).unwrap();
        let (memory, report) = (lowered.memory(), lowered.compile().unwrap().report());
        // Both arguments and the result; the carry alternates with another buffer otherwise.
        let expected = if in_place { 3 } else { 4 };
        assert_eq!(memory.peak_bytes as usize / bytes, expected, "{name}: {memory}");
        assert_eq!(report.peak_bytes() / bytes, expected, "{name}: {report}");
    }
}

#[test]
fn gradients_of_loops_that_update_a_part() {
    let (h, e) = fields();
    let loss = |h: &Array, e: &Array| {
        grad((h, e), |(h, e): (Array, Array)| {
            let part = |h: Array| h.at(ix![..-1]).mul(e.slice(ix![1..]).sin());
            fori_loop(0..3, &h, |_, h: Array| part(h)).square().sum(..)
        })
    };
    let bits = |(h, e): (Array, Array)| [h.to_vec::<f32>().unwrap(), e.to_vec::<f32>().unwrap()];
    let want = bits(jit(loss).engine(EngineKind::Lockstep).call((&h, &e)).unwrap());
    // The same, unrolled: each value is in its own memory.
    let unrolled = |h: &Array, e: &Array| {
        grad((h, e), |(h, e): (Array, Array)| {
            let part = |h: Array| h.at(ix![..-1]).mul(e.slice(ix![1..]).sin());
            part(part(part(h))).square().sum(..)
        })
    };
    assert_eq!(bits(jit(unrolled).call((&h, &e)).unwrap()), want);
    assert_eq!(bits(jit(loss).engine(EngineKind::Threads).call((&h, &e)).unwrap()), want);
}

/// A loop that writes rows of its carry does not write the initial value, which other operations
/// read before, in and after the loop.
#[test]
fn a_loop_of_rows_keeps_the_initial_value() {
    /// Writes row `i`, computed from the next one.
    fn write(i: &Array, c: &Array) -> Array {
        c.at(ix![i]).set(c.slice(ix![&(i + 1)]) * 0.5 + 1.0)
    }
    type Program = fn(&Array, &Array) -> Array;
    let programs: [(&str, Program); 9] = [
        ("read after it", |x, _| fori_loop(0..3, x, |i, c| write(&i, &c)) + x),
        ("read in it", |x, _| {
            fori_loop(0..3, x, |i, c| write(&i, &c).at(ix![&(&i + 3)]).add(x.slice(ix![&i])))
        }),
        ("two from one value", |x, _| {
            let (a, b) = fori_loop(0..3, (x, x), |i, (a, b)| {
                (write(&i, &a), b.at(ix![&(2 - &i)]).add(a.slice(ix![&i])))
            });
            a * 2.0 + b
        }),
        ("in a loop", |x, _| {
            fori_loop(0..3, x, |i, c| {
                let inner = fori_loop(0..2, &c, |j, d| write(&(&i + &j), &d));
                inner.at(ix![&i]).add(c.slice(ix![&i]))
            })
        }),
        ("in a branch", |x, i| cond(i.lt(5), || fori_loop(0..3, x, |i, c| write(&i, &c)), || x * 2.0) + x),
        ("around a branch", |x, i| {
            fori_loop(0..4, x, |k, c| {
                let row = cond(k.lt(i), || c.slice(ix![&k]) + 1.0, || c.slice(ix![&(&k + 1)]));
                c.at(ix![&k]).set(row)
            })
        }),
        ("while", |x, i| {
            let run =
                |start: Array| while_loop((x, start), |(_, n)| n.lt(3), |(c, n)| (write(&n, &c), n + 1)).0;
            // the second one has no iteration
            run(i - 2) * run(i + 7)
        }),
        ("with a row of each iteration", |x, _| {
            let (last, rows) = scan(x, Array::arange(0..3), |c: Array, k: Array| {
                let row = c.slice(ix![&k]);
                (write(&k, &c), row)
            });
            last + rows.max(0)
        }),
        ("in a gradient", |x, _| {
            grad(x, |x| (fori_loop(0..3, &x, |i, c| write(&i, &c)).square() * &x).sum(..))
        }),
    ];
    let (x, i) = (Key::new(3).normal([12, 10]), Array::from(2));
    let placed = x.put(&Mesh::auto([("X", 2), ("Y", 2)]).unwrap(), p!["X", "Y"]);
    for (name, f) in programs {
        let run = |engine: EngineKind, x: &Array| {
            jit(f).engine(engine).call((x, &i)).unwrap().to_vec::<f32>().unwrap()
        };
        let want = run(EngineKind::Reference, &x);
        for engine in ENGINES {
            for x in [&x, &placed] {
                assert!(run(engine, x) == want, "{name}, {engine}");
            }
        }
    }
}
