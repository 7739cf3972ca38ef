//! The two tracks of a device: kernels and messages.

/// The times at which the two tracks are busy, in seconds.
pub(super) struct Tracks {
    /// The time at which the track of kernels becomes free.
    kernels: f64,
    /// The periods in which the track of messages is busy, in order.
    messages: Vec<(f64, f64)>,
    /// True if the tracks may overlap.
    overlap: bool,
}

impl Tracks {
    pub(super) fn new(overlap: bool) -> Tracks {
        Tracks { kernels: 0.0, messages: Vec::new(), overlap }
    }
    /// Schedules a kernel that can start at `ready`, after all earlier kernels.
    /// Returns its start.
    pub(super) fn kernel(&mut self, ready: f64, seconds: f64) -> f64 {
        let free = if self.overlap { self.kernels } else { self.end() };
        let start = free.max(ready);
        self.kernels = start + seconds;
        start
    }
    /// Schedules a message that can start at `ready`, and returns its start.
    ///
    /// It takes the first period that is long enough: a message that waits for a kernel does not
    /// delay those that are ready before it.
    pub(super) fn message(&mut self, ready: f64, seconds: f64) -> f64 {
        let mut start = if self.overlap { ready } else { self.end().max(ready) };
        let mut at = self.messages.partition_point(|m| m.1 <= start);
        while let Some(m) = self.messages.get(at).filter(|m| m.0 < start + seconds) {
            start = start.max(m.1);
            at += 1;
        }
        self.messages.insert(at, (start, start + seconds));
        start
    }
    /// Schedules a message that gives way to those that are scheduled already, and returns the
    /// periods in which it runs: the first ones in which its track is free.
    pub(super) fn fill(&mut self, ready: f64, seconds: f64) -> Vec<(f64, f64)> {
        if !self.overlap {
            let start = self.message(ready, seconds);
            return vec![(start, start + seconds)];
        }
        let (mut start, mut left) = (ready, seconds);
        let mut at = self.messages.partition_point(|m| m.1 <= start);
        let mut periods = Vec::new();
        loop {
            let next = self.messages.get(at).copied();
            let room = next.map_or(f64::INFINITY, |m| m.0 - start);
            if room >= left {
                self.messages.insert(at, (start, start + left));
                periods.push((start, start + left));
                return periods;
            }
            if room > 0.0 {
                self.messages.insert(at, (start, start + room));
                periods.push((start, start + room));
                left -= room;
                at += 1;
            }
            start = start.max(next.map_or(start, |m| m.1));
            at += 1;
        }
    }
    /// Schedules work on both tracks, after all that is scheduled so far, and returns its start.
    pub(super) fn both(&mut self, ready: f64, seconds: f64) -> f64 {
        let start = self.end().max(ready);
        self.kernels = start + seconds;
        self.messages.push((start, start + seconds));
        start
    }
    /// Returns the time at which the track of kernels becomes free.
    pub(super) fn kernels_end(&self) -> f64 {
        self.kernels
    }
    /// Returns the time at which both tracks become free.
    pub(super) fn end(&self) -> f64 {
        self.messages.last().map_or(self.kernels, |m| m.1.max(self.kernels))
    }
}
