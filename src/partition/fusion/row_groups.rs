//! The groups of a program as row fusion sees them.

use super::space::GroupSpace;
use crate::partition::Slot;

/// A chain that is still growing.
#[derive(Clone)]
pub(super) struct ChainBuilder {
    /// The number of rows.
    pub(super) num_rows: i64,
    /// The level of the first group.
    pub(super) first_level: u32,
    /// The groups, in order.
    pub(super) groups: Vec<usize>,
    /// The values of these groups.
    pub(super) values: Vec<Slot>,
    /// The scatter that runs last, whose result no group of the chain reads.
    pub(super) scatter: Option<usize>,
}

/// A gather that may start a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherRows {
    /// The number of rows, if each result row is one gathered row.
    pub(crate) num_rows: Option<i64>,
    /// True if the rows may be gathered in any order.
    pub(crate) any_order: bool,
}

/// A scatter that may end a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScatterRows {
    /// The value with the updates.
    pub(crate) updates: Slot,
    /// The number of updates, each of which is one row.
    pub(crate) num_updates: i64,
    /// The number of tasks.
    pub(crate) num_tasks: i64,
}

/// What row fusion must know in addition to the groups.
pub(crate) struct RowConstraints<'c> {
    /// The gathers, by group.
    pub(crate) gathers: Vec<Option<GatherRows>>,
    /// The scatters that may end a chain, by group.
    pub(crate) scatters: Vec<Option<ScatterRows>>,
    /// The values in whose memory matmuls are computed, by group.
    pub(crate) aliases: Vec<Option<Slot>>,
    /// The last level at which each group may run, because a later one overwrites what it reads.
    pub(crate) latest_levels: Vec<u32>,
    /// Returns true if a group must stay out of chains.
    pub(crate) is_excluded: &'c dyn Fn(usize) -> bool,
    /// Returns true if a group does not run, because its value is a view.
    pub(crate) is_skipped: &'c dyn Fn(usize) -> bool,
    /// Returns true if a value is in memory that no other value has.
    ///
    /// A chain runs at the level of its first group. So it must not compute a value in the memory
    /// of a donated argument, which may be written only after its last reader.
    pub(crate) is_in_own_memory: &'c dyn Fn(Slot) -> bool,
    /// Returns true if a value has no memory yet.
    pub(crate) is_unplaced: &'c dyn Fn(Slot) -> bool,
}

impl RowConstraints<'_> {
    /// Returns the constraints of a program none of whose values has memory yet.
    ///
    /// Gathers and scatters are not fused, because only their kernels know which of them run by
    /// rows.
    pub(in crate::partition) fn of_unplaced_values(
        g: &super::plan::FusionPlan<'_, '_>,
    ) -> RowConstraints<'static> {
        let n = g.groups.len();
        RowConstraints {
            gathers: vec![None; n],
            scatters: vec![None; n],
            latest_levels: vec![u32::MAX; n],
            aliases: (0..n).map(|k| g.matmul_alias(k, |_| true)).collect(),
            is_excluded: &|_| false,
            is_skipped: &|_| false,
            is_in_own_memory: &|_| true,
            is_unplaced: &|_| true,
        }
    }
}

/// The groups of a program, with their spaces.
pub(super) struct RowGroups<'r, 'c> {
    /// The spaces of elementwise groups, and of reductions that can run by rows.
    pub(super) spaces: Vec<Option<GroupSpace>>,
    pub(super) constraints: &'r RowConstraints<'c>,
}

impl RowGroups<'_, '_> {
    /// Returns true if group `k` accesses, for its row r, only the r-th row of the value.
    pub(super) fn is_row_local(&self, k: usize, s: Slot, rows: i64, row: i64) -> bool {
        if let Some(t) = &self.constraints.gathers[k] {
            return t.num_rows == Some(rows);
        }
        self.spaces[k].as_ref().is_some_and(|t| t.is_row_local(s, rows, row))
    }
    /// Returns true if group `k` accesses value `s`.
    pub(super) fn accesses_value(&self, k: usize, s: Slot) -> bool {
        self.spaces[k].as_ref().is_some_and(|t| t.values().any(|v| v == s))
    }
}
