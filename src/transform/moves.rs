//! What a program moves between devices, found out by running it.

use super::Jit;
use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::elements::DType;
use crate::partition::Collectives;
use crate::show::{Cell, Moves, Row, Stage};
use crate::sorted;
use crate::tree::{Tree, collect, type_of};
use std::panic::Location;

/// The most elements of an argument: the program runs once for each.
const MOST: usize = 256;

impl<O: Tree> Jit<'_, Array, O> {
    /// A picture of what the function moves between devices: the argument, then each result as a stage, every element with the devices
    /// that it came from.
    ///
    /// The program itself is asked. It runs once for each element of `x`, with 1 there and 0 elsewhere; where a result is not 0, that
    /// element has come. So the function must only move and add, in any proportions, and `x` be small: 256 elements or fewer.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([1, 2, 3, 4]).put(&mesh, p!["X"]);
    /// let sum = jit(shard_map(&mesh, p!["X"], p![], |x: &Array| x.psum("X")));
    /// assert_eq!(sum.moves(&x)?.to_string(), "\
    /// int32[4@X]
    ///   CPU 0: 1<0 2<0
    ///   CPU 1: 3<1 4<1
    /// int32[2]
    ///   CPU 0: 4<0+1 6<0+1
    ///   CPU 1: 4<0+1 6<0+1
    /// all_reduce over X: each device receives 8 bytes
    /// ");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where a result is not linear in `x`, `x` has more elements or is unreduced, or the function has an error.
    #[track_caller]
    pub fn moves(&self, x: &Array) -> Result<Moves> {
        let place = Location::caller();
        let refused = |why: String, help: &str| {
            Error::at(Fault::new(ErrorKind::Unsupported, why).help(help), "moves", Vec::new(), Some(place))
        };
        let (ty, n) = (x.ty()?, x.size()?);
        if n > MOST {
            let help = "draw a smaller array: who sends what to whom is the same";
            return Err(refused(
                format!("an array of {n} elements is too large for a picture of what moves"),
                help,
            ));
        }
        let sharding = x.sharding()?;
        if sharding.as_ref().is_some_and(|s| !s.spec.unreduced_axes().is_empty()) {
            let help = "begin with a sharded array: `x.sum_to(0, p![…; U: …])` is a stage of the picture";
            return Err(refused("the argument of a picture is unreduced".into(), help));
        }
        let placed = |one: Array| match &sharding {
            Some(s) => one.put(&s.mesh, s.spec),
            None => one,
        };
        let basis = |on: Array| placed(on.astype(ty.dtype).reshape(ty.shape.clone()));
        let first = collect(&self.call(x)?);
        let none = self.blocks(&basis(Array::zeros(DType::I32.of([n]))))?;
        let values: Vec<Vec<Vec<f64>>> = first.iter().map(numbers).collect::<Result<_>>()?;
        let mut found: Vec<Vec<Vec<Vec<usize>>>> =
            values.iter().map(|v| v.iter().map(|b| vec![Vec::new(); b.len()]).collect()).collect();
        let mut added = none;
        let given = x.astype(DType::F64).to_vec::<f64>()?;
        for (j, value) in given.iter().enumerate() {
            let one = Array::arange(0..n as i32).eq(j as i32);
            let seen = self.blocks(&basis(one))?;
            for ((seen, sum), found) in seen.iter().zip(&mut added).zip(&mut found) {
                for ((seen, sum), found) in seen.iter().zip(sum).zip(found) {
                    for ((seen, sum), found) in seen.iter().zip(sum).zip(found) {
                        *sum += seen * value;
                        if *seen != 0.0 {
                            found.push(j);
                        }
                    }
                }
            }
        }
        let close = |a: &f64, b: &f64| (a - b).abs() <= 1e-3 * (1.0 + b.abs());
        let flat = |v: &Vec<Vec<Vec<f64>>>| v.iter().flatten().flatten().copied().collect::<Vec<f64>>();
        if !flat(&added).iter().zip(&flat(&values)).all(|(a, b)| close(a, b)) {
            let help = "draw the part that communicates: what is gathered, summed or sent";
            return Err(refused(
                "the function does more than move and add, so its results come from no one element".into(),
                help,
            ));
        }
        // whose each element is: the devices that hold it, the first of them where one has it not
        let shards = x.shards()?;
        let mut holders: Vec<Vec<usize>> = vec![Vec::new(); n];
        for (d, ours) in elements(x)?.iter().enumerate() {
            ours.iter().for_each(|j| holders[*j].push(shards[d].device.id()));
        }
        let origin = |j: usize, device: usize| match holders[j].contains(&device) {
            true => device,
            false => holders[j].first().copied().unwrap_or(device),
        };
        let own: Vec<Vec<Vec<usize>>> =
            elements(x)?.iter().map(|e| e.iter().map(|j| vec![*j]).collect()).collect();
        let mut stages = vec![stage(x, &own, &origin)?];
        for (value, found) in first.iter().zip(&found) {
            stages.push(stage(value, found, &origin)?);
        }
        Ok(Moves { stages, sent: sent(self.lower(x)?.collectives(), shards.len() as u64) })
    }
    /// What each device holds of each result.
    fn blocks(&self, x: &Array) -> Result<Vec<Vec<Vec<f64>>>> {
        collect(&self.call(x)?).iter().map(numbers).collect()
    }
}

/// The numbers of each device's block.
fn numbers(x: &Array) -> Result<Vec<Vec<f64>>> {
    x.shards()?.iter().map(|s| s.data.astype(DType::F64).to_vec::<f64>()).collect()
}

/// The row-major positions of each device's elements.
fn elements(x: &Array) -> Result<Vec<Vec<usize>>> {
    let shape = x.ty()?.shape;
    let of = |s: &crate::array::Shard| {
        s.index.iter().zip(shape.iter()).fold(vec![0], |all: Vec<usize>, (r, n)| {
            all.iter().flat_map(|at| r.clone().map(move |i| at * n + i)).collect()
        })
    };
    Ok(x.shards()?.iter().map(of).collect())
}

fn stage(x: &Array, found: &[Vec<Vec<usize>>], origin: &impl Fn(usize, usize) -> usize) -> Result<Stage> {
    let partial = x.sharding()?.is_some_and(|s| !s.spec.unreduced_axes().is_empty());
    let rows = x.shards()?.into_iter().zip(found).map(|(shard, found)| {
        let device = shard.device.id();
        let texts = shard.data.astype(DType::F64).to_vec::<f64>()?;
        let cells = texts.iter().zip(found).map(|(v, found)| {
            let mut from: Vec<usize> = found.iter().map(|j| origin(*j, device)).collect();
            sorted::sort(&mut from);
            from.dedup();
            Cell { text: short(*v), from }
        });
        let width = shard.index.last().map_or(1, |r| r.len());
        Ok(Row { device, name: shard.device.to_string(), width, cells: cells.collect() })
    });
    Ok(Stage { caption: type_of(x).to_string(), partial, rows: rows.collect::<Result<_>>()? })
}

/// A number in a few letters.
fn short(v: f64) -> String {
    let text = format!("{v:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn sent(all: &Collectives, devices: u64) -> Vec<String> {
    if all.is_empty() {
        return vec!["nothing is sent".into()];
    }
    let tell = |c: &crate::partition::Collective| {
        let who = if c.total_bytes == c.bytes * devices { "each" } else { "the busiest" };
        let times = if c.times > 1 { format!(", {} times", c.times) } else { String::new() };
        format!("{} over {}: {who} device receives {} bytes{times}", c.kind, c.axes, c.bytes)
    };
    all.iter().map(tell).collect()
}
