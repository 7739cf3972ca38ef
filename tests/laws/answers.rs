//! Faulty custom primitives: each answer of a primitive, apart from its loop nests, is changed at
//! random; then it is rejected by name, or computes what its loop nests say.

use crate::error_checks::Unquoted as _;
use crate::kernels::{numbers, off_size, read};
use crate::soak::runs_all;
use crate::{Rng, law};
use atmesh::array::Term;
use atmesh::diagnostic::Fault;
use atmesh::mesh::AxisType;
use atmesh::ops::PRIMITIVES;
use atmesh::prelude::*;
use atmesh::program::loop_nest::{LoopNest, Reducer};
use atmesh::program::{
    BatchedOp, DeviceGroups, Dim, DimMap, ExplicitRule, Factors, Input, JvpArgs, Linearity, ManualCollective,
    Prim, Primitive, Priority, Tangents, TransposeArgs, TypedOperand, Value, Var, VmapArgs,
};
use atmesh::{Axes, Error, Shape};
use std::sync::Arc;

/// The answer that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    Factors,
    Shapes,
    Types,
    Linearity,
    Collective,
    Jvp,
    Transpose,
    Batched,
}

/// A primitive of the list with one answer changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Answers {
    entry: usize,
    seed: u64,
    of: Option<Of>,
}

impl Answers {
    fn prim(&self) -> Prim {
        (PRIMITIVES[self.entry].example)().0
    }
    /// Returns the random generator for the change if this is the changed answer.
    fn changed(&self, of: Of) -> Option<Rng> {
        (self.of == Some(of)).then(|| Rng::new(self.seed))
    }
}

impl Primitive for Answers {
    fn name(&self) -> &'static str {
        "answers"
    }
    fn params(&self) -> String {
        format!("of={}, seed={}, changed={:?}", self.prim().key(), self.seed, self.of)
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let mut list = self.prim().shapes(operands)?;
        if let Some(mut rng) = self.changed(Of::Shapes) {
            let k = rng.below(list.len());
            match rng.below(4) {
                0 => list.clear(),
                1 => list.extend(list.clone()),
                2 => list[k].0 = *rng.choose(&[DType::F64, DType::Key, DType::Bool, DType::U8]),
                _ => {
                    let mut sizes = list[k].1.to_vec();
                    match sizes.len() {
                        0 => sizes.push(2),
                        n => sizes[rng.below(n)] = *rng.choose(&[0, 1, 2, 3, 5, 1 << 40]),
                    }
                    list[k].1 = sizes.into();
                }
            }
        }
        Ok(list)
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let of = self.prim();
        let mut types = match of.collective() {
            Some(_) => of.types(operands)?,
            None => atmesh::program::typing::by_factors(self, operands)?,
        };
        if let Some(mut rng) = self.changed(Of::Types) {
            let k = rng.below(types.len());
            let Some(ty) = types.get_mut(k) else { return Ok(types) };
            let entry = |rng: &mut Rng| Axes::from(*rng.choose(&["X", "Y", "Z"]));
            let entries = rng.below(4);
            match rng.below(5) {
                0 => ty.mesh = None,
                1 => ty.varying = entry(&mut rng),
                2 => ty.spec = ty.spec.unreduced(entry(&mut rng)),
                _ => ty.spec = Spec::from_dims((0..entries).map(|_| entry(&mut rng)).collect()),
            }
        }
        Ok(types)
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let terms: Vec<TypedOperand> = operands.iter().map(|ty| ty.clone().into()).collect();
        let usual = self.changed(Of::Shapes).and_then(|_| self.prim().shapes(&terms).ok());
        let mut f = self.prim().factors(operands, usual.as_deref().unwrap_or(results));
        if let Some(mut rng) = self.changed(Of::Factors) {
            for _ in 0..1 + rng.below(2) {
                change(&mut f, &mut rng);
            }
        }
        f
    }
    fn linearity(&self) -> Linearity {
        use Linearity::*;
        let list = [Joint, Select, None, Product, Contraction, Nullary];
        self.changed(Of::Linearity).map_or(self.prim().linearity(), |mut rng| *rng.choose(&list))
    }
    fn priority(&self) -> Priority {
        use Priority::*;
        let list = [Elementwise, Alias, DynamicSlice, Broadcast, Plain];
        self.changed(Of::Linearity).map_or(self.prim().priority(), |mut rng| *rng.choose(&list))
    }
    fn out_sharding(&self) -> Option<Spec> {
        self.prim().out_sharding()
    }
    fn jvp(&self, at: JvpArgs<'_>) -> Result<Tangents> {
        let rng = self.changed(Of::Jvp);
        let given: Vec<Value> = at.operands.iter().chain(at.tangents.iter().flatten()).cloned().collect();
        let tangents = self.prim().jvp(at)?;
        Ok(rng.map_or(tangents.clone(), |rng| other(tangents, &given, rng)))
    }
    fn transpose(&self, at: TransposeArgs<'_>) -> Result<Tangents> {
        let rng = self.changed(Of::Transpose);
        let given: Vec<Value> = at.operands.iter().chain(at.cotangents).flatten().cloned().collect();
        let back = self.prim().transpose(at)?;
        Ok(rng.map_or(back.clone(), |rng| other(back, &given, rng)))
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let mut all = self.prim().vmap(batch);
        if let Some(mut rng) = self.changed(Of::Batched) {
            match rng.below(4) {
                0 => all.out_dim = off_size(all.out_dim, &mut rng),
                1 => all.prim = self.prim(),
                2 => all = BatchedOp::broadcasting(all.prim),
                _ => all = BatchedOp::all_batched(all.prim, rng.once_in(2)),
            }
        }
        all
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        self.prim().loop_nests(operands, results)
    }
    fn collective(&self) -> Option<ManualCollective> {
        let c = self.prim().collective();
        match self.changed(Of::Collective) {
            Some(mut rng) => collective(c, &mut rng),
            None => c,
        }
    }
}

