//! Implements `vmap` for control operations: loops, conditionals, `shard_map`, and printing.
//!
//! A loop carry is batched if its initial value or its next value is batched. These carries are
//! found by vectorizing the body repeatedly, until no carry is added. If a conditional's predicate
//! is batched, all branches run and each example selects its own result. A `while` loop with a
//! batched condition runs until the last example is done; finished examples keep their carries.

use super::custom::vmap_custom;
use super::{
    BatchedValue, VmappedControl, batched_spec, batched_types, batched_values, broadcast_along_batch,
    inline_vmap, mapped, spread_over_batch, union_flags, values, vmap_program,
};
use crate::core::{ArrayType, Axes, AxisType, DType, Result};
use crate::ir::program::{
    BatchDim, Builder, Control, Loop, LoopOperands, Program, ShardMapping, Value, with_inserted,
};
use crate::ir::{ops::elementwise::Binary, ops::reduce::Reduction};
use std::sync::Arc;

/// Emits the batched control operation.
///
/// At least one operand is batched.
pub(super) fn vmap_control(
    b: &mut Builder,
    control: &Control,
    op: VmappedControl<'_>,
) -> Result<Vec<BatchedValue>> {
    let VmappedControl { operands, result_types, batch_dim } = op;
    let none = vec![false; result_types.len()];
    match control {
        Control::Jit { body, policy, recomputes } => {
            let (body, has) = vmap_program(body, &mapped(operands), &none, batch_dim)?;
            let control =
                Control::Jit { body: Arc::new(body), policy: policy.clone(), recomputes: *recomputes };
            let results = b.control(control, &values(operands), batched_types(result_types, &has, batch_dim));
            Ok(batched_values(results, &has))
        }
        Control::Loop(l) => vmap_loop(b, l, op),
        Control::While { cond, body, cond_fixed, body_fixed } => {
            let w = WhileLoop { cond, body, cond_fixed: *cond_fixed, body_fixed: *body_fixed };
            w.vmap(b, op)
        }
        Control::Cond { branches } => vmap_cond(b, branches, op),
        Control::ShardMap(m) => vmap_shard_map(b, m, op),
        Control::Custom(call) => vmap_custom(b, call, op),
        Control::AxisModes { body, out_specs } => {
            // inside the body, types only have the axes that are explicit there
            let explicit = |a| body.mesh.as_ref().is_none_or(|m| m.axis_type(a) == Some(AxisType::Explicit));
            let axes = batch_dim.axes.iter().filter(|a| explicit(*a)).collect();
            let inside = BatchDim { axes, mesh: body.mesh.clone(), ..batch_dim.clone() };
            let (body, has) = vmap_program(body, &mapped(operands), &none, &inside)?;
            let out_specs = (out_specs.iter().zip(&has).zip(result_types))
                .map(|((spec, has), ty)| match spec {
                    Some(spec) if *has => Some(batch_dim.spec(*spec, ty.rank(), 0)),
                    spec => *spec,
                })
                .collect();
            let control = Control::AxisModes { body: Arc::new(body), out_specs };
            let results = b.control(control, &values(operands), batched_types(result_types, &has, batch_dim));
            Ok(batched_values(results, &has))
        }
        Control::Print { template } => {
            vmap_print(b, template, operands, batch_dim)?;
            Ok(Vec::new())
        }
    }
}

/// Swaps the batch dimension with the second dimension, which a loop iterates over.
fn swap_batch_and_step(b: &mut Builder, x: &Value) -> Result<Value> {
    let order: Vec<usize> = [1, 0].into_iter().chain(2..x.ty.rank()).collect();
    b.transpose(x, &order)
}

/// Batches a loop with a known number of iterations.
fn vmap_loop(b: &mut Builder, l: &Loop, op: VmappedControl<'_>) -> Result<Vec<BatchedValue>> {
    let VmappedControl { operands, result_types, batch_dim } = op;
    let LoopOperands { fixed, carry, xs } = l.split_operands(operands);
    let (mut carried, stacked) = (mapped(&carry), vec![false; result_types.len() - l.carry]);
    let (body, has) = loop {
        let flags = LoopOperands { fixed: mapped(&fixed), carry: carried.clone(), xs: mapped(&xs) }
            .into_body_inputs(false);
        let (body, has) = vmap_program(&l.body, &flags, &[&carried[..], &stacked].concat(), batch_dim)?;
        if has[..l.carry] == carried[..] {
            break (body, has);
        }
        carried = union_flags(&carried, &has[..l.carry]);
    };
    let mut inputs = values(&fixed);
    for (c, has) in carry.iter().zip(&carried) {
        inputs.push(if *has { spread_over_batch(b, c, batch_dim)? } else { c.value.clone() });
    }
    for x in xs {
        inputs.push(if x.mapped { swap_batch_and_step(b, &x.value)? } else { x.value.clone() });
    }
    // stacked results have the iteration dimension first, so it is swapped with the batch dimension
    let mut all = batched_types(result_types, &has, batch_dim);
    for ty in all[l.carry..].iter_mut().zip(&has[l.carry..]).filter(|(_, has)| **has).map(|(ty, _)| ty) {
        let mut dims = ty.spec.dims().to_vec();
        dims.swap(0, 1);
        ty.spec = ty.spec.with_dims(dims);
        ty.shape.sizes_mut().swap(0, 1);
    }
    let control = Control::Loop(Loop { body: Arc::new(body), ..l.clone() });
    let mut results = batched_values(b.control(control, &inputs, all), &has);
    for r in results[l.carry..].iter_mut().filter(|r| r.mapped) {
        r.value = swap_batch_and_step(b, &r.value)?;
    }
    Ok(results)
}

