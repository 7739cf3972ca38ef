//! Code of one device's blocks, and its collectives.

use super::shardings::Uneven;
use super::text::{join, list, quoted, tensor};
use super::writer::{Ssa, Writer, names, types};
use super::{Out, unsupported};
use crate::diagnostic::Result;
use crate::mesh::{Axes, Axis, Mesh};
use crate::program::{Collective, ShardMapping};
use crate::sharding::Spec;
use crate::sorted;
use crate::types::{ArrayType, DType, Scalar};

impl Writer {
    /// How the inputs are cut and the results put together.
    pub(super) fn shard_map_heads(
        &mut self,
        s: &ShardMapping,
        ins: &[Ssa],
        results: &[ArrayType],
    ) -> Out<(Vec<String>, Vec<String>)> {
        // free axes may split dimensions further
        let partly = s.mesh.axis_names().iter().any(|a| !s.axes.contains(*a) && !self.manual.contains(a));
        let open = |rank: usize| if partly { (0..rank).collect::<Vec<_>>() } else { vec![] };
        let mut cut = Vec::new();
        for (x, spec) in ins.iter().zip(&s.in_specs) {
            let ty = x.dtype.of(&x.shape[..]);
            // what is whole for XLA comes in whole, and is made one of parts within
            let sums = spec.unreduced_axes().iter().filter(|a| x.unreduced.contains(a)).collect::<Axes>();
            let spec = Spec::of(spec.dims().to_vec()).unreduced(sums);
            cut.push(self.spec(&s.mesh, spec, &ty, &open(ty.rank()), Uneven::Refused)?);
        }
        let mut joined = Vec::new();
        for (ty, spec) in results.iter().zip(&s.out_specs) {
            let ty = ty.dtype.of(ty.shape.clone());
            joined.push(self.spec(&s.mesh, *spec, &ty, &open(ty.rank()), Uneven::Refused)?);
        }
        Ok((cut, joined))
    }
    pub(super) fn shard_map(
        &mut self,
        s: &ShardMapping,
        ins: &[Ssa],
        results: &[ArrayType],
        (cut, joined): (Vec<String>, Vec<String>),
    ) -> Result<Vec<Ssa>> {
        let args: Vec<Ssa> = s.body.inputs.iter().map(|v| self.like(s.body.ty(*v))).collect();
        let shapes: Vec<_> = results.iter().map(|t| (t.dtype, t.shape.to_vec())).collect();
        let (head, outs) = self.results(&shapes);
        self.part(&format!(
            "{head}sdy.manual_computation({}) in_shardings={} out_shardings={} manual_axes={{{}}} ({}) {{",
            names(ins),
            list(cut),
            list(joined),
            join(s.axes.iter().map(|a| quoted(a.name()))),
            join(args.iter().map(|a| format!("{}: {}", a.name, a.ty())))
        ));
        let outer = self.manual.len();
        self.manual.extend(s.axes.iter());
        self.inside(|w| -> Result<()> {
            let mut args = args;
            for ((x, outer), spec) in args.iter_mut().zip(ins).zip(&s.in_specs) {
                let whole = spec.unreduced_axes().iter().filter(|a| !outer.unreduced.contains(a));
                *x = w.one_part(x, &s.mesh, &whole.collect::<Axes>());
            }
            let inner = w.body(&s.body, &args)?;
            w.ret("sdy.return", &inner);
            Ok(())
        })?;
        self.manual.truncate(outer);
        self.line(&format!("}} : ({}) -> ({})", types(ins), types(&outs)));
        let known = |(x, spec): (Ssa, &Spec)| Ssa { unreduced: spec.unreduced_axes().iter().collect(), ..x };
        Ok(outs.into_iter().zip(&s.out_specs).map(known).collect())
    }
    /// A whole value as parts that add up to it: the first device has it, the others have zeros.
    fn one_part(&mut self, x: &Ssa, mesh: &Mesh, axes: &Axes) -> Ssa {
        if axes.is_empty() {
            return x.clone();
        }
        let (at, zero) = (self.position(mesh, axes), self.int(DType::I32, 0, &[]));
        let first = self.compare("EQ", &at, &zero);
        let nothing = self.constant(x.dtype, Scalar::zero(x.dtype), &x.shape);
        self.select(&first, x, &nothing)
    }

