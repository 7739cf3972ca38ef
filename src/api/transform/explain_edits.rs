//! The edits that `explain` tries: where a program can be changed, and to which shardings.

use crate::api::trace::what_if::{Site, TrialEdit};
use crate::core::{Axes, AxisType, LineLabels, Mesh, SourceLocation, Spec};
use crate::ir::ops::sharding::{Constrain, Reshard};
use crate::ir::program::{Control, Equation, Input, Op, Phase, Program, Var};

/// The target of an edit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EditSite {
    /// The sharding of an argument, by its leaf index.
    Argument(usize),
    /// The result of an operation.
    Value(Site),
    /// The requested result sharding of an operation.
    OutSharding(Site),
    /// The result of the function with this index.
    Result(usize),
}

/// Finds an operation by its site. Returns its program, its equation and its first result.
pub(super) fn first_output<'a>(
    program: &'a Program,
    site: &Site,
) -> Option<(&'a Program, &'a Equation, Var)> {
    program.equations.iter().find_map(|e| {
        let own = e.op.name() == site.op && e.location == Some(site.location) && e.phase == Phase::Forward;
        let own = own.then(|| e.outputs.first().map(|v| (program, e, *v))).flatten();
        let nested =
            || if let Op::Control(c) = &e.op { bodies(c).find_map(|b| first_output(b, site)) } else { None };
        own.or_else(nested)
    })
}

/// Appends the forward operations at a source location, and those that compute their operands.
///
/// The cotangents of these values are what the backward pass of the line communicates.
pub(super) fn sites_of_line(program: &Program, location: SourceLocation, places: &mut Vec<EditSite>) {
    let site = |e: &Equation| match (&e.op, e.location, e.phase) {
        (Op::Prim(prim), Some(location), Phase::Forward) => {
            Some(EditSite::Value(Site { op: prim.name().to_string(), location }))
        }
        _ => None,
    };
    for e in &program.equations {
        if let Op::Control(c) = &e.op {
            bodies(c).for_each(|body| sites_of_line(body, location, places));
        }
        if e.location != Some(location) || e.phase != Phase::Forward {
            continue;
        }
        places.extend(site(e));
        let made = |i: &Input| {
            let Input::Var(v) = i else { return None };
            program.equations.iter().find(|e| e.outputs.contains(v)).and_then(site)
        };
        places.extend(e.inputs.iter().filter_map(made));
    }
}

/// Returns the operations that read a value, in the forward phase.
pub(super) fn consumers(program: &Program, var: Var) -> Vec<Site> {
    let reads = |e: &&Equation| e.inputs.contains(&Input::Var(var)) && e.phase == Phase::Forward;
    let site = |e: &Equation| Some(Site { op: e.op.name().to_string(), location: e.location? });
    program.equations.iter().filter(reads).filter_map(site).collect()
}

pub(super) fn bodies(c: &Control) -> impl Iterator<Item = &Program> {
    c.bodies().into_iter().map(|b| &**b)
}

/// Formats an operation with its source location and phase.
pub(super) fn describe_op(op: &str, location: Option<SourceLocation>, phase: Phase) -> String {
    let line = location.map_or(String::new(), |p| format!(" at {}", LineLabels::new().label(Some(p))));
    let phase = if phase == Phase::Forward { String::new() } else { format!(" ({})", phase.name()) };
    format!("{op}{line}{phase}")
}

/// Returns the shardings to try: `spec` without the axes, with them moved to each dimension, and
/// reduced over them.
pub(super) fn alternatives(mesh: &Mesh, spec: Spec, shape: &[usize], axes: &Axes) -> Vec<Spec> {
    let without = spec.filter_axes(|a| !axes.contains(a));
    let num_shards: usize = axes.iter().map(|a| mesh.axis_size(a).unwrap_or(1)).product();
    let along = (0..shape.len()).map(|d| {
        let held: usize = without.dim(d).iter().map(|a| mesh.axis_size(*a).unwrap_or(1)).product();
        let divides = shape[d].is_multiple_of(held.max(1) * num_shards.max(1));
        divides.then(|| {
            let entry: Axes = without.dim(d).iter().copied().chain(axes.iter()).collect();
            without.with_dim(d, &entry)
        })
    });
    let all = std::iter::once(Some(without)).chain(along).flatten();
    let mut all: Vec<Spec> = all.filter(|s| s.dims() != spec.dims()).collect();
    // over explicit axes the cotangent of a reduced value is summed where the value came from
    if axes.iter().all(|a| mesh.axis_type(a) == Some(AxisType::Explicit)) {
        let mut over = spec.reduced_axes().clone();
        over.extend_unique(axes);
        if !over.same_set(spec.reduced_axes()) {
            all.push(without.reduced(over).in_order(mesh));
        }
    }
    all
}

/// Returns the edit that changes the sharding at `at` to `to`.
///
/// Returns `None` unless the axes are all explicit or all auto: a program can request a sharding
/// only over such axes.
pub(super) fn trial_edit(mesh: &Mesh, at: &EditSite, to: Spec, axes: &Axes) -> Option<TrialEdit> {
    let only = |ty| axes.iter().all(|a| mesh.axis_type(a) == Some(ty));
    let of = |ty| to.filter_axes(|a| mesh.axis_type(a) == Some(ty));
    if let EditSite::OutSharding(_) = at {
        only(AxisType::Explicit).then_some(TrialEdit::OutSharding(to))
    } else if only(AxisType::Explicit) {
        Some(TrialEdit::Reshard(Reshard::new(mesh.clone(), of(AxisType::Explicit))))
    } else if only(AxisType::Auto) {
        Some(TrialEdit::Constrain(Constrain::new(mesh.clone(), of(AxisType::Auto))))
    } else {
        None
    }
}

/// Formats an edit as the user would write it.
pub(super) fn describe_edit(
    at: &EditSite,
    ask: &TrialEdit,
    [was, to]: [Spec; 2],
    names: &[String],
) -> String {
    let call = match ask {
        TrialEdit::OutSharding(out) => format!("`{out}`"),
        TrialEdit::Reshard(r) => format!("`.reshard({})`", r.spec),
        TrialEdit::Constrain(c) => format!("`.constrain({})`", c.spec),
    };
    match at {
        EditSite::Argument(n) => {
            let name = names
                .get(*n)
                .filter(|n| !n.is_empty())
                .map_or("the argument".into(), |n| format!("argument {n}"));
            format!("shard {name} as `{to}`")
        }
        EditSite::Value(site) => {
            format!("write {call} after {}", describe_op(&site.op, Some(site.location), Phase::Forward))
        }
        EditSite::OutSharding(site) => {
            let op = describe_op(&site.op, Some(site.location), Phase::Forward);
            format!("ask {op} for {call}, instead of `{was}`")
        }
        EditSite::Result(n) => format!("write {call} after result {n}"),
    }
}
