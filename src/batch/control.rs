//! Control operations on many examples.
//!
//! Which carries of a loop depend on the example is found by repeating from those that do at first. Where examples choose
//! differently all branches run, and each example takes its own; a loop that ends at different times goes on until the last example
//! is done, those that are done keeping their carries.

use super::{Item, along, behind_examples, items, nested, push, spread, types};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::mesh::{Axes, AxisType};
use crate::ops::elementwise::Binary;
use crate::ops::reduce::Reduction;
use crate::program::{Builder, Control, Examples, Loop, Parts, Program, ShardMapping, Value, inserted};
use crate::types::{ArrayType, DType};
use std::sync::Arc;

fn mapped(items: &[Item]) -> Vec<bool> {
    items.iter().map(|i| i.mapped).collect()
}
fn values(items: &[Item]) -> Vec<Value> {
    items.iter().map(|i| i.value.clone()).collect()
}
fn union(a: &[bool], b: &[bool]) -> Vec<bool> {
    a.iter().zip(b).map(|(a, b)| *a || *b).collect()
}

/// The operation on all examples; at least one operand is mapped.
pub(super) fn batched(
    b: &mut Builder,
    control: &Control,
    operands: &[Item],
    one: &[ArrayType],
    examples: &Examples,
) -> Result<Vec<Item>> {
    let none = vec![false; one.len()];
    match control {
        Control::Jit { body, keep } => {
            let (body, has) = nested(body, &mapped(operands), &none, examples)?;
            let control = Control::Jit { body: Arc::new(body), keep: keep.clone() };
            let results = b.control(control, &values(operands), types(one, &has, examples));
            Ok(items(results, &has))
        }
        Control::Loop(l) => counted(b, l, operands, one, examples),
        Control::While { cond, body, cond_fixed, body_fixed } => {
            let w = While { cond, body, cond_fixed: *cond_fixed, body_fixed: *body_fixed };
            w.batched(b, operands, one, examples)
        }
        Control::Cond { branches } => chosen(b, branches, operands, one, examples),
        Control::ShardMap(m) => per_device(b, m, operands, one, examples),
        Control::Modes { body, out_specs } => {
            // inside, axes that are not explicit there are no part of types
            let explicit = |a| body.mesh.as_ref().is_none_or(|m| m.axis_type(a) == Some(AxisType::Explicit));
            let axes = examples.axes.iter().filter(|a| explicit(*a)).collect();
            let inside = Examples { axes, mesh: body.mesh.clone(), ..examples.clone() };
            let (body, has) = nested(body, &mapped(operands), &none, &inside)?;
            let out_specs = (out_specs.iter().zip(&has).zip(one))
                .map(|((spec, has), ty)| match spec {
                    Some(spec) if *has => Some(examples.spec(*spec, ty.rank(), 0)),
                    spec => *spec,
                })
                .collect();
            let control = Control::Modes { body: Arc::new(body), out_specs };
            let results = b.control(control, &values(operands), types(one, &has, examples));
            Ok(items(results, &has))
        }
        Control::Print { template } => {
            print(b, template, operands, examples)?;
            Ok(Vec::new())
        }
    }
}

/// Swaps the dimension of examples with the one behind it, which a loop runs over.
fn turned(b: &mut Builder, x: &Value) -> Result<Value> {
    let order: Vec<usize> = [1, 0].into_iter().chain(2..x.ty.rank()).collect();
    b.transpose(x, &order)
}

