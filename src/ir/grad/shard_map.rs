//! Differentiates per-device code (`shard_map`).
//!
//! If a residual varies over manual axes, it leaves the body with an additional first dimension,
//! which has size 1 on each device and is sharded over these axes. Other residuals leave the body
//! unchanged. Cotangents enter with the specs of the results and leave with the specs of the
//! operands, with unreduced and reduced sets swapped. In checked regions, the varying sets
//! determine which cotangents are summed over devices. Unchecked regions have no varying sets:
//! every residual counts as varying over all manual axes, the cotangent of a result is divided by
//! its number of replicas when it enters, and the cotangent of an operand is summed over the axes
//! over which the operand was replicated.

use super::call::{is_present, jvp_fused, spread_tangents};
use super::jvp::{JvpOp, PrimalsAndTangents, Style};
use super::linearize::{ResidualSource, linearize};
use super::transpose::{CotangentExit, TransposedOp, transpose};
use super::util::{input_types, inputs};
use crate::core::{ArrayType, Axes, Axis, AxisType, Result, Shape, Spec};
use crate::ir::ops::collective::{CollectiveGroup, Preduce};
use crate::ir::program::dce::{dce, select};
use crate::ir::program::{Builder, Control, Program, Reducer, ShardMapping, Tangents};
use std::sync::Arc;

/// Iterates over the axes that shard dimensions.
fn dim_axes(spec: Spec) -> impl Iterator<Item = Axis> {
    spec.dims().iter().flat_map(Axes::iter)
}

/// Returns the spec of a cotangent whose primal entered or left with `spec`.
fn cotangent_spec(spec: Spec) -> Spec {
    spec.unreduced(spec.reduced_axes()).reduced(spec.unreduced_axes())
}

/// Returns the global type of a result whose blocks have type `block` and leave with `spec`.
fn global_type(m: &ShardMapping, block: &ArrayType, spec: Spec) -> ArrayType {
    let shape: Shape = (block.shape.iter().enumerate())
        .map(|(d, n)| n * spec.dim(d).iter().map(|a| m.mesh.extent(*a)).product::<usize>())
        .collect();
    let shown = |a: &Axis| m.mesh.axis_type(*a) == Some(AxisType::Explicit);
    let dims = (0..block.rank())
        .map(|d| spec.dim(d).iter().filter(|a| shown(a)).chain(block.spec.dim(d)).copied().collect())
        .collect();
    let set = |own: &Axes, of: &Axes| -> Axes {
        own.iter().filter(|a| !m.axes.contains(*a)).chain(of.iter().filter(shown)).collect()
    };
    let u = set(block.spec.unreduced_axes(), spec.unreduced_axes());
    let r = set(block.spec.reduced_axes(), spec.reduced_axes());
    ArrayType {
        dtype: block.dtype,
        shape,
        mesh: Some(m.mesh.clone()),
        spec: Spec::from_dims(dims).unreduced(u).reduced(r).in_order(&m.mesh),
        varying: block.varying.without(&m.axes),
    }
}

/// Returns the type inside the body of blocks with the shape of `block` that enter with `spec`.
fn block_type(m: &ShardMapping, block: &ArrayType, spec: Spec) -> ArrayType {
    let mut block = block.clone();
    if m.checked {
        let own = |set: &Axes| set.without(&m.axes);
        let (v, u, r) =
            (own(&block.varying), own(block.spec.unreduced_axes()), own(block.spec.reduced_axes()));
        block.varying = m.mesh.in_order(v.iter().chain(dim_axes(spec)));
        let u = u.iter().chain(spec.unreduced_axes().iter());
        let r = r.iter().chain(spec.reduced_axes().iter());
        block.spec = block.spec.unreduced(m.mesh.in_order(u)).reduced(m.mesh.in_order(r));
    }
    block
}

