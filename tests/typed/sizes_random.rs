//! Random programs on typed arrays whose sizes are known only at run time: each result is that of
//! the untyped program in which only `~` repeats, or an error.
//!
//! `ATMESH_SEED=7 cargo test --test typed sizes_random::` repeats a run.
// These tests are about the types.
#![allow(clippy::type_complexity)]

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::typed::{self, prelude::*};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

mesh! { struct Late { X: ? } }
dim!(Rows);
dim!(Columns);

type M = T![f32; Rows, Columns];
type R = T![f32; ~, Columns];
type C = T![f32; Rows, ~];
type V = T![f32; Rows];
type W = T![f32; Columns];
type K = T![f32; Columns, Rows];
type X2 = T![f32; Rows@X, Columns];
type P3 = T![f32; Rows, 3, Columns];
type Q3 = T![f32; Rows, Columns, 3];

/// The name of a dim in its type. Only `~` repeats.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Name {
    Rows,
    Columns,
    Three,
    Repeats,
}
use Name::{Columns as B, Repeats as One, Rows as A, Three};

/// What the untyped layer computes where only `~` repeats; `None` if sizes of one name differ.
#[derive(Clone)]
struct Oracle {
    names: Vec<Name>,
    array: Option<Array>,
}

impl Oracle {
    fn sizes(&self) -> Vec<usize> {
        self.array.as_ref().map_or(Vec::new(), |a| a.shape().unwrap().to_vec())
    }
    /// Returns the oracle of an operation on this array only.
    fn map(&self, names: &[Name], f: impl Fn(&Array) -> Array) -> Oracle {
        Oracle { names: names.to_vec(), array: self.array.as_ref().map(f) }
    }
    /// Returns the oracle of an operation that is an error unless `agree`.
    fn with(&self, o: &Oracle, names: &[Name], agree: bool, f: impl Fn(&Array, &Array) -> Array) -> Oracle {
        let array = match (&self.array, &o.array) {
            (Some(x), Some(y)) if agree => Some(f(x, y)),
            _ => None,
        };
        Oracle { names: names.to_vec(), array }
    }
    /// Returns true if dims that are paired from the last one backwards have one size or repeat.
    fn pairs(&self, o: &Oracle) -> bool {
        let dims = |o: &Oracle| o.names.iter().copied().zip(o.sizes()).rev().collect::<Vec<_>>();
        dims(self).iter().zip(dims(o)).all(|(x, y)| x.0 == One || y.0 == One || x.1 == y.1)
    }
    /// Returns true if each name is one size in both.
    fn call(&self, o: &Oracle) -> bool {
        let dims: Vec<_> = [self, o].iter().flat_map(|o| o.names.iter().copied().zip(o.sizes())).collect();
        dims.iter().all(|x| dims.iter().all(|y| x.0 == One || x.0 != y.0 || x.1 == y.1))
    }
    /// Returns the oracle of an elementwise operation.
    fn zip(&self, o: &Oracle, names: &[Name], f: impl Fn(&Array, &Array) -> Array) -> Oracle {
        self.with(o, names, self.pairs(o), f)
    }
    /// Returns the oracle of an operation whose operands have one size for each name.
    fn both(&self, o: &Oracle, names: &[Name], f: impl Fn(&Array, &Array) -> Array) -> Oracle {
        self.with(o, names, self.call(o), f)
    }
}

/// The typed arrays of a program, with their oracles.
#[derive(Default)]
struct Values {
    m: Vec<(M, Oracle)>,
    r: Vec<(R, Oracle)>,
    c: Vec<(C, Oracle)>,
    v: Vec<(V, Oracle)>,
    w: Vec<(W, Oracle)>,
    k: Vec<(K, Oracle)>,
    x: Vec<(X2, Oracle)>,
    p: Vec<(P3, Oracle)>,
    q: Vec<(Q3, Oracle)>,
}

/// An operation and the operands that it picks.
type Step = (usize, usize, usize, usize);
const OPERATIONS: usize = 31;

macro_rules! pick {
    ($s:ident . $of:ident [$i:expr]) => {{
        let all = &$s.$of;
        all[$i % all.len()].clone()
    }};
}

