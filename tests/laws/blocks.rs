//! Random per-device code: lines over blocks, each a call of an array method or a collective.

use crate::Rng;
use crate::programs::spec;
use atmesh::prelude::*;
use atmesh::{Axes, AxisGroups, Error, RaggedRows};

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// The operation of a line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Do {
            $($kind),*
        }
        use Do::*;
        const ALL: &[Do] = &[$($kind),*];
    };
}

kinds! {
    Add Mul Tanh Sum Transpose Slice Roll Concat Dot Index Psum Pmax Gather GatherStacked Scatter Exchange
    PsumGroups PmaxGroups GatherGroups ScatterGroups ExchangeGroups Broadcast Shuffle Rows
    Ring Shift Pairs Around Edges Both Doubled JoinedRings PartOfRing Fori Scan While Cond Grad Jit Inner
}

/// A line: its operation, the values it reads, and a random parameter.
#[derive(Clone, Copy, Debug)]
struct Line {
    what: Do,
    a: usize,
    b: usize,
    k: usize,
}

/// Per-device code on a mesh, with the shapes and specs of its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pub(crate) mesh: Mesh,
    pub(crate) checked: bool,
    shapes: Vec<Vec<usize>>,
    specs: Vec<Spec>,
    lines: Vec<Line>,
}

impl Blocks {
    /// Returns random code that is accepted.
    pub(crate) fn new(rng: &mut Rng) -> Blocks {
        let meshes: [&[(&str, usize)]; 7] = [
            &[("x", 2)],
            &[("x", 4)],
            &[("x", 8)],
            &[("x", 2), ("y", 2)],
            &[("x", 2), ("y", 4)],
            &[("x", 4), ("y", 2)],
            &[("x", 3), ("y", 2)],
        ];
        let mesh = Mesh::new(rng.choose(&meshes).iter().copied()).expect("a mesh of few devices");
        let shapes: [&[usize]; 4] = [&[24, 8], &[24, 24], &[48], &[8, 48]];
        let shape = rng.choose(&shapes).to_vec();
        let shapes: Vec<Vec<usize>> =
            (0..2).map(|_| if rng.once_in(4) { vec![24, 24] } else { shape.clone() }).collect();
        let specs = shapes.iter().map(|s| spec(&mesh, s, rng.below(1 << 16), mesh.axis_names())).collect();
        let checked = !rng.once_in(4);
        let mut code = Blocks { mesh, checked, shapes, specs, lines: Vec::new() };
        let want = 2 + rng.below(6);
        for _ in 0..60 {
            if code.lines.len() == want {
                break;
            }
            let n = 2 + code.lines.len();
            // recent values are read more often, so that exchanges follow one another
            let mut value = || if rng.once_in(2) { n - 1 } else { rng.below(n) };
            let (a, b) = (value(), value());
            code.lines.push(Line { what: *rng.choose(ALL), a, b, k: rng.below(1024) });
            let small = |t: &ArrayType| t.shape.iter().product::<usize>() <= 4096;
            let accepted = code.region().trace(&code.arguments());
            let accepted = accepted.is_ok_and(|t| t.program().output_types().iter().all(small));
            if !accepted {
                code.lines.pop();
            }
        }
        code
    }

    /// Returns the arguments.
    pub(crate) fn arguments(&self) -> Vec<Array> {
        let one = |k: usize| Key::new(k as u64).normal(self.shapes[k].clone()).put(&self.mesh, self.specs[k]);
        (0..self.shapes.len()).map(one).collect()
    }