    /// What names the devices that take part: `channel_handle = …, replica_groups = …`.
    fn groups(&mut self, mesh: &Mesh, axes: &Axes) -> String {
        let groups = groups(mesh, axes);
        let rows = join(groups.iter().map(list));
        format!(
            "{}, replica_groups = dense<[{rows}]> : tensor<{}x{}xi64>",
            self.channel(),
            groups.len(),
            groups[0].len()
        )
    }
    /// The device's position in the mesh. XLA has it in fully manual code only: in partly manual code it comes out of a region that
    /// makes the other axes manual too.
    fn partition(&mut self, mesh: &Mesh) -> Ssa {
        let u = tensor(DType::U32, &[]);
        let free = mesh.axis_names().iter().filter(|a| !self.manual.contains(a));
        let free: Vec<String> = free.map(|a| quoted(a.name())).collect();
        if free.is_empty() {
            return self.op(format!("stablehlo.partition_id : {u}"), DType::U32, &[]);
        }
        let (out, name) = (self.bound(DType::U32, &[]), self.mesh(mesh));
        self.part(&format!(
            "{} = sdy.manual_computation() in_shardings=[] out_shardings=[<@{name}, []>] manual_axes={{{}}} () {{",
            out.name,
            free.join(", ")
        ));
        self.inside(|w| {
            let me = w.op(format!("stablehlo.partition_id : {u}"), DType::U32, &[]);
            w.ret("sdy.return", &[me]);
        });
        self.line(&format!("}} : () -> {u}"));
        out
    }
    /// The device's position along axes, int32.
    fn position(&mut self, mesh: &Mesh, axes: &Axes) -> Ssa {
        let me = self.partition(mesh);
        let mut at: Option<Ssa> = None;
        for a in axes.iter() {
            let size = self.int(DType::U32, mesh.extent(a) as i64, &[]);
            let step = self.int(DType::U32, mesh.step(a) as i64, &[]);
            let q = self.same("divide", &[&me, &step]);
            let digit = self.same("remainder", &[&q, &size]);
            at = Some(match at {
                None => digit,
                Some(major) => {
                    let up = self.same("multiply", &[&major, &size]);
                    self.same("add", &[&up, &digit])
                }
            });
        }
        let at = at.unwrap_or_else(|| self.int(DType::U32, 0, &[]));
        self.convert(&at, DType::I32)
    }