impl Values {
    fn step(&mut self, (op, i, j, k): Step) {
        match op {
            0..10 => self.elementwise(op, i, j, k),
            10..18 => self.product(op, i, j),
            18..25 => self.shape(op, i, j),
            _ => self.call(op, i, j),
        }
    }
    fn elementwise(&mut self, op: usize, i: usize, j: usize, k: usize) {
        let s = self;
        let ab = &[A, B];
        let ((m, om), (n, on)) = (pick!(s.m[i]), pick!(s.m[j]));
        let ((r, or), (c, oc)) = (pick!(s.r[j]), pick!(s.c[k]));
        let (x, ox) = pick!(s.x[i]);
        match op {
            0 => s.m.push((&m + &n, om.zip(&on, ab, |x, y| x + y))),
            1 => s.m.push((m * &r, om.zip(&or, ab, |x, y| x * y))),
            2 => s.m.push((c.sub(&m), oc.zip(&om, ab, |x, y| x - y))),
            3 => s.m.push((r.maximum(&c), or.zip(&oc, ab, |x, y| x.maximum(y)))),
            4 => {
                let (low, olow) = pick!(s.m[k]);
                let agree = om.pairs(&on) && on.pairs(&olow);
                let y = m.lt(&low).select(&m, &n);
                let o = om.with(&on, ab, agree && om.pairs(&olow), |x, y| {
                    x.lt(olow.array.as_ref().unwrap_or(x)).select(x, y)
                });
                s.m.push((y, Oracle { array: o.array.filter(|_| olow.array.is_some()), ..o }));
            }
            5 => {
                let (w, ow) = pick!(s.w[j]);
                s.m.push((m.minimum(w), om.zip(&ow, ab, |x, y| x.minimum(y))));
            }
            6 => s.x.push((&x + &m, ox.zip(&om, ab, |x, y| x + y))),
            7 => s.x.push((c * x, oc.zip(&ox, ab, |x, y| x * y))),
            8 => s.m.push((m.softmax(D1), om.map(ab, |x| x.softmax(1)))),
            _ => {
                let kept = |x: &Array| x - x.max(Dims::keep([1]));
                s.m.push((&m - &m.max(keep(D1)), om.map(ab, kept)));
            }
        }
    }
    fn product(&mut self, op: usize, i: usize, j: usize) {
        let s = self;
        let ((m, om), (n, on)) = (pick!(s.m[i]), pick!(s.m[j]));
        let ((v, ov), (w, ow)) = (pick!(s.v[j]), pick!(s.w[j]));
        let ((p, op3), (q, oq)) = (pick!(s.p[i]), pick!(s.q[j]));
        match op {
            10 => s.v.push((m.matmul(&w), om.both(&ow, &[A], |x, y| x.matmul(y)))),
            11 => s.w.push((v.matmul(&m), ov.both(&om, &[B], |x, y| x.matmul(y)))),
            12 => {
                let o = om.both(&on, &[A], |x, y| atmesh::einsum("ab,ab->a", [x, y]));
                s.v.push((einsum!("ab,ab->a", m, n), o));
            }
            13 => {
                let o = om.both(&ow, &[B, A], |x, y| atmesh::einsum("ab,b->ba", [x, y]));
                s.k.push((einsum!("ab,b->ba", m, w), o));
            }
            14 => {
                let (k, ok) = pick!(s.k[j]);
                // the rows of the result are those of the left operand
                let agree = om.sizes().get(1) == ok.sizes().first();
                let o = om.with(&ok, &[A], agree, |x, y| x.matmul(y).sum(1));
                s.v.push((m.matmul(&k).sum(D1), o));
            }
            15 => {
                let o = op3.both(&oq, &[A], |x, y| x.matmul(y).sum([1, 2]));
                s.v.push((p.matmul(&q).sum((D1, D2)), o));
            }
            16 => {
                let o = op3.both(&oq, &[A], |x, y| x.matmul(y).sum([1, 2]));
                s.v.push((p.matmul_to(&q, P![_, _, _]).sum((D1, D2)), o));
            }
            _ => s.m.push((
                v.expand_dims(D1) * &m,
                ov.map(&[A, One], |x| x.expand_dims(1)).zip(&om, &[A, B], |x, y| x * y),
            )),
        }
    }
    fn shape(&mut self, op: usize, i: usize, j: usize) {
        let s = self;
        let ab = &[A, B];
        let ((m, om), (n, on)) = (pick!(s.m[i]), pick!(s.m[j]));
        let ((r, or), (w, ow), (x, ox)) = (pick!(s.r[j]), pick!(s.w[j]), pick!(s.x[i]));
        match op {
            18 => s.r.push((m.sum(keep(D0)), om.map(&[One, B], |x| x.sum(Dims::keep([0]))))),
            19 => s.c.push((m.sum(keep(D1)), om.map(&[A, One], |x| x.sum(Dims::keep([1]))))),
            20 => {
                let two = |x: &Array, y: &Array| atmesh::stack([x, y], 0).sum(0);
                s.m.push((m.stack(&n, D0).sum(D0), om.both(&on, ab, two)));
            }
            21 => {
                let ((p, o), (q, oq)) = (pick!(s.p[i]), pick!(s.p[j]));
                let join = |x: &Array, y: &Array| atmesh::concat([x, y], 1).sum(1);
                s.m.push((p.concat(&q, D1).sum(D1), o.both(&oq, ab, join)));
            }
            22 => {
                s.m.push((r.broadcast_like(&m), or.zip(&om, ab, |x, y| x.broadcast_to(y.shape().unwrap()))))
            }
            23 => {
                let like = |x: &Array, y: &Array| x.broadcast_to(y.shape().unwrap()).reshard(p!["X"]);
                s.x.push((w.broadcast_like(&x), ow.zip(&ox, ab, like)));
            }
            _ => s.k.push((m.transpose((D1, D0)), om.map(&[B, A], Array::t))),
        }
    }
    fn call(&mut self, op: usize, i: usize, j: usize) {
        let s = self;
        let ab = &[A, B];
        let ((m, om), (n, on)) = (pick!(s.m[i]), pick!(s.m[j]));
        let ((w, ow), (x, ox), (r, or)) = (pick!(s.w[j]), pick!(s.x[i]), pick!(s.r[j]));
        match op {
            25 => {
                let (last, rows) = typed::scan(&w, &m, |c: W, row: W| (&c + &row, c * &row));
                let sums = |w: &Array, m: &Array| w + m.sum(0);
                let agree = ow.call(&om);
                // a sum in order may differ from `sum`, so only the shape is compared
                let o = ow.with(&om, &[B], agree, sums);
                let same = last.as_untyped().ty().map(|t| t.shape.to_vec()).ok();
                assert_eq!(same, o.array.as_ref().map(|a| a.shape().unwrap().to_vec()), "scan");
                assert_eq!(rows.as_untyped().ty().is_ok(), o.array.is_some());
            }
            26 => {
                let f = jit(|m: &M, w: &W| (m.sum(D1), w * 2.0));
                let (o, agree) = (om.map(&[A], |x| x.sum(1)), om.call(&ow));
                match f.call((&m, &w)) {
                    Ok((y, _)) => s.v.push((y, om.with(&ow, &[A], agree, |x, _| x.sum(1)))),
                    Err(error) => assert!(o.array.is_none() || ow.array.is_none() || !agree, "{error}"),
                }
            }
            27 => {
                let y: X2 = Late.shard_map((&x, &w), P![X, _], |(x, w)| &x + &w);
                s.x.push((y, ox.both(&ow, ab, |x, y| x + y)));
            }
            28 => {
                let y = grad(&m, |m| (m * &r).sum(..));
                s.m.push((y, om.zip(&or, ab, |x, y| y.broadcast_to(x.shape().unwrap()))));
            }
            29 => {
                let y = cond(atmesh::Array::from(true), || m.clone(), || n.clone());
                s.m.push((y, om.both(&on, ab, |x, _| x.clone())));
            }
            _ => {
                let (y, _) = fori_loop(0..2, (&m, &n), |_, (m, n)| (&m * 2.0, n));
                s.m.push((y, om.both(&on, ab, |x, _| x * 4.0)));
            }
        }
    }
    /// Returns the arrays and their oracles.
    fn all(self) -> Vec<(Array, Oracle)> {
        let mut all = Vec::new();
        macro_rules! add { ($($of:ident)*) => { $(
            all.extend(self.$of.into_iter().map(|(y, o)| (y.untyped(), o)));
        )* } }
        add!(m r c v w k x p q);
        all
    }
}

