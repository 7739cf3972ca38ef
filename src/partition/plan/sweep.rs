//! Sweeps: plans for several meshes, shardings or machines, ranked by time.

use super::Plan;
use crate::core::util::text::{scaled, table};
use crate::core::{Error, Result, util::small_sort};
use std::fmt;

/// The plans of a program for a list of choices, made by [`sweep`].
///
/// The fastest choice that fits into memory comes first, then the choices that do not fit, then
/// those for which planning is an error.
///
/// It prints as a table with a row for each choice.
#[derive(Clone, Debug)]
pub struct Sweep<C> {
    rows: Vec<(C, Result<Plan>)>,
}

/// Plans a program for each of several choices, such as meshes, shardings or machines.
///
/// A choice for which `plan` returns an error gets a row too.
///
/// ```
/// use atmesh::plan::{Link, Machine, mesh_shapes, sweep};
/// use atmesh::prelude::*;
///
/// // a product on 64 devices, with every mesh shape of two axes
/// let all = sweep(mesh_shapes(64), |[data, model]| {
///     let mesh = Mesh::without_devices([("data", *data), ("model", *model)])?;
///     let x = BF16.array_type([1 << 16, 8192]).on(&mesh, p!["data", _]);
///     let w = BF16.array_type([8192, 8192]).on(&mesh, p![_, "model"]);
///     let y = jit(|x: &Array, w: &Array| x.dot(w));
///     y.lower((x, w))?.plan(&Machine::h100().links(Link::NVLINK_4))
/// });
/// let ([data, model], plan) = all.best().expect("a mesh that fits");
/// assert_eq!(data * model, 64);
/// assert!(all.rows().all(|(_, other)| other.is_ok_and(|p| p.seconds() >= plan.seconds())));
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn sweep<C>(choices: impl IntoIterator<Item = C>, mut plan: impl FnMut(&C) -> Result<Plan>) -> Sweep<C> {
    let mut rows: Vec<(C, Result<Plan>)> =
        choices.into_iter().map(|c| (plan(&c), c)).map(|(p, c)| (c, p)).collect();
    // compare as float32, so that choices whose times differ only by rounding keep their order
    let rank = |p: &Result<Plan>| match p {
        Ok(p) if p.fits() == Some(false) => (1, p.seconds() as f32),
        Ok(p) => (0, p.seconds() as f32),
        Err(_) => (2, 0.0),
    };
    small_sort::sort_by(&mut rows, |a, b| {
        let (a, b) = (rank(&a.1), rank(&b.1));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    Sweep { rows }
}

/// Returns all shapes of meshes with `N` axes and this number of devices.
///
/// The last axis varies fastest. There are no shapes for 0 devices.
///
/// ```
/// assert_eq!(atmesh::plan::mesh_shapes(6), [[1, 6], [2, 3], [3, 2], [6, 1]]);
/// ```
#[doc(alias = "make_mesh")]
pub fn mesh_shapes<const N: usize>(devices: usize) -> Vec<[usize; N]> {
    fn fill<const N: usize>(grid: &mut [usize; N], at: usize, left: usize, all: &mut Vec<[usize; N]>) {
        if at + 1 >= N {
            if let Some(last) = grid.last_mut() {
                *last = left;
            }
            if N > 0 || left == 1 {
                all.push(*grid);
            }
            return;
        }
        for n in (1..=left).filter(|n| left.is_multiple_of(*n)) {
            grid[at] = n;
            fill(grid, at + 1, left / n, all);
        }
    }
    let mut all = Vec::new();
    if devices > 0 {
        fill(&mut [1; N], 0, devices, &mut all);
    }
    all
}

impl<C> Sweep<C> {
    /// Returns each choice with its plan or error; the best choice comes first.
    pub fn rows(&self) -> impl Iterator<Item = (&C, Result<&Plan, &Error>)> {
        self.rows.iter().map(|(c, p)| (c, p.as_ref()))
    }
    /// Returns the fastest choice that fits into memory; `None` if there is none.
    ///
    /// A plan for a machine that does not state its memory counts as one that fits.
    pub fn best(&self) -> Option<(&C, &Plan)> {
        match self.rows.first() {
            Some((c, Ok(p))) if p.fits() != Some(false) => Some((c, p)),
            _ => None,
        }
    }
}

impl<C: fmt::Debug> fmt::Display for Sweep<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["", "one call", "not hidden", "utilisation", "memory", "bound by"].map(String::from);
        let row = |(choice, plan): &(C, Result<Plan>)| match plan {
            Ok(p) => {
                let fits = if p.fits() == Some(false) { ", does not fit" } else { "" };
                [
                    format!("{choice:?}"),
                    scaled(p.seconds(), "s"),
                    scaled(p.exposed_seconds(), "s"),
                    format!("{:.1} %", 100.0 * p.utilisation()),
                    scaled(p.peak_bytes() as f64, "B"),
                    p.bound().map_or("nothing", |b| b.0.name()).to_string() + fits,
                ]
            }
            Err(e) => {
                let why = e.to_string().lines().next().unwrap_or_default().to_string();
                let none = || "–".to_string();
                [format!("{choice:?}"), none(), none(), none(), none(), why]
            }
        };
        let rows: Vec<[String; 6]> = std::iter::once(head).chain(self.rows.iter().map(row)).collect();
        f.write_str(&table(&rows, |k| (1..5).contains(&k)))
    }
}
