//! Interprets programs with control flow and per-device code on all devices: equation by equation,
//! one device after another.
//!
//! A value is one for all devices, or one for each. Over axes that are not manual a value is the
//! full one; for an unreduced value, that is its sum.

use crate::evaluate::{Data, run};
use atmesh::Mesh;
use atmesh::mesh::Axes;
use atmesh::program::loop_nest::Reducer;
use atmesh::program::{
    Control, CustomCall, DeviceGroups, Input, ManualCollective, Op, Prim, Program, ShardMapping,
};
use atmesh::types::{ArrayType, DType, Scalar};
use std::rc::Rc;

#[derive(Clone)]
pub(crate) enum Held {
    Same(Rc<Data>),
    Each(Vec<Rc<Data>>),
}

impl Held {
    pub(crate) fn from_data(data: Data) -> Held {
        Held::Same(Rc::new(data))
    }
    pub(crate) fn at(&self, device: usize) -> &Rc<Data> {
        match self {
            Held::Same(d) => d,
            Held::Each(all) => &all[device],
        }
    }
    fn each(n: usize, f: impl Fn(usize) -> Data) -> Held {
        Held::Each((0..n).map(|p| Rc::new(f(p))).collect())
    }
}

/// A function that returns which elements of which group members an element of a device's result is
/// computed from, given the device and the index.
type Source<'a> = dyn Fn(usize, &[usize]) -> Vec<(usize, Vec<usize>)> + 'a;

/// The interpreter for the devices of a mesh.
pub(crate) struct Machine {
    pub(crate) mesh: Mesh,
}

fn unflatten(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape.iter().rev().map(|n| (i % n, i /= n).0).collect();
    index.reverse();
    index
}
fn flatten(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |at, (i, n)| at * n + i)
}

impl Machine {
    fn devices(&self) -> usize {
        self.mesh.size()
    }
    /// Returns the device's position along axes. The method `group` returns the devices that differ
    /// from it only along these.
    fn rank(&self, p: usize, axes: &Axes) -> usize {
        let c = self.mesh.coordinates(p);
        axes.iter().fold(0, |r, a| r * self.mesh.axis_size(a).unwrap() + c[self.mesh.find(a).unwrap()])
    }
    fn group(&self, p: usize, axes: &Axes) -> Vec<usize> {
        let c = self.mesh.coordinates(p);
        let same = |q: &usize| {
            let d = self.mesh.coordinates(*q);
            self.mesh.axis_names().iter().enumerate().all(|(i, a)| axes.contains(*a) || c[i] == d[i])
        };
        let mut all: Vec<usize> = (0..self.devices()).filter(same).collect();
        all.sort_by_key(|q| self.rank(*q, axes));
        all
    }
    fn size(&self, axes: &Axes) -> usize {
        axes.iter().map(|a| self.mesh.axis_size(a).unwrap()).product()
    }

    pub(crate) fn run(&self, program: &Program, inputs: &[Held]) -> Vec<Held> {
        assert_eq!(program.inputs.len(), inputs.len());
        let mut values: Vec<Option<Held>> = vec![None; program.vars.len()];
        for (v, x) in program.inputs.iter().zip(inputs) {
            values[v.index()] = Some(x.clone());
        }
        let get = |values: &[Option<Held>], i: &Input| match i {
            Input::Var(v) => values[v.index()].clone().expect("a variable is bound before it is read"),
            Input::Lit(l) => Held::from_data(vec![crate::scalar::convert(l.value, l.dtype)]),
        };
        for e in &program.equations {
            let ins: Vec<Held> = e.inputs.iter().map(|i| get(&values, i)).collect();
            let types: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
            let results: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
            let outs = match &e.op {
                Op::Prim(prim) => match prim.collective() {
                    Some(c) => vec![self.collective(&c, &ins, &types, &results[0])],
                    None => self.prim(prim, &ins, &types, &results),
                },
                Op::Control(c) => self.control(c, ins, &types, &results),
            };
            assert_eq!(outs.len(), results.len(), "{}", program);
            for ((v, x), ty) in e.outputs.iter().zip(outs).zip(&results) {
                assert_eq!(x.at(0).len(), ty.shape.num_elements(), "{ty} in {program}");
                values[v.index()] = Some(x);
            }
        }
        program.outputs.iter().map(|o| get(&values, o)).collect()
    }