/// Returns values with two inputs of each type. `sizes` has the sizes of rows and columns of each.
/// `f` replaces each array.
fn inputs(
    mesh: &Mesh,
    sizes: &[(usize, usize)],
    split: &[usize],
    mut f: impl FnMut(Array) -> Array,
) -> Values {
    let mut values = Values::default();
    let mut sizes = sizes.iter().copied().cycle().enumerate();
    let mut split = split.iter().copied().cycle();
    macro_rules! input {
        ($of:ident, $names:expr, $spec:expr) => {{
            let (seed, (a, b)) = sizes.next().unwrap();
            let names: &[Name] = &$names;
            let a = if $spec == p!["X"] { split.next().unwrap() } else { a };
            let size = |n: &Name| match n {
                A => a,
                B => b,
                Three => 3,
                One => 1,
            };
            let shape: Vec<usize> = names.iter().map(size).collect();
            let array = f(Key::new(seed as u64).uniform(shape).put(mesh, $spec));
            values.$of.push((array.typed().unwrap(), Oracle { names: names.to_vec(), array: Some(array) }));
        }};
    }
    for _ in 0..2 {
        input!(m, [A, B], p![]);
        input!(r, [One, B], p![]);
        input!(c, [A, One], p![]);
        input!(v, [A], p![]);
        input!(w, [B], p![]);
        input!(k, [B, A], p![]);
        input!(x, [A, B], p!["X"]);
        input!(p, [A, Three, B], p![]);
        input!(q, [A, B, Three], p![]);
    }
    values
}

