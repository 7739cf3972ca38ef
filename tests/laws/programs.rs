//! Random programs: lines over a few inputs, each a call of an array method, with or without a
//! mesh.

use crate::Rng;
use atmesh::mesh::AxisType;
use atmesh::prelude::*;
use atmesh::{Axes, ErrorKind, ScanOptions, WhileOptions, scan_with, while_loop_with};

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// The operation of a line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Do {
            $($kind),*
        }
        use Do::*;
        const ALL: &[Do] = &[$($kind),*];
    };
}

kinds! {
    Add Sub Mul Maximum Tanh Sin Neg Scale Sum Mean Max Transpose Ravel Split Matmul Einsum Concat Stack Slice Unstack Pad Roll Flip
    Broadcast Select Softmax Tril At Take TakeAlong Put PutExtreme Segments Cond Switch Fori Scan While Vmap Grad Jit Checkpoint Reshard PrintInBranch PrintInLoop
    EmptyBranches Print Stencil Fourier CustomVjp CustomJvp BoundedWhile RaggedDot
}

impl Do {
    /// Returns true if the line reads two values.
    fn reads_two(self) -> bool {
        matches!(self, Add | Sub | Mul | Maximum | Matmul | Einsum | Concat | Stack | Cond | Fori)
    }
    /// Returns true if the line prints; printing lines keep their order.
    pub(crate) fn prints(self) -> bool {
        matches!(self, PrintInBranch | PrintInLoop | EmptyBranches | Print)
    }
    /// Returns true if the operation is defined for values of these shapes.
    fn takes(self, a: &[usize], b: &[usize], k: usize) -> bool {
        let (rank, n) = (a.len(), a.iter().product::<usize>());
        let d = k % rank.max(1);
        match self {
            Add | Sub | Mul | Maximum | Cond | Fori => a == b,
            Matmul => rank == 2 && b.len() == 2 && a[1] == b[0],
            Einsum => rank == 2 && a == b,
            RaggedDot => rank == 2 && n < 600,
            Concat => rank >= 1 && a == b && n < 600,
            Stack => a == b && rank < 4 && n < 600,
            Transpose | Ravel | Tril | Fourier => rank >= 2,
            Split => (1..4).contains(&rank) && a[d].is_multiple_of(factor(k)),
            Slice | Unstack => rank >= 1 && a[d] >= 2,
            Pad | Stencil => rank >= 1 && n < 600,
            Broadcast => rank < 4 && n < 300,
            Sum | Mean | Max | Roll | Flip | Softmax | Scan | Vmap | At | Switch | Grad => rank >= 1,
            Take | TakeAlong | Put | PutExtreme | Segments => rank >= 1 && n < 600,
            _ => true,
        }
    }
}

fn factor(k: usize) -> usize {
    [2, 4, 8][k / 8 % 3]
}

/// One line: its operation, the values it reads, and a random parameter.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) what: Do,
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) k: usize,
    /// True if operands are replicated first, because explicit types reject their shardings.
    pub(crate) replicated: bool,
}

impl Line {
    /// Returns the values that the line reads.
    pub(crate) fn reads(&self) -> Vec<usize> {
        if self.what.reads_two() { vec![self.a, self.b] } else { vec![self.a] }
    }
}

/// A program, with a mesh and the shardings of its inputs.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) inputs: Vec<Vec<usize>>,
    pub(crate) lines: Vec<Line>,
    /// The sizes of the mesh's axes.
    pub(crate) sizes: Vec<usize>,
    /// The rotation of the device order; for odd values it is also reversed.
    turned: usize,
    placed: u64,
}

/// The way in which the lines are written down.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written<'a> {
    /// The order of the lines; `None` for the program's own.
    pub(crate) order: Option<&'a [usize]>,
    /// True to write `b + a` instead of `a + b`.
    pub(crate) swapped: bool,
}

