//! Checks the derivative of every primitive in the list against finite differences, in float64:
//! forward and reverse mode, with respect to every set of operands, with unsharded and sharded
//! operands, and including the types of tangents and cotangents.

use crate::runner::error_checks::Unquoted as _;
use atmesh::ops::PRIMITIVES;
use atmesh::ops::elementwise::Convert;
use atmesh::program::typing::cotangent_type;
use atmesh::program::{Prim, TypedOperand};
use atmesh::types::ArrayType;
use atmesh::types::DType::{Bool, C64, C128, F32, F64};
use atmesh::{Array, Axes, Axis, AxisType, Mesh, Spec, jvp, shard_map, vjp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Half the distance between the points of a finite difference.
const STEP: f64 = 1e-5;

/// Primitives whose derivatives, by definition, are not those of the function.
const BY_DEFINITION: &[(&str, &str)] = &[("stop_gradient", "the value, held constant")];
/// Primitives from floats to floats that cannot be differentiated.
const REJECTED: &[(&str, &str)] = &[
    ("pmax", "devices would have to tell each other who holds the extreme: the reference has no rule either"),
    ("pmin", "as pmax"),
];

/// Intervals of points; a primitive is tested on those on which it is defined.
const INTERVALS: [(f64, f64); 3] = [(-0.9, 0.9), (0.2, 0.9), (1.2, 1.9)];

/// Returns `n` distinct elements of an interval, which also differ from those of other seeds. None
/// is near 0.
fn point(n: usize, seed: usize, (low, high): (f64, f64)) -> Vec<f64> {
    let at = |i: usize| (((i * 37 + seed * 29 + 7) % 97) as f64 + 0.2 * seed as f64) / 98.3;
    let sign = |i: usize| if (i * 5 + seed).is_multiple_of(3) { -1.0 } else { 1.0 };
    let number = |i: usize| match low < 0.0 {
        true => sign(i) * (0.1 + (high - 0.1) * at(i)),
        false => low + (high - low) * at(i),
    };
    (0..n).map(number).collect()
}

/// Enlarges the diagonals of matrices that must be positive definite or far from singular.
fn definite(name: &str, ty: &ArrayType, mut x: Vec<f64>) -> Vec<f64> {
    if let ("cholesky" | "cofactors" | "solve", [.., n, _]) = (name, &ty.shape[..]) {
        x.iter_mut().enumerate().filter(|(i, _)| i / n % n == i % n).for_each(|(_, x)| *x += 2.0);
    }
    x
}

/// Returns a direction or cotangent with elements of both signs.
fn direction(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 53 + seed * 31 + 11) % 89) as f64 / 44.5 - 1.0).collect()
}

fn along(x: &[f64], t: &[f64], step: f64) -> Vec<f64> {
    x.iter().zip(t).map(|(x, t)| x + step * t).collect()
}
fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// The shardings of the operands.
#[derive(Clone, Debug)]
struct Placement {
    mesh: Option<Mesh>,
    specs: Vec<Spec>,
}

/// A primitive as a function of arrays.
type Fun = Box<dyn Fn(&[Array]) -> Vec<Array>>;

struct Subject {
    name: &'static str,
    run: Fun,
    /// The types of the operands, with float64 for float32.
    types: Vec<ArrayType>,
    /// The positions of the operands that are floats.
    floats: Vec<usize>,
}

fn operands(types: &[ArrayType]) -> Vec<TypedOperand> {
    types.iter().map(|ty| TypedOperand::new(ty.clone(), false)).collect()
}

/// Wraps an operation of manual mode in a `shard_map`: operands that vary, and results that vary,
/// are concatenated along dimension 0.
fn in_shard_map(prim: Prim, types: &[ArrayType], results: &[ArrayType]) -> (Fun, Vec<ArrayType>) {
    let manual = types[0].mesh.clone().expect("it says its mesh");
    let axes: Axes = manual.axes_of(AxisType::Manual).into();
    let mesh = manual.with_axis_types(&axes, AxisType::Explicit).expect("the axes are its own");
    let spec = |ty: &ArrayType| match ty.varying.is_empty() {
        true => Spec::replicated(0).unreduced(ty.spec.unreduced_axes()).reduced(ty.spec.reduced_axes()),
        false => Spec::from_dims(vec![axes.clone()]),
    };
    let (ins, outs): (Vec<Spec>, Vec<Spec>) =
        (types.iter().map(spec).collect(), results.iter().map(spec).collect());
    let global = types.iter().zip(&ins).map(|(ty, spec)| {
        let mut shape = ty.shape.to_vec();
        if let Some(n) = shape.first_mut().filter(|_| !spec.dim(0).is_empty()) {
            *n *= manual.size();
        }
        F64.array_type(shape)
    });
    let global = global.collect();
    let run = move |xs: &[Array]| {
        let body = |xs: &Vec<Array>| apply(&prim, xs);
        let f = shard_map(&mesh, ins.clone(), outs.clone(), body);
        f.call(&xs.to_vec()).unwrap_or_else(|e| panic!("{e}"))
    };
    (Box::new(run), global)
}

