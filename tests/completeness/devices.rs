//! Runs every primitive in the list on meshes of 1, 2, 3, 4, 6 and 8 devices, with any operand
//! sizes, and compares the results with those without a mesh.
//!
//! Over auto axes each dimension of each operand is sharded in turn, whether or not the axes divide
//! it; over explicit axes only if they divide it and the types accept it. Without a mesh, a
//! collective is evaluated by its definition on the list of blocks.

use super::identity::{border, operands};
use crate::soak::{part, runs_all};
use atmesh::mesh::AxisType;
use atmesh::ops::PRIMITIVES;
use atmesh::ops::collective::{
    AllGather, AllToAllPrim, AxisIndex, CollectiveGroup, OwnPart, Pbroadcast, Pcast, Ppermute, Preduce,
    PsumScatter,
};
use atmesh::ops::elementwise::Binary;
use atmesh::ops::sharding::{Constrain, Reshard};
use atmesh::prelude::*;
use atmesh::program::Prim;
use atmesh::program::loop_nest::Reducer;
use atmesh::{Axes, Axis, CollectiveKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The sizes of the axes: one axis for each number of devices, and two if it is a product.
const MESHES: [&[usize]; 9] = [&[1], &[2], &[3], &[4], &[6], &[8], &[2, 2], &[2, 3], &[2, 4]];

fn meshes(ty: AxisType) -> impl Iterator<Item = Mesh> {
    let named = move |sizes: &&[usize]| {
        let axes = ["X", "Y"].into_iter().zip(*sizes).map(|(a, n)| (a, *n, ty));
        Mesh::with_types(axes).expect("the names differ")
    };
    MESHES.iter().map(named).collect::<Vec<_>>().into_iter()
}

/// Primitives that may sum in a different order than on one device, so that the last bits differ,
/// although no collective shows it.
const REGROUPED: &[&str] = &["cumsum", "cumprod", "cumlogsumexp"];

/// Returns operand data. Matrices are far from singular; some indices are repeated, and some are
/// out of bounds.
fn numbers(name: &str, family: &str, k: usize, ty: &ArrayType) -> Array {
    let n = ty.shape.num_elements();
    if ty.dtype == I32 && (ty.rank() == 0 || name.contains("gather") || name.contains("scatter")) {
        let places = Array::from((0..n).map(|i| [2 + k as i32, 9, 2 + k as i32][i % 3]).collect::<Vec<_>>());
        return places.reshape(&ty.shape);
    }
    if ty.dtype.is_number() && !ty.dtype.is_inexact() {
        let whole = (0..n).map(|i| ((i * 37 + 11 + 5 * k) % 29) as i64 - if ty.dtype == I32 { 4 } else { 0 });
        return Array::from(whole.collect::<Vec<_>>()).astype(ty.dtype).reshape(&ty.shape);
    }
    let x = super::identity::numbers(ty, k);
    match (family, k, &ty.shape[..]) {
        ("linalg", 0, [.., n, m]) => x + Array::eye(ty.dtype.array_type([*n, *m]), 0) * 4.0,
        _ => x,
    }
}

/// Returns all elements of a result, complex ones as their parts.
fn read(y: &Array) -> Result<Vec<f64>> {
    let ty = y.ty()?;
    let y = match ty.spec.unreduced_axes().is_empty() {
        true => y.clone(),
        false => y.reshard(ty.spec.unreduced(Axes::none())),
    };
    match ty.dtype {
        DType::Key => read(&Key::from_array(y).data()),
        d if d.is_complex() => Ok([read(&y.real())?, read(&y.imag())?].concat()),
        _ => y.astype(F64).to_vec::<f64>(),
    }
}

fn same(a: &[f64], b: &[f64]) -> bool {
    let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Compares with the tolerance of float32, the element type of the examples.
fn near(a: &[f64], b: &[f64]) -> bool {
    let near =
        |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * (1.0 + b.abs());
    a.len() == b.len() && a.iter().zip(b).all(near)
}

/// The shardings of the operands, and the requested sharding of a result.
struct Assignment {
    operands: Vec<Spec>,
    result: Option<(usize, Spec)>,
}

/// Returns a spec with one dimension sharded over these axes.
fn only(rank: usize, dim: usize, axes: &Axes) -> Spec {
    Spec::from_dims((0..rank).map(|d| if d == dim { axes.clone() } else { Axes::none() }).collect())
}

/// Returns the layouts to test: all unsharded; each dimension of each operand and of each result,
/// over each axis and over all axes; and all operands sharded together.
fn layouts(types: &[ArrayType], results: &[ArrayType], mesh: &Mesh) -> Vec<Assignment> {
    let names: Vec<Axis> = mesh.axis_names().to_vec();
    let mut over: Vec<Axes> = names.iter().copied().map(Axes::from).collect();
    if names.len() > 1 {
        over.push(names.iter().copied().collect());
    }
    let whole: Vec<Spec> = types.iter().map(|t| Spec::replicated(t.rank())).collect();
    let mut all = vec![Assignment { operands: whole.clone(), result: None }];
    for (k, ty) in types.iter().enumerate() {
        for d in 0..ty.rank() {
            for axes in &over {
                let mut operands = whole.clone();
                operands[k] = only(ty.rank(), d, axes);
                all.push(Assignment { operands, result: None });
            }
        }
    }
    for (k, ty) in results.iter().enumerate() {
        for d in 0..ty.rank() {
            let spec = only(ty.rank(), d, over.last().expect("a mesh has an axis"));
            all.push(Assignment { operands: whole.clone(), result: Some((k, spec)) });
        }
    }
    // The first dimensions are sharded over the first axis, the next ones over the next axis.
    let first = |ty: &ArrayType| {
        let entry = |d: usize| names.get(d).map_or(Axes::none(), |a| Axes::from(*a));
        Spec::from_dims((0..ty.rank()).map(entry).collect())
    };
    if types.len() > 1 || names.len() > 1 {
        all.push(Assignment { operands: types.iter().map(first).collect(), result: None });
    }
    all
}

fn divides(ty: &ArrayType, spec: Spec, mesh: &Mesh) -> bool {
    let ways = |d: usize| -> usize {
        spec.dim(d).iter().map(|a| mesh.axis_size(*a).expect("its own axis")).product()
    };
    (0..ty.rank()).all(|d| ty.shape[d].is_multiple_of(ways(d)))
}

/// The cases that were run, and the failures.
#[derive(Default)]
struct Ran {
    cases: usize,
    explicit: usize,
    /// The number of cases by primitive and axis sizes.
    by: BTreeMap<(&'static str, Vec<usize>), usize>,
    /// The primitives with a case that was compared with a tolerance.
    loose: BTreeSet<&'static str>,
    wrong: Vec<String>,
}

impl Ran {
    fn compare(
        &mut self,
        name: &'static str,
        mesh: &Mesh,
        what: &str,
        kinds: &[CollectiveKind],
        got: Result<Vec<Vec<f64>>>,
        want: &[Vec<f64>],
    ) {
        self.cases += 1;
        *self.by.entry((name, mesh.axis_sizes().to_vec())).or_default() += 1;
        let got = match got {
            Ok(got) => got,
            Err(e) => return self.wrong.push(format!("{name} on {mesh}, {what}: {e}")),
        };
        let alike = |f: fn(&[f64], &[f64]) -> bool| {
            got.len() == want.len() && got.iter().zip(want).all(|(a, b)| f(a, b))
        };
        if alike(same) {
            return;
        }
        let summed = REGROUPED.contains(&name)
            || kinds.iter().any(|k| matches!(k, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter));
        if summed && alike(near) {
            self.loose.insert(name);
        } else {
            self.wrong.push(format!("{name} on {mesh}, {what}, by {kinds:?}: {got:?}\n  not {want:?}"));
        }
    }
}

fn apply(prim: &Prim, xs: &[Array]) -> Vec<Array> {
    Array::apply(prim.clone(), &xs.iter().map(Into::into).collect::<Vec<_>>())
}

/// Without a soak, each `STEP`-th sharding runs on a mesh.
const STEP: usize = 12;

/// Tests a primitive that is not a collective.
fn everywhere(name: &'static str, family: &str, prim: &Prim, types: &[ArrayType], ran: &mut Ran) {
    let xs: Vec<Array> = types.iter().enumerate().map(|(k, ty)| numbers(name, family, k, ty)).collect();
    // An operation that constrains a sharding changes no value.
    let alone = if prim.constraint().is_some() { xs.clone() } else { apply(prim, &xs) };
    let want: Vec<Vec<f64>> =
        alone.iter().map(|y| read(y).unwrap_or_else(|e| panic!("{name}: {e}"))).collect();
    assert!(want.iter().flatten().any(|y| !y.is_nan()), "{name}: no result is a number");
    let results: Vec<ArrayType> = alone.iter().map(|y| y.ty().expect("it was read")).collect();
    for mode in [AxisType::Auto, AxisType::Explicit] {
        let explicit = mode == AxisType::Explicit;
        for (m, mesh) in meshes(mode).enumerate() {
            let all = layouts(types, &results, &mesh);
            // every mesh runs a part of the shardings, and the next mesh others
            let first = if runs_all() { 0 } else { m % all.len().min(STEP) };
            for assignment in part(all.into_iter().skip(first), STEP) {
                let asked = only(2, 0, &Axes::from("X"));
                let prim: Prim = match () {
                    () if prim.downcast_ref::<Reshard>().is_some() => {
                        let fits = !explicit || divides(&types[0], asked, &mesh);
                        let spec = if fits { asked } else { Spec::replicated(2) };
                        Arc::new(Reshard::new(mesh.clone(), spec))
                    }
                    () if prim.downcast_ref::<Constrain>().is_some() => {
                        let spec = if explicit { assignment.operands[0] } else { asked };
                        Arc::new(Constrain::new(mesh.clone(), spec))
                    }
                    () => prim.clone(),
                };
                if explicit {
                    let fits = |(ty, spec): (&ArrayType, &Spec)| divides(ty, *spec, &mesh);
                    let on = |(ty, spec): (&ArrayType, &Spec)| ty.clone().on(&mesh, *spec);
                    let placed = || types.iter().zip(&assignment.operands).map(on).collect::<Vec<_>>();
                    if assignment.result.is_some()
                        || !types.iter().zip(&assignment.operands).all(fits)
                        || prim.types(&operands(&placed())).is_err()
                    {
                        continue;
                    }
                    ran.explicit += 1;
                }
                let placed: Vec<Array> =
                    xs.iter().zip(&assignment.operands).map(|(x, spec)| x.put(&mesh, *spec)).collect();
                let f = jit(|xs: &Vec<Array>| {
                    let mut ys = apply(&prim, xs);
                    if let Some((k, spec)) = assignment.result {
                        ys[k] = ys[k].constrain_on(&mesh, spec);
                    }
                    ys
                });
                let mut kinds = Vec::new();
                let mut run = || -> Result<Vec<Vec<f64>>> {
                    let lowered = f.lower(&placed)?;
                    kinds = lowered.collectives().iter().map(|c| c.kind).collect();
                    lowered.compile()?.call(&placed)?.iter().map(read).collect()
                };
                let got = run();
                let what = format!("{mode:?}, {:?}, results {:?}", assignment.operands, assignment.result);
                ran.compare(name, &mesh, &what, &kinds, got, &want);
            }
        }
    }
}

/// Returns the collective over all devices of a mesh with manual axes.
fn among(prim: &Prim, mesh: &Mesh) -> Prim {
    let n = mesh.size();
    let axes: Axes = mesh.axis_names().iter().copied().collect();
    let mesh = mesh.with_axis_types(&axes, AxisType::Manual).expect("its own axes");
    macro_rules! remade {
        ($($ty:ident { $($field:ident: $value:expr),* })*) => {
            $(if let Some(x) = prim.downcast_ref::<$ty>() {
                let along = CollectiveGroup::new(mesh, axes, true);
                #[allow(clippy::needless_update, reason = "some have one field only")]
                return Arc::new($ty { group: along, $($field: $value,)* ..x.clone() });
            })*
        };
    }
    remade! {
        Pbroadcast { source: n - 1 } Preduce {} AllGather {} PsumScatter {} OwnPart {} AllToAllPrim {} AxisIndex {} Pcast {}
        Ppermute { pairs: (0..n).map(|i| (i, (i + 1) % n)).collect() }
    }
    panic!("say how {} is among more devices", prim.key())
}

/// Evaluates a collective on the devices' blocks by its definition: returns each device's result,
/// concatenated along dimension 0, or the common result. A primitive without operands gets an
/// unused one.
fn defined(prim: &Prim, blocks: &[Array]) -> Array {
    let n = blocks.len();
    let folded = |f: Binary| {
        let one = |a: Array, b: &Array| apply(&(Arc::new(f) as Prim), &[a, b.clone()]).swap_remove(0);
        blocks[1..].iter().fold(blocks[0].clone(), one)
    };
    let part = |x: &Array, dim: usize, i: usize| {
        let size = x.shape().expect("it is a block")[dim] / n;
        x.split(vec![size; n], dim as i32).swap_remove(i)
    };
    if let Some(x) = prim.downcast_ref::<Preduce>() {
        return match x.reducer {
            Reducer::Add => folded(Binary::Add),
            Reducer::Max => folded(Binary::Max),
            Reducer::Min => folded(Binary::Min),
            other => panic!("no example reduces by {other:?}"),
        };
    }
    if let Some(x) = prim.downcast_ref::<AllGather>() {
        let joined = concat(blocks.to_vec(), x.dim as i32);
        return concat(vec![joined; n], 0);
    }
    if let Some(x) = prim.downcast_ref::<PsumScatter>() {
        let sum = folded(Binary::Add);
        return concat((0..n).map(|i| part(&sum, x.dim, i)).collect::<Vec<_>>(), 0);
    }
    if let Some(x) = prim.downcast_ref::<Pbroadcast>() {
        return concat(vec![blocks[x.source].clone(); n], 0);
    }
    if prim.downcast_ref::<OwnPart>().is_some() {
        return blocks[0].reshape([blocks[0].shape().expect("it is a block").num_elements()]);
    }
    if let Some(x) = prim.downcast_ref::<AllToAllPrim>() {
        let got = |i: usize| {
            concat(blocks.iter().map(|b| part(b, x.split_dim, i)).collect::<Vec<_>>(), x.concat_dim as i32)
        };
        return concat((0..n).map(got).collect::<Vec<_>>(), 0);
    }
    if prim.downcast_ref::<Ppermute>().is_some() {
        return concat((0..n).map(|i| blocks[(i + n - 1) % n].clone()).collect::<Vec<_>>(), 0);
    }
    if prim.downcast_ref::<AxisIndex>().is_some() {
        return Array::arange(0..n as i32);
    }
    match prim.name() {
        "pvary" => concat(blocks.to_vec(), 0),
        "pcast" => folded(Binary::Add),
        other => panic!("say what {other} makes of blocks"),
    }
}

fn collective(name: &'static str, prim: &Prim, types: &[ArrayType], ran: &mut Ran) {
    for mode in [AxisType::Auto, AxisType::Explicit] {
        for mesh in meshes(mode) {
            let n = mesh.size();
            if name == "pcast" && mode == AxisType::Auto {
                // Skipped: partial values leave a region over explicit axes only.
                continue;
            }
            ran.explicit += usize::from(mode == AxisType::Explicit);
            let prim = among(prim, &mesh);
            let all: Axes = mesh.axis_names().iter().copied().collect();
            let manual = mesh.with_axis_types(&all, AxisType::Manual).expect("its own axes");
            // A block that is split has two columns per share, or a row for each device.
            let shape = if name == "own_part" { [n, 4] } else { [3, 2 * n] };
            let block = |ty: &ArrayType| {
                let varying = if ty.varying.is_empty() { Axes::none() } else { all.clone() };
                ArrayType { shape: shape.into(), mesh: Some(manual.clone()), varying, ..ty.clone() }
            };
            let blocks: Vec<ArrayType> = types.iter().map(block).collect();
            let results = prim.types(&operands(&blocks)).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            let mut own: Vec<Array> =
                (0..n).map(|i| super::identity::numbers(&F32.array_type(shape), i)).collect();
            let varies = blocks.iter().any(|t| !t.varying.is_empty());
            if !varies {
                own = vec![own[0].clone(); n];
            }
            let global = if varies { concat(own.clone(), 0) } else { own[0].clone() };
            let want = read(&defined(&prim, &own)).unwrap_or_else(|e| panic!("{name}: {e}"));
            let outer = if varies { border(&blocks[0]) } else { Spec::replicated(2) };
            let body = |x: &Array| match prim.downcast_ref::<AxisIndex>() {
                Some(x) => axis_index(x.group.axes.clone()).reshape([1]),
                None => apply(&prim, std::slice::from_ref(x)).swap_remove(0),
            };
            let f = shard_map(&mesh, outer, border(&results[0]), body);
            let run = || -> Result<Vec<Vec<f64>>> { Ok(vec![read(&f.call(global.put(&mesh, outer))?)?]) };
            let kinds = if prim.name().starts_with("psum") || name == "pcast" {
                vec![CollectiveKind::AllReduce]
            } else {
                vec![]
            };
            ran.compare(name, &mesh, &format!("{mode:?}"), &kinds, run(), &[want]);
        }
    }
}

/// Runs the primitives of the selected families, and asserts that there are at least `least` cases
/// where all of them run.
fn families(wanted: impl Fn(&str) -> bool, least: usize) {
    let mut ran = Ran::default();
    let subjects = super::identity::subjects();
    let started = std::time::Instant::now();
    for entry in PRIMITIVES.iter().filter(|e| wanted(e.family)) {
        let (prim, types) = (entry.example)();
        if prim.collective().is_some() {
            collective(entry.name, &prim, &types, &mut ran);
        } else {
            everywhere(entry.name, entry.family, &prim, &types, &mut ran);
            let others = subjects.iter().filter(|(other, _)| other.name() == entry.name);
            // Add variants with other fields or sizes; primitives that create or place arrays name
            // their mesh.
            let more = others.filter(|(other, own)| {
                let free = other.constraint().is_none() && !["creation", "random"].contains(&entry.family);
                free && (**other != *prim || *own != types)
            });
            for (prim, types) in more {
                everywhere(entry.name, entry.family, prim, types, &mut ran);
            }
        }
        let meshes = ran.by.keys().filter(|(name, _)| *name == entry.name).count();
        assert_eq!(meshes, MESHES.len(), "{}: on how many meshes it ran", entry.name);
    }
    println!("{} cases, {} of them over explicit axes, in {:?}", ran.cases, ran.explicit, started.elapsed());
    println!("within the tolerance, not exactly: {:?}", ran.loose);
    assert!(ran.wrong.is_empty(), "{} wrong:\n{}", ran.wrong.len(), ran.wrong.join("\n"));
    let least = if runs_all() { least } else { least / STEP };
    assert!(ran.cases >= least && ran.explicit >= least / 5, "only {} cases ran", ran.cases);
}

#[test]
fn elementwise_on_every_mesh() {
    families(|f| f == "elementwise", 8000);
}

#[test]
fn structure_on_every_mesh() {
    families(|f| !["elementwise", "collective"].contains(&f), 9000);
}

#[test]
fn collectives_on_every_mesh() {
    families(|f| f == "collective", 180);
}