impl Program {
    pub(crate) fn new(rng: &mut Rng) -> Program {
        let meshes: [&[usize]; 10] =
            [&[2], &[4], &[8], &[2, 2], &[2, 4], &[4, 2], &[2, 2, 2], &[3, 2], &[1, 4, 2], &[2, 1]];
        let shapes: [&[usize]; 9] =
            [&[8, 8], &[8, 16], &[16, 8], &[24, 8], &[8], &[16], &[4, 8, 2], &[12, 12], &[6, 8]];
        let sizes = rng.choose(&meshes).to_vec();
        let mut inputs: Vec<Vec<usize>> =
            (0..2 + rng.below(2)).map(|_| rng.choose(&shapes).to_vec()).collect();
        if rng.once_in(2) {
            inputs[1] = inputs[0].clone();
        }
        let want = 3 + rng.below(9);
        let (turned, placed) = (rng.below(8), rng.number());
        let mut p = Program { inputs, lines: Vec::new(), sizes, turned, placed };
        let mut values = p.numbers(0);
        for _ in 0..400 {
            if p.lines.len() == want {
                break;
            }
            let (a, b, k) = (rng.below(values.len()), rng.below(values.len()), rng.below(1024));
            let line = Line { what: *rng.choose(ALL), a, b, k, replicated: false };
            let shape = |v: usize| values[v].shape().expect("lines that are kept have results");
            if !line.what.takes(&shape(a), &shape(b), k) {
                continue;
            }
            // A print has one result: its operand.
            let Ok(y) = shape_of(&line, &values) else { continue };
            if y.contains(&0) || y.iter().product::<usize>() > 2000 {
                continue;
            }
            values.push(Array::zeros(F32.array_type(y)));
            p.lines.push(line);
        }
        p
    }

    /// Returns data for the inputs.
    pub(crate) fn numbers(&self, salt: usize) -> Vec<Array> {
        let each = self.inputs.iter().enumerate();
        each.map(|(k, shape)| numbers(shape, salt + k)).collect()
    }

    /// Returns the values that no line reads.
    pub(crate) fn results(&self) -> Vec<usize> {
        let n = self.inputs.len();
        let read: Vec<usize> = self.lines.iter().flat_map(Line::reads).collect();
        let mut last: Vec<usize> = (n..n + self.lines.len()).filter(|v| !read.contains(v)).collect();
        if last.is_empty() {
            last.push(0);
        }
        last
    }

    /// Runs the lines, on arrays or tracers.
    pub(crate) fn run(&self, xs: &[Array], mesh: Option<&Mesh>, written: Written) -> Result<Vec<Array>> {
        let values = self.values(xs, mesh, written)?;
        Ok(self.results().into_iter().filter_map(|v| values[v].clone()).collect())
    }

    /// Returns the inputs and what each line computes.
    pub(crate) fn values(
        &self,
        xs: &[Array],
        mesh: Option<&Mesh>,
        written: Written,
    ) -> Result<Vec<Option<Array>>> {
        let n = self.inputs.len();
        let mut values: Vec<Option<Array>> = xs.iter().cloned().map(Some).collect();
        values.resize(n + self.lines.len(), None);
        let own: Vec<usize> = (0..self.lines.len()).collect();
        for k in written.order.unwrap_or(&own) {
            values[n + k] = Some(self.lines[*k].apply(&values, mesh, written.swapped)?);
        }
        Ok(values)
    }

    /// Returns a random order of the lines in which values are defined before they are read;
    /// printing lines keep their order.
    pub(crate) fn reordered(&self, rng: &mut Rng) -> Vec<usize> {
        let n = self.inputs.len();
        let mut order: Vec<usize> = Vec::new();
        while order.len() < self.lines.len() {
            let ready = |k: &usize| {
                let l = &self.lines[*k];
                let made = |v: usize| v < n || order.contains(&(v - n));
                let printed = |j: usize| !self.lines[j].what.prints() || order.contains(&j);
                !order.contains(k)
                    && l.reads().into_iter().all(made)
                    && (!l.what.prints() || (0..*k).all(printed))
            };
            let ready: Vec<usize> = (0..self.lines.len()).filter(ready).collect();
            order.push(*rng.choose(&ready));
        }
        order
    }