fn apply(prim: &Prim, xs: &[Array]) -> Vec<Array> {
    Array::apply(prim.clone(), &xs.iter().map(Into::into).collect::<Vec<_>>())
}

/// Wraps a function of complex operands: each is passed as its real and imaginary parts, and
/// complex results are returned as theirs.
fn of_parts(prim: &Prim, complex: Vec<bool>) -> Fun {
    let prim = prim.clone();
    Box::new(move |xs: &[Array]| {
        let mut rest = xs.iter();
        let mut next = || rest.next().expect("a part for each").clone();
        let operand = |c: &bool| if *c { next().complex(next()) } else { next() };
        let operands: Vec<Array> = complex.iter().map(operand).collect();
        let parts = |y: Array| match y.ty() {
            Ok(ty) if ty.dtype.is_complex() => vec![y.real(), y.imag()],
            _ => vec![y],
        };
        apply(&prim, &operands).into_iter().flat_map(parts).collect()
    })
}

/// Returns one entry for each operand, and two for complex ones.
fn twice<T: Clone>(list: &[T], complex: &[bool]) -> Vec<T> {
    list.iter().zip(complex).flat_map(|(x, c)| vec![x.clone(); 1 + usize::from(*c)]).collect()
}

impl Subject {
    /// Returns the arrays of a point; operands that are not floats get bit patterns.
    fn place(&self, xs: &[Vec<f64>], placement: &Placement) -> Vec<Array> {
        let arrays = self.types.iter().zip(xs).zip(&placement.specs).map(|((ty, x), spec)| {
            let x = Array::from(x.clone()).reshape(&ty.shape);
            let x = if ty.dtype == Bool { x.gt(0.3) } else { x.astype(ty.dtype) };
            match &placement.mesh {
                Some(mesh) => x.put(mesh, *spec),
                None => x,
            }
        });
        arrays.collect()
    }
    /// Evaluates the results that are floats, at a point.
    fn at(&self, xs: &[Array]) -> Vec<Array> {
        (self.run)(xs).into_iter().filter(|y| y.ty().map_or(true, |t| t.dtype.is_float())).collect()
    }
    fn whole(&self) -> Placement {
        Placement { mesh: None, specs: self.types.iter().map(|t| Spec::replicated(t.rank())).collect() }
    }
    fn values(&self, ys: &[Array]) -> Vec<Vec<f64>> {
        let one = |y: &Array| y.to_vec::<f64>().unwrap_or_else(|e| panic!("{}: {e}", self.name));
        ys.iter().map(one).collect()
    }
    /// Returns finite differences along `t` with respect to the operands in `active`.
    fn differences(&self, xs: &[Vec<f64>], ts: &[Vec<f64>], active: &[usize]) -> Vec<Vec<f64>> {
        let placement = self.whole();
        let at = |step: f64| {
            let moved: Vec<Vec<f64>> = (xs.iter().zip(ts).enumerate())
                .map(|(k, (x, t))| along(x, t, if active.contains(&k) { step } else { 0.0 }))
                .collect();
            self.values(&self.at(&self.place(&moved, &placement)))
        };
        let (above, below) = (at(STEP), at(-STEP));
        let slope = |(a, b): (&f64, &f64)| (a - b) / (2.0 * STEP);
        above.iter().zip(&below).map(|(a, b)| a.iter().zip(b).map(slope).collect()).collect()
    }