    fn prim(&self, prim: &Prim, ins: &[Held], types: &[ArrayType], results: &[ArrayType]) -> Vec<Held> {
        let shapes: Vec<Vec<usize>> = types.iter().map(|t| t.shape.to_vec()).collect();
        let loop_nests = prim.loop_nests(types, results);
        let on = |s, p: usize| {
            let data: Vec<Data> = ins.iter().map(|x| Data::clone(x.at(p))).collect();
            run(s, &data, &shapes)
        };
        let all_same = ins.iter().all(|x| matches!(x, Held::Same(_)));
        let one =
            |s| if all_same { Held::from_data(on(s, 0)) } else { Held::each(self.devices(), |p| on(s, p)) };
        loop_nests.iter().map(one).collect()
    }

    fn collective(
        &self,
        c: &ManualCollective,
        ins: &[Held],
        types: &[ArrayType],
        result: &ArrayType,
    ) -> Held {
        let n = self.devices();
        let x = |p: usize| Rc::clone(ins[0].at(p));
        let out = result.shape.to_vec();
        let total = out.iter().product::<usize>();
        // Computes which elements of which group members are combined, element by element.
        let read = |p: usize, axes: &Axes, f: &Source<'_>, combine: Reducer| {
            let (mut group, mut me) = (self.group(p, axes), self.rank(p, axes));
            let shape = types[0].shape.to_vec();
            if let Some(groups) = c.groups() {
                let own =
                    groups.lists().iter().find(|list| list.contains(&me)).expect("each device is in a group");
                me = own.iter().position(|k| *k == me).expect("the list has it");
                group = own.iter().map(|k| group[*k]).collect();
            }
            (0..total)
                .map(|i| {
                    let parts = f(me, &unflatten(i, &out));
                    let members = parts.iter().filter(|(q, _)| *q < group.len());
                    let values = members.map(|(q, at)| x(group[*q])[flatten(at, &shape)]);
                    values
                        .reduce(|a, b| combined(combine, result.dtype, a, b))
                        .unwrap_or(Scalar::zero(result.dtype))
                })
                .collect::<Data>()
        };
        let add = Reducer::Add;
        let size = |axes: &Axes| c.groups().map_or_else(|| self.size(axes), DeviceGroups::max_size);
        // Maps an index of a scattered result to the operand's index, for the device at this
        // position.
        let uncut = |me: usize, index: &[usize], axes: &Axes, dim: usize, tiled: bool| {
            let mut at = index.to_vec();
            if tiled {
                at[dim] += me * (types[0].shape[dim] / size(axes));
            } else {
                at.insert(dim, me);
            }
            at
        };
        match c {
            ManualCollective::Pcast { .. } => ins[0].clone(),
            ManualCollective::AxisIndex { axes } => {
                Held::each(n, |p| vec![Scalar::Int(self.rank(p, axes) as i128)])
            }
            ManualCollective::AllReduce { axes, reducer: combine, .. } => {
                let all = |_: usize, at: &[usize]| (0..size(axes)).map(|q| (q, at.to_vec())).collect();
                Held::each(n, |p| read(p, axes, &all, *combine))
            }
            ManualCollective::AllGather { axes, dim, tiled, .. } => {
                let f = |_: usize, at: &[usize]| {
                    let mut at = at.to_vec();
                    let q = if *tiled {
                        let block = types[0].shape[*dim];
                        let q = at[*dim] / block;
                        at[*dim] %= block;
                        q
                    } else {
                        at.remove(*dim)
                    };
                    vec![(q, at)]
                };
                Held::each(n, |p| read(p, axes, &f, add))
            }
            ManualCollective::ReduceScatter { axes, dim, tiled, .. } => {
                let f = |me: usize, at: &[usize]| {
                    (0..size(axes)).map(|q| (q, uncut(me, at, axes, *dim, *tiled))).collect()
                };
                Held::each(n, |p| read(p, axes, &f, add))
            }
            ManualCollective::KeepShard { axes, dim, tiled } => {
                let f = |me: usize, at: &[usize]| vec![(me, uncut(me, at, axes, *dim, *tiled))];
                Held::each(n, |p| read(p, axes, &f, add))
            }
            ManualCollective::AllToAll { axes, split, concat, tiled, .. } => {
                let f = |me: usize, at: &[usize]| {
                    let mut at = at.to_vec();
                    let q = if *tiled {
                        let cut = types[0].shape[*split] / size(axes);
                        let block = if split == concat { cut } else { types[0].shape[*concat] };
                        let q = at[*concat] / block;
                        at[*concat] %= block;
                        at[*split] += me * cut;
                        q
                    } else {
                        let q = at.remove(*concat);
                        at.insert(*split, me);
                        q
                    };
                    vec![(q, at)]
                };
                Held::each(n, |p| read(p, axes, &f, add))
            }
            ManualCollective::Broadcast { axes, source } => {
                let f = |_: usize, at: &[usize]| vec![(*source, at.to_vec())];
                Held::each(n, |p| read(p, axes, &f, add))
            }
            ManualCollective::Permute { axes, pairs } => {
                let f = |me: usize, at: &[usize]| {
                    pairs.iter().filter(|p| p.1 == me).map(|p| (p.0, at.to_vec())).collect()
                };
                Held::each(n, |p| read(p, axes, &f, add))
            }
        }
    }

    fn control(&self, c: &Control, ins: Vec<Held>, types: &[ArrayType], results: &[ArrayType]) -> Vec<Held> {
        match c {
            Control::Jit { body, .. }
            | Control::AxisModes { body, .. }
            | Control::Custom(CustomCall { body, .. }) => self.run(body, &ins),
            Control::Print { .. } => Vec::new(),
            Control::ShardMap(m) => self.shard_map(m, &ins, types, results),
            Control::Cond { branches } => {
                let pick = |p: usize| match ins[0].at(p)[0] {
                    Scalar::Bool(b) => usize::from(!b),
                    i => i.to_i128().clamp(0, branches.len() as i128 - 1) as usize,
                };
                let first = pick(0);
                if (1..self.devices()).all(|p| pick(p) == first) {
                    return self.run(&branches[first], &ins[1..]);
                }
                let all: Vec<Vec<Held>> = branches.iter().map(|b| self.run(b, &ins[1..])).collect();
                (0..results.len())
                    .map(|k| Held::each(self.devices(), |p| Data::clone(all[pick(p)][k].at(p))))
                    .collect()
            }
            Control::While { cond, body, cond_fixed, body_fixed } => {
                let mut carry = ins[cond_fixed + body_fixed..].to_vec();
                let holds = |carry: &[Held]| {
                    let test = self.run(cond, &[&ins[..*cond_fixed], carry].concat()).swap_remove(0);
                    test.at(0)[0] == Scalar::Bool(true)
                };
                while holds(&carry) {
                    carry = self.run(body, &[&ins[*cond_fixed..cond_fixed + body_fixed], &carry].concat());
                }
                carry
            }
            Control::Loop(l) => {
                let (fixed, rest) = ins.split_at(l.fixed);
                let (carry, xs) = rest.split_at(l.carry);
                let mut carry = carry.to_vec();
                let n_ys = results.len() - l.carry;
                let mut ys: Vec<Vec<Option<Held>>> = vec![vec![None; l.length]; n_ys];
                for i in 0..l.length {
                    let k = if l.reverse { l.length - 1 - i } else { i };
                    let slice = |x: &Held| {
                        let cut = |d: &Data| {
                            let n = d.len() / l.length;
                            d[k * n..(k + 1) * n].to_vec()
                        };
                        match x {
                            Held::Same(d) => Held::from_data(cut(d)),
                            Held::Each(all) => Held::Each(all.iter().map(|d| Rc::new(cut(d))).collect()),
                        }
                    };
                    let step = Held::from_data(vec![Scalar::Int(i128::from(l.start) + k as i128)]);
                    let xs: Vec<Held> = xs.iter().map(slice).collect();
                    let mut outs = self.run(&l.body, &[&[step][..], fixed, &carry, &xs].concat());
                    for (y, out) in ys.iter_mut().zip(outs.split_off(l.carry)) {
                        y[k] = Some(out);
                    }
                    carry = outs;
                }
                let joined = ys.into_iter().map(|y| {
                    Held::each(self.devices(), |p| {
                        y.iter().flat_map(|x| x.as_ref().unwrap().at(p).iter().copied()).collect()
                    })
                });
                carry.into_iter().chain(joined).collect()
            }
        }
    }

    fn shard_map(
        &self,
        m: &ShardMapping,
        ins: &[Held],
        types: &[ArrayType],
        results: &[ArrayType],
    ) -> Vec<Held> {
        let n = self.devices();
        let cut = |(k, x): (usize, &Held)| {
            let (shape, spec) = (types[k].shape.to_vec(), m.in_specs[k]);
            let block: Vec<usize> =
                shape.iter().enumerate().map(|(d, n)| n / self.size(&Axes::from(spec.dim(d)))).collect();
            let elements: usize = block.iter().product();
            Held::each(n, |p| {
                // For an unreduced value, the first device along its axes holds the sum.
                if self.rank(p, spec.unreduced_axes()) != 0 {
                    return vec![Scalar::zero(types[k].dtype); elements];
                }
                (0..elements)
                    .map(|i| {
                        let mut at = unflatten(i, &block);
                        for (d, at) in at.iter_mut().enumerate() {
                            *at += block[d] * self.rank(p, &Axes::from(spec.dim(d)));
                        }
                        x.at(p)[flatten(&at, &shape)]
                    })
                    .collect()
            })
        };
        let inner: Vec<Held> = ins.iter().enumerate().map(cut).collect();
        let outs = self.run(&m.body, &inner);
        let blocks = m.body.output_types();
        let join = |(k, x): (usize, Held)| {
            let (block, shape, spec) = (blocks[k].shape.to_vec(), results[k].shape.to_vec(), m.out_specs[k]);
            let u = spec.unreduced_axes();
            let whole = |p: usize| {
                let group = self.group(p, &m.axes);
                (0..shape.iter().product())
                    .map(|i| {
                        let at = unflatten(i, &shape);
                        let ranks: Vec<usize> = at.iter().zip(&block).map(|(i, n)| i / n).collect();
                        let inner: Vec<usize> = at.iter().zip(&block).map(|(i, n)| i % n).collect();
                        let holds = |q: &&usize| {
                            let fits = |d: usize| self.rank(**q, &Axes::from(spec.dim(d))) == ranks[d];
                            (0..shape.len()).all(fits)
                        };
                        let held: Vec<(usize, Scalar)> = (group.iter().filter(holds))
                            .map(|q| (self.rank(*q, u), x.at(*q)[flatten(&inner, &block)]))
                            .collect();
                        let part = |r: usize| {
                            let mut copies = held.iter().filter(|h| h.0 == r).map(|h| h.1);
                            let first = copies.next().unwrap();
                            let near = |c: Scalar| {
                                let (a, b) = (c.to_f64(), first.to_f64());
                                a == b || a.is_nan() || (a - b).abs() < 1e-6 * (1.0 + a.abs())
                            };
                            assert!(
                                copies.all(near),
                                "devices hold different copies of result {k}: {}",
                                m.body
                            );
                            first
                        };
                        let parts = (0..self.size(u)).map(part);
                        parts.reduce(|a, b| combined(Reducer::Add, blocks[k].dtype, a, b)).unwrap()
                    })
                    .collect::<Data>()
            };
            if m.axes.len() == self.mesh.axis_names().len() {
                Held::from_data(whole(0))
            } else {
                Held::each(n, whole)
            }
        };
        outs.into_iter().enumerate().map(join).collect()
    }
}

fn combined(combine: Reducer, dtype: DType, a: Scalar, b: Scalar) -> Scalar {
    let x = match (combine, a, b) {
        (Reducer::Add, Scalar::Float(a), Scalar::Float(b)) => Scalar::Float(a + b),
        (Reducer::Add, a, b) => Scalar::Int(a.to_i128() + b.to_i128()),
        (_, a, b) if a.to_f64().is_nan() || b.to_f64().is_nan() => Scalar::Float(f64::NAN),
        (Reducer::Max, a, b) => {
            if a.to_f64() >= b.to_f64() {
                a
            } else {
                b
            }
        }
        (Reducer::Min, a, b) => {
            if a.to_f64() <= b.to_f64() {
                a
            } else {
                b
            }
        }
        other => panic!("{other:?}"),
    };
    crate::scalar::convert(x, dtype)
}
