//! Data-movement diagrams of functions: running the function shows where each element comes from.

use super::Jit;
use crate::api::array::Array;
use crate::api::display::{DeviceRow, DiagramElement, DiagramStage, MovementDiagram};
use crate::api::tree::{Tree, collect, type_of};
use crate::core::{DType, Error, ErrorKind, Fault, Result, util::small_sort};
use crate::partition::Collectives;
use std::panic::Location;

/// The maximum number of elements of the argument: the program runs once for each.
const MAX_ELEMENTS: usize = 256;

impl<O: Tree> Jit<'_, Array, O> {
    /// Draws the data that a function of one array moves between devices.
    ///
    /// The diagram has the argument, then each result as a stage; every element is labelled with
    /// the devices that it came from.
    ///
    /// The function runs once for each element of `x`, with 1 at that element and 0 elsewhere;
    /// wherever a result is not 0, that element has arrived. The function must therefore be linear:
    /// it may only move and add elements, with any weights. `x` has at most 256 elements.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([1, 2, 3, 4]).put(&mesh, p!["X"]);
    /// let sum = jit(shard_map(&mesh, p!["X"], p![], |x: &Array| x.psum("X")));
    /// assert_eq!(sum.data_movement(&x)?.to_string(), "\
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
    /// Returns an error if a result is not linear in `x`, if `x` has too many elements or is
    /// unreduced, or if the function returns an error.
    #[track_caller]
    pub fn data_movement(&self, x: &Array) -> Result<MovementDiagram> {
        let location = Location::caller();
        let error = |why: String, help: &str| {
            Error::new(
                Fault::new(ErrorKind::Unsupported, why).help(help),
                "data_movement",
                Vec::new(),
                Some(location),
            )
        };
        let (ty, n) = (x.ty()?, x.size()?);
        if n > MAX_ELEMENTS {
            let help = "draw a smaller array: the pattern of movement is the same";
            return Err(error(
                format!("an array of {n} elements is too large for a data-movement diagram"),
                help,
            ));
        }
        let sharding = x.sharding()?;
        if sharding.as_ref().is_some_and(|s| !s.spec.unreduced_axes().is_empty()) {
            let help = "start with a sharded array: `x.sum_to(0, p![…; U: …])` is a stage of the diagram";
            return Err(error("the argument of a diagram is unreduced".into(), help));
        }
        let placed = |one: Array| match &sharding {
            Some(s) => one.put(&s.mesh, s.spec),
            None => one,
        };
        let basis = |on: Array| placed(on.astype(ty.dtype).reshape(ty.shape.clone()));
        let first = collect(&self.call(x)?);
        let none = self.result_blocks(&basis(Array::zeros(DType::I32.array_type([n]))))?;
        let values: Vec<Vec<Vec<f64>>> = first.iter().map(block_values).collect::<Result<_>>()?;
        let mut found: Vec<Vec<Vec<Vec<usize>>>> =
            values.iter().map(|v| v.iter().map(|b| vec![Vec::new(); b.len()]).collect()).collect();
        let mut added = none;
        let given = x.astype(DType::F64).to_vec::<f64>()?;
        for (j, value) in given.iter().enumerate() {
            let one = Array::arange(0..n as i32).eq(j as i32);
            let seen = self.result_blocks(&basis(one))?;
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
            let help = "draw the part that communicates: gathers, sums or sends";
            return Err(error(
                "the function does more than move and add, so its results come from no one element".into(),
                help,
            ));
        }
        // the origin of each element: the reading device itself if it holds the element, otherwise
        // the first holder
        let shards = x.shards()?;
        let mut holders: Vec<Vec<usize>> = vec![Vec::new(); n];
        for (d, ours) in element_indices(x)?.iter().enumerate() {
            ours.iter().for_each(|j| holders[*j].push(shards[d].device.id()));
        }
        let origin = |j: usize, device: usize| {
            if holders[j].contains(&device) { device } else { holders[j].first().copied().unwrap_or(device) }
        };
        let own: Vec<Vec<Vec<usize>>> =
            element_indices(x)?.iter().map(|e| e.iter().map(|j| vec![*j]).collect()).collect();
        let mut stages = vec![stage(x, &own, &origin)?];
        for (value, found) in first.iter().zip(&found) {
            stages.push(stage(value, found, &origin)?);
        }
        Ok(MovementDiagram {
            stages,
            sent: received_bytes(self.lower(x)?.collectives(), shards.len() as u64),
        })
    }
    /// Returns the values that each device holds of each result.
    fn result_blocks(&self, x: &Array) -> Result<Vec<Vec<Vec<f64>>>> {
        collect(&self.call(x)?).iter().map(block_values).collect()
    }
}

/// Returns the values of each device's block.
fn block_values(x: &Array) -> Result<Vec<Vec<f64>>> {
    x.shards()?.iter().map(|s| s.data.astype(DType::F64).to_vec::<f64>()).collect()
}

/// Returns the row-major indices of each device's elements.
fn element_indices(x: &Array) -> Result<Vec<Vec<usize>>> {
    let shape = x.ty()?.shape;
    let of = |s: &crate::api::array::Shard| {
        s.index.iter().zip(shape.iter()).fold(vec![0], |all: Vec<usize>, (r, n)| {
            all.iter().flat_map(|at| r.clone().map(move |i| at * n + i)).collect()
        })
    };
    Ok(x.shards()?.iter().map(of).collect())
}

fn stage(
    x: &Array,
    found: &[Vec<Vec<usize>>],
    origin: &impl Fn(usize, usize) -> usize,
) -> Result<DiagramStage> {
    let partial = x.sharding()?.is_some_and(|s| !s.spec.unreduced_axes().is_empty());
    let rows = x.shards()?.into_iter().zip(found).map(|(shard, found)| {
        let device = shard.device.id();
        let texts = shard.data.astype(DType::F64).to_vec::<f64>()?;
        let cells = texts.iter().zip(found).map(|(v, found)| {
            let mut from: Vec<usize> = found.iter().map(|j| origin(*j, device)).collect();
            small_sort::sort(&mut from);
            from.dedup();
            DiagramElement { text: format_short(*v), from }
        });
        let width = shard.index.last().map_or(1, |r| r.len());
        Ok(DeviceRow { device, name: shard.device.to_string(), width, cells: cells.collect() })
    });
    Ok(DiagramStage { caption: type_of(x).to_string(), partial, rows: rows.collect::<Result<_>>()? })
}

/// Formats a value with at most two decimals.
fn format_short(v: f64) -> String {
    let text = format!("{v:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn received_bytes(all: &Collectives, devices: u64) -> Vec<String> {
    if all.is_empty() {
        return vec!["nothing is sent".into()];
    }
    let tell = |c: &crate::partition::Collective| {
        let who = if c.total_bytes == c.bytes_per_device * devices { "each" } else { "the busiest" };
        let times = if c.count > 1 { format!(", {} times", c.count) } else { String::new() };
        format!("{} over {}: {who} device receives {} bytes{times}", c.kind, c.axes, c.bytes_per_device)
    };
    all.iter().map(tell).collect()
}