fn bits(a: &Array) -> Vec<u32> {
    a.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect()
}

/// Runs a program, and returns the number of its results and of its errors.
fn check(
    devices: usize,
    sizes: &[(usize, usize)],
    split: &[usize],
    steps: &[Step],
) -> Result<(usize, usize), TestCaseError> {
    let mesh = Late::with_sizes(&[devices]).unwrap();
    let mut leaves = Vec::new();
    let mut values = inputs(&mesh, sizes, split, |a| {
        leaves.push(a.clone());
        a
    });
    for step in steps {
        values.step(*step);
    }
    let (mut results, mut errors) = (0, 0);
    let all = values.all();
    let traced = jit(|leaves: Vec<Array>| -> Vec<Array> {
        let mut leaves = leaves.into_iter();
        let mut values = inputs(&mesh, sizes, split, |_| leaves.next().unwrap());
        steps.iter().for_each(|step| values.step(*step));
        values.all().into_iter().map(|y| y.0).collect()
    });
    match traced.call(&leaves) {
        Ok(traced) => {
            let same = traced.iter().zip(&all).all(|(y, (now, _))| now.ty().is_ok() && bits(y) == bits(now));
            if !same || traced.len() != all.len() {
                return Err(TestCaseError::fail("a traced program differs"));
            }
        }
        Err(error) if all.iter().all(|y| y.0.ty().is_ok()) => {
            return Err(TestCaseError::fail(format!("only the trace rejects: {error}")));
        }
        Err(_) => {}
    }
    for (y, o) in all {
        match (y.ty(), &o.array) {
            (Ok(ty), Some(of)) => {
                results += 1;
                let shape = of.shape().unwrap();
                if ty.shape != shape || bits(&y) != bits(of) {
                    return Err(TestCaseError::fail(format!("{ty} is not {}: {y}, but {of}", type_of(of))));
                }
            }
            (Err(error), None) => {
                errors += 1;
                let text = error.unquoted();
                let ours =
                    ["the types hold the two equal", "one name is one size", "stacked arrays have one shape"];
                let known =
                    ours.iter().any(|t| text.contains(t)) || text.contains("concat") || text.contains("cond");
                if !known {
                    return Err(TestCaseError::fail(text));
                }
            }
            (Ok(ty), None) => {
                return Err(TestCaseError::fail(format!(
                    "{ty} was computed, but sizes of one name differ ({:?})",
                    o.names
                )));
            }
            (Err(error), Some(_)) => return Err(TestCaseError::fail(format!("rejected: {error}"))),
        }
    }
    Ok((results, errors))
}

#[test]
fn only_repeated_dims_repeat() {
    let seed =
        std::env::var("ATMESH_SEED").map_or(20_261_127, |s| s.parse().expect("ATMESH_SEED is a number"));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&u64::to_le_bytes(seed));
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let steps = || vec((0..OPERATIONS, any::<usize>(), any::<usize>(), any::<usize>()), 1..40);
    let programs = select(std::vec![1usize, 2]).prop_flat_map(move |devices| {
        // mostly one size, so that programs go on for some steps
        let size = || select(std::vec![1usize, 4, 4, 4, 4, 4]);
        let split = select(std::vec![devices, 4, 4, 4]);
        (Just(devices), vec((size(), size()), 18), vec(split, 2), steps())
    });
    let counts = std::cell::Cell::new((0, 0));
    let ran = runner.run(&programs, |(devices, sizes, split, steps)| {
        let (results, errors) = check(devices, &sizes, &split, &steps)?;
        counts.set((counts.get().0 + results, counts.get().1 + errors));
        Ok(())
    });
    assert!(ran.is_ok(), "seed {seed}: {}", ran.unwrap_err());
    // both occur, beyond the inputs
    let (results, errors) = counts.get();
    assert!(results > 1500 && errors > 100, "{results} results and {errors} errors");
}
