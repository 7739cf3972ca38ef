//! The states of values in per-device code: varying, invarying, unreduced and reduced.
//!
//! Values and gradients of every operation, on operands in every state that its types accept, are
//! those of the dense program. A branch that devices choose differently has the value and the
//! gradient of `select`.

mod branches;
mod operations;

use crate::{Rng, law, set};
use atmesh::prelude::*;
use atmesh::{ErrorKind, PcastTo, Spec};
use operations::{BINARY, UNARY};

const DEVICES: usize = 4;

/// The state of a value over the manual axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Varying,
    Invarying,
    Unreduced,
    Reduced,
}
use State::{Invarying, Reduced, Unreduced, Varying};
const STATES: [State; 4] = [Varying, Invarying, Unreduced, Reduced];

impl State {
    pub(crate) fn spec(self) -> Spec {
        match self {
            Varying => p!["X"],
            Invarying => p![],
            Unreduced => p![; U: "X"],
            Reduced => p![; R: "X"],
        }
    }
    pub(crate) fn of(x: &Array) -> Result<State> {
        let ty = x.ty()?;
        Ok(match () {
            () if !ty.varying.is_empty() => Varying,
            () if !ty.spec.unreduced_axes().is_empty() => Unreduced,
            () if !ty.spec.reduced_axes().is_empty() => Reduced,
            () => Invarying,
        })
    }
}

/// An operand: the array on the mesh, and each device's value without a mesh. For an unreduced
/// operand, the device's value is the sum of the partial values, which all differ.
pub(crate) struct Placed {
    pub(crate) array: Array,
    pub(crate) blocks: Vec<Array>,
    pub(crate) state: State,
}

impl Placed {
    pub(crate) fn random(mesh: &Mesh, state: State, seed: u64) -> Result<Placed> {
        let key = Key::new(seed);
        let parts: Vec<Array> = (0..DEVICES).map(|k| key.fold_in(k as i32).normal([4, 4]) + 0.1).collect();
        let (array, blocks) = match state {
            Varying => (concat(&parts, 0).put(mesh, state.spec()), parts),
            Unreduced => {
                let whole = parts[1..].iter().fold(parts[0].clone(), |a, b| a + b);
                let sharding = Sharding::new(mesh, state.spec(), &[4, 4])?;
                (Array::from_shards([4, 4], &sharding, parts)?, vec![whole; DEVICES])
            }
            _ => (parts[0].put(mesh, state.spec()), vec![parts[0].clone(); DEVICES]),
        };
        Ok(Placed { array, blocks, state })
    }
}

/// Returns the loss of a value in a body: the sum of its squares over all devices.
pub(crate) fn loss(y: &Array) -> Result<Array> {
    let y = y.astype(F32);
    Ok(match State::of(&y)? {
        Varying => y.square().sum(..).psum("X"),
        Unreduced => y.psum("X").square().sum(..),
        _ => y.square().sum(..),
    })
}

/// A function of the operands.
pub(crate) type Function<'a> = dyn Fn(&[Array]) -> Result<Array> + 'a;

/// A comparison of a body with the dense program.
pub(crate) enum Outcome {
    /// The types refuse the body.
    Refused,
    /// These differ.
    Faults(Vec<String>),
}

/// Compares the loss of `f` on the operands, and its gradients, with the dense program `dense`.
pub(crate) fn compare(
    mesh: &Mesh,
    engine: EngineKind,
    operands: &[Placed],
    f: &Function<'_>,
    dense: &dyn Fn(&[Array], usize) -> Result<Array>,
) -> Result<Outcome> {
    let specs: Vec<Spec> = operands.iter().map(|o| o.state.spec()).collect();
    let arrays: Vec<Array> = operands.iter().map(|o| o.array.clone()).collect();
    let state = std::cell::Cell::new(Invarying);
    let probe = |xs: &Vec<Array>| -> Result<Array> {
        let y = f(xs)?;
        state.set(State::of(&y.astype(F32))?);
        Ok(Array::from(0.0f32))
    };
    if let Err(e) = shard_map(mesh, specs.clone(), p![], probe).trace(&arrays) {
        return match e.kind() {
            ErrorKind::Internal | ErrorKind::User => Ok(Outcome::Faults(vec![format!("{e}")])),
            _ => Ok(Outcome::Refused),
        };
    }
    let state = state.get();
    let out = if state == Reduced { p![; R: "X"] } else { p![] };
    let region = shard_map(mesh, specs, out, |xs: &Vec<Array>| loss(&f(xs)?)).engine(engine);
    let run = |xs: &[Array]| region.call(&xs.to_vec()).map(|y| y.reshard(p![]));
    let squares =
        |xs: &[Array], k: usize| -> Result<Array> { Ok(dense(xs, k)?.astype(F32).square().sum(..)) };
    let at = |k: usize| operands.iter().map(|o| o.blocks[k].clone()).collect::<Vec<Array>>();
    let used = if state == Varying { DEVICES } else { 1 };
    let mut faults = Vec::new();
    let mut want = squares(&at(0), 0)?;
    for k in 1..used {
        want += squares(&at(k), k)?;
    }
    match jit(|xs: &Vec<Array>| run(xs)).engine(engine).call(&arrays) {
        Ok(got) if near(&got, &want) => {}
        Ok(got) => faults.push(format!("the value is {got}, not {want}")),
        Err(e) => faults.push(format!("no value: {e}")),
    }
    let slopes = jit(|xs: &Vec<Array>| grad(xs, |xs: Vec<Array>| run(&xs))).engine(engine).call(&arrays);
    let slopes = match slopes {
        Ok(slopes) => slopes,
        // a loop whose length is unknown has no gradient
        Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(Outcome::Faults(faults)),
        Err(e) => {
            faults.push(format!("no gradient: {e}"));
            return Ok(Outcome::Faults(faults));
        }
    };
    let by_device: Vec<Vec<Array>> =
        (0..used).map(|k| grad(at(k), |xs: Vec<Array>| squares(&xs, k))).collect();
    for (i, (got, operand)) in slopes.iter().zip(operands).enumerate() {
        let each: Vec<Array> = by_device.iter().map(|g| g[i].clone()).collect();
        let want = match operand.state {
            // if the result does not vary, each block has the gradient of the one value
            Varying if used == 1 => concat(vec![each[0].clone(); DEVICES], 0),
            Varying => concat(&each, 0),
            _ => each[1..].iter().fold(each[0].clone(), |a, b| a + b),
        };
        let got = Array::from(got.to_vec::<f32>()?).reshape(got.shape()?.to_vec());
        if !near(&got, &want) {
            faults.push(format!("the gradient by operand {i} is {got}, not {want}"));
        }
    }
    Ok(Outcome::Faults(faults))
}

