//! Help texts for operands whose shardings do not match: the reshards that make them match.

use super::context::{LoopDim, TypingContext};
use crate::core::{Axes, Axis, Fault, Spec};
use crate::ir::program::factors::{DimMap, LoopId};

/// Returns a help text that reshards these operands, given by index.
pub(crate) fn reshard_operands_help(list: &[(usize, Spec)]) -> String {
    if let [(k, to)] = list {
        return format!("reshard operand {k}: `.reshard({to})`");
    }
    let each: Vec<String> = list.iter().map(|(k, to)| format!("operand {k} by `.reshard({to})`")).collect();
    let Some((last, before)) = each.split_last() else { return String::new() };
    format!("reshard {} and {last}", before.join(", "))
}

/// The axes that a rule of the sets is about. Casts change the sets over manual axes, reshards
/// those over the other axes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum SetAxes {
    Manual,
    Others,
}

/// Returns the spec as reduced over these axes, which are removed from its dimensions.
pub(super) fn reduced_over(spec: Spec, axes: &Axes) -> Spec {
    spec.filter_axes(|a| !axes.contains(a)).reduced(axes)
}

impl TypingContext<'_> {
    /// Returns a help text that sums an unreduced operand.
    pub(super) fn sum_help(&self, k: usize) -> String {
        format!("sum operand {} first: {}", self.user_index(k), self.sum_call(k))
    }
    /// Returns the call that sums an unreduced operand.
    pub(super) fn sum_call(&self, k: usize) -> String {
        let spec = self.user_spec(k);
        match self.manual_axes(spec.unreduced_axes()) {
            axes if axes.is_empty() => format!("`.reshard({})`", spec.unreduced(Axes::none())),
            axes => format!("`.psum({})`", axes.quoted()),
        }
    }
    /// Returns a help text that makes an operand reduced over these axes.
    pub(super) fn reduce_help(&self, of: SetAxes, k: usize, axes: &Axes) -> String {
        let k_index = self.user_index(k);
        match of {
            SetAxes::Manual => {
                let axes = axes.without(self.user_spec(k).reduced_axes()).quoted();
                format!("cast operand {k_index}: `.pcast({axes}, PcastTo::Reduced)`")
            }
            SetAxes::Others => {
                format!("reshard operand {k_index}: `.reshard({})`", reduced_over(self.user_spec(k), axes))
            }
        }
    }
    /// Returns a help text that makes an operand reduced over no axis.
    pub(super) fn unreduced_cotangent_help(&self, of: SetAxes, k: usize) -> String {
        let (k_index, spec) = (self.user_index(k), self.user_spec(k));
        match of {
            SetAxes::Manual => {
                let axes = self.manual_axes(spec.reduced_axes()).quoted();
                format!("cast operand {k_index}: `.pcast({axes}, PcastTo::Varying)`")
            }
            SetAxes::Others => {
                format!("reshard operand {k_index}: `.reshard({})`", spec.reduced(Axes::none()))
            }
        }
    }
    /// Returns a help text that reshards an operand to have dimension `dim` sharded over `entry`.
    pub(super) fn reshard_help(&self, operand: usize, dim: usize, entry: &Axes) -> String {
        let o = &self.operands[operand];
        let spec = o.user_type().spec;
        let spec = o.user_dim(dim).map_or(spec, |d| spec.with_dim(d, entry));
        match self.operands.len() {
            1 => format!("reshard it first: `.reshard({spec})`"),
            _ => reshard_operands_help(&[(o.user_index(operand), spec)]),
        }
    }
    /// Returns the fault for two dimensions that must match.
    /// Each help shards all operands like one of the two.
    pub(super) fn mismatch(&self, a: &LoopDim, b: &LoopDim, what: &str) -> Fault {
        let (one, two) = (self.describe_dim(a.operand, a.dim), self.describe_dim(b.operand, b.dim));
        let fault = self
            .sharding_fault(format!("{one} and {two} {what}"))
            .highlight_dim(a.operand, a.dim)
            .highlight_dim(b.operand, b.dim);
        let mut helps: Vec<String> = Vec::new();
        for model in [b, a] {
            helps.extend(self.entries_matching(model.operand).and_then(|list| self.reshard_all_help(list)));
        }
        if helps.is_empty() {
            let none = |h: &LoopDim| {
                let o = &self.operands[h.operand];
                let spec = o.user_type().spec;
                let unsharded = |d| spec.with_dim(d, &Axes::none());
                (o.user_index(h.operand), o.user_dim(h.dim).map_or(spec, unsharded))
            };
            helps.push(reshard_operands_help(&[none(a), none(b)]));
        }
        helps.dedup();
        helps.into_iter().fold(fault, Fault::help)
    }
    /// Returns the entries with which the other operands would match operand `model`.
    /// Lists only operands whose sharding differs along the shared loops. Returns `None` if some
    /// operand cannot match.
    fn entries_matching(&self, model: usize) -> Option<Vec<(usize, Vec<Axes>)>> {
        let mut list = Vec::new();
        for (k, o) in self.operands.iter().enumerate().filter(|(k, o)| *k != model && !o.is_literal) {
            let dims = &self.factors.operands[k];
            let met: Vec<Option<Axes>> =
                dims.iter().map(|dim| self.entry_for_loops(model, &dim.loops, dim.map)).collect();
            let taken: Vec<Axis> = met.iter().flatten().flat_map(Axes::iter).collect();
            let own = |d: usize| o.ty.spec.dim(d).iter().copied().filter(|a| !taken.contains(a)).collect();
            let entries: Vec<Axes> =
                met.into_iter().enumerate().map(|(d, met)| met.unwrap_or_else(|| own(d))).collect();
            if entries
                .iter()
                .zip(o.ty.shape.iter())
                .any(|(entry, n)| !n.is_multiple_of(self.num_shards(entry)))
            {
                return None;
            }
            if entries.iter().enumerate().any(|(d, entry)| o.ty.spec.dim(d) != entry.as_slice()) {
                list.push((k, entries));
            }
        }
        Some(list)
    }
    /// Returns a help text that reshards operands to have these entries.
    fn reshard_all_help(&self, list: Vec<(usize, Vec<Axes>)>) -> Option<String> {
        let mut specs: Vec<(usize, Spec)> = Vec::new();
        for (k, entries) in list {
            let o = &self.operands[k];
            // several applied operands may come from one of the user's operands
            let at = specs.iter().position(|s| s.0 == o.user_index(k)).unwrap_or_else(|| {
                specs.push((o.user_index(k), o.user_type().spec));
                specs.len() - 1
            });
            // an applied operand may have more dimensions than the user's operand
            let own = entries.iter().enumerate().filter_map(|(d, entry)| Some((o.user_dim(d)?, entry)));
            specs[at].1 = own.fold(specs[at].1, |s, (d, entry)| s.with_dim(d, entry));
        }
        (!specs.is_empty()).then(|| reshard_operands_help(&specs))
    }
    /// Returns help texts for an axis that would split two dimensions of a result.
    /// Each one reshards operands so that the axis splits only one of the dimensions.
    pub(super) fn separate_axis_help(&self, axis: Axis) -> Vec<String> {
        let holds = |k: &usize| self.operands[*k].ty.spec.dims().iter().any(|d| d.contains(axis));
        let helps = (0..self.operands.len()).filter(holds).filter_map(|model| {
            let list = self.entries_matching(model)?;
            let entries = |k: usize| -> Vec<Axes> {
                let fixed = list.iter().find(|m| m.0 == k).map(|m| m.1.clone());
                fixed.unwrap_or_else(|| self.operands[k].ty.spec.dims().to_vec())
            };
            // the loops that the axis would then split
            let mut over: Vec<&[LoopId]> = Vec::new();
            for (k, dims) in self.factors.operands.iter().enumerate() {
                let split = entries(k).into_iter().zip(dims).filter(|(entry, _)| entry.contains(axis));
                over.extend(split.map(|(_, dim)| &dim.loops[..]));
            }
            over.dedup();
            if over.len() == 1 { self.reshard_all_help(list) } else { None }
        });
        let mut helps: Vec<String> = helps.collect();
        helps.dedup();
        helps
    }
    /// Returns the axes of the operand's dimension that runs over these loops.
    /// Returns `None` if there is no such dimension, or if one of the two dimensions is broadcast.
    fn entry_for_loops(&self, operand: usize, loops: &[usize], map: DimMap) -> Option<Axes> {
        let d = self.factors.operands[operand]
            .iter()
            .position(|d| d.loops[..] == *loops && d.map != DimMap::Broadcast)?;
        (map != DimMap::Broadcast).then(|| Axes::from(self.operands[operand].ty.spec.dim(d)))
    }
}