    pub(super) fn collective(
        &mut self,
        c: &Collective,
        mesh: &Mesh,
        x: Option<&Ssa>,
        result: &ArrayType,
    ) -> Out<Ssa> {
        let size = |axes: &Axes| axes.iter().map(|a| mesh.extent(a)).product::<usize>();
        let shape = result.shape.to_vec();
        if let Collective::AxisIndex { axes } = c {
            return Ok(self.position(mesh, axes));
        }
        let x = x.ok_or_else(|| unsupported("a collective of nothing"))?.clone();
        Ok(match c {
            Collective::AxisIndex { .. } | Collective::Cast { .. } => x,
            Collective::Reduce { axes, combine } => {
                let groups = self.groups(mesh, axes);
                let head =
                    format!("\"stablehlo.all_reduce\"({}) <{{{groups}, use_global_device_ids}}>", x.name);
                let combine = *combine;
                self.with_region(&head, &[&x], (x.dtype, &x.shape), |w| w.combined(Some(combine), x.dtype))
            }
            Collective::AllGather { axes, dim, tiled } => {
                let mut from = x.shape.clone();
                if !tiled {
                    from.insert(*dim, 1);
                }
                let x = self.reshape(&x, &from);
                let groups = self.groups(mesh, axes);
                let text = format!(
                    "\"stablehlo.all_gather\"({}) <{{all_gather_dim = {dim} : i64, {groups}, use_global_device_ids}}>",
                    x.name
                );
                self.typed(&text, &[&x], x.dtype, &shape)
            }
            Collective::ReduceScatter { axes, dim, .. } => {
                let mut part = x.shape.clone();
                part[*dim] /= size(axes);
                let groups = self.groups(mesh, axes);
                let head = format!(
                    "\"stablehlo.reduce_scatter\"({}) <{{scatter_dimension = {dim} : i64, {groups}, use_global_device_ids}}>",
                    x.name
                );
                let add = Some(crate::program::sentence::Combine::Add);
                let part = self.with_region(&head, &[&x], (x.dtype, &part), |w| w.combined(add, x.dtype));
                self.reshape(&part, &shape)
            }
            Collective::OwnPart { axes, dim, .. } => {
                let mut part = x.shape.clone();
                part[*dim] /= size(axes);
                let me = self.position(mesh, axes);
                let n = self.int(DType::I32, part[*dim] as i64, &[]);
                let at = self.same("multiply", &[&me, &n]);
                let zero = self.int(DType::I32, 0, &[]);
                let starts = names((0..part.len()).map(|d| if d == *dim { &at } else { &zero }));
                let text = format!("stablehlo.dynamic_slice {}, {starts}, sizes = {}", x.name, list(&part));
                let args: Vec<&Ssa> = std::iter::once(&x).chain(part.iter().map(|_| &at)).collect();
                let part = self.typed(&text, &args, x.dtype, &part);
                self.reshape(&part, &shape)
            }
            Collective::AllToAll { axes, split, concat, tiled } => {
                let n = size(axes);
                // untiled: parts change places within one dimension, which then moves
                let (to, joined) = if *tiled { (*concat, shape.clone()) } else { (*split, x.shape.clone()) };
                let groups = self.groups(mesh, axes);
                let text = format!(
                    "\"stablehlo.all_to_all\"({}) <{{split_dimension = {split} : i64, concat_dimension = {to} : i64, split_count = {n} : i64, {groups}}}>",
                    x.name
                );
                let out = self.typed(&text, &[&x], x.dtype, &joined);
                if *tiled {
                    return Ok(out);
                }
                let mut order: Vec<usize> = (0..x.shape.len()).filter(|d| d != split).collect();
                order.insert(*concat, *split);
                self.transpose(&out, &order)
            }
            Collective::Permute { axes, pairs } => {
                let all: Vec<String> = groups(mesh, axes)
                    .iter()
                    .flat_map(|g| pairs.iter().map(|(s, t)| list([g[*s], g[*t]])))
                    .collect();
                let text = format!(
                    "\"stablehlo.collective_permute\"({}) <{{{}, source_target_pairs = dense<{}> : tensor<{}x2xi64>}}>",
                    x.name,
                    self.channel(),
                    list(&all),
                    all.len()
                );
                self.typed(&text, &[&x], x.dtype, &x.shape)
            }
        })
    }
}

/// The groups of devices that agree on every axis but these, each in the order of the axes.
fn groups(mesh: &Mesh, axes: &Axes) -> Vec<Vec<usize>> {
    let mut all: Vec<(usize, Vec<(usize, usize)>)> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for p in 0..mesh.size() {
        let digit = |a: Axis| p / mesh.step(a) % mesh.extent(a);
        let rest = p - axes.iter().map(|a| digit(a) * mesh.step(a)).sum::<usize>();
        let own = axes.iter().fold(0, |n, a| n * mesh.extent(a) + digit(a));
        let k = *known.entry(rest).or_insert_with(|| {
            all.push((rest, Vec::new()));
            all.len() - 1
        });
        all[k].1.push((own, p));
    }
    let sorted = |mut g: Vec<(usize, usize)>| {
        sorted::sort(&mut g);
        g.into_iter().map(|(_, p)| p).collect()
    };
    all.into_iter().map(|g| sorted(g.1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_in_the_order_of_the_axes() {
        let mesh = Mesh::without_devices([("x", 2), ("y", 3)]).expect("a mesh");
        let of = |axes: &[&str]| groups(&mesh, &axes.iter().map(|a| (*a).into()).collect::<Axes>());
        assert_eq!(of(&["y"]), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(of(&["x"]), [[0, 3], [1, 4], [2, 5]]);
        assert_eq!(of(&["y", "x"]), [[0, 3, 1, 4, 2, 5]]);
    }
}
