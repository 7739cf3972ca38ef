//! The sets of a result: the axes over which it is unreduced, and those over which it is reduced.

use super::context::{LoopDim, TypingContext};
use super::suggest::{SetAxes, reduced_over, reshard_operands_help};
use crate::core::{Axes, Axis, AxisType, Fault, Spec, TypePart};
use crate::ir::program::factors::{Dim, DimMap, FactorKind, Linearity, LoopId};

/// Returns a help text that turns a literal into an array with this spec.
fn literal_help(kind: &str, spec: Spec) -> String {
    format!("make the number {kind}: `Array::from(…).put(&mesh, {spec})`")
}

/// The sets of the operands over the manual axes, or over the other axes.
struct OperandSets<'a> {
    over: SetAxes,
    linearity: Linearity,
    /// The operands that are not literals, with their sets over these axes only.
    real: &'a [(usize, Spec)],
    /// Whether an operand is a literal.
    literal: bool,
}

impl TypingContext<'_> {
    pub(super) fn user_index(&self, k: usize) -> usize {
        self.operands[k].user_index(k)
    }
    pub(super) fn user_spec(&self, k: usize) -> Spec {
        self.operands[k].user_type().spec
    }
    /// Returns text about an operand, for messages.
    fn describe(&self, k: usize) -> String {
        format!("operand {}, {}", self.user_index(k), self.operands[k].user_type())
    }
    fn is_manual(&self, axis: Axis) -> bool {
        self.mesh.axis_type(axis) == Some(AxisType::Manual)
    }
    pub(super) fn manual_axes(&self, axes: &Axes) -> Axes {
        axes.iter().filter(|a| self.is_manual(*a)).collect()
    }
    /// Returns the unreduced and reduced axes of the results.
    pub(super) fn sets(&self, linearity: Linearity, out: Option<Spec>) -> Result<(Axes, Axes), Fault> {
        if self.operands.iter().all(|o| !o.ty.spec.has_sets()) {
            // the most common case: the rules below would return empty sets, but are slower
            let none = (Axes::none(), Axes::none());
            return out.map_or(Ok(none.clone()), |out| self.requested_sets(linearity, out, &none.0, &none.1));
        }
        let mut real: Vec<(usize, Spec)> = self
            .operands
            .iter()
            .enumerate()
            .filter(|(_, o)| !o.is_literal)
            .map(|(k, o)| (k, o.ty.spec))
            .collect();
        let mut literal = real.len() < self.operands.len();
        let (mut linearity, mut num_linear) = (linearity, self.operands.len());
        if let Linearity::Indexed(n) | Linearity::IndexedWithFill(n) = linearity {
            let unreduced = |real: &[(usize, Spec)]| real.iter().any(|(_, s)| !s.unreduced_axes().is_empty());
            let (linear, indices): (Vec<_>, Vec<_>) = real.into_iter().partition(|(k, _)| *k < n);
            if unreduced(&indices) {
                return Err(self.not_linear(Linearity::Indexed(n), &indices));
            }
            if matches!(linearity, Linearity::IndexedWithFill(_)) && unreduced(&linear) {
                return Err(self.not_linear(linearity, &linear));
            }
            literal = linear.len() < n;
            (real, linearity, num_linear) = (linear, Linearity::Joint, n);
        }
        if linearity == Linearity::Select
            && let [(0, which), chosen @ ..] = &real[..]
        {
            if !which.unreduced_axes().is_empty() {
                return Err(self.not_linear(linearity, &real));
            }
            if !chosen.is_empty() {
                real.remove(0);
            }
        }
        if self.elementwise {
            for (k, spec) in &mut real {
                *spec = spec.reduced(
                    spec.reduced_axes().iter().filter(|a| !self.is_broadcast_along(*k, *a)).collect::<Axes>(),
                );
            }
        }
        let of = |manual: bool| {
            let keep = |axes: &Axes| axes.iter().filter(|a| self.is_manual(*a) == manual).collect::<Axes>();
            let kept = |(k, s): &(usize, Spec)| {
                (*k, s.unreduced(keep(s.unreduced_axes())).reduced(keep(s.reduced_axes())))
            };
            real.iter().map(kept).collect::<Vec<_>>()
        };
        let joined =
            |over, real: &[(usize, Spec)]| self.sets_over(&OperandSets { over, linearity, real, literal });
        let (mut u, mut r) = joined(SetAxes::Others, &of(false))?;
        if let Some(out) = out {
            // the transpose of a sum with an unreduced result: along a new dimension that is split
            // over a reduced axis, each device keeps its shard
            if linearity == Linearity::Joint {
                r = r.without(&self.new_dim_axes(out, num_linear));
            }
            (u, r) = self.requested_sets(linearity, out, &u, &r)?;
        }
        let (manual_u, manual_r) = joined(SetAxes::Manual, &of(true))?;
        u.extend_unique(&manual_u);
        r.extend_unique(&manual_r);
        Ok((u, r))
    }
    /// Returns the sets of the results from those of the operands.
    ///
    /// The rules differ for products. A literal may scale or divide a value that is unreduced over
    /// manual axes, and over these axes, the result of a contraction has the sets of a product.
    fn sets_over(&self, sets: &OperandSets<'_>) -> Result<(Axes, Axes), Fault> {
        let OperandSets { over, linearity, real, literal } = *sets;
        let (mut u, mut r) = (Axes::none(), Axes::none());
        for (_, spec) in real {
            u.extend_unique(spec.unreduced_axes());
            r.extend_unique(spec.reduced_axes());
        }
        let manual = over == SetAxes::Manual;
        let product = match linearity {
            Linearity::Product => true,
            Linearity::Contraction => manual,
            Linearity::Quotient => manual && self.shapes.iter().all(|s| s.0.is_inexact()),
            _ => false,
        };
        let joins = match linearity {
            Linearity::Joint | Linearity::Select | Linearity::None | Linearity::NonlinearSum => true,
            Linearity::Quotient => u.is_empty() || !product,
            _ => product && u.is_empty(),
        };
        if joins {
            self.check_reduced_match(over, real)?;
            if manual && literal && linearity == Linearity::Product {
                self.check_literal_factor(real)?;
            }
        }
        if !u.is_empty() {
            match linearity {
                Linearity::Joint | Linearity::Select => self.check_unreduced_match(sets, &u)?,
                _ if product => {
                    r = self.check_product(sets)?;
                }
                _ => return Err(self.not_linear(linearity, real)),
            }
        }
        if linearity == Linearity::Nullary || linearity == Linearity::Contraction && !manual {
            r = Axes::none();
        }
        Ok((u, r))
    }
    /// Returns the sets of a result with a requested output sharding.
    /// They are about the axes that are not manual.
    /// Without the request, it would be unreduced over `u` and reduced over `r`.
    fn requested_sets(
        &self,
        linearity: Linearity,
        out: Spec,
        u: &Axes,
        r: &Axes,
    ) -> Result<(Axes, Axes), Fault> {
        let asked = out.unreduced_axes();
        let (partial, even) = self.contracted_axes(linearity);
        let sums = (0..self.factors.loops.len())
            .any(|l| self.factors.loops[l].size > 1 && self.factors.kind(l) == FactorKind::Reduction);
        match linearity {
            Linearity::Contraction if !(asked.is_empty() || even && asked.same_set(&partial)) => {
                return Err(self
                    .contracted_in_two_orders()
                    .unwrap_or_else(|| self.not_partial(out, &partial)));
            }
            Linearity::NonlinearSum if !(asked.is_empty() || even && asked.is_subset_of(&partial)) => {
                let may = if even { partial } else { Axes::none() };
                return Err(self.not_partial(out, &may));
            }
            Linearity::Joint if !asked.iter().all(|a| partial.contains(a) || u.contains(a)) => {
                let mut may = partial.clone();
                may.extend_unique(u);
                return Err(self.not_partial(out, &may));
            }
            Linearity::Joint if !u.is_subset_of(asked) => {
                return Err(self
                    .sharding_fault(format!(
                        "the operand is unreduced over {u}, which the sharding asked for, {out}, leaves out"
                    ))
                    .help(format!(
                        "reshard it first: `x.reshard({})`",
                        self.operands[0].ty.spec.unreduced(Axes::none())
                    ))
                    .highlight(0, TypePart::Sets));
            }
            Linearity::None | Linearity::Product | Linearity::Quotient | Linearity::Nullary
                if !asked.is_subset_of(u) =>
            {
                return Err(self.not_partial(out, u));
            }
            _ => {}
        }
        let mut reduced = r.clone();
        if !sums {
            reduced.extend_unique(out.reduced_axes());
        }
        Ok((asked.clone(), reduced))
    }
    /// Returns the axes that split dimensions of the first result that no linear operand has.
    ///
    /// The first `num_linear` operands are linear, and the others are indices: a gather with split
    /// indices is a sum over rows, transposed, of which each device keeps the rows of its indices.
    fn new_dim_axes(&self, out: Spec, num_linear: usize) -> Axes {
        let linear = || self.factors.operands.iter().take(num_linear).flatten();
        let held = |l: LoopId| linear().any(|d| d.map != DimMap::Broadcast && d.loops.contains(&l));
        let new = |dim: &Dim| !dim.loops.iter().any(|l| held(*l));
        let dims = self.factors.results.first().map_or(&[][..], Vec::as_slice);
        let axes = dims.iter().zip(out.dims()).filter(|(dim, _)| new(dim)).flat_map(|(_, axes)| axes.iter());
        axes.collect()
    }
    /// Returns true if operand `k` is broadcast along a dimension that another operand shards.
    /// The operation is elementwise, and the other operand is sharded over `axis` in this
    /// dimension. If operand `k` is reduced over the axis, the broadcast repeats it in each block
    /// of the other operand. In the backward pass, the sum over this dimension then becomes the sum
    /// of the cotangent over the axis.
    fn is_broadcast_along(&self, k: usize, axis: Axis) -> bool {
        let has = |l: &LoopId| {
            self.factors.operands[k].iter().any(|d| d.map != DimMap::Broadcast && d.loops.contains(l))
        };
        let others = self.factors.operands.iter().zip(self.operands).enumerate().filter(|(j, _)| *j != k);
        let mut dims =
            others.flat_map(|(_, (dims, o))| dims.iter().enumerate().map(|(d, dim)| (dim, o.ty.spec.dim(d))));
        dims.any(|(dim, axes)| axes.contains(&axis) && !dim.loops.iter().any(has))
    }
    /// Returns an error if operands are reduced over different axes. A literal has no cotangent, so
    /// it may be next to reduced operands.
    fn check_reduced_match(&self, of: SetAxes, real: &[(usize, Spec)]) -> Result<(), Fault> {
        let reduced = real.iter().find(|(_, s)| !s.reduced_axes().is_empty());
        let lacking = reduced
            .and_then(|(_, with)| real.iter().find(|(_, s)| !s.reduced_axes().same_set(with.reduced_axes())));
        let (Some(&(k, lacking)), Some(&(j, other))) = (lacking, reduced) else { return Ok(()) };
        let axes = other.reduced_axes();
        let fault = self.sharding_fault(format!(
            "{}, is reduced over {axes}, but {}, is not",
            self.describe(j),
            self.describe(k)
        ));
        let own = self.user_spec(k);
        // if the other operand is split over one of these axes, making it reduced would gather it
        // first, and a partial value cannot become reduced, so no help is given
        let can = own.dims() == reduced_over(own, axes).dims()
            && !axes.iter().any(|a| lacking.unreduced_axes().contains(a));
        let fault = if can { fault.help(self.reduce_help(of, k, axes)) } else { fault };
        let fault = match of {
            // a varying operand next to a partial value is an error too
            SetAxes::Manual if !lacking.unreduced_axes().is_empty() => fault.help(self.sum_help(k)),
            _ => fault.help(self.unreduced_cotangent_help(of, j)),
        };
        Err(fault.highlight(k, TypePart::Sets).highlight(j, TypePart::Sets))
    }
    /// Returns an error if a literal is a factor of a value that is reduced over manual axes, which
    /// the reference rejects. A literal may be added to such a value, or divide it.
    fn check_literal_factor(&self, real: &[(usize, Spec)]) -> Result<(), Fault> {
        let Some((k, spec)) = real.iter().find(|(_, s)| !s.reduced_axes().is_empty()) else { return Ok(()) };
        let axes = spec.reduced_axes();
        let number = format!("cast the number: `Array::from(…).pcast({}, PcastTo::Reduced)`", axes.quoted());
        let message = format!("{}, is reduced over {axes}, but a plain number is not", self.describe(*k));
        Err(self
            .sharding_fault(message)
            .help(number)
            .help(self.unreduced_cotangent_help(SetAxes::Manual, *k))
            .highlight(*k, TypePart::Sets))
    }
    fn check_unreduced_match(&self, sets: &OperandSets<'_>, u: &Axes) -> Result<(), Fault> {
        let OperandSets { over, real, literal, .. } = *sets;
        let Some((j, with)) = real.iter().find(|(_, s)| !s.unreduced_axes().is_empty()) else {
            return Ok(());
        };
        let summed = self.sum_help(*j);
        let other = real.iter().find(|(_, s)| !s.unreduced_axes().same_set(with.unreduced_axes()));
        if let Some((k, _)) = other {
            let wanted = with.unreduced_axes();
            let fault = self
                .sharding_fault(format!(
                    "{}, is unreduced over {wanted}, but {}, is not",
                    self.describe(*j),
                    self.describe(*k)
                ))
                .highlight(*k, TypePart::Sets)
                .highlight(*j, TypePart::Sets);
            if over == SetAxes::Manual {
                return Err(fault.help(summed));
            }
            let parts = self.user_spec(*k).filter_axes(|a| !wanted.contains(a)).unreduced(wanted);
            return Err(fault
                .help(format!("reshard operand {}: `.reshard({parts})`", self.user_index(*k)))
                .help(format!("or {summed}")));
        }
        if literal {
            let fault = self
                .sharding_fault(format!(
                    "{}, is unreduced over {u}: a plain number next to it would count once for each partial value",
                    self.describe(*j)
                ))
                .highlight(*j, TypePart::Sets);
            return Err(match over {
                SetAxes::Manual => fault.help(summed),
                SetAxes::Others => fault
                    .help(literal_help("unreduced", Spec::replicated(0).unreduced(u)))
                    .help(format!("or {summed}")),
            });
        }
        Ok(())
    }
    /// Returns the reduced axes of a product with an unreduced operand, or an error if it is not
    /// valid. The other operand must be reduced over the axes, or be a literal if they are manual.
    fn check_product(&self, sets: &OperandSets<'_>) -> Result<Axes, Fault> {
        let OperandSets { over, linearity, real, literal } = *sets;
        let (with, others): (Vec<_>, Vec<_>) = real.iter().partition(|(_, s)| !s.unreduced_axes().is_empty());
        let Some((k, spec)) = with.first().copied() else { return Ok(Axes::none()) };
        let u = spec.unreduced_axes();
        if linearity == Linearity::Quotient && with.iter().any(|(k, _)| *k > 0) {
            return Err(self.not_linear(linearity, &[(k, spec)]));
        }
        let fits = match (&with[..], &others[..]) {
            ([_], [(_, b)]) => {
                !literal
                    && u.is_subset_of(b.reduced_axes())
                    && b.reduced_axes().without(u).same_set(spec.reduced_axes())
            }
            ([_], []) => literal && over == SetAxes::Manual,
            _ => false,
        };
        if fits {
            return Ok(spec.reduced_axes().clone());
        }
        Err(self.product_fault(sets, &with, &others))
    }
    /// Returns the fault of a product whose first operand in `with` is unreduced.
    /// `others` are the operands that are not unreduced.
    fn product_fault(
        &self,
        sets: &OperandSets<'_>,
        with: &[(usize, Spec)],
        others: &[(usize, Spec)],
    ) -> Fault {
        let (k, spec) = with[0];
        let u = spec.unreduced_axes();
        let why = if with.len() > 1 {
            "a product of two unreduced values is not the sum of the products of their partial values"
                .to_string()
        } else if sets.literal {
            format!("its other factor must be reduced over {u}, but a plain number is not")
        } else if sets.linearity == Linearity::Quotient {
            format!("the divisor must be reduced over {u} too")
        } else {
            format!("the other factor must be reduced over {u} too")
        };
        let mut fault = self.sharding_fault(format!("{}, is unreduced over {u}: {why}", self.describe(k)));
        if let ([_, (j, _)], []) = (with, others) {
            fault = fault.highlight(k, TypePart::Sets).highlight(*j, TypePart::Sets);
            if sets.over == SetAxes::Manual {
                let (first, second) = (self.user_index(k), self.user_index(*j));
                let (one, two) = (self.sum_call(k), self.sum_call(*j));
                let cast = format!(".pcast({}, PcastTo::Reduced)`", u.quoted());
                let cast = format!("{}{cast}", two.trim_end_matches('`'));
                return fault
                    .help(format!("sum operand {second} first: {cast}"))
                    .help(format!("or sum both: {one} on operand {first}, {two} on operand {second}"));
            }
            let summed = |k: usize| self.user_spec(k).unreduced(Axes::none());
            return fault
                .help(format!(
                    "sum operand {} first: `.reshard({})`",
                    self.user_index(*j),
                    reduced_over(summed(*j), u)
                ))
                .help(reshard_operands_help(&[
                    (self.user_index(k), summed(k)),
                    (self.user_index(*j), summed(*j)),
                ]));
        }
        if let [(j, _)] = others {
            fault = fault.help(self.reduce_help(sets.over, *j, u));
        }
        if sets.literal {
            fault = fault.help(literal_help("reduced", Spec::replicated(0).reduced(u)));
        }
        fault = others.iter().fold(fault, |f, (j, _)| f.highlight(*j, TypePart::Sets));
        fault = with.iter().fold(fault, |f, (k, _)| f.highlight(*k, TypePart::Sets));
        let or = if fault.help.is_empty() { "" } else { "or " };
        fault.help(format!("{or}{}", self.sum_help(k)))
    }
    fn not_linear(&self, linearity: Linearity, real: &[(usize, Spec)]) -> Fault {
        let Some((k, spec)) = real.iter().find(|(_, s)| !s.unreduced_axes().is_empty()) else {
            return self.sharding_fault("an operand is unreduced".into());
        };
        let why = match linearity {
            Linearity::Contraction => "its product cannot be left unreduced".to_string(),
            Linearity::IndexedWithFill(_) => "the fill value would be added once per device".to_string(),
            _ if self.primitive_name == "div" => "a quotient cannot be left unreduced".to_string(),
            _ if self.primitive_name == "convert_element_type" => {
                "a sum is rounded once, not each of its summands".to_string()
            }
            _ => {
                let name = self.primitive_name.strip_prefix("reduce_").unwrap_or(self.primitive_name);
                format!("{name} of a sum is not the sum of {name} of its partial values")
            }
        };
        self.sharding_fault(format!(
            "{}, is unreduced over {}: {why}",
            self.describe(*k),
            spec.unreduced_axes()
        ))
        .help(match self.operands.len() {
            1 => format!("sum it first: {}", self.sum_call(*k)),
            _ => self.sum_help(*k),
        })
        .highlight(*k, TypePart::Sets)
    }
    /// Returns the fault for contracted dimensions that are sharded over the same axes, but in two
    /// orders. A device then has different blocks of the two, whose products are not partial sums.
    fn contracted_in_two_orders(&self) -> Option<Fault> {
        let mut reduced =
            (0..self.factors.loops.len()).filter(|l| self.factors.kind(*l) == FactorKind::Reduction);
        reduced.find_map(|l| {
            let mut held = self.factors.operands.iter().enumerate().flat_map(|(operand, dims)| {
                let over = dims.iter().enumerate().filter(move |(_, dim)| dim.loops[..] == [l]);
                over.map(move |(dim, over)| LoopDim {
                    operand,
                    dim,
                    entry: Axes::from(self.operands[operand].ty.spec.dim(dim)),
                    broadcast: over.map == DimMap::Broadcast,
                })
            });
            let (a, b) = (held.next()?, held.next()?);
            let differ = a.entry != b.entry && a.entry.same_set(&b.entry);
            differ.then(|| self.mismatch(&a, &b, "must be sharded over the axes in the same order"))
        })
    }
    fn not_partial(&self, out: Spec, partial: &Axes) -> Fault {
        let asked = out.unreduced_axes();
        let fault = self.sharding_fault(format!(
            "the result is asked to be unreduced over {asked}, but it is unreduced over {}",
            if partial.is_empty() { "no axis".to_string() } else { format!("{partial} only") }
        ));
        let rank = self.shapes.first().map_or(0, |s| s.1.rank());
        let dims = out.padded(rank).dims().iter();
        let dims = dims.map(|d| d.iter().filter(|a| !partial.contains(*a)).collect()).collect();
        let may = out.with_dims(dims).unreduced(partial);
        match partial.is_empty() {
            true => fault.help(format!(
                "ask for {may}: only a sum over a dimension that is sharded over {asked} is unreduced over it"
            )),
            false => fault.help(format!("ask for {may}")),
        }
    }
    /// Returns the axes over which split reduced loops leave partial results.
    /// The flag is true if all operands that run over such a loop are sharded equally. In a
    /// contraction, only loops of both operands count.
    pub(super) fn contracted_axes(&self, linearity: Linearity) -> (Axes, bool) {
        let (mut partial, mut even) = (Axes::none(), true);
        for l in (0..self.factors.loops.len()).filter(|l| self.factors.kind(*l) == FactorKind::Reduction) {
            let entries = self.factors.operands.iter().zip(self.operands).flat_map(|(dims, o)| {
                dims.iter().enumerate().filter(|(_, d)| d.loops[..] == [l]).map(|(d, _)| o.ty.spec.dim(d))
            });
            // an unsharded operand is read block by block, so it does not matter
            let mut entries = entries.filter(|e| linearity != Linearity::NonlinearSum || !e.is_empty());
            let Some(first) = entries.next() else { continue };
            let (mut count, mut same) = (1, true);
            for e in entries {
                (count, same) = (count + 1, same && e == first);
            }
            if linearity != Linearity::Contraction || count > 1 {
                partial.extend_unique(&Axes::from(first));
                even &= same;
            }
        }
        (partial, even)
    }
}