fn change(f: &mut Factors, rng: &mut Rng) {
    let l = rng.below(f.loops.len());
    match rng.below(8) {
        0 => drop(f.loops.pop()),
        1 if l < f.loops.len() => f.loops[l].size = off_size(f.loops[l].size, rng),
        2 if l < f.loops.len() => {
            f.loops[l].need_replication = rng.once_in(2);
            f.loops[l].explicit_rule = *rng.choose(&[
                None,
                Some(ExplicitRule::FirstWins),
                Some(ExplicitRule::MustMatch),
                Some(ExplicitRule::MustBeReplicated),
                Some(ExplicitRule::MustNotMove),
            ]);
        }
        _ => {
            let side = if rng.once_in(2) { &mut f.operands } else { &mut f.results };
            let k = rng.below(side.len());
            if rng.once_in(8) {
                return side.push(Dim::each(0..rng.below(3)));
            }
            let Some(dims) = side.get_mut(k) else { return };
            let d = rng.below(dims.len());
            match rng.below(6) {
                0 => drop(dims.pop()),
                1 => dims.push(Dim::identity(rng.below(4))),
                _ if d >= dims.len() => {}
                2 => {
                    dims[d].map = *rng.choose(&[
                        DimMap::Identity,
                        DimMap::Broadcast,
                        DimMap::Dynamic,
                        DimMap::Affine { scale: i64::MIN, offset: 7 },
                    ])
                }
                3 => dims[d].loops.clear(),
                4 => dims[d].loops.push(rng.below(4)),
                _ => dims[d] = Dim::identity(off_size(d, rng)),
            }
        }
    }
}

/// Returns another collective, which may be over other axes or dimensions, or none.
fn collective(c: Option<ManualCollective>, rng: &mut Rng) -> Option<ManualCollective> {
    let axes = || -> Axes { "X".into() };
    let axes = match rng.below(6) {
        0 => "Y".into(),
        1 => axes().iter().chain(axes().iter()).collect(),
        2 => Axes::none(),
        _ => axes(),
    };
    let (dim, concat, tiled) = (rng.below(4), off_size(rng.below(3), rng), rng.once_in(2));
    let position = |rng: &mut Rng| *rng.choose(&[0, 1, 1, 2, usize::MAX]);
    let lists: [&[&[usize]]; 7] =
        [&[], &[&[0], &[1]], &[&[1, 0]], &[&[0]], &[&[0, usize::MAX]], &[&[1], &[]], &[&[0, 1, 1]]];
    let list = *rng.choose(&lists);
    let groups = rng.once_in(3).then(|| DeviceGroups::new(list.iter().map(|g| g.to_vec()).collect()));
    Some(match rng.below(10) {
        0 => return c.filter(|_| rng.once_in(2)),
        1 => ManualCollective::AllReduce {
            axes,
            groups,
            reducer: *rng.choose(&[Reducer::And, Reducer::Mul, Reducer::Min]),
        },
        2 => ManualCollective::AllGather { axes, groups, dim, tiled },
        3 => ManualCollective::ReduceScatter { axes, groups, dim, tiled },
        4 => ManualCollective::KeepShard { axes, dim, tiled },
        5 => ManualCollective::AllToAll { axes, groups, split: dim, concat, tiled },
        6 => {
            let pairs = (0..rng.below(4)).map(|_| (position(rng), position(rng))).collect();
            ManualCollective::Permute { axes, pairs }
        }
        7 => ManualCollective::AxisIndex { axes },
        8 => ManualCollective::Broadcast { axes, source: position(rng) },
        _ => ManualCollective::Pcast { axes: axes.iter().collect() },
    })
}

