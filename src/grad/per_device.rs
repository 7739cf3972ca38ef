//! Derivatives of per-device code.
//!
//! A residual leaves a body with one more dimension in front, of size 1 and split over the axes over which the residual varies; one
//! that varies over none leaves as it is. Cotangents come in as the results went out and go out as the inputs came in, with
//! unreduced and reduced sets traded. The types of what varies say which of them are summed over devices. Unchecked bodies have no
//! such types: there everything varies, the cotangent of a result comes in divided by the number of its copies, and
//! that of an input is summed over the axes along which the input was copied.

use super::linearize::{Found, linearize};
use super::modes::{placed, with_tangents};
use super::push::{Duals, Style, forward};
use super::surgery::{input_types, inputs};
use super::transpose::{Leave, Turned, transpose};
use crate::diagnostic::Result;
use crate::mesh::{Axes, Axis, AxisType};
use crate::ops::collective::{Along, Preduce};
use crate::program::dce::{chosen, dce};
use crate::program::sentence::Combine;
use crate::program::{Builder, Control, Program, ShardMapping, Value};
use crate::sharding::Spec;
use crate::types::{ArrayType, Shape};
use std::sync::Arc;

fn names(spec: Spec) -> impl Iterator<Item = Axis> {
    spec.dims().iter().flat_map(Axes::iter)
}

/// The spec of the cotangent of what entered or left by this spec.
fn traded(spec: Spec) -> Spec {
    spec.unreduced(spec.reduced_axes()).reduced(spec.unreduced_axes())
}

/// The type outside of a result whose blocks are of this type and leave by this spec.
fn outside(m: &ShardMapping, block: &ArrayType, spec: Spec) -> ArrayType {
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
        spec: Spec::of(dims).unreduced(u).reduced(r).in_order(&m.mesh),
        varying: block.varying.without(&m.axes),
    }
}

/// The type inside of blocks shaped as this type when they enter by this spec.
fn entering(m: &ShardMapping, block: &ArrayType, spec: Spec) -> ArrayType {
    let mut block = block.clone();
    if m.checked {
        let own = |set: &Axes| set.without(&m.axes);
        let (v, u, r) =
            (own(&block.varying), own(block.spec.unreduced_axes()), own(block.spec.reduced_axes()));
        block.varying = m.mesh.in_order(v.iter().chain(names(spec)));
        let u = u.iter().chain(spec.unreduced_axes().iter());
        let r = r.iter().chain(spec.reduced_axes().iter());
        block.spec = block.spec.unreduced(m.mesh.in_order(u)).reduced(m.mesh.in_order(r));
    }
    block
}

/// How a residual of this type leaves: with a dimension in front that is split over what it varies over (`None`: as it is).
fn container(m: &ShardMapping, ty: &ArrayType) -> (Option<Axes>, Spec) {
    let over: Axes = if m.checked {
        ty.varying.iter().filter(|a| m.axes.contains(*a)).collect()
    } else {
        m.mesh.in_order(m.axes.iter())
    };
    let own = |set: &Axes| -> Axes { set.iter().filter(|a| m.axes.contains(*a)).collect() };
    let sets = |s: Spec| s.unreduced(own(ty.spec.unreduced_axes())).reduced(own(ty.spec.reduced_axes()));
    if over.is_empty() {
        return (None, sets(Spec::whole(ty.rank())));
    }
    let mut dims = vec![Axes::none(); ty.rank() + 1];
    dims[0] = over.clone();
    (Some(over), sets(Spec::of(dims)))
}

