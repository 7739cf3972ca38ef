//! Writes `shard_map` bodies, which compute on one device's blocks, and their collectives.

use super::syntax::{join, list, quoted, tensor};
use super::writer::{Ssa, Writer, names, types};
use super::{FaultResult, shardings::UnevenPolicy, unsupported};
use crate::core::{ArrayType, Axes, Axis, DType, Mesh, Result, Scalar, Spec, util::small_sort};
use crate::ir::program::{DeviceGroups, ManualCollective, Reducer, ShardMapping};

impl Writer {
    /// Returns the shardings of the inputs and results of a `shard_map`.
    pub(super) fn shard_map_heads(
        &mut self,
        s: &ShardMapping,
        ins: &[Ssa],
        results: &[ArrayType],
    ) -> FaultResult<(Vec<String>, Vec<String>)> {
        // axes that stay free may shard the dimensions further
        let partly = s.mesh.axis_names().iter().any(|a| !s.axes.contains(*a) && !self.manual.contains(a));
        let open = |rank: usize| if partly { (0..rank).collect::<Vec<_>>() } else { vec![] };
        let mut cut = Vec::new();
        for (x, spec) in ins.iter().zip(&s.in_specs) {
            let ty = x.dtype.array_type(&x.shape[..]);
            // an unreduced value that XLA holds as its sum enters replicated, and becomes partial
            // values inside
            let sums = spec.unreduced_axes().iter().filter(|a| x.unreduced.contains(a)).collect::<Axes>();
            let spec = Spec::from_dims(spec.dims().to_vec()).unreduced(sums);
            cut.push(self.spec(&s.mesh, spec, &ty, &open(ty.rank()), UnevenPolicy::Reject)?);
        }
        let mut joined = Vec::new();
        for (ty, spec) in results.iter().zip(&s.out_specs) {
            let ty = ty.dtype.array_type(ty.shape.clone());
            joined.push(self.spec(&s.mesh, *spec, &ty, &open(ty.rank()), UnevenPolicy::Reject)?);
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
        let args: Vec<Ssa> = s.body.inputs.iter().map(|v| self.value_of_type(s.body.ty(*v))).collect();
        let shapes: Vec<_> = results.iter().map(|t| (t.dtype, t.shape.to_vec())).collect();
        let (head, outs) = self.results(&shapes);
        self.fragment(&format!(
            "{head}sdy.manual_computation({}) in_shardings={} out_shardings={} manual_axes={{{}}} ({}) {{",
            names(ins),
            list(cut),
            list(joined),
            join(s.axes.iter().map(|a| quoted(a.name()))),
            join(args.iter().map(|a| format!("{}: {}", a.name, a.ty())))
        ));
        let outer = self.manual.len();
        self.manual.extend(s.axes.iter());
        self.indented(|w| -> Result<()> {
            let mut args = args;
            for ((x, outer), spec) in args.iter_mut().zip(ins).zip(&s.in_specs) {
                let unreduced = spec.unreduced_axes().iter().filter(|a| !outer.unreduced.contains(a));
                *x = w.as_partials(x, &s.mesh, &unreduced.collect::<Axes>());
            }
            let inner = w.body(&s.body, &args)?;
            w.terminator("sdy.return", &inner);
            Ok(())
        })?;
        self.manual.truncate(outer);
        self.line(&format!("}} : ({}) -> ({})", types(ins), types(&outs)));
        let known = |(x, spec): (Ssa, &Spec)| Ssa { unreduced: spec.unreduced_axes().iter().collect(), ..x };
        Ok(outs.into_iter().zip(&s.out_specs).map(known).collect())
    }
    /// Converts a replicated value to partial values.
    /// The first device keeps the value, and the others have zeros.
    fn as_partials(&mut self, x: &Ssa, mesh: &Mesh, axes: &Axes) -> Ssa {
        if axes.is_empty() {
            return x.clone();
        }
        let (at, zero) = (self.axis_position(mesh, axes), self.int(DType::I32, 0, &[]));
        let first = self.compare("EQ", &at, &zero);
        let nothing = self.constant(x.dtype, Scalar::zero(x.dtype), &x.shape);
        self.select(&first, x, &nothing)
    }

    /// Returns the attributes that name the participants: `channel_handle = …, replica_groups = …`.
    ///
    /// The rows of smaller groups are filled with -1.
    fn replica_groups(&mut self, mesh: &Mesh, c: &ManualCollective) -> String {
        let mut all = device_groups(mesh, &c.axes().iter().copied().collect());
        if let Some(groups) = c.groups() {
            let within = |devices: Vec<usize>| {
                let named = |group: &Vec<usize>| group.iter().map(|k| devices[*k]).collect();
                groups.lists().iter().map(named).collect::<Vec<Vec<usize>>>()
            };
            all = all.into_iter().flat_map(within).collect();
        }
        let size = all.iter().map(Vec::len).max().unwrap_or(0);
        let filled = |group: &Vec<usize>| {
            let named = group.iter().map(usize::to_string);
            list(named.chain((group.len()..size).map(|_| "-1".into())))
        };
        let rows = join(all.iter().map(filled));
        format!("{}, replica_groups = dense<[{rows}]> : tensor<{}x{}xi64>", self.channel(), all.len(), size)
    }
    /// Returns the device's position in the mesh.
    /// XLA provides it only in fully manual code. In partially manual code it is the result of a
    /// region in which the other axes are manual too.
    fn partition_id(&mut self, mesh: &Mesh) -> Ssa {
        let u = tensor(DType::U32, &[]);
        let free = mesh.axis_names().iter().filter(|a| !self.manual.contains(a));
        let free: Vec<String> = free.map(|a| quoted(a.name())).collect();
        if free.is_empty() {
            return self.op(format!("stablehlo.partition_id : {u}"), DType::U32, &[]);
        }
        let (out, name) = (self.new_value(DType::U32, &[]), self.mesh(mesh));
        self.fragment(&format!(
            "{} = sdy.manual_computation() in_shardings=[] out_shardings=[<@{name}, []>] manual_axes={{{}}} () {{",
            out.name,
            free.join(", ")
        ));
        self.indented(|w| {
            let me = w.op(format!("stablehlo.partition_id : {u}"), DType::U32, &[]);
            w.terminator("sdy.return", &[me]);
        });
        self.line(&format!("}} : () -> {u}"));
        out
    }
    /// Returns the device's position along axes, as int32.
    fn axis_position(&mut self, mesh: &Mesh, axes: &Axes) -> Ssa {
        let me = self.partition_id(mesh);
        let mut at: Option<Ssa> = None;
        for a in axes.iter() {
            let size = self.int(DType::U32, mesh.extent(a) as i64, &[]);
            let step = self.int(DType::U32, mesh.stride_of(a) as i64, &[]);
            let q = self.elementwise("divide", &[&me, &step]);
            let index = self.elementwise("remainder", &[&q, &size]);
            at = Some(match at {
                None => index,
                Some(major) => {
                    let up = self.elementwise("multiply", &[&major, &size]);
                    self.elementwise("add", &[&up, &index])
                }
            });
        }
        let at = at.unwrap_or_else(|| self.int(DType::U32, 0, &[]));
        self.convert(&at, DType::I32)
    }

    /// Returns this device's shard of a value that all devices along the axes have.
    fn keep_shard(&mut self, mesh: &Mesh, axes: &Axes, dim: usize, x: &Ssa, shape: &[usize]) -> Ssa {
        let mut part = x.shape.clone();
        part[dim] /= axes.iter().map(|a| mesh.extent(a)).product::<usize>();
        let me = self.axis_position(mesh, axes);
        let n = self.int(DType::I32, part[dim] as i64, &[]);
        let at = self.elementwise("multiply", &[&me, &n]);
        let zero = self.int(DType::I32, 0, &[]);
        let starts = names((0..part.len()).map(|d| if d == dim { &at } else { &zero }));
        let text = format!("stablehlo.dynamic_slice {}, {starts}, sizes = {}", x.name, list(&part));
        let args: Vec<&Ssa> = std::iter::once(x).chain(part.iter().map(|_| &at)).collect();
        let part = self.typed(&text, &args, x.dtype, &part);
        self.reshape(&part, shape)
    }
    /// Returns the values of the devices of the collective, reduced.
    fn all_reduce(&mut self, mesh: &Mesh, c: &ManualCollective, reducer: Reducer, x: &Ssa) -> Ssa {
        let groups = self.replica_groups(mesh, c);
        let head = format!("\"stablehlo.all_reduce\"({}) <{{{groups}, use_global_device_ids}}>", x.name);
        self.with_region(&head, &[x], (x.dtype, &x.shape), |w| w.reducer_region(Some(reducer), x.dtype))
    }
    pub(super) fn collective(
        &mut self,
        c: &ManualCollective,
        mesh: &Mesh,
        x: Option<&Ssa>,
        result: &ArrayType,
    ) -> FaultResult<Ssa> {
        let devices = || c.axes().iter().map(|a| mesh.extent(*a)).product::<usize>();
        let size = || c.groups().map_or_else(devices, DeviceGroups::max_size);
        let shape = result.shape.to_vec();
        if let ManualCollective::AxisIndex { axes } = c {
            return Ok(self.axis_position(mesh, axes));
        }
        let x = x.ok_or_else(|| unsupported("a collective of nothing"))?.clone();
        Ok(match c {
            ManualCollective::AxisIndex { .. } | ManualCollective::Pcast { .. } => x,
            ManualCollective::AllReduce { reducer, .. } => self.all_reduce(mesh, c, *reducer, &x),
            ManualCollective::AllGather { dim, tiled, .. } => {
                let mut from = x.shape.clone();
                if !tiled {
                    from.insert(*dim, 1);
                }
                let x = self.reshape(&x, &from);
                let groups = self.replica_groups(mesh, c);
                let text = format!(
                    "\"stablehlo.all_gather\"({}) <{{all_gather_dim = {dim} : i64, {groups}, use_global_device_ids}}>",
                    x.name
                );
                self.typed(&text, &[&x], x.dtype, &shape)
            }
            ManualCollective::ReduceScatter { dim, .. } => {
                let mut part = x.shape.clone();
                part[*dim] /= size();
                let groups = self.replica_groups(mesh, c);
                let head = format!(
                    "\"stablehlo.reduce_scatter\"({}) <{{scatter_dimension = {dim} : i64, {groups}, use_global_device_ids}}>",
                    x.name
                );
                let add = Some(Reducer::Add);
                let part =
                    self.with_region(&head, &[&x], (x.dtype, &part), |w| w.reducer_region(add, x.dtype));
                self.reshape(&part, &shape)
            }
            ManualCollective::KeepShard { axes, dim, .. } => self.keep_shard(mesh, axes, *dim, &x, &shape),
            ManualCollective::AllToAll { split, concat, tiled, .. } => {
                let n = size();
                // if untiled, blocks are exchanged within the split dimension, which is then moved
                let (to, joined) = if *tiled { (*concat, shape.clone()) } else { (*split, x.shape.clone()) };
                let groups = self.replica_groups(mesh, c);
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
            ManualCollective::Broadcast { axes, source } => {
                // a sum to which the other devices add zeros: XLA broadcasts on no CPU
                let me = self.axis_position(mesh, axes);
                let source = self.int(DType::I32, *source as i64, &[]);
                let is_source = self.compare("EQ", &me, &source);
                let nothing = self.constant(x.dtype, Scalar::zero(x.dtype), &x.shape);
                let mine = self.select(&is_source, &x, &nothing);
                let reducer = if x.dtype == DType::Bool { Reducer::Or } else { Reducer::Add };
                self.all_reduce(mesh, c, reducer, &mine)
            }
            ManualCollective::Permute { axes, pairs } => {
                let all: Vec<String> = device_groups(mesh, axes)
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

/// Returns the groups of devices that differ only along these axes, each in the order of the axes.
fn device_groups(mesh: &Mesh, axes: &Axes) -> Vec<Vec<usize>> {
    let mut all: Vec<(usize, Vec<(usize, usize)>)> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for p in 0..mesh.size() {
        let index = |a: Axis| p / mesh.stride_of(a) % mesh.extent(a);
        let rest = p - axes.iter().map(|a| index(a) * mesh.stride_of(a)).sum::<usize>();
        let own = axes.iter().fold(0, |n, a| n * mesh.extent(a) + index(a));
        let k = *known.entry(rest).or_insert_with(|| {
            all.push((rest, Vec::new()));
            all.len() - 1
        });
        all[k].1.push((own, p));
    }
    let sorted = |mut g: Vec<(usize, usize)>| {
        small_sort::sort(&mut g);
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
        let of = |axes: &[&str]| device_groups(&mesh, &axes.iter().map(|a| (*a).into()).collect::<Axes>());
        assert_eq!(of(&["y"]), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(of(&["x"]), [[0, 3], [1, 4], [2, 5]]);
        assert_eq!(of(&["y", "x"]), [[0, 3, 1, 4, 2, 5]]);
    }
}