    /// Compares tangents and cotangents of the operands in `active`, with these shardings, with
    /// finite differences.
    fn check(&self, xs: &[Vec<f64>], active: &[usize], placement: &Placement) {
        let name = self.name;
        let ts: Vec<Vec<f64>> = xs.iter().enumerate().map(|(k, x)| direction(x.len(), k)).collect();
        let wanted = self.differences(xs, &ts, active);
        let arrays = self.place(xs, placement);
        let pick = |all: &[Array]| -> Vec<Array> { active.iter().map(|k| all[*k].clone()).collect() };
        let f = |moved: Vec<Array>| {
            let mut all = arrays.clone();
            for (k, x) in active.iter().zip(moved) {
                all[*k] = x;
            }
            self.at(&all)
        };
        let what = format!("{name} by {active:?}, operands sharded as {:?}", placement.specs);
        let ty = |a: &Array| a.ty().unwrap_or_else(|e| panic!("{what}: {e}"));
        let near = |got: f64, want: f64, how: &str| {
            assert!((got - want).abs() < 1e-6 * (1.0 + want.abs()), "{what}, {how}: {got}, not {want}");
        };
        // Forward mode.
        let (ys, dys) = jvp(pick(&arrays), pick(&self.place(&ts, placement)), f);
        assert_eq!(dys.len(), wanted.len(), "{what}");
        for ((y, dy), want) in ys.iter().zip(&dys).zip(&wanted) {
            assert_eq!(ty(dy), ty(y), "{what}: the tangent's type");
            for (got, want) in self.values(std::slice::from_ref(dy))[0].iter().zip(want) {
                near(*got, *want, "forward");
            }
        }
        // Reverse mode: compare each operand's cotangent with the difference along its own
        // direction.
        let (ys, pull) = vjp(pick(&arrays), f);
        let cts: Vec<Vec<f64>> = wanted.iter().enumerate().map(|(k, w)| direction(w.len(), k + 7)).collect();
        let placed = ys.iter().zip(&cts).map(|(y, ct)| {
            let ty = cotangent_type(&ty(y));
            let ct = Array::from(ct.clone()).reshape(&ty.shape);
            match &ty.mesh {
                Some(mesh) => ct.put(mesh, ty.spec),
                None => ct,
            }
        });
        let grads = pull.call(placed.collect::<Vec<Array>>());
        for (k, grad) in active.iter().zip(&grads) {
            let wanted = cotangent_type(&ty(&arrays[*k]));
            // The cotangent of a value without a mesh may be placed on a mesh, unsharded.
            let placement = ArrayType { mesh: wanted.mesh.clone().and(ty(grad).mesh), ..ty(grad) };
            assert_eq!(placement, wanted, "{what}: the type of cotangent {k}");
            let by_difference = self.differences(xs, &ts, &[*k]);
            let want: f64 = by_difference.iter().zip(&cts).map(|(d, ct)| dot(d, ct)).sum();
            near(dot(&self.values(std::slice::from_ref(grad))[0], &ts[*k]), want, &format!("cotangent {k}"));
        }
    }

    /// Returns the points at which the primitive is tested.
    fn points(&self) -> Vec<Vec<Vec<f64>>> {
        let on = |interval| -> Vec<Vec<f64>> {
            let at = |(k, t): (usize, &ArrayType)| {
                definite(self.name, t, point(t.shape.num_elements(), k, interval))
            };
            self.types.iter().enumerate().map(at).collect()
        };
        let defined = |xs: &Vec<Vec<f64>>| {
            let ys = self.at(&self.place(xs, &self.whole()));
            self.values(&ys).iter().flatten().all(|y| y.is_finite())
        };
        let points: Vec<_> = INTERVALS.into_iter().map(on).filter(defined).collect();
        assert!(!points.is_empty(), "{} is defined on none of {INTERVALS:?}", self.name);
        points
    }
}

/// Returns every assignment of the mesh's axes to dimensions that uses no axis twice; sizes must be
/// divisible.
fn splits(shape: &[usize], mesh: &Mesh) -> Vec<Vec<Axes>> {
    let mut all = vec![Vec::new()];
    for n in shape {
        let mut longer = Vec::new();
        for dims in &all {
            let free = |a: &Axis| {
                !dims.iter().any(|d: &Axes| d.contains(*a)) && n.is_multiple_of(mesh.axis_size(*a).unwrap())
            };
            let entries = mesh.axis_names().iter().copied().filter(free).map(Axes::from);
            for entry in std::iter::once(Axes::none()).chain(entries) {
                longer.push(dims.iter().cloned().chain([entry]).collect());
            }
        }
        all = longer;
    }
    all
}

/// Returns every sharding of an operand: assignments of axes to dimensions and, if axes remain,
/// reduced or unreduced over the first of them.
pub(crate) fn specs(shape: &[usize], mesh: &Mesh) -> Vec<Spec> {
    let mut all = Vec::new();
    for dims in splits(shape, mesh) {
        let free = mesh.axis_names().iter().copied().find(|a| !dims.iter().any(|d| d.contains(*a)));
        let spec = Spec::from_dims(dims);
        all.push(spec);
        if let Some(axis) = free.filter(|a| mesh.axis_type(*a) == Some(AxisType::Explicit)) {
            all.extend([spec.reduced(axis), spec.unreduced(axis)]);
        }
    }
    all
}