/// Returns the axes over which a residual varies, and the spec with which it leaves the body.
///
/// The axes shard an additional first dimension. They are `None` if the residual does not vary over
/// any manual axis, and so needs no such dimension.
fn residual_container(m: &ShardMapping, ty: &ArrayType) -> (Option<Axes>, Spec) {
    let over: Axes = if m.checked {
        ty.varying.iter().filter(|a| m.axes.contains(*a)).collect()
    } else {
        m.mesh.in_order(m.axes.iter())
    };
    let own = |set: &Axes| -> Axes { set.iter().filter(|a| m.axes.contains(*a)).collect() };
    let sets = |s: Spec| s.unreduced(own(ty.spec.unreduced_axes())).reduced(own(ty.spec.reduced_axes()));
    if over.is_empty() {
        return (None, sets(Spec::replicated(ty.rank())));
    }
    let mut dims = vec![Axes::none(); ty.rank() + 1];
    dims[0] = over.clone();
    (Some(over), sets(Spec::from_dims(dims)))
}

/// Differentiates a `shard_map`.
pub(super) fn jvp_shard_map(b: &mut Builder, m: &ShardMapping, op: JvpOp<'_>) -> Result<PrimalsAndTangents> {
    let JvpOp { tangents, style, .. } = op;
    match style {
        Style::Fused => jvp_fused(b, &m.body, op, |body, has| {
            Control::ShardMap(ShardMapping {
                body: Arc::new(body),
                in_specs: [&m.in_specs[..], &select(&m.in_specs, &is_present(tangents))].concat(),
                out_specs: [&m.out_specs[..], &select(&m.out_specs, has)].concat(),
                ..m.clone()
            })
        }),
        Style::Split => jvp_split(b, m, op),
    }
}

/// Emits a `shard_map` for primals and residuals, and a linear one for tangents.
fn jvp_split(b: &mut Builder, m: &ShardMapping, op: JvpOp<'_>) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, .. } = op;
    let active = is_present(tangents);
    let lin = linearize(&m.body, &active)?;
    let (mut found, forward) = lin.residual_sources();
    let n = types.len();
    // a result can only be passed back in if it left with a spec that matches the axes over which
    // it varies
    let mut own = forward.outputs[n..].to_vec();
    for f in &mut found {
        let ResidualSource::Output(o) = *f else { continue };
        let ty = forward.input_type(&forward.outputs[o]);
        let (varies, spec) = (residual_container(m, &ty).0.unwrap_or_default(), m.out_specs[o]);
        if m.mesh.in_order(dim_axes(spec)) != varies || !spec.unreduced_axes().is_empty() {
            own.push(forward.outputs[o]);
            *f = ResidualSource::Extra(own.len() - 1);
        }
    }
    let blocks: Vec<ArrayType> = own.iter().map(|r| forward.input_type(r)).collect();
    let containers: Vec<(Option<Axes>, Spec)> = blocks.iter().map(|ty| residual_container(m, ty)).collect();

    // The forward body returns the results, then the residuals with their additional dimension.
    let outputs = [&forward.outputs[..n], &own].concat();
    let body = super::util::extend_program(&Program { outputs, ..forward }, |b, _, mut outs| {
        let own = outs.split_off(n);
        for (r, (over, _)) in own.iter().zip(&containers) {
            outs.push(if over.is_some() { b.expand_dims(r, &[0])? } else { r.clone() });
        }
        Ok(outs)
    })?;
    let contained = body.output_types().split_off(n);
    let kept_types: Vec<ArrayType> =
        contained.iter().zip(&containers).map(|(ty, (_, spec))| global_type(m, ty, *spec)).collect();
    let mapping = ShardMapping {
        body: Arc::new(dce(&body)),
        out_specs: m.out_specs.iter().copied().chain(containers.iter().map(|c| c.1)).collect(),
        ..m.clone()
    };
    let mut outs = b.control(Control::ShardMap(mapping), ins, [types, &kept_types].concat());
    let kept = outs.split_off(n);

    // The linear body removes the additional dimension of the residuals.
    let (mut operands, mut specs, mut inner_types) = (Vec::new(), Vec::new(), Vec::new());
    for (f, ty) in found.iter().zip(input_types(&lin.linear)) {
        let (value, spec, ty) = match f {
            ResidualSource::Input(i) => (ins[*i].clone(), m.in_specs[*i], ty),
            ResidualSource::Output(o) => (outs[*o].clone(), m.out_specs[*o], ty),
            ResidualSource::Extra(k) => (kept[*k].clone(), containers[*k].1, contained[*k].clone()),
        };
        operands.push(value);
        specs.push(spec);
        inner_types.push(ty);
    }
    operands.extend(tangents.iter().flatten().cloned());
    specs.extend(select(&m.in_specs, &active));
    inner_types.extend(input_types(&lin.linear).split_off(lin.residuals));
    let mut inner = Builder::new();
    let mut values = inputs(&mut inner, inner_types);
    for (f, v) in found.iter().zip(&mut values) {
        if matches!(f, ResidualSource::Extra(k) if containers[*k].0.is_some()) {
            *v = inner.squeeze(v, &[0])?;
        }
    }
    let tans = inner.inline(&lin.linear, &values);
    let mapping = ShardMapping {
        body: Arc::new(inner.finish(&tans)),
        in_specs: specs,
        out_specs: select(&m.out_specs, &lin.tangents),
        ..m.clone()
    };
    let tans = b.control(Control::ShardMap(mapping), &operands, select(types, &lin.tangents));
    Ok((outs, spread_tangents(&lin.tangents, tans)))
}