/// Returns `x` for the examples for which `which` is true, and `y` for the others.
fn select_per_example(b: &mut Builder, which: &Value, x: &Value, y: &Value) -> Result<Value> {
    let which = broadcast_along_batch(b, which, &x.ty)?;
    b.select(&which, x, y)
}

/// A `while` loop with its condition and body.
struct WhileLoop<'a> {
    /// The condition. It takes its fixed operands, then the carries.
    cond: &'a Program,
    /// The body. It takes its fixed operands, then the carries.
    body: &'a Program,
    /// The number of loop-invariant operands of the condition.
    cond_fixed: usize,
    /// The number of loop-invariant operands of the body.
    body_fixed: usize,
}

impl WhileLoop<'_> {
    /// Batches the loop.
    fn vmap(&self, b: &mut Builder, op: VmappedControl<'_>) -> Result<Vec<BatchedValue>> {
        let VmappedControl { operands, result_types: one, batch_dim: examples } = op;
        let (cond_fixed, rest) = operands.split_at(self.cond_fixed);
        let (body_fixed, carry) = rest.split_at(self.body_fixed);
        let mut carried = mapped(carry);
        loop {
            let flags = [mapped(body_fixed), carried.clone()].concat();
            let (body, next) = vmap_program(self.body, &flags, &carried, examples)?;
            let more = union_flags(&carried, &next);
            if more != carried {
                carried = more;
                continue;
            }
            let flags = [mapped(cond_fixed), carried.clone()].concat();
            let (cond, asks) = vmap_program(self.cond, &flags, &[false], examples)?;
            // If the condition is batched, examples finish at different iterations, so every carry
            // is batched.
            if asks[0] && carried.contains(&false) {
                carried = vec![true; carried.len()];
                continue;
            }
            let mut first = Vec::with_capacity(carry.len());
            for (c, has) in carry.iter().zip(&carried) {
                first.push(if *has { spread_over_batch(b, c, examples)? } else { c.value.clone() });
            }
            let (cond_values, body_values) = (values(cond_fixed), values(body_fixed));
            let (control, inputs) = if asks[0] {
                let (cond, body) = self.until_all_done(&cond, &body)?;
                let body_inputs = self.cond_fixed + self.body_fixed;
                let control = Control::While {
                    cond: Arc::new(cond),
                    body: Arc::new(body),
                    cond_fixed: self.cond_fixed,
                    body_fixed: body_inputs,
                };
                (control, [cond_values.clone(), cond_values, body_values, first].concat())
            } else {
                let (cond, body) = (Arc::new(cond), Arc::new(body));
                let (cond_fixed, body_fixed) = (self.cond_fixed, self.body_fixed);
                let control = Control::While { cond, body, cond_fixed, body_fixed };
                (control, [cond_values, body_values, first].concat())
            };
            let results = b.control(control, &inputs, batched_types(one, &carried, examples));
            return Ok(batched_values(results, &carried));
        }
    }

    /// Returns a condition that is true while any example continues, and a body that masks updates.
    ///
    /// Carries of finished examples keep their values. The new body evaluates the condition, so it
    /// takes the operands of the condition too.
    fn until_all_done(&self, cond: &Program, body: &Program) -> Result<(Program, Program)> {
        let start = |program: &Program, b: &mut Builder| -> Vec<Value> {
            if let Some(mesh) = &program.mesh {
                b.set_default_mesh(mesh);
            }
            program.inputs.iter().map(|v| b.input(program.ty(*v).clone(), None)).collect()
        };
        let mut any = Builder::new();
        let inputs = start(cond, &mut any);
        let asks = any.inline(cond, &inputs).swap_remove(0);
        let asks = any.reduce(Reduction::Or, &asks, &[0])?;
        let until = any.finish(&[asks]);

        let mut step = Builder::new();
        let fixed: Vec<Value> =
            cond.inputs[..self.cond_fixed].iter().map(|v| step.input(cond.ty(*v).clone(), None)).collect();
        let inputs = start(body, &mut step);
        let carry = &inputs[self.body_fixed..];
        let asks = step.inline(cond, &[&fixed, carry].concat()).swap_remove(0);
        let mut next = step.inline(body, &inputs);
        for (next, before) in next.iter_mut().zip(carry) {
            *next = select_per_example(&mut step, &asks, next, before)?;
        }
        Ok((until, step.finish(&next)))
    }
}

