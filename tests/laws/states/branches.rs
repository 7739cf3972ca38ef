//! Branches that devices choose differently, against `select`.

use super::operations::{BINARY, UNARY};
use super::{Outcome, Placed, State, compare, engine, mesh};
use crate::{Rng, law};
use atmesh::PcastTo;
use atmesh::prelude::*;

/// A function of two arrays of shape `[4, 4]` that the branches compute.
#[derive(Clone, Copy, Debug)]
enum Part {
    First(usize),
    Second(usize),
    Both(usize),
}

impl Part {
    fn random(rng: &mut Rng) -> Part {
        match rng.below(3) {
            0 => Part::First(rng.below(UNARY.len())),
            1 => Part::Second(rng.below(UNARY.len())),
            _ => Part::Both(rng.below(BINARY.len())),
        }
    }
    fn name(self) -> String {
        match self {
            Part::First(k) => format!("{} of 0", UNARY[k].0),
            Part::Second(k) => format!("{} of 1", UNARY[k].0),
            Part::Both(k) => BINARY[k].0.to_string(),
        }
    }
    fn apply(self, xs: &[Array]) -> Array {
        let y = match self {
            Part::First(k) => (UNARY[k].1)(&xs[0]),
            Part::Second(k) => (UNARY[k].1)(&xs[1]),
            Part::Both(k) => (BINARY[k].1)(&xs[0], &xs[1]),
        };
        y.astype(F32).sum(..)
    }
}

/// Casts the result of a branch to varying, since the results of all branches must agree.
fn vary(y: Array) -> Array {
    match State::of(&y) {
        Ok(State::Invarying | State::Reduced) => y.pcast("X", PcastTo::Varying),
        _ => y,
    }
}

/// Where the branch is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Plain,
    Scan,
    Fori,
    Vmap,
    Checkpoint,
    Nested,
}

impl Place {
    fn random(rng: &mut Rng) -> Place {
        *rng.choose(&[Place::Plain, Place::Scan, Place::Fori, Place::Vmap, Place::Checkpoint, Place::Nested])
    }
    /// Applies `f`, which chooses, at this place. Every place applies it twice, or to a value like
    /// the given ones, so that the dense program does the same.
    fn apply(self, xs: &[Array], f: &dyn Fn(&[Array]) -> Array) -> Result<Array> {
        let start = || f(xs) * 0.0;
        Ok(match self {
            Place::Plain => f(xs),
            Place::Scan => scan(start(), Array::from([1.0f32, 0.5]), |c, s| (c * 0.5 + f(xs) * s, ())).0,
            Place::Fori => fori_loop(0..2, start(), |_, c| c * 0.5 + f(xs)),
            Place::Vmap => vmap(Array::from([1.0f32, 0.5]), |s: Array| f(xs) * s).sum(..),
            Place::Checkpoint => checkpoint(xs.to_vec(), |xs: Vec<Array>| f(&xs)),
            Place::Nested => jit(|xs: &Vec<Array>| f(xs)).call(&xs.to_vec())?,
        })
    }
}

/// How devices choose.
#[derive(Clone, Copy, Debug)]
enum Choice {
    First,
    Parity,
    Sign,
    Switch,
}

impl Choice {
    /// Returns the branch that a device takes, in a body or for device `k`.
    fn index(self, x: &Array, device: Option<usize>) -> Array {
        let here = || match device {
            Some(k) => Array::from(k as i32),
            None => axis_index("X"),
        };
        match self {
            Choice::First => here().ne(0).astype(I32),
            Choice::Parity => here() % 2,
            Choice::Sign => x.stop_gradient().sum(..).gt(0.0).astype(I32),
            Choice::Switch => here() - 1,
        }
    }
}

fn check(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let mesh = mesh();
    let states = [State::Varying, State::Invarying, State::Reduced];
    let operands: Vec<Placed> = (0..2)
        .map(|k| {
            Placed::random(&mesh, if k == 0 { State::Varying } else { *rng.choose(&states) }, 2 * seed + k)
                .unwrap()
        })
        .collect();
    let choice = *rng.choose(&[Choice::First, Choice::Parity, Choice::Sign, Choice::Switch]);
    let parts = [Part::random(&mut rng), Part::random(&mut rng), Part::random(&mut rng)];
    let (place, engine) = (Place::random(&mut rng), engine(&mut rng));
    let body = |xs: &[Array]| {
        place.apply(xs, &|xs| {
            let which = choice.index(&xs[0], None);
            let branches: [&dyn Fn() -> Array; 3] =
                [&|| vary(parts[0].apply(xs)), &|| vary(parts[1].apply(xs)), &|| vary(parts[2].apply(xs))];
            match choice {
                Choice::Switch => switch(which, &branches),
                _ => cond(which.eq(0), branches[0], branches[1]),
            }
        })
    };
    let dense = |xs: &[Array], k: usize| {
        place.apply(xs, &|xs| {
            let which = choice.index(&xs[0], Some(k));
            let rest = match choice {
                Choice::Switch => which.eq(1).select(parts[1].apply(xs), parts[2].apply(xs)),
                _ => parts[1].apply(xs),
            };
            which.le(0).select(parts[0].apply(xs), rest)
        })
    };
    let named = || {
        let parts: Vec<String> = parts.iter().map(|p| p.name()).collect();
        let states: Vec<State> = operands.iter().map(|o| o.state).collect();
        format!("{choice:?} of {} on {states:?} in {place:?} on {engine}", parts.join(" | "))
    };
    match compare(&mesh, engine, &operands, &body, &dense) {
        Ok(Outcome::Refused) => Vec::new(),
        Ok(Outcome::Faults(faults)) => faults.into_iter().map(|w| format!("{}: {w}", named())).collect(),
        Err(e) => vec![format!("{}: {e}", named())],
    }
}

#[test]
fn branches_are_selects() {
    law(80, check);
}