/// Returns other tangents or cotangents.
fn other(mut list: Tangents, given: &[Value], mut rng: Rng) -> Tangents {
    let k = rng.below(list.len());
    match rng.below(7) {
        0 => list.clear(),
        1 => list.push(given.first().cloned()),
        2 if k < list.len() => list[k] = None,
        3 if k < list.len() => list[k] = Some(Value::literal(*rng.choose(&[F32, I32, Bool]), 1)),
        4 if k < list.len() => {
            list[k] = Some(Value { input: Input::Var(Var(1 << 20)), ty: F32.array_type([2, 2]) })
        }
        5 if k < list.len() && !given.is_empty() => list[k] = Some(rng.choose(given).clone()),
        _ => {
            if let Some(Some(v)) = list.get_mut(k) {
                v.ty = F64.array_type([7, 7]);
            }
        }
    }
    list
}

/// The way in which the primitive is used.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Grad,
    Many,
}

fn run(prim: &Prim, xs: &[Array], way: Way, engine: EngineKind) -> Result<Vec<Vec<f64>>> {
    let apply = |xs: &[Array]| Array::apply(prim.clone(), &xs.iter().map(Term::from).collect::<Vec<_>>());
    let sum = |ys: Vec<Array>| ys.iter().fold(Array::from(0f32), |sum, y| sum + y.astype(F32).sum(..));
    let program = |xs: &Vec<Array>| match way {
        Way::Plain => apply(xs),
        Way::Grad => vec![grad(xs[0].clone(), |x| sum(apply(&[&[x], &xs[1..]].concat())))],
        Way::Many => vmap(xs.clone(), |xs: Vec<Array>| apply(&xs)),
    };
    jit(program).engine(engine).call(&xs.to_vec())?.iter().map(read).collect()
}

/// Returns the array with a random sharding that divides it.
fn sharded(x: &Array, mesh: &Mesh, rng: &mut Rng) -> Result<Array> {
    let shape = x.shape()?;
    let axis = *rng.choose(&["X", "Y"]);
    let d = rng.below(shape.len());
    let mut dims = vec![Axes::none(); shape.len()];
    if d < dims.len() && shape[d] % 2 == 0 {
        dims[d] = Axes::from(axis);
    }
    Ok(x.put(mesh, Spec::from_dims(dims)))
}

fn near(got: &[Vec<f64>], want: &[Vec<f64>]) -> bool {
    let alike =
        |a: &f64, b: &f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-4 * (1.0 + b.abs());
    got.len() == want.len()
        && got.iter().zip(want).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)))
}