/// Batches a conditional.
fn vmap_cond(
    b: &mut Builder,
    branches: &[Arc<Program>],
    op: VmappedControl<'_>,
) -> Result<Vec<BatchedValue>> {
    let VmappedControl { operands, result_types, batch_dim } = op;
    let (which, shared) = (&operands[0], &operands[1..]);
    if !which.mapped {
        let flags = mapped(shared);
        let mut has = vec![false; result_types.len()];
        for branch in branches {
            has = union_flags(&has, &vmap_program(branch, &flags, &has, batch_dim)?.1);
        }
        let programs = branches.iter().map(|p| Ok(Arc::new(vmap_program(p, &flags, &has, batch_dim)?.0)));
        let control = Control::Cond { branches: programs.collect::<Result<_>>()? };
        let results = b.control(control, &values(operands), batched_types(result_types, &has, batch_dim));
        return Ok(batched_values(results, &has));
    }
    // all branches run; the last one is the default if no other branch was selected
    let mut all = Vec::with_capacity(branches.len());
    for branch in branches {
        let mut results = Vec::with_capacity(result_types.len());
        for r in inline_vmap(b, branch, shared, batch_dim)? {
            results.push(spread_over_batch(b, &r, batch_dim)?);
        }
        all.push(results);
    }
    let Some(mut picked) = all.pop() else { return Ok(Vec::new()) };
    for (k, results) in all.into_iter().enumerate().rev() {
        let takes = match which.value.ty.dtype {
            // A bool predicate selects branch 0 where it is true.
            DType::Bool => which.value.clone(),
            dtype => {
                let number = Value::literal(dtype, k as i64);
                // Indices below 0 select branch 0.
                b.binary(if k == 0 { Binary::Le } else { Binary::Eq }, &which.value, &number)?
            }
        };
        for (p, r) in picked.iter_mut().zip(results) {
            *p = select_per_example(b, &takes, &r, p)?;
        }
    }
    Ok(batched_values(picked, &vec![true; result_types.len()]))
}

/// Batches a `shard_map`. The batch must not be sharded over its manual axes.
fn vmap_shard_map(b: &mut Builder, m: &ShardMapping, op: VmappedControl<'_>) -> Result<Vec<BatchedValue>> {
    let VmappedControl { operands, result_types, batch_dim } = op;
    if let Some(axis) = batch_dim.axes.iter().find(|a| m.axes.contains(*a)) {
        let fault =
            fault!(Sharding, "the examples are sharded over {axis}, which is manual inside the shard_map")
                .help("split the examples over another axis, or map inside the shard_map");
        return Err(b.error(fault, "shard_map", &values(operands)));
    }
    let flags = mapped(operands);
    let inside = BatchDim { mesh: m.body.mesh.clone(), constrained_axes: Axes::none(), ..batch_dim.clone() };
    let (body, has) = vmap_program(&m.body, &flags, &vec![false; result_types.len()], &inside)?;
    let in_specs = (m.in_specs.iter().zip(&flags).zip(&m.body.inputs))
        .map(|((spec, mapped), v)| batched_spec(*spec, m.body.ty(*v).rank(), *mapped))
        .collect();
    let out_specs = (m.out_specs.iter().zip(&has).zip(result_types))
        .map(|((spec, has), ty)| batched_spec(*spec, ty.rank(), *has))
        .collect();
    let mapping = ShardMapping { body: Arc::new(body), in_specs, out_specs, ..m.clone() };
    let results = b.control(
        Control::ShardMap(mapping),
        &values(operands),
        batched_types(result_types, &has, batch_dim),
    );
    Ok(batched_values(results, &has))
}

/// Prints once for each example, in order, with a loop over the gathered batch.
fn vmap_print(
    b: &mut Builder,
    template: &str,
    operands: &[BatchedValue],
    batch_dim: &BatchDim,
) -> Result<()> {
    let mut step = Builder::new();
    step.set_location(b.location());
    step.input(DType::I32.array_type([]), None);
    let mut printed: Vec<Value> = values(operands);
    let (mut fixed, mut xs) = (Vec::new(), Vec::new());
    for (item, value) in operands.iter().zip(&mut printed).filter(|(i, _)| !i.mapped && !i.value.is_literal())
    {
        fixed.push(item.value.clone());
        *value = step.input(item.value.ty.clone(), None);
    }
    for (item, value) in operands.iter().zip(&mut printed).filter(|(i, _)| i.mapped) {
        let ty = &item.value.ty;
        let rest: Vec<Axes> = ty.spec.dims()[1..].to_vec();
        let unsharded = ty.spec.with_dims(with_inserted(&rest, 0, Axes::none()));
        xs.push(b.reshard_to(&item.value, &ArrayType { spec: unsharded, ..ty.clone() })?);
        *value = step.input(
            ArrayType { shape: ty.shape[1..].into(), spec: ty.spec.with_dims(rest), ..ty.clone() },
            None,
        );
    }
    step.control(Control::Print { template: template.to_string() }, &printed, Vec::new());
    let body = Arc::new(step.finish(&[]));
    let (length, fixed_count) = (batch_dim.size, fixed.len());
    let l = Loop { body, start: 0, length, reverse: false, fixed: fixed_count, carry: 0 };
    b.control(Control::Loop(l), &[fixed, xs].concat(), Vec::new());
    Ok(())
}
