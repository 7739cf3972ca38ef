//! Dynamic indices: loops of which one step is selected at run time, by an index operand.

/// A loop of which one step is selected at run time, by an index operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicIndex {
    /// The loop: an inner loop for a gather, a dimension of the result for a scatter.
    pub loop_id: usize,
    /// The number of the access, in the loop nest's list, that reads the index.
    /// Its elements are integers of any type, and it must not depend on a dynamically indexed
    /// loop.
    pub operand: usize,
    /// The maximum valid index: the loop's size minus the window's size (1 without a window).
    /// Valid indices are `0..=max_start`. −1 means that no index is valid.
    pub max_start: i64,
    /// The treatment of out-of-bounds indices.
    pub mode: OutOfBounds,
    /// The loop over the window that starts at the index; `None` if a single step is selected.
    pub window: Option<usize>,
}

/// The treatment of an out-of-bounds index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutOfBounds {
    /// Clamps the index to the nearest valid one.
    Clip,
    /// Ignores the index: a gather gives its fill value, a scatter drops the update.
    Drop,
}

impl DynamicIndex {
    /// Renames the loops: loop l becomes loop `name(l)`.
    pub fn rename_loops(&mut self, name: impl Fn(usize) -> usize) {
        self.loop_id = name(self.loop_id);
        self.window = self.window.map(name);
    }
    /// Resolves an index value and a window offset to a position, and returns if it is valid.
    /// The index is clamped to the valid range. The position is valid if the index was in bounds,
    /// or if the mode is [`OutOfBounds::Clip`] and any index is valid.
    pub fn resolve(&self, index: i64, offset: i64) -> (i64, bool) {
        let n = index.min(self.max_start).max(0);
        (n + offset, self.max_start >= 0 && (n == index || self.mode == OutOfBounds::Clip))
    }
}