/// Returns at most `n` entries, evenly spaced.
fn some<T: Clone>(all: &[T], n: usize) -> Vec<T> {
    let n = n.min(all.len());
    (0..n).map(|i| all[i * all.len() / n].clone()).collect()
}

/// Returns operand shardings that the primitive accepts: sharded only, with reduced operands, and
/// with unreduced operands.
fn layouts(prim: &Prim, types: &[ArrayType], mesh: &Mesh) -> Vec<Placement> {
    let explicit = |a: Axis| mesh.axis_type(a) == Some(AxisType::Explicit);
    let mut kinds = [Vec::new(), Vec::new(), Vec::new()];
    let choices: Vec<Vec<Spec>> = types.iter().map(|ty| specs(&ty.shape, mesh)).collect();
    let count: usize = choices.iter().map(Vec::len).product();
    for mut i in 1..count {
        let mut chosen = Vec::new();
        for list in &choices {
            chosen.push(list[i % list.len()]);
            i /= list.len();
        }
        let placed: Vec<ArrayType> = (types.iter().zip(&chosen))
            .map(|(ty, spec)| ty.clone().on(mesh, spec.filter_axes(explicit)))
            .collect();
        if prim.types(&operands(&placed)).is_err() {
            continue;
        }
        let kind = match (chosen.iter()).fold((false, false), |(u, r), s| {
            (u || !s.unreduced_axes().is_empty(), r || !s.reduced_axes().is_empty())
        }) {
            (true, _) => 2,
            (false, true) => 1,
            _ => 0,
        };
        kinds[kind].push(Placement { mesh: Some(mesh.clone()), specs: chosen });
    }
    let [split, reduced, unreduced] = kinds;
    let most = if types.len() > 2 { 4 } else { 6 };
    [some(&split, most), some(&reduced, 2), some(&unreduced, 3)].concat()
}

/// Returns the reason, derived from the types, why a primitive with these operands and results has
/// nothing to differentiate.
fn nothing_moves(types: &[ArrayType], results: &[ArrayType]) -> Option<&'static str> {
    let float = |ty: &ArrayType| ty.dtype.is_inexact();
    match (types.iter().any(float), results.iter().any(float)) {
        (false, _) => Some("no operand is a float"),
        (_, false) => Some("no result is a float"),
        _ => None,
    }
}

/// Asserts that a primitive without a float result gives zero gradients to its float operands.
fn gives_zeros(name: &str, prim: &Prim, types: &[ArrayType]) {
    for (k, ty) in types.iter().enumerate().filter(|(_, t)| t.dtype.is_float()) {
        let xs: Vec<Array> = (types.iter().enumerate())
            .map(|(k, t)| {
                Array::from(point(t.shape.num_elements(), k, INTERVALS[1])).reshape(&t.shape).astype(t.dtype)
            })
            .collect();
        let g = atmesh::grad(&xs[k], |x| {
            let mut xs = xs.clone();
            xs[k] = x.clone();
            x.sum(..) + apply(prim, &xs)[0].astype(ty.dtype).sum(..)
        });
        let g = g.astype(F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(g.iter().all(|g| *g == 1.0), "{name}: {g:?}");
    }
}

/// Returns every non-empty subset of the operands.
fn subsets(all: &[usize]) -> Vec<Vec<usize>> {
    let subset =
        |bits: usize| all.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, k)| *k).collect();
    (1..1 << all.len()).map(subset).collect()
}