    /// Returns a mesh whose axes have these names; `auto` says which of them are auto.
    pub(crate) fn mesh(&self, names: [&'static str; 3], auto: impl Fn(usize) -> bool) -> Mesh {
        let mut ids = atmesh::devices(self.sizes.iter().product()).expect("a machine has devices");
        let n = ids.len();
        ids.rotate_left(self.turned / 2 % n);
        if self.turned % 2 == 1 {
            ids.reverse();
        }
        let mesh = Mesh::of_devices(&ids, names.into_iter().zip(self.sizes.iter().copied()));
        let auto: Vec<Axis> = (0..self.sizes.len()).filter(|k| auto(*k)).map(|k| names[k].into()).collect();
        mesh.and_then(|m| m.with_auto(auto)).expect("the axes are the mesh's")
    }

    /// Places the inputs on a mesh.
    pub(crate) fn placed(&self, xs: &[Array], mesh: &Mesh) -> Vec<Array> {
        let spec = |k: usize| {
            spec(mesh, &self.inputs[k], (self.placed >> (7 * k)) as usize & 0xffff, mesh.axis_names())
        };
        xs.iter().enumerate().map(|(k, x)| x.put(mesh, spec(k))).collect()
    }

    /// Reshards operands of lines that explicit types reject; returns all values, or the remaining
    /// error.
    pub(crate) fn accept(&mut self, xs: &[Array], mesh: &Mesh) -> Result<Vec<Array>> {
        let mut values: Vec<Option<Array>> = xs.iter().cloned().map(Some).collect();
        for line in &mut self.lines {
            line.replicated = false;
            let mut y = line.apply(&values, Some(mesh), false).and_then(|y| y.clone().ty().map(|_| y));
            y = y.map_err(crate::error_checks::well);
            if matches!(&y, Err(e) if matches!(e.kind(), ErrorKind::Sharding | ErrorKind::Mesh)) {
                line.replicated = true;
                y = line.apply(&values, Some(mesh), false).and_then(|y| y.clone().ty().map(|_| y));
            }
            values.push(Some(y?));
        }
        Ok(self.results().into_iter().filter_map(|v| values[v].clone()).collect())
    }
}

/// Returns the shape of a line's result, without computing it.
fn shape_of(line: &Line, values: &[Array]) -> Result<Vec<usize>> {
    let of = |xs: &Vec<Array>| {
        let values: Vec<Option<Array>> = xs.iter().cloned().map(Some).collect();
        line.apply(&values, None, false)
    };
    let types = jit(of).lower(&values.to_vec())?;
    Ok(types.program().output_types()[0].shape.to_vec())
}

/// Returns distinct elements between −1 and 1.
fn numbers(shape: &[usize], salt: usize) -> Array {
    let number = |i: usize| {
        let mut z = (i as u64 + 1 + 1000 * salt as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    Array::from((0..shape.iter().product()).map(number).collect::<Vec<f32>>()).reshape(shape)
}

/// Returns `count` indices below n, some of them repeated.
fn places(k: usize, count: usize, n: usize) -> Array {
    Array::from((0..count).map(|i| ((i * 7 + k * 13 + i * i) % n) as i32).collect::<Vec<i32>>())
}

/// Returns a spec that assigns each axis to a dimension that it divides, or to none, as the number
/// encodes.
pub(crate) fn spec(mesh: &Mesh, shape: &[usize], mut number: usize, axes: &[Axis]) -> Spec {
    let mut dims = vec![Axes::none(); shape.len()];
    let mut left = shape.to_vec();
    for axis in axes {
        let d = number % (shape.len() + 1);
        number = number / (shape.len() + 1) + 7;
        let n = mesh.axis_size(*axis).expect("it is the mesh's");
        if d < shape.len() && left[d].is_multiple_of(n) {
            left[d] /= n;
            dims[d].push(*axis);
        }
    }
    Spec::from_dims(dims)
}

impl Line {
    fn apply(&self, values: &[Option<Array>], mesh: Option<&Mesh>, swapped: bool) -> Result<Array> {
        let get = |v: usize| -> Array {
            let x = values[v].clone().expect("lines read what is made");
            if self.replicated && mesh.is_some() { x.reshard(p![]) } else { x }
        };
        let (x, k) = (get(self.a), self.k);
        let shape = x.shape()?.to_vec();
        let rank = shape.len();
        let d = k % rank.max(1);
        let dim = d as i32;
        let other = || get(self.b);
        Ok(match self.what {
            Add if swapped => other() + &x,
            Add => &x + other(),
            Sub => &x - other(),
            Mul if swapped => other() * &x,
            Mul => &x * other(),
            Maximum if swapped => other().maximum(&x),
            Maximum => x.maximum(other()),
            Tanh => x.tanh(),
            Sin => x.sin(),
            Neg => -x,
            Scale => x * (0.25 + (k % 7) as f32 * 0.25),
            Sum => x.sum(dim) * (1.0 / shape[d] as f32),
            Mean => x.mean(Dims::keep(dim)),
            Max => x.max(dim),
            Transpose => x.t(),
            Ravel => x.ravel(),
            Split => {
                let mut sizes = shape;
                sizes[d] /= factor(k);
                sizes.insert(d + k / 64 % 2, factor(k));
                x.reshape(sizes)
            }
            Matmul => x.matmul(other()) * (1.0 / shape[rank - 1] as f32),
            Einsum => einsum("ij,ij->j", [&x, &other()]) * (1.0 / shape[0] as f32),
            RaggedDot => {
                let (m, w) = (shape[0], x.t().tanh());
                let first = k / 8 % (m + 1);
                let sizes = Array::from([first as i32, 0, (m - first).div_ceil(2) as i32]);
                x.ragged_dot(stack([&w * 0.5, w.sin(), w], 0), sizes) * (1.0 / shape[1] as f32)
            }
            Concat => concat([&x, &other()], dim),
            Stack => stack([&x, &other()], (k % (rank + 1)) as i32),
            Slice => {
                let n = shape[d];
                let parts = x.split([n / 2, n - n / 2], dim);
                parts[(k / 8 % 2).min(parts.len() - 1)].clone()
            }
            Unstack => {
                let parts = x.unstack(dim);
                parts[(k / 8 % shape[d]).min(parts.len() - 1)].clone()
            }
            Pad => {
                let own = ((k / 8 % 5) as i64, (k / 40 % 5) as i64, k / 200 % 2);
                x.pad(0, (0..rank).map(|j| if j == d { own } else { (0, 0, 0) }))
            }
            // A weighted sum of neighbours, whose weights are elements of x.
            Stencil => {
                let weights = x.ravel();
                let shifted = |by: i64, d: usize| {
                    x.pad(0, (0..rank).map(|e| if e == d { (by, -by, 0) } else { (0, 0, 0) }))
                };
                (0..2 + k % 8).fold(x.zeros_like(), |sum, t| {
                    let at = (t as i64 + k as i64) % shape.iter().product::<usize>() as i64;
                    sum + shifted(t as i64 % 5 - 2, (d + t / 5) % rank) * weights.slice(ix![at]) * 0.5
                })
            }
            Roll => x.roll((k / 8) as i64 % 11 - 5, dim),
            Fourier => match k / 8 % 3 {
                0 => x.astype(C64).fftn(2).real() * 0.125,
                1 => x.astype(C64).ifftn(2).imag(),
                _ => x.rfftn(2).abs() * 0.125,
            },
            Flip => x.flip(dim),
            Broadcast => {
                let lead = [1, 2, 4, 8][k % 4];
                x.broadcast_to([&[lead], &shape[..]].concat())
            }
            Select => x.gt(0.1).select(&x * 0.5 + 0.05, &x),
            Softmax => x.softmax(dim),
            Tril => x.tril((k % 5) as i64 - 2),
            At => {
                let i = Array::from((k % shape[0]) as i32);
                x.at(ix![&i]).set(x.slice(ix![-1]) * 0.5)
            }
            Take => x.take(&places(k, 1 + k / 8 % 6, shape[d]), dim),
            TakeAlong => {
                let mut of = shape.clone();
                of[d] = 1 + k / 8 % 4;
                let at = places(k, of.iter().product(), shape[d]).reshape(of);
                x.take_along_axis(&at, dim)
            }
            Put | PutExtreme => {
                let at = places(k, 1 + k / 8 % 6, shape[0]);
                let rows = x.take(&at, 0).sin() * 0.5;
                let part = x.at(ix![&at]);
                match (self.what, k % 4) {
                    (Put, 0) => part.set(rows),
                    (Put, 1) => part.mul(rows + 1.0),
                    (Put, _) => part.add(rows),
                    (_, 0 | 1) => part.max(rows),
                    _ => part.min(rows),
                }
            }
            Segments => {
                let n = 1 + k / 8 % 5;
                let ids = places(k, shape[0], n);
                match k % 4 {
                    0 => x.segment_prod(&ids, n),
                    1 => x.segment_max(&ids, n).maximum(-2.0),
                    _ => x.segment_sum(&ids, n),
                }
            }
            Cond => {
                let y = other();
                cond(Array::from(k as i32).gt(500), || &x + &y, || &x * &y)
            }
            Switch => {
                let which = Array::from((k % 5) as i32 - 1);
                switch(&which, &[&|| x.clone(), &|| x.sin(), &|| x.flip(0) * 0.5])
            }
            Fori => {
                let (y, steps) = (other(), 0..(k % 4) as i32);
                let weight = |i: &Array| i.astype(F32) * 0.1 + 0.3;
                // a carry that the loop only adds up, in several forms, and one that it reads
                let added = |i: &Array| (x.sin() * weight(i)).sum(dim);
                match k / 4 % 8 {
                    0 => fori_loop(steps, x.sum(dim), |i, c| c + added(&i)),
                    1 => fori_loop(steps, x.sum(dim), |i, c| added(&i) - c * 0.5),
                    2 => fori_loop(steps, x.sum(dim), |i, c| fori_loop(0..2, c, |_, c| c + added(&i))),
                    3 => fori_loop(steps, x.sum(dim), |i, c| -(c + checkpoint(&i, |i: Array| added(&i)))),
                    _ => fori_loop(steps, &x, |i, c| (&c * 0.5 + &y * weight(&i)).tanh()),
                }
            }
            Scan => {
                let first = x.slice(ix![0..1]).reshape(&shape[1..]) * 0.0;
                let options = ScanOptions::default();
                let options = if k % 2 == 1 { options.reversed() } else { options };
                let step = |c: Array, row: Array| {
                    let next = (&c * 0.5 + &row).tanh();
                    (next.clone(), next * 2.0)
                };
                scan_with(&first, &x, step, options).1
            }
            While => {
                let n = Array::from((k % 5) as i32);
                while_loop((n, x.clone()), |(n, _)| n.gt(0), |(n, y)| (n - 1, y.sin() + &x * 0.25)).1
            }
            BoundedWhile => {
                let n = Array::from((k % 5) as i32);
                let options = WhileOptions::default().max_steps(3);
                let step = |(n, y): (Array, Array)| (n - 1, y.sin() + &x * 0.25);
                while_loop_with((n, x.clone()), |(n, _)| n.gt(0), step, options).1
            }
            CustomVjp => custom_vjp(&x, |x| (x.tanh(), x.tanh()), |y: Array, ct| ct * (1.0 - y.square())),
            CustomJvp => custom_jvp(&x, |x| x.sin(), |x, dx| (x.sin(), dx * x.cos())),
            Vmap => vmap(&x, |row| {
                Ok(if k % 2 == 0 { (&row * 0.5).tanh() + &row } else { row.cos() * (row.sum(..) * 0.125) })
            }),
            Grad => grad(&x, |z| match k % 4 {
                0 => (&z * &z).sum(..) * 0.5,
                1 => (z.flip(dim) * z.sin()).sum(..) * 0.25,
                2 => z.tanh().sum(dim).square().sum(..) * 0.0625,
                _ => fori_loop(0..3, &z, |_, c| c.sin() + &z * 0.5).sum(..),
            }),
            Jit => jit(|x: &Array| x.tanh().t()).call(&x)?,
            Checkpoint => checkpoint(&x, |x| x.sin() * 0.5 + x),
            Reshard => match mesh {
                Some(mesh) => {
                    let of = |kind| mesh.axes_of(kind).into_iter().collect::<Vec<Axis>>();
                    let (explicit, auto) = (of(AxisType::Explicit), of(AxisType::Auto));
                    let mut x = x;
                    if !explicit.is_empty() {
                        x = x.reshard(spec(mesh, &shape, 31 * k, &explicit));
                    }
                    if auto.is_empty() { x } else { x.constrain(spec(mesh, &shape, 17 * k, &auto)) }
                }
                None => x,
            },
            PrintInBranch => {
                let print_max = || debug_print!("{}", (&x * 3.0).max(..));
                cond(x.sum(..).gt(-1e9), print_max, || ());
                x.tanh()
            }
            PrintInLoop => {
                fori_loop(0..(k % 3) as i32, (), |i, ()| debug_print!("{} {}", i, (&x * 2.0).sin().max(..)));
                x.sin()
            }
            EmptyBranches => {
                let which = x.max(..).gt(0.0);
                fori_loop(0..(k % 4) as i32, &x, |i, y| {
                    let y = (&y * 1.001).sin();
                    cond((i % 2).eq(0) & &which, || debug_print!("{}", y.max(..)), || ());
                    cond(&which, || (), || ());
                    y
                })
            }
            Print => {
                debug_print!("{}", x.max(..));
                x * 0.5
            }
        })
    }
}
