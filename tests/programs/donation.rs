//! Donated arguments: their memory is reused for results where that is safe, and results are equal
//! bit by bit in every case.

use crate::error_checks::Unquoted as _;
use atmesh::engine::ExecutionReport;
use atmesh::prelude::*;
use atmesh::{EngineKind, ErrorKind};

type List = Vec<Array>;

const ENGINES: [EngineKind; 2] = [EngineKind::Lockstep, EngineKind::Threads];

/// Returns the address of the first element.
fn address(x: &Array) -> usize {
    x.view::<f32>().unwrap_or_else(|e| panic!("{e}")).as_ptr() as usize
}
fn bits(x: &Array) -> Vec<u32> {
    x.view::<f32>().unwrap_or_else(|e| panic!("{e}")).iter().map(|x| x.to_bits()).collect()
}
/// Returns random elements in freshly allocated memory.
fn noise(shape: &[usize], seed: u64) -> Array {
    let mut s = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let n = shape.iter().product();
    Array::from((0..n).map(|_| next()).collect::<Vec<f32>>()).reshape(shape.to_vec())
}
/// The placement of the random array.
#[derive(Clone, Copy)]
enum On {
    Nothing,
    /// A mesh of 4 by 2 devices, and the dimensions that are sharded over its axes.
    Explicit(&'static str),
    Auto(&'static str),
}
fn put(x: Array, on: On) -> Array {
    let axes = [("X", 4), ("Y", 2)];
    let place = |mesh: Mesh, dims: &str| match dims {
        "X_" => x.put(&mesh, p!["X", _]),
        "XY" => x.put(&mesh, p!["X", "Y"]),
        "X" => x.put(&mesh, p!["X"]),
        _ => x.put(&mesh, p![]),
    };
    match on {
        On::Nothing => x.clone(),
        On::Explicit(dims) => place(Mesh::new(axes).unwrap(), dims),
        On::Auto(dims) => place(Mesh::auto(axes).unwrap(), dims),
    }
}
/// Runs `f` with and without donating its first argument. Asserts equal bits on both engines, and
/// that result k is in the memory of the donated array listed for it, or of none. Returns the
/// reports without and with donation.
#[track_caller]
fn check(
    f: impl Fn(&List, &List) -> List + Copy,
    make: impl Fn() -> (List, List),
    stored_in: &[Option<usize>],
) -> (ExecutionReport, ExecutionReport) {
    let mut reports = None;
    for engine in ENGINES {
        let (given, kept) = make();
        let plain = jit(f).engine(engine);
        let want: Vec<_> =
            plain.call((&given, &kept)).unwrap_or_else(|e| panic!("{e}")).iter().map(bits).collect();
        let before: Vec<_> = kept.iter().map(bits).collect();
        let places: Vec<usize> = given.iter().map(address).collect();
        let donating = jit(f).donate(0).engine(engine);
        let compiled = donating.lower((&given, &kept)).unwrap().compile().unwrap();
        let report = compiled.report();
        let got = compiled.call((&given, &kept)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(got.len(), stored_in.len());
        for (k, (g, w)) in got.iter().zip(&want).enumerate() {
            assert!(bits(g) == *w, "{engine}: result {k} differs\n{report}");
            let at = places.iter().position(|p| *p == address(g));
            assert_eq!(at, stored_in[k], "{engine}: where result {k} is stored\n{report}");
        }
        assert_eq!(kept.iter().map(bits).collect::<Vec<_>>(), before, "what is not donated stays");
        assert!(given.iter().all(|x| x.to_vec::<f32>().unwrap_err().kind() == ErrorKind::Donated));
        let plain = plain.lower(make()).unwrap().compile().unwrap().report();
        reports = Some((plain, report));
    }
    reports.unwrap()
}

const PLACES: [On; 5] =
    [On::Nothing, On::Explicit("X_"), On::Explicit("XY"), On::Explicit(""), On::Auto("XY")];

#[test]
fn a_step_of_gradient_descent_is_in_place() {
    for on in PLACES {
        let make = || (vec![put(noise(&[16, 24], 1), on)], vec![put(noise(&[16, 24], 2), on)]);
        let (plain, given) = check(|w, g| vec![&w[0] - 0.1 * &g[0]], make, &[Some(0)]);
        assert_eq!(given.peak_bytes() + 16 * 24 * 4, plain.peak_bytes());
        assert!(given.device_bytes < plain.device_bytes);
        assert!(given.to_string().contains("result 0: in the memory of donated argument 0"), "{given}");
    }
}

#[test]
fn blocks_that_do_not_divide() {
    for n in [103, 5, 1] {
        let on = On::Auto("X");
        let make = || (vec![put(noise(&[n], 1), on)], vec![put(noise(&[n], 2), on)]);
        check(|w, g| vec![&w[0] - 0.1 * &g[0]], make, &[Some(0)]);
    }
}

#[test]
fn adam_updates_three_arrays() {
    let adam = |s: &List, g: &List| {
        let (w, m, v, g) = (&s[0], &s[1], &s[2], &g[0]);
        let m = 0.9 * m + 0.1 * g;
        let v = 0.999 * v + 0.001 * g * g;
        vec![w - 1e-3 * &m / (v.abs().sqrt() + 1e-8), m, v]
    };
    for on in PLACES {
        let make = || {
            let x = |k| put(noise(&[8, 200], k), on);
            (vec![x(1), x(2), x(3)], vec![x(4)])
        };
        let (plain, given) = check(adam, make, &[Some(0), Some(1), Some(2)]);
        assert_eq!(given.peak_bytes() + 3 * 8 * 200 * 4, plain.peak_bytes());
    }
}

/// A network of two layers: the second layer's weights are still read while the product for their
/// gradient is computed.
#[test]
fn a_training_step_of_products() {
    let step = |w: &List, x: &List| {
        let h = x[0].dot(&w[0]).tanh();
        let out = h.dot(&w[1]) - &x[1];
        let back = out.dot(w[1].t()) * (1.0 - &h * &h);
        vec![&w[0] - 0.1 * x[0].t().dot(&back), &w[1] - 0.1 * h.t().dot(&out)]
    };
    for on in [On::Nothing, On::Explicit(""), On::Auto("")] {
        let make = || {
            let n = |s: &[usize], k| put(noise(s, k), on);
            (vec![n(&[24, 40], 1), n(&[40, 8], 2)], vec![n(&[32, 24], 3), n(&[32, 8], 4)])
        };
        check(step, make, &[Some(0), Some(1)]);
    }
}

#[test]
fn updates_of_a_part_are_in_place() {
    for on in PLACES {
        let make = || (vec![put(noise(&[16, 24], 1), on)], vec![noise(&[8, 24], 2)]);
        check(|x, y| vec![x[0].at(ix![3..11]).set(&y[0])], make, &[Some(0)]);
        // The part is read at the indices at which it is written.
        check(|x, y| vec![x[0].at(ix![3..11]).add(&y[0])], make, &[Some(0)]);
    }
}

/// The results swap places: each reads mostly the argument in whose memory the other is, and both
/// are computed together.
#[test]
fn arguments_that_change_places() {
    let make = || (vec![noise(&[900], 1), noise(&[900], 2)], vec![]);
    let swapped = |x: &List, _: &List| {
        let sum = &x[0] + &x[1];
        let a = x[1].at(ix![0..3]).set(sum.slice(ix![0..3]));
        vec![a, x[0].at(ix![5..9]).set(sum.slice(ix![5..9]))]
    };
    check(swapped, make, &[Some(0), Some(1)]);
    let both = |x: &List, _: &List| {
        let sum = &x[0] + &x[1];
        vec![2.0 * &sum, 3.0 * sum]
    };
    check(both, make, &[Some(0), Some(1)]);
    // As separate operations: each result is in the memory of its operand.
    check(|x, _| vec![2.0 * &x[1], 3.0 * &x[0]], make, &[Some(1), Some(0)]);
    // Each would have to be computed before the other.
    check(|x, _| vec![&x[0] + &x[1], &x[0] - &x[1]], make, &[Some(0), None]);
    check(|x, _| vec![x[1].clone(), x[0].clone()], make, &[Some(1), Some(0)]);
}

#[test]
fn what_is_returned_as_it_is_is_not_written() {
    let make = || (vec![noise(&[64], 1)], vec![]);
    check(|x, _| vec![x[0].clone(), &x[0] + 1.0], make, &[Some(0), None]);
    check(|x, _| vec![&x[0] + 1.0, x[0].reshape([8, 8]), x[0].sin()], make, &[None, Some(0), None]);
}

#[test]
fn arguments_that_several_steps_read() {
    let make = || (vec![noise(&[32, 32], 1)], vec![noise(&[32], 2)]);
    // Reversed, transposed, summed and unchanged.
    let all = |x: &List, y: &List| {
        let x = &x[0];
        vec![x * 2.0, x.flip(0) + 1.0, x.t() + &y[0], x.sum(0) + x.dot(&y[0])]
    };
    check(all, make, &[Some(0), None, None, None]);
    // The whole argument is read before any of its memory may be written.
    check(|x, _| vec![x[0].flip(0) * 2.0], make, &[None]);
    check(|x, _| vec![x[0].t().sin()], make, &[None]);
    check(|x, _| vec![&x[0] - x[0].sum(0)], make, &[Some(0)]);
    check(|x, _| vec![x[0].dot(&x[0])], make, &[None]);
    // The result is computed after the last read of the argument.
    check(|x, _| vec![x[0].dot(&x[0]).dot(Array::ones([32, 32]))], make, &[Some(0)]);
}

#[test]
fn the_same_array_twice() {
    for engine in ENGINES {
        let f = jit(|x: &Array, y: &Array| x * 2.0 + y).donate(0).engine(engine);
        let x = noise(&[100], 1);
        let (at, want) = (address(&x), bits(&(&x * 2.0 + &x)));
        let z = f.call((&x, &x)).unwrap();
        assert!(bits(&z) == want && address(&z) != at);
        assert_eq!(x.to_vec::<f32>().unwrap_err().kind(), ErrorKind::Donated);
    }
    // Passing an array twice is an error, like any use of a donated array.
    let g = jit(|x: &Array, y: &Array| x + y).donate([0, 1]);
    let x = noise(&[100], 1);
    assert_eq!(g.call((&x, &x)).unwrap_err().kind(), ErrorKind::Donated);
}

/// The memory is shared with a view of the elements, or with another array.
#[test]
fn memory_that_others_hold_is_left_alone() {
    for engine in ENGINES {
        let f = jit(|x: &Array| x * 2.0).donate(0).engine(engine);
        let x = noise(&[100], 1);
        let (view, before) = (x.view::<f32>().unwrap(), bits(&x));
        let y = f.call(&x).unwrap();
        assert!(address(&y) != view.as_ptr() as usize);
        assert!(view.iter().map(|x| x.to_bits()).eq(before.iter().copied()));

        let x = noise(&[100], 1);
        let same = jit(|x: &Array| x.reshape([10, 10])).engine(engine).call(&x).unwrap();
        assert_eq!(address(&same), address(&x), "a reshape is another name of its operand");
        let y = f.call(&x).unwrap();
        assert!(address(&y) != address(&same) && bits(&same) == before);
        drop(same);

        // Blocks of devices in another order are views of the argument.
        let mesh = Mesh::new([("X", 4)]).unwrap();
        let x = noise(&[4096], 3).put(&mesh, p!["X"]).ready().unwrap();
        let before = bits(&x);
        let turn = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.ppermute("X", Permutation::ring(1)));
        let turned = jit(turn).engine(engine).call(&x).unwrap();
        let y = jit(|x: &Array| x * 2.0).donate(0).engine(engine).call(&x).unwrap();
        let want: Vec<u32> = before.iter().cycle().skip(3 * 1024).take(4096).copied().collect();
        assert_eq!(bits(&turned), want);
        assert!(bits(&y).iter().zip(&before).all(|(a, b)| f32::from_bits(*a) == 2.0 * f32::from_bits(*b)));
    }
}

/// A chain of donating calls keeps its state in one place.
#[test]
fn state_stays_where_it_is() {
    for engine in ENGINES {
        let f = jit(|x: &Array| 0.5 * x + 1.0).donate(0).engine(engine);
        let mut x = noise(&[1000], 1);
        let at = address(&x);
        for _ in 0..5 {
            x = f.call(&x).unwrap();
            assert_eq!(address(&x), at);
        }
    }
}

#[test]
fn other_element_types_of_the_same_size() {
    for engine in ENGINES {
        let f = jit(|x: &Array| (x * 100.0).astype(I32)).donate(0).engine(engine);
        let x = noise(&[1000], 1);
        let (at, want) = (address(&x), (&x * 100.0).astype(I32).to_vec::<i32>().unwrap());
        let y = f.call(&x).unwrap();
        assert_eq!(y.view::<i32>().unwrap().as_ptr() as usize, at);
        assert_eq!(y.to_vec::<i32>().unwrap(), want);
    }
}

/// A chain of rows may run its first matmul later. The memory of a donated operand is scratch only
/// after that.
#[test]
fn operands_of_a_chain_of_rows_are_read_before_they_are_scratch() {
    fn attention(x: &List, y: &List) -> List {
        let weights = (einsum("hqd,hkd->hqk", [&y[0], &x[0]]) * 0.25).softmax(-1);
        vec![einsum("hqk,hkd->hqd", [&weights, &y[1]]).sin().sum(1)]
    }
    let shape = [4, 128, 16];
    check(attention, || (vec![noise(&shape, 1)], vec![noise(&shape, 2), noise(&shape, 3)]), &[None]);
}

fn heat(x: &Array) -> Array {
    let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
    x.at(ix![1..-1]).set(inner)
}

/// A loop needs two buffers for a carry that it cannot update in place: the donated argument is one
/// of them.
#[test]
fn loops_alternate_with_the_argument() {
    fn steps<const N: i32>(x: &List, _: &List) -> List {
        vec![fori_loop(0..N, x[0].clone(), |_, x| heat(&x))]
    }
    for on in [On::Nothing, On::Explicit(""), On::Auto("X")] {
        let make = || (vec![put(noise(&[1030], 1), on)], vec![]);
        let (plain, given) = check(steps::<4>, make, &[Some(0)]);
        assert_eq!(given.peak_bytes() + 1030 * 4, plain.peak_bytes(), "{plain}{given}");
        // With an odd number of iterations, the argument is the other buffer.
        let (plain, given) = check(steps::<5>, make, &[None]);
        assert!(
            given.peak_bytes() < plain.peak_bytes()
                && given.to_string().contains("a buffer of a loop's carry")
        );
        check(steps::<1>, make, &[None]);
        check(steps::<0>, make, &[Some(0)]);
        // The argument is also read after the loop, so the loop must not overwrite it.
        let both = |x: &List, _: &List| vec![fori_loop(0..4, x[0].clone(), |_, x| heat(&x)) + &x[0]];
        check(both, make, &[Some(0)]);
        let until = |x: &List, _: &List| {
            let start = (x[0].clone(), Array::from(0));
            vec![while_loop(start, |(_, n)| n.lt(7), |(x, n)| (heat(&x), n + 1)).0]
        };
        check(until, make, &[None]);
        let stacked = |x: &List, _: &List| {
            let (last, all) = scan(x[0].clone(), Array::arange(0..6), |x, i| {
                let y = heat(&x) + i.astype(F32);
                (y.clone(), y.sum(..))
            });
            vec![last, all]
        };
        check(stacked, make, &[Some(0), None]);
    }
}

/// A carry that each iteration reads only where it writes it is updated in place, in one buffer for
/// any number of iterations.
#[test]
fn carries_are_updated_in_place() {
    const N: usize = 80_000;
    fn steps<const K: i32>(x: &List, y: &List) -> List {
        vec![fori_loop(0..K, x[0].clone(), |_, x| 0.5 * x + &y[0])]
    }
    let make = || (vec![noise(&[N], 1)], vec![noise(&[N], 2)]);
    for (plain, given) in [check(steps::<4>, make, &[Some(0)]), check(steps::<5>, make, &[Some(0)])] {
        assert_eq!(plain.peak_bytes() - plain.scratch_bytes, 3 * 4 * N, "{plain}");
        assert!(plain.scratch_bytes < 4 * N && given.scratch_bytes < 4 * N, "no second place\n{plain}");
        assert_eq!(plain.peak_bytes() - given.peak_bytes(), 4 * N);
    }
    let part = |x: &List, y: &List| {
        vec![fori_loop(0..5, x[0].clone(), |i, x| (0.5 * x + &y[0]).at(ix![7..9]).set(i.astype(F32)))]
    };
    check(part, make, &[Some(0)]);
    // Of two carries that read each other, one can be written after all reads of it; the other one
    // alternates.
    let swap = |x: &List, _: &List| {
        let (a, b) = fori_loop(0..3, (x[0].clone(), x[1].clone()), |_, (a, b)| (&b + 1.0, 0.5 * a - b));
        vec![a, b]
    };
    let make = || (vec![noise(&[N], 1), noise(&[N], 2)], vec![]);
    check(swap, make, &[Some(0), None]);
    let until = |x: &List, _: &List| {
        let start = (x[0].clone(), Array::from(0));
        vec![while_loop(start, |(_, n)| n.lt(7), |(x, n)| (0.5 * x + 1.0, n + 1)).0]
    };
    check(until, || (vec![noise(&[N], 1)], vec![]), &[Some(0)]);
}

/// Donated memory that no result uses becomes scratch space after its last read.
#[test]
fn room_for_values_in_between() {
    let f = |x: &List, y: &List| {
        let a = x[0].dot(&y[0]).tanh();
        let b = a.dot(&y[0]).tanh();
        vec![b.dot(&y[0]).sum(..)]
    };
    let make = || (vec![noise(&[48, 48], 1)], vec![noise(&[48, 48], 2)]);
    let (plain, given) = check(f, make, &[None]);
    assert_eq!(given.scratch_bytes + 48 * 48 * 4, plain.scratch_bytes, "{plain}{given}");
    assert!(given.to_string().contains("donated argument 0: scratch for intermediate values"), "{given}");
}

fn is_gone(x: &Array) -> bool {
    x.to_vec::<f32>().is_err()
}

/// A function that wraps a function has its parameters: `donate` counts them alike in a closure, a
/// traced function, per-device code, and functions made of these.
#[test]
fn wrappers_have_the_parameters_of_what_they_wrap() -> Result<()> {
    type Pair = (Array, Array);
    let mesh = Mesh::new([("x", 2)])?;
    let row = |x: f32| Array::full([4], x).put(&mesh, p!["x"]);
    // donating argument `k` takes the leaves `want` of the arguments
    macro_rules! check {
        ($make:expr, $f:expr, $args:expr, $leaves:expr, $donate:expr, $want:expr) => {{
            let direct = jit($f).donate($donate);
            let twice = jit(jit($f)).donate($donate);
            let thrice = jit(jit(jit($f))).donate($donate);
            let region = jit(shard_map(&mesh, p!["x"], p!["x"], $f)).donate($donate);
            let inner = shard_map(&mesh, p!["x"], p!["x"], $f);
            let borrowed = jit(&inner).donate($donate);
            let traced = jit($f);
            let both = jit(shard_map(&mesh, p!["x"], p!["x"], &traced)).donate($donate);
            for (name, f) in [
                ("jit", direct),
                ("jit(jit)", twice),
                ("jit(jit(jit))", thrice),
                ("jit(shard_map)", region),
                ("jit(&shard_map)", borrowed),
                ("jit(shard_map(&jit))", both),
            ] {
                let values = $make;
                let _ = f.call($args(&values))?;
                let gone: Vec<bool> = $leaves(&values).iter().map(|a| is_gone(a)).collect();
                assert_eq!(gone, $want, "{name}, donate({:?})", $donate);
            }
        }};
    }
    check!(row(1.0), |x: &Array| x + 1.0, |x: &Array| x.clone(), |x: &Array| [x.clone()], 0, [true]);
    let pair = || (row(1.0), row(2.0));
    let leaves = |p: &Pair| [p.0.clone(), p.1.clone()];
    let one = |p: &Pair| (&p.0 + 1.0, &p.1 + 2.0);
    check!(pair(), one, |p: &Pair| p.clone(), leaves, 0, [true, true]);
    let two = |a: &Array, b: &Array| (a + b, a - b);
    for (donate, want) in [(0, [true, false]), (1, [false, true])] {
        check!(pair(), two, |p: &Pair| p.clone(), leaves, donate, want);
    }
    check!(pair(), two, |p: &Pair| p.clone(), leaves, [1, 0], [true, true]);
    let nested = |p: &Pair, c: &Array| (&p.0 + c, &p.1 - c);
    let three = || (pair(), row(3.0));
    let all = |(p, c): &(Pair, Array)| [p.0.clone(), p.1.clone(), c.clone()];
    for (donate, want) in [(0, [true, true, false]), (1, [false, false, true])] {
        check!(three(), nested, |t: &(Pair, Array)| t.clone(), all, donate, want);
    }
    Ok(())
}

#[test]
fn an_argument_that_does_not_exist_cannot_be_donated() -> Result<()> {
    let mesh = Mesh::new([("x", 2)])?;
    let x = || Array::ones([4]).put(&mesh, p!["x"]);
    let region = jit(shard_map(&mesh, p!["x"], p!["x"], |x: &Array| x + 1.0)).donate(1);
    let twice = jit(jit(|x: &Array| x + 1.0)).donate([0, 1]);
    for f in [region, twice] {
        let e = f.call(x()).unwrap_err().unquoted();
        assert!(e.contains("cannot donate argument 1: there is 1 argument"), "{e}");
    }
    let f = jit(|a: &Array, b: &Array| a + b).donate(2);
    let e = f.call((x(), x())).unwrap_err().unquoted();
    assert!(e.contains("cannot donate argument 2: there are 2 arguments"), "{e}");
    let e = jit(|| Array::from(1)).donate(0).call(()).unwrap_err().unquoted();
    assert!(e.contains("there are 0 arguments") && e.contains("leave `.donate(..)` out"), "{e}");
    Ok(())
}

/// The report names donations of no use, and why.
#[test]
fn donations_of_no_use_are_reported() -> Result<()> {
    let report = |f: atmesh::Jit<'static, Array, Array>, n: usize| -> Result<String> {
        Ok(f.donate(0).lower(Array::ones([n]))?.compile()?.report().to_string())
    };
    let half = report(jit(|x: &Array| x.slice(ix![..2]).sum(..)), 4)?;
    let no_fit = "donated argument 0: not used: no result or intermediate value can take its memory";
    assert!(half.contains(no_fit), "{half}");
    let same = report(jit(|x: &Array| x.clone()), 4)?;
    assert!(
        same.contains("donated argument 0: not used: result 0 is this argument or a part of it"),
        "{same}"
    );
    let empty = report(jit(|x: &Array| x + 1.0), 0)?;
    assert!(empty.contains("donated argument 0: not used: it has no elements"), "{empty}");
    let used = report(jit(|x: &Array| x + 1.0), 4)?;
    assert!(!used.contains("not used"), "{used}");
    Ok(())
}

/// A scatter that could end a chain of rows runs after the last read of the argument in whose
/// memory it is.
#[test]
fn scatters_of_rows_wait_for_the_last_read() {
    let i = Array::from((0..16).map(|k| k * 5 % 8).collect::<Vec<i32>>());
    let f = |x: &List, _: &List| {
        let x = &x[0];
        // x is read once more after two prefix sums
        let late = (x.cumsum(0).cumsum(0) + x).slice(ix![..-1]);
        let counts = Array::zeros([8, 24]).at(ix![&i]).add(x.sin().take(&i, 0) * 2.0);
        vec![late, counts]
    };
    check(f, || (vec![noise(&[8, 24], 1)], vec![]), &[None, Some(0)]);
}

/// Rows of a carry are written over its initial value if that is donated, otherwise over a copy.
#[test]
fn rows_of_a_carry_are_written_over_a_copy() {
    /// Writes rows, each of which is computed from an earlier one.
    fn write(start: &Array, row: &Array, n: i32) -> Array {
        fori_loop(0..n, start.clone(), |i, c| c.at(ix![&(&i * 3)]).set(c.slice(ix![&i]) + row))
    }
    // small, and of a size that several workers copy
    for rows in [50, 33_000] {
        let make = || (vec![noise(&[rows, 32], 1)], vec![noise(&[32], 2), noise(&[rows, 32], 3)]);
        // a loop of 16 iterations is bound to its operands
        check(|x, y| vec![write(&x[0], &y[0], 1)], make, &[Some(0)]);
        check(|x, y| vec![write(&x[0], &y[0], 16)], make, &[Some(0)]);
        // two loops start from a value that is not donated and is read after them, too
        let twice = |x: &List, y: &List| {
            vec![write(&y[1], &y[0], 16), &y[1] + &x[0], write(&y[1], &(2.0 * &y[0]), 5)]
        };
        check(twice, make, &[None, Some(0), None]);
    }
    // the result of a while loop without an iteration is the initial value
    let until = |x: &List, y: &List| {
        let run = |c: &Array, start: i32| {
            let step = |(c, n): (Array, Array)| (c.at(ix![&n]).set(&y[0]), n + 1);
            while_loop((c.clone(), Array::from(start)), |(_, n)| n.lt(20), step).0
        };
        vec![run(&x[0], 3), run(&y[1], 20), run(&y[1], 2)]
    };
    let make = || (vec![noise(&[50, 32], 1)], vec![noise(&[32], 2), noise(&[50, 32], 3)]);
    check(until, make, &[Some(0), None, None]);
}