/// Returns the axes of the `shard_map` that a spec does not use.
fn unnamed_axes(m: &ShardMapping, spec: Spec) -> Axes {
    m.axes.iter().filter(|a| !spec.all_axes().any(|b| b == *a)).collect()
}

/// Transposes a linear `shard_map`.
pub(super) fn transpose_shard_map(
    b: &mut Builder,
    m: &ShardMapping,
    turned: &TransposedOp<'_>,
) -> Result<Tangents> {
    let is_linear = turned.is_linear();
    let given = turned.has_cotangent();
    let back = transpose(&m.body, &is_linear, &given, &|_| CotangentExit::Fitted)?;
    let known: Vec<bool> = is_linear.iter().map(|l| !l).collect();
    let in_specs: Vec<Spec> = select(&m.in_specs, &known);
    let ct_specs: Vec<Spec> = select(&m.out_specs, &given).into_iter().map(cotangent_spec).collect();
    let out_specs: Vec<Spec> =
        select(&select(&m.in_specs, &is_linear), &back.reached).into_iter().map(cotangent_spec).collect();
    let blocks = select(&m.body.output_types(), &given);

    let mut inner = Builder::new();
    let mut values = inputs(&mut inner, select(&input_types(&m.body), &known));
    let mesh = m.body.mesh.clone().map_or_else(|| m.mesh.with_axis_types(&m.axes, AxisType::Manual), Ok)?;
    for (block, spec) in blocks.iter().zip(&ct_specs) {
        let mut ty = block_type(m, block, *spec);
        ty.mesh = Some(mesh.clone());
        let ct = inner.input(ty, None);
        let copies: usize = unnamed_axes(m, *spec).iter().map(|a| m.mesh.extent(a)).product();
        values.push(match m.checked {
            true => inner.fit_cotangent(&ct, block)?,
            false if copies > 1 => inner.mul_scalar(&ct, 1.0 / copies as f64)?,
            false => ct,
        });
    }
    let mut outs = inner.inline(&back.program, &values);
    if !m.checked {
        for (ct, spec) in outs.iter_mut().zip(&out_specs) {
            let along = CollectiveGroup::new(mesh.clone(), unnamed_axes(m, *spec), false);
            if along.size() > 1 {
                let sum = Arc::new(Preduce { group: along, reducer: Reducer::Add });
                *ct = inner.emit1(sum, std::slice::from_ref(ct))?;
            }
        }
    }
    let types: Vec<ArrayType> =
        outs.iter().zip(&out_specs).map(|(ct, spec)| global_type(m, &ct.ty, *spec)).collect();
    let mapping = ShardMapping {
        body: Arc::new(dce(&inner.finish(&outs))),
        in_specs: in_specs.into_iter().chain(ct_specs).collect(),
        out_specs,
        ..m.clone()
    };
    let operands = [turned.known_operands(), turned.cotangents()].concat();
    Ok(turned.spread_cotangents(&back.reached, b.control(Control::ShardMap(mapping), &operands, types)))
}
