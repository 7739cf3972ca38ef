//! Loops that have one step only, at a number that is known when the program runs.

/// A loop that has one step only, at a number known at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The loop: of a take one beyond the rank, of a put one of the result.
    pub index: usize,
    /// The read whose number says where; any integer type. It is read at no bound loop.
    pub by: usize,
    /// Numbers are `0..=most`: the loop's size less the window's. −1: there is no step.
    pub most: i64,
    /// What becomes of others.
    pub beyond: Beyond,
    /// The loop whose step is added to the number: a window from there on.
    pub window: Option<usize>,
}

/// What becomes of a number beyond what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Beyond {
    /// It is the nearest one that is there.
    Clip,
    /// Nothing is there: a take gives its fill, a put drops the update.
    Nothing,
}

impl Bound {
    /// Renames its loops.
    pub fn rename(&mut self, name: impl Fn(usize) -> usize) {
        self.index = name(self.index);
        self.window = self.window.map(name);
    }
    /// The step, for this number and step of the window, cut to what is there; and whether anything is there.
    pub fn step(&self, number: i64, window: i64) -> (i64, bool) {
        let n = number.min(self.most).max(0);
        (n + window, self.most >= 0 && (n == number || self.beyond == Beyond::Clip))
    }
}