fn counted(
    b: &mut Builder,
    l: &Loop,
    operands: &[Item],
    one: &[ArrayType],
    examples: &Examples,
) -> Result<Vec<Item>> {
    let Parts { fixed, carry, xs } = l.parts(operands);
    let (mut carried, stacked) = (mapped(&carry), vec![false; one.len() - l.carry]);
    let (body, has) = loop {
        let flags = Parts { fixed: mapped(&fixed), carry: carried.clone(), xs: mapped(&xs) }.step(false);
        let (body, has) = nested(&l.body, &flags, &[&carried[..], &stacked].concat(), examples)?;
        if has[..l.carry] == carried[..] {
            break (body, has);
        }
        carried = union(&carried, &has[..l.carry]);
    };
    let mut inputs = values(&fixed);
    for (c, has) in carry.iter().zip(&carried) {
        inputs.push(if *has { spread(b, c, examples)? } else { c.value.clone() });
    }
    for x in xs {
        inputs.push(if x.mapped { turned(b, &x.value)? } else { x.value.clone() });
    }
    // what is stacked has the steps in front
    let mut all = types(one, &has, examples);
    for ty in all[l.carry..].iter_mut().zip(&has[l.carry..]).filter(|(_, has)| **has).map(|(ty, _)| ty) {
        let mut dims = ty.spec.dims().to_vec();
        dims.swap(0, 1);
        ty.spec = ty.spec.with_dims(dims);
        ty.shape.sizes_mut().swap(0, 1);
    }
    let control = Control::Loop(Loop { body: Arc::new(body), ..l.clone() });
    let mut results = items(b.control(control, &inputs, all), &has);
    for r in results[l.carry..].iter_mut().filter(|r| r.mapped) {
        r.value = turned(b, &r.value)?;
    }
    Ok(results)
}

/// x where `which` holds, else y, for each example.
fn pick(b: &mut Builder, which: &Value, x: &Value, y: &Value) -> Result<Value> {
    let which = along(b, which, &x.ty)?;
    b.select(&which, x, y)
}

/// A loop while a condition holds.
struct While<'a> {
    cond: &'a Program,
    body: &'a Program,
    cond_fixed: usize,
    body_fixed: usize,
}