fn near(a: &Array, b: &Array) -> bool {
    a.shape().ok() == b.shape().ok() && a.allclose_with(b, 2e-3, 2e-4).unwrap_or(false)
}

pub(crate) fn mesh() -> Mesh {
    Mesh::new([("X", DEVICES)]).unwrap()
}

/// An operation with the states of its operands.
#[derive(Clone, Copy)]
enum Case {
    One(usize, State),
    Two(usize, State, State),
}

impl Case {
    /// Returns all operations on operands in all states.
    fn all() -> Vec<Case> {
        let one = (0..UNARY.len()).flat_map(|k| STATES.map(|s| Case::One(k, s)));
        let two = (0..BINARY.len())
            .flat_map(|k| STATES.into_iter().flat_map(move |s| STATES.map(|t| Case::Two(k, s, t))));
        one.chain(two).collect()
    }
    fn check(self, engine: EngineKind, seed: u64) -> Vec<String> {
        let mesh = mesh();
        let place = |state, k| Placed::random(&mesh, state, 2 * seed + k).unwrap();
        let (name, operands) = match self {
            Case::One(k, s) => (UNARY[k].0, vec![place(s, 0)]),
            Case::Two(k, s, t) => (BINARY[k].0, vec![place(s, 0), place(t, 1)]),
        };
        let f = |xs: &[Array]| match self {
            Case::One(k, _) => (UNARY[k].1)(&xs[0]),
            Case::Two(k, ..) => (BINARY[k].1)(&xs[0], &xs[1]),
        };
        let outcome = compare(&mesh, engine, &operands, &|xs| Ok(f(xs)), &|xs, _| Ok(f(xs)));
        let states: Vec<State> = operands.iter().map(|o| o.state).collect();
        let faults = match outcome {
            Ok(Outcome::Refused) => Vec::new(),
            Ok(Outcome::Faults(faults)) => faults,
            Err(e) => vec![format!("{e}")],
        };
        faults.into_iter().map(|w| format!("{name} of {states:?} on {engine}: {w}")).collect()
    }
}

/// The engine of a case: lockstep mostly, since threads run the same kernels.
pub(crate) fn engine(rng: &mut Rng) -> EngineKind {
    if rng.once_in(3) { Threads } else { Lockstep }
}

#[test]
fn operations_on_all_states() {
    let all = Case::all();
    if std::env::var("LAWS_STATES").is_ok_and(|v| v == "all") {
        let first = set("LAWS_SEED").unwrap_or(1);
        let wrong: Vec<String> = [Lockstep, Threads]
            .iter()
            .flat_map(|engine| all.iter().map(move |c| (c, *engine)))
            .flat_map(|(case, engine)| case.check(engine, first))
            .collect();
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        return;
    }
    law(150, |seed| {
        let mut rng = Rng::new(seed);
        let (case, engine) = (*rng.choose(&all), engine(&mut rng));
        case.check(engine, seed)
    });
}

/// Casts that are not operations of the list: each is the identity on the devices' values.
#[test]
fn casts_keep_values() {
    let mesh = mesh();
    type Cast = (State, fn(&Array) -> Array);
    let casts: [Cast; 4] = [
        (Invarying, |x| x.pvary("X")),
        (Invarying, |x| x.pcast("X", PcastTo::Reduced)),
        (Reduced, |x| x.pcast("X", PcastTo::Varying)),
        (Invarying, |x| x.pcast("X", PcastTo::Reduced).pcast("X", PcastTo::Varying)),
    ];
    for (k, (state, cast)) in casts.into_iter().enumerate() {
        for engine in [Lockstep, Threads] {
            let operand = [Placed::random(&mesh, state, 7 + k as u64).unwrap()];
            let outcome =
                compare(&mesh, engine, &operand, &|xs| Ok(cast(&xs[0])), &|xs, _| Ok(xs[0].clone()));
            assert!(matches!(outcome, Ok(Outcome::Faults(faults)) if faults.is_empty()), "cast {k}");
        }
    }
}