pub(super) fn shard_map(
    b: &mut Builder,
    m: &ShardMapping,
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
    style: Style,
) -> Result<Duals> {
    let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let tangent_specs = chosen(&m.in_specs, &active);
    if style == Style::Together {
        let jvp = forward(&m.body, &active, style)?;
        let mapping = ShardMapping {
            body: Arc::new(jvp.program),
            in_specs: [&m.in_specs[..], &tangent_specs].concat(),
            out_specs: [&m.out_specs[..], &chosen(&m.out_specs, &jvp.tangents)].concat(),
            ..m.clone()
        };
        let all = [types, &chosen(types, &jvp.tangents)].concat();
        let mut outs = b.control(Control::ShardMap(mapping), &with_tangents(ins, tangents), all);
        let tans = placed(&jvp.tangents, outs.split_off(types.len()));
        return Ok((outs, tans));
    }
    let lin = linearize(&m.body, &active)?;
    let (mut found, forward) = lin.found();
    let n = types.len();
    // a result is at hand again inside only if it left just as it varies
    let mut own = forward.outputs[n..].to_vec();
    for f in &mut found {
        let Found::Output(o) = *f else { continue };
        let ty = forward.input_type(&forward.outputs[o]);
        let (varies, spec) = (container(m, &ty).0.unwrap_or_default(), m.out_specs[o]);
        if m.mesh.in_order(names(spec)) != varies || !spec.unreduced_axes().is_empty() {
            own.push(forward.outputs[o]);
            *f = Found::Own(own.len() - 1);
        }
    }
    let blocks: Vec<ArrayType> = own.iter().map(|r| forward.input_type(r)).collect();
    let containers: Vec<(Option<Axes>, Spec)> = blocks.iter().map(|ty| container(m, ty)).collect();

    // the values; residuals in containers
    let outputs = [&forward.outputs[..n], &own].concat();
    let body = super::surgery::extended(&Program { outputs, ..forward }, |b, _, mut outs| {
        let own = outs.split_off(n);
        for (r, (over, _)) in own.iter().zip(&containers) {
            outs.push(if over.is_some() { b.expand_dims(r, &[0])? } else { r.clone() });
        }
        Ok(outs)
    })?;
    let contained = body.output_types().split_off(n);
    let kept_types: Vec<ArrayType> =
        contained.iter().zip(&containers).map(|(ty, (_, spec))| outside(m, ty, *spec)).collect();
    let mapping = ShardMapping {
        body: Arc::new(dce(&body)),
        out_specs: m.out_specs.iter().copied().chain(containers.iter().map(|c| c.1)).collect(),
        ..m.clone()
    };
    let mut outs = b.control(Control::ShardMap(mapping), ins, [types, &kept_types].concat());
    let kept = outs.split_off(n);

    // the linear body takes them out again
    let (mut operands, mut specs, mut inner_types) = (Vec::new(), Vec::new(), Vec::new());
    for (f, ty) in found.iter().zip(input_types(&lin.linear)) {
        let (value, spec, ty) = match f {
            Found::Input(i) => (ins[*i].clone(), m.in_specs[*i], ty),
            Found::Output(o) => (outs[*o].clone(), m.out_specs[*o], ty),
            Found::Own(k) => (kept[*k].clone(), containers[*k].1, contained[*k].clone()),
        };
        operands.push(value);
        specs.push(spec);
        inner_types.push(ty);
    }
    operands.extend(tangents.iter().flatten().cloned());
    specs.extend(tangent_specs);
    inner_types.extend(input_types(&lin.linear).split_off(lin.residuals));
    let mut inner = Builder::new();
    let mut values = inputs(&mut inner, inner_types);
    for (f, v) in found.iter().zip(&mut values) {
        if matches!(f, Found::Own(k) if containers[*k].0.is_some()) {
            *v = inner.squeeze(v, &[0])?;
        }
    }
    let tans = inner.inline(&lin.linear, &values);
    let mapping = ShardMapping {
        body: Arc::new(inner.finish(&tans)),
        in_specs: specs,
        out_specs: chosen(&m.out_specs, &lin.tangents),
        ..m.clone()
    };
    let tans = b.control(Control::ShardMap(mapping), &operands, chosen(types, &lin.tangents));
    Ok((outs, placed(&lin.tangents, tans)))
}

/// The mapping's axes that a spec does not name.
fn unnamed(m: &ShardMapping, spec: Spec) -> Axes {
    m.axes.iter().filter(|a| !spec.all_axes().any(|b| b == *a)).collect()
}

pub(super) fn turn(b: &mut Builder, m: &ShardMapping, turned: &Turned<'_>) -> Result<Vec<Option<Value>>> {
    let is_linear = turned.is_linear();
    let given = turned.given();
    let back = transpose(&m.body, &is_linear, &given, |_| Leave::Fitted)?;
    let known: Vec<bool> = is_linear.iter().map(|l| !l).collect();
    let in_specs: Vec<Spec> = chosen(&m.in_specs, &known);
    let ct_specs: Vec<Spec> = chosen(&m.out_specs, &given).into_iter().map(traded).collect();
    let out_specs: Vec<Spec> =
        chosen(&chosen(&m.in_specs, &is_linear), &back.reached).into_iter().map(traded).collect();
    let blocks = chosen(&m.body.output_types(), &given);

    let mut inner = Builder::new();
    let mut values = inputs(&mut inner, chosen(&input_types(&m.body), &known));
    let mesh = m.body.mesh.clone().map_or_else(|| m.mesh.retyped(&m.axes, AxisType::Manual), Ok)?;
    for (block, spec) in blocks.iter().zip(&ct_specs) {
        let mut ty = entering(m, block, *spec);
        ty.mesh = Some(mesh.clone());
        let ct = inner.input(ty, None);
        let copies: usize = unnamed(m, *spec).iter().map(|a| m.mesh.extent(a)).product();
        values.push(match m.checked {
            true => inner.fit_cotangent(&ct, block)?,
            false if copies > 1 => inner.times(&ct, 1.0 / copies as f64)?,
            false => ct,
        });
    }
    let mut outs = inner.inline(&back.program, &values);
    if !m.checked {
        for (ct, spec) in outs.iter_mut().zip(&out_specs) {
            let along = Along { mesh: mesh.clone(), axes: unnamed(m, *spec), checked: false };
            if along.size() > 1 {
                let sum = Arc::new(Preduce { along, combine: Combine::Add });
                *ct = inner.emit1(sum, std::slice::from_ref(ct))?;
            }
        }
    }
    let types: Vec<ArrayType> =
        outs.iter().zip(&out_specs).map(|(ct, spec)| outside(m, &ct.ty, *spec)).collect();
    let mapping = ShardMapping {
        body: Arc::new(dce(&inner.finish(&outs))),
        in_specs: in_specs.into_iter().chain(ct_specs).collect(),
        out_specs,
        ..m.clone()
    };
    let operands = [turned.known(), turned.cotangents()].concat();
    Ok(turned.spread(&back.reached, b.control(Control::ShardMap(mapping), &operands, types)))
}