/// An answer close to a right one is rejected with the primitive's name, or the results are those
/// of its loop nests.
#[test]
fn answers_are_rejected_or_right() {
    let accepted = std::cell::Cell::new(0);
    law(1000, |seed| {
        let mut rng = Rng::new(seed);
        let entry = rng.below(PRIMITIVES.len());
        let (own, types) = (PRIMITIVES[entry].example)();
        let manual = own.collective().is_some();
        let of = match manual {
            true => *rng.choose(&[Of::Collective, Of::Collective, Of::Types]),
            false => *rng.choose(&[
                Of::Factors,
                Of::Factors,
                Of::Shapes,
                Of::Types,
                Of::Linearity,
                Of::Collective,
                Of::Jvp,
                Of::Transpose,
                Of::Batched,
            ]),
        };
        let answers = |of| -> Prim { Arc::new(Answers { entry, seed, of }) };
        let findings = |e: &Error| {
            let e = e.unquoted();
            // With other types or axis sets, other operations may report the error.
            let named = e.contains("answers") || matches!(of, Of::Types | Of::Linearity);
            if named && !e.contains("please report") {
                Vec::new()
            } else {
                vec![format!("{of:?} of {}: {e}", own.key())]
            }
        };
        if manual {
            // It belongs to the body in which it is created.
            if types.is_empty() {
                return Vec::new();
            }
            let run = |prim: &Prim, engine| among(prim, &own, &types, engine);
            let (got, want) = (
                run(&answers(Some(of)), EngineKind::Lockstep),
                run(&answers(Some(of)), EngineKind::Reference),
            );
            return match (got, want) {
                (Ok(got), Ok(want)) if near(&got, &want) => Vec::new(),
                (Err(a), Err(b)) => [findings(&a), findings(&b)].concat(),
                (got, want) => vec![format!("{of:?} of {}: {got:?}, not {want:?}", own.key())],
            };
        }
        let way = match of {
            Of::Jvp | Of::Transpose => Way::Grad,
            Of::Batched => Way::Many,
            _ => *rng.choose(&[Way::Plain, Way::Plain, Way::Grad, Way::Many]),
        };
        let kind = *rng.choose(&[AxisType::Explicit, AxisType::Auto]);
        let mesh =
            Mesh::with_types([("X", 2, kind), ("Y", 2, AxisType::Explicit)]).expect("two axes make a mesh");
        let xs: Vec<Array> = types.iter().map(|ty| numbers(ty, &mut rng)).collect();
        let many = |x: &Array| if matches!(way, Way::Many) { stack([x, x], 0) } else { x.clone() };
        let xs: Vec<Array> = xs.iter().map(many).collect();
        let placed: Result<Vec<Array>> = xs
            .iter()
            .map(|x| if rng.once_in(3) { Ok(x.clone()) } else { sharded(x, &mesh, &mut rng) })
            .collect();
        let Ok(placed) = placed else { return vec!["no sharding".into()] };
        if xs.is_empty() {
            return Vec::new();
        }
        let got = run(&answers(Some(of)), &placed, way, EngineKind::Lockstep);
        // The expected result, by definition or from the unchanged primitive.
        let usual = match of {
            Of::Shapes => run(&answers(Some(of)), &placed, way, EngineKind::Reference),
            _ => run(&answers(None), &placed, way, EngineKind::Lockstep),
        };
        match (&got, &usual) {
            // A different rule with the right types defines another operation.
            (Ok(_), _) if matches!(of, Of::Jvp | Of::Transpose | Of::Batched) => Vec::new(),
            (Ok(got), Ok(usual)) if !near(got, usual) && !matches!(way, Way::Grad) => {
                vec![format!("{of:?} of {}: {got:?}, not {usual:?}", own.key())]
            }
            (Ok(_), _) => {
                accepted.set(accepted.get() + 1);
                Vec::new()
            }
            (Err(a), Err(b)) if a.to_string() == b.to_string() => Vec::new(),
            (Err(e), _) => findings(e),
        }
    });
    let least = if runs_all() { 20 } else { 5 };
    assert!(
        accepted.get() > least || std::env::var_os("LAWS_SEED").is_some(),
        "{} were accepted",
        accepted.get()
    );
}

/// Runs a collective on blocks of these types.
fn among(prim: &Prim, own: &Prim, types: &[ArrayType], engine: EngineKind) -> Result<Vec<Vec<f64>>> {
    let border = |ty: &ArrayType| {
        let sets = Spec::replicated(0).unreduced(ty.spec.unreduced_axes()).reduced(ty.spec.reduced_axes());
        if ty.varying.is_empty() { sets } else { Spec::from_dims(vec![ty.varying.clone()]) }
    };
    let whole = |ty: &ArrayType| {
        let mut sizes = ty.shape.to_vec();
        sizes[0] *= if ty.varying.is_empty() { 1 } else { 2 };
        (numbers(&ty.dtype.array_type(&sizes[..]), &mut Rng::new(7)), border(ty))
    };
    let (mut xs, mut ins): (Vec<Array>, Vec<Spec>) = types.iter().map(whole).unzip();
    // An extra operand ensures that there is at least one.
    xs.push(Array::from(0f32));
    ins.push(Spec::replicated(0));
    let operands: Vec<TypedOperand> = types.iter().map(|ty| ty.clone().into()).collect();
    let outs: Vec<Spec> = own.types(&operands).map_err(Error::from)?.iter().map(border).collect();
    let body = |xs: &Vec<Array>| {
        Array::apply(prim.clone(), &xs[..xs.len() - 1].iter().map(Term::from).collect::<Vec<_>>())
    };
    let ys = shard_map(&Mesh::new([("X", 2)])?, ins, outs, body).engine(engine).call(&xs)?;
    ys.iter().map(read).collect()
}