impl While<'_> {
    fn batched(
        &self,
        b: &mut Builder,
        operands: &[Item],
        one: &[ArrayType],
        examples: &Examples,
    ) -> Result<Vec<Item>> {
        let (cond_fixed, rest) = operands.split_at(self.cond_fixed);
        let (body_fixed, carry) = rest.split_at(self.body_fixed);
        let mut carried = mapped(carry);
        loop {
            let flags = [mapped(body_fixed), carried.clone()].concat();
            let (body, next) = nested(self.body, &flags, &carried, examples)?;
            let more = union(&carried, &next);
            if more != carried {
                carried = more;
                continue;
            }
            let flags = [mapped(cond_fixed), carried.clone()].concat();
            let (cond, asks) = nested(self.cond, &flags, &[false], examples)?;
            // where examples end at different times all carries are the examples' own
            if asks[0] && carried.contains(&false) {
                carried = vec![true; carried.len()];
                continue;
            }
            let mut first = Vec::with_capacity(carry.len());
            for (c, has) in carry.iter().zip(&carried) {
                first.push(if *has { spread(b, c, examples)? } else { c.value.clone() });
            }
            let (cond_values, body_values) = (values(cond_fixed), values(body_fixed));
            let (control, inputs) = if asks[0] {
                let (cond, body) = self.until_the_last(&cond, &body)?;
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
            let results = b.control(control, &inputs, types(one, &carried, examples));
            return Ok(items(results, &carried));
        }
    }

    /// Goes on while any example does, and changes only these. The body reads what the condition reads, too.
    fn until_the_last(&self, cond: &Program, body: &Program) -> Result<(Program, Program)> {
        let start = |program: &Program, b: &mut Builder| -> Vec<Value> {
            if let Some(mesh) = &program.mesh {
                b.on(mesh);
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
            *next = pick(&mut step, &asks, next, before)?;
        }
        Ok((until, step.finish(&next)))
    }
}

fn chosen(
    b: &mut Builder,
    branches: &[Arc<Program>],
    operands: &[Item],
    one: &[ArrayType],
    examples: &Examples,
) -> Result<Vec<Item>> {
    let (which, shared) = (&operands[0], &operands[1..]);
    if !which.mapped {
        let flags = mapped(shared);
        let mut has = vec![false; one.len()];
        for branch in branches {
            has = union(&has, &nested(branch, &flags, &has, examples)?.1);
        }
        let programs = branches.iter().map(|p| Ok(Arc::new(nested(p, &flags, &has, examples)?.0)));
        let control = Control::Cond { branches: programs.collect::<Result<_>>()? };
        let results = b.control(control, &values(operands), types(one, &has, examples));
        return Ok(items(results, &has));
    }
    // all branches run; the last one is what is left when no other was chosen
    let mut all = Vec::with_capacity(branches.len());
    for branch in branches {
        let mut results = Vec::with_capacity(one.len());
        for r in push(b, branch, shared, examples)? {
            results.push(spread(b, &r, examples)?);
        }
        all.push(results);
    }
    let Some(mut picked) = all.pop() else { return Ok(Vec::new()) };
    for (k, results) in all.into_iter().enumerate().rev() {
        let takes = match which.value.ty.dtype {
            // of two by a bool the first is the true one
            DType::Bool => which.value.clone(),
            dtype => {
                let number = Value::literal(dtype, k as i64);
                // below the first is the first
                b.binary(if k == 0 { Binary::Le } else { Binary::Eq }, &which.value, &number)?
            }
        };
        for (p, r) in picked.iter_mut().zip(results) {
            *p = pick(b, &takes, &r, p)?;
        }
    }
    Ok(items(picked, &vec![true; one.len()]))
}

fn per_device(
    b: &mut Builder,
    m: &ShardMapping,
    operands: &[Item],
    one: &[ArrayType],
    examples: &Examples,
) -> Result<Vec<Item>> {
    if let Some(axis) = examples.axes.iter().find(|a| m.axes.contains(*a)) {
        let fault = Fault::new(
            ErrorKind::Sharding,
            format!("the examples are sharded over {axis}, which is manual inside the shard_map"),
        )
        .help("split the examples over another axis, or map inside the shard_map");
        return Err(b.refuse(fault, "shard_map", &values(operands)));
    }
    let flags = mapped(operands);
    let inside = Examples { mesh: m.body.mesh.clone(), constrained: Axes::none(), ..examples.clone() };
    let (body, has) = nested(&m.body, &flags, &vec![false; one.len()], &inside)?;
    let in_specs = (m.in_specs.iter().zip(&flags).zip(&m.body.inputs))
        .map(|((spec, mapped), v)| behind_examples(*spec, m.body.ty(*v).rank(), *mapped))
        .collect();
    let out_specs = (m.out_specs.iter().zip(&has).zip(one))
        .map(|((spec, has), ty)| behind_examples(*spec, ty.rank(), *has))
        .collect();
    let mapping = ShardMapping { body: Arc::new(body), in_specs, out_specs, ..m.clone() };
    let results = b.control(Control::ShardMap(mapping), &values(operands), types(one, &has, examples));
    Ok(items(results, &has))
}

/// Prints once for each example, in order: a loop over the examples, which are gathered first.
fn print(b: &mut Builder, template: &str, operands: &[Item], examples: &Examples) -> Result<()> {
    let mut step = Builder::new();
    step.at(b.place());
    step.input(DType::I32.of([]), None);
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
        let whole = ty.spec.with_dims(inserted(&rest, 0, Axes::none()));
        xs.push(b.reshard_to(&item.value, &ArrayType { spec: whole, ..ty.clone() })?);
        *value = step.input(
            ArrayType { shape: ty.shape[1..].into(), spec: ty.spec.with_dims(rest), ..ty.clone() },
            None,
        );
    }
    step.control(Control::Print { template: template.to_string() }, &printed, Vec::new());
    let body = Arc::new(step.finish(&[]));
    let (length, fixed_count) = (examples.size, fixed.len());
    let l = Loop { body, start: 0, length, reverse: false, fixed: fixed_count, carry: 0 };
    b.control(Control::Loop(l), &[fixed, xs].concat(), Vec::new());
    Ok(())
}