    /// Returns the code as a function of whole arrays. Its results are the blocks of all devices.
    pub(crate) fn region(&self) -> ShardMap<'_, Vec<Array>, Vec<Array>> {
        let all = Axes::from(self.mesh.axis_names());
        let out = Spec::from_dims(vec![all]);
        let f = shard_map(&self.mesh, self.specs.clone(), out, |xs: &Vec<Array>| self.body(xs));
        if self.checked { f } else { f.unchecked() }
    }

    fn body(&self, xs: &[Array]) -> Result<Vec<Array>> {
        let mut values = xs.to_vec();
        for line in &self.lines {
            values.push(self.apply(line, &values)?);
        }
        let read = |v: usize| self.lines.iter().any(|l| l.a == v || l.b == v);
        let last = values.iter().enumerate().filter(|(v, _)| !read(*v)).map(|x| x.1);
        let out: Vec<Array> =
            last.map(|y| self.varying(y).map(|y| y.expand_dims(0))).collect::<Result<_>>()?;
        Ok(if out.is_empty() { vec![self.varying(&values[0])?.expand_dims(0)] } else { out })
    }

    /// Returns the value as one that varies over all axes.
    fn varying(&self, y: &Array) -> Result<Array> {
        let ty = y.ty()?;
        let missing: Vec<Axis> =
            self.mesh.axis_names().iter().copied().filter(|a| !ty.varying.contains(*a)).collect();
        Ok(if self.checked && !missing.is_empty() { y.pvary(&missing[..]) } else { y.clone() })
    }

    /// Returns one axis, or all of them.
    fn axes(&self, k: usize) -> Axes {
        let names = self.mesh.axis_names();
        if k.is_multiple_of(5) { names.into() } else { Axes::from(names[k / 5 % names.len()]) }
    }

    /// Returns groups of the devices along some axes: neighbours, devices at equal distances, or
    /// devices in any order. The groups have one size, or else the first device is alone.
    fn groups(&self, axes: Axes, devices: usize, k: usize, one_size: bool) -> AxisGroups {
        let sizes: Vec<usize> = (1..=devices).filter(|n| devices.is_multiple_of(*n)).collect();
        let size = sizes[k % sizes.len()];
        let count = devices / size;
        let device = |g: usize, i: usize| match k / 4 % 3 {
            0 => g * size + i,
            1 => i * count + g,
            _ => (5 * (g * size + i) + k / 12) % devices,
        };
        if !one_size && k.is_multiple_of(3) {
            return AxisGroups::new(axes, [(0..1).collect::<Vec<_>>(), (1..devices).rev().collect()]);
        }
        AxisGroups::new(axes, (0..count).map(|g| (0..size).map(|i| device(g, i)).collect::<Vec<_>>()))
    }

    /// Sends some rows of each device to the next ones.
    fn rows(x: &Array, axes: Axes, devices: usize, k: usize) -> Array {
        let (n, of) = (devices as i32, |f: &dyn Fn(i32) -> i32| {
            Array::from((0..devices as i32).map(f).collect::<Vec<_>>())
        });
        let me = axis_index(axes.clone());
        let rows = RaggedRows {
            input_offsets: (of(&|t| 3 * t) + &me) % 7,
            send_sizes: (of(&|t| t) + &me) % 3,
            output_offsets: of(&|_| 0) + &me * 2,
            recv_sizes: (of(&|s| s) + &me) % 3 + (k % 2) as i32 * (n - 1),
        };
        x.ragged_all_to_all(axes, &(x * 0.5), &rows)
    }

    fn apply(&self, line: &Line, values: &[Array]) -> Result<Array> {
        let (x, other, k) = (&values[line.a], &values[line.b], line.k);
        let shape = x.shape()?.to_vec();
        let d = k % shape.len().max(1);
        let (dim, axes) = (d as i32, self.axes(k / 3));
        let first = self.mesh.axis_names()[0];
        let last = *self.mesh.axis_names().last().expect("a mesh has axes");
        let devices: usize = axes.iter().map(|a| self.mesh.axis_size(a).unwrap_or(1)).product();
        let moves = [1, -1, 2, 3][k % 4];
        let ring = |x: &Array| x.ppermute(axes.clone(), Permutation::ring(moves));
        Ok(match line.what {
            Add => x + other,
            Mul => x * other,
            Tanh => x.tanh(),
            Sum => x.sum(dim),
            Transpose => x.t(),
            Slice => {
                let n = shape.get(d).copied().unwrap_or(0);
                let parts = x.split([n / 2, n - n / 2], dim);
                parts[(k % 2).min(parts.len() - 1)].clone()
            }
            Roll => x.roll(moves, dim),
            Concat => concat([x, other], dim),
            Dot => x.dot(other.t()) * 0.1,
            Index => x * axis_index(axes).astype(F32),
            Psum => x.psum(axes),
            Pmax => x.pmax(axes),
            Gather => x.all_gather(axes, CollectiveDim::tiled(dim)),
            GatherStacked => x.all_gather(axes, CollectiveDim::stacked(dim)),
            Scatter => x.psum_scatter(axes, CollectiveDim::tiled(dim)),
            Exchange => x.all_to_all(axes, AllToAll::split(dim).concat((k / 7 % shape.len().max(1)) as i32)),
            PsumGroups => x.psum(self.groups(axes, devices, k, false)),
            PmaxGroups => x.pmax(self.groups(axes, devices, k, false)),
            GatherGroups => x.all_gather(self.groups(axes, devices, k, true), CollectiveDim::tiled(dim)),
            ScatterGroups => x.psum_scatter(self.groups(axes, devices, k, true), CollectiveDim::tiled(dim)),
            ExchangeGroups => {
                let to = (k / 7 % shape.len().max(1)) as i32;
                x.all_to_all(self.groups(axes, devices, k, true), AllToAll::split(dim).concat(to))
            }
            Broadcast => x.pbroadcast(axes, k / 2 % devices),
            Shuffle => x.pshuffle(axes, (0..devices).map(|i| (i + k) % devices).rev().collect::<Vec<_>>()),
            Rows => Blocks::rows(x, axes, devices, k),
            Ring => ring(x),
            Shift => x.ppermute(axes, Permutation::shift(moves)),
            Pairs => {
                let n = 1 + k / 4 % devices;
                x.ppermute(
                    axes,
                    (0..n)
                        .map(|i| (i, (i * moves.unsigned_abs() as usize + k) % devices))
                        .collect::<Vec<_>>(),
                )
            }
            Around => {
                (0..3)
                    .fold((x.clone(), x.clone()), |(b, sum), _| {
                        let b = ring(&b);
                        (b.clone(), sum + b)
                    })
                    .1
            }
            Edges => {
                let before = x.slice(ix![-1..]).ppermute(axes.clone(), Permutation::shift(1));
                let after = x.slice(ix![..1]).ppermute(axes, Permutation::shift(-1));
                let wide = concat([&before, x, &after], 0);
                wide.slice(ix![..-2]) + wide.slice(ix![2..]) - x
            }
            Both => x.ppermute(first, Permutation::ring(1)) + x.ppermute(last, Permutation::ring(-1)),
            Doubled => {
                let over_first = x.all_gather(first, CollectiveDim::tiled(dim)).sum(Dims::keep(dim));
                x + over_first + x.all_gather(last, CollectiveDim::tiled(dim)).max(Dims::keep(dim))
            }
            JoinedRings => concat([ring(x), x.ppermute(first, Permutation::ring(1)), x.clone()], dim),
            PartOfRing => {
                let n = shape.get(d).copied().unwrap_or(0);
                ring(x).split([1, n.saturating_sub(1)], dim)[0].clone() * 2.0
            }
            Fori => fori_loop(0..(k % 4) as i32, self.varying(x)?, |_, c| &c * 0.5 + ring(&c)),
            Scan => {
                let zero = self.varying(&x.sum(0))? * 0.0;
                scan(&zero, self.varying(x)?, |c: Array, row: Array| {
                    let next = ring(&c) * 0.5 + &row;
                    (next.clone(), next)
                })
                .1
            }
            While => {
                let n = Array::from((k % 4) as i32);
                while_loop((n, self.varying(x)?), |(n, _)| n.gt(0), |(n, y)| (n - 1, ring(&y) * 0.5)).1
            }
            Cond => {
                let y = self.varying(x)?;
                cond(Array::from(k as i32).gt(500), || ring(&y), || &y * 2.0)
            }
            Grad => grad(x, |x| (ring(&x) * &x).tanh().sum(..)),
            Jit => jit(|x: &Array| ring(&x.tanh())).call(x)?,
            Inner => vmap(x, |row| &row + ring(&row)),
        })
    }
}

/// Returns the gradient of a sum over the results, as a function of whole arrays.
pub(crate) fn slope(code: &Blocks, xs: &[Array]) -> Result<Vec<Array>> {
    let region = code.region();
    let loss = |xs: Vec<Array>| {
        let ys = region.call(&xs)?;
        Ok::<_, Error>(ys.iter().fold(Array::from(0f32), |sum, y| sum + y.square().sum(..)))
    };
    Ok(grad(xs.to_vec(), loss))
}
