//! The levels during which values are in memory.

use super::plan::{FusionPlan, FusionRoot};
use super::reuse::BufferReuse;
use crate::partition::Slot;
use std::collections::HashSet;

/// The levels during which a value needs memory.
pub(crate) struct ValueLifetime {
    /// The value.
    pub(crate) value: Slot,
    /// The level that starts to write it.
    pub(crate) first_level: u32,
    /// The last level that reads it.
    pub(crate) last_level: u32,
    /// The size, in bytes.
    pub(crate) bytes: usize,
}

impl BufferReuse {
    /// Returns the value in whose memory a matmul is computed, if its own value is not stored.
    ///
    /// A value that is stored over an operand cannot be that value.
    pub(crate) fn matmul_alias(&self, g: &FusionPlan<'_, '_>, group: usize) -> Option<Slot> {
        g.matmul_alias(group, |s| self.overwrites[group].iter().all(|x| x.0 != s))
    }
}

/// Returns the lifetimes of the values that need memory in addition to inputs and results.
///
/// `is_skipped` says which groups do not run, `is_placed` which values have memory already. The
/// compiler assigns memory to these values, and the memory report adds them up.
pub(crate) fn value_lifetimes(
    g: &FusionPlan<'_, '_>,
    reuse: &BufferReuse,
    is_skipped: impl Fn(usize) -> bool,
    is_placed: impl Fn(Slot) -> bool,
) -> Vec<ValueLifetime> {
    let (program, chains) = (g.program, &reuse.scatter_chains);
    let in_scratch: HashSet<Slot> = g.chains.iter().flat_map(|c| &c.scratch).map(|s| s.0).collect();
    let lifetime = |(value, last): (Slot, u32)| {
        let def = g.defs[value].filter(|d| !is_skipped(d.group))?;
        let elsewhere = program.alias_root(value) != value
            || chains.last_value(value) != value
            || in_scratch.contains(&value)
            || is_placed(value);
        let is_product = matches!(g.groups[def.group].root, FusionRoot::Matmul(k) if k == def.op)
            && reuse.matmul_alias(g, def.group).is_none();
        if elsewhere || !(g.materialized[value] || is_product) {
            return None;
        }
        let begun = g.defs[chains.first_value(value)].map_or(def.group, |d| d.group);
        let first_level = g.groups[begun].level;
        let (last_level, bytes) = (last.max(first_level), program.value_bytes(value));
        Some(ValueLifetime { value, first_level, last_level, bytes })
    };
    g.last_read_levels().into_iter().enumerate().filter_map(lifetime).collect()
}