fn check(name: &'static str, prim: Prim, types: Vec<ArrayType>) {
    let own = prim.types(&operands(&types)).unwrap_or_else(|f| panic!("{name}: {f:?}"));
    if nothing_moves(&types, &own).is_some() {
        return gives_zeros(name, &prim, &types);
    }
    let wide = |ty: &ArrayType| {
        let dtype = match ty.dtype {
            F32 => F64,
            C64 => C128,
            other => other,
        };
        ArrayType { dtype, ..ty.clone() }
    };
    let types: Vec<ArrayType> = types.iter().map(wide).collect();
    let complex: Vec<bool> = types.iter().map(|ty| ty.dtype.is_complex()).collect();
    let results = prim.types(&operands(&types)).unwrap_or_else(|f| panic!("{name}: {f:?}"));
    let subject = if prim.collective().is_some() {
        let floats = (0..types.len()).filter(|k| types[*k].dtype.is_float()).collect();
        let (run, types) = in_shard_map(prim.clone(), &types, &results);
        Subject { name, run, types, floats }
    } else {
        let real = |ty: &ArrayType| ArrayType { dtype: ty.dtype.real(), ..ty.clone() };
        let types: Vec<ArrayType> = twice(&types, &complex).iter().map(real).collect();
        let floats = (0..types.len()).filter(|k| types[*k].dtype.is_float()).collect();
        Subject { name, run: of_parts(&prim, complex.clone()), types, floats }
    };
    let points = subject.points();
    if REJECTED.iter().any(|r| r.0 == name) {
        let arrays = subject.place(&points[0], &subject.whole());
        let (_, dys) = jvp(arrays.clone(), arrays, |xs: Vec<Array>| subject.at(&xs));
        let message = dys.first().map(|dy| dy.ty().map_or_else(|e| e.unquoted(), |t| t.to_string()));
        assert!(message.as_ref().is_none_or(|t| t.contains("has no derivative")), "{name}: {message:?}");
        return;
    }
    for xs in &points {
        for active in subsets(&subject.floats) {
            subject.check(xs, &active, &subject.whole());
        }
    }
    if prim.collective().is_some() {
        return;
    }
    // Sharded operands are on the primitive's own mesh, if it names one.
    let mesh = match prim.constraint() {
        Some(pin) => pin.mesh,
        None => Mesh::new([("X", 2), ("Y", 3)]).expect("two axes make a mesh"),
    };
    let layouts = layouts(&prim, &types, &mesh);
    assert!(!layouts.is_empty(), "{name}: its example takes no sharded operand: give it sizes of 2s and 3s");
    for mut placement in layouts {
        placement.specs = twice(&placement.specs, &complex);
        subject.check(&points[0], &subject.floats, &placement);
    }
}

fn family(wanted: impl Fn(&str) -> bool) {
    let mut failed = Vec::new();
    for entry in PRIMITIVES.iter().filter(|e| wanted(e.family)) {
        if BY_DEFINITION.iter().all(|d| d.0 != entry.name) {
            let (prim, types) = (entry.example)();
            // Collect all failures instead of stopping at the first.
            if catch_unwind(AssertUnwindSafe(|| check(entry.name, prim, types))).is_err() {
                failed.push(entry.name);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?} differ from what differences say, see above");
}

#[test]
fn elementwise() {
    family(|f| f == "elementwise");
}

#[test]
fn structure() {
    family(|f| !["elementwise", "collective"].contains(&f));
}

#[test]
fn collectives() {
    family(|f| f == "collective");
}

/// The listed primitives, and no others, have derivatives that differ from those of the function.
#[test]
fn definitions() {
    for (name, _) in BY_DEFINITION.iter().chain(REJECTED) {
        assert!(PRIMITIVES.iter().any(|e| e.name == *name), "{name} is no primitive");
    }
    let x = Array::from([0.5, -2.0]);
    let g = atmesh::grad(&x, |x| (x.stop_gradient() * &x).sum(..));
    assert_eq!(g.to_vec::<f64>().unwrap(), [0.5, -2.0]);
}

/// Conversion between floats is linear: tangents are converted, and cotangents are converted back.
#[test]
fn conversions_between_floats() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    for (from, to) in [(F32, F64), (F64, F32)] {
        for spec in [
            Spec::replicated(1),
            Spec::from_dims(vec!["X".into()]),
            Spec::replicated(1).reduced("X"),
            Spec::replicated(1).unreduced("X"),
        ] {
            let put = |x: [f64; 2], ty, spec| Array::from(x).astype(ty).put(&mesh, spec);
            let (x, t) = (put([0.5, 3.0], from, spec), put([1.0, -2.0], from, spec));
            let prim: Prim = Arc::new(Convert { dtype: to });
            let f = |x: Array| apply(&prim, &[x]).swap_remove(0);
            let (y, dy) = jvp(&x, &t, f);
            assert_eq!(dy.ty().unwrap(), y.ty().unwrap());
            assert_eq!(dy.astype(F64).to_vec::<f64>().unwrap(), [1.0, -2.0]);
            let (y, pull) = vjp(&x, f);
            let g = pull.call(put([4.0, 0.25], to, cotangent_type(&y.ty().unwrap()).spec));
            assert_eq!(g.ty().unwrap(), cotangent_type(&x.ty().unwrap()));
            assert_eq!(g.astype(F64).to_vec::<f64>().unwrap(), [4.0, 0.25]);
        }
    }
}
