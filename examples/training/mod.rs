//! What training programs need besides a model: batches that a thread makes ahead, a progress bar,
//! logs, and a picture of the losses.
use atmesh::{Error, display::LineChart, prelude::*};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use tracing_subscriber::fmt::format::FmtSpan;

/// A text as numbers of characters.
pub(crate) struct Text {
    /// The characters that occur, in order.
    pub(crate) chars: Vec<char>,
    ids: Array,
    count: usize,
}

impl Text {
    /// Reads the book: its Markdown at commit 1df904f, 304,266 characters of 95 kinds.
    pub(crate) fn read() -> Result<Text> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/book.txt");
        let text = std::fs::read_to_string(path).map_err(Error::other)?;
        let chars = Vec::from_iter(text.chars().collect::<BTreeSet<char>>());
        let ids: Vec<i32> = text.chars().map(|c| chars.partition_point(|d| *d < c) as i32).collect();
        Ok(Text { chars, count: ids.len(), ids: Array::from(ids) })
    }
    /// Returns the text of these characters.
    pub(crate) fn decode(&self, ids: &Array) -> Result<String> {
        Ok(ids.to_vec::<i32>()?.iter().map(|i| self.chars[*i as usize]).collect())
    }
    /// Returns rows of `t` characters at random places, and the characters that follow each.
    pub(crate) fn batch(&self, step: u64, [rows, t]: [usize; 2], mesh: &Mesh) -> [Array; 2] {
        let last = self.count - t - 1;
        let at = Key::new(77).fold_in(step as i64).randint([rows, 1], 0..last as i64);
        let batch = self.ids.take(&(at + Array::arange(0..t as i32 + 1)), 0);
        let batch = batch.put(mesh, p!["batch", _]);
        [batch.slice(ix![.., ..-1]), batch.slice(ix![.., 1..])]
    }
    // ANCHOR: batches
    /// Makes the batches of these steps on a thread, which is at most two batches ahead.
    pub(crate) fn batches(self, steps: Range<u64>, shape: [usize; 2], mesh: &Mesh) -> Receiver<[Array; 2]> {
        let ((sender, receiver), mesh) = (sync_channel(2), mesh.clone());
        std::thread::spawn(move || {
            for step in steps {
                // `send` waits while there are two batches, and fails after the training
                if sender.send(self.batch(step, shape, &mesh)).is_err() {
                    break;
                }
            }
        });
        receiver
    }
    // ANCHOR_END: batches
}

// ANCHOR: progress
/// The progress of a run: a bar on the terminal, a log event for each step, and the losses.
pub(crate) struct Progress {
    bar: ProgressBar,
    pub(crate) losses: Vec<(u64, f32)>,
}

impl Progress {
    /// Starts the bar at the first of these steps. If the program has the argument `--log`, logs go
    /// to stderr: the losses, and the time of each stage and of each call.
    pub(crate) fn new(steps: Range<u64>) -> Result<Progress> {
        if std::env::args().any(|arg| arg == "--log") {
            let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
            let _ = log.with_span_events(FmtSpan::CLOSE).with_writer(std::io::stderr).try_init();
        }
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left, {msg}");
        let bar = ProgressBar::new(steps.end).with_position(steps.start);
        Ok(Progress { bar: bar.with_style(style.map_err(Error::other)?), losses: Vec::new() })
    }
    /// Adds a step and its loss.
    pub(crate) fn add(&mut self, step: u64, loss: &Array) -> Result<()> {
        let loss = loss.item::<f32>()?;
        tracing::info!(step, loss);
        self.losses.push((step, loss));
        self.bar.set_message(format!("loss {loss:.4}"));
        self.bar.set_position(step + 1);
        Ok(())
    }
}

/// Returns the number of steps that the command line asks for, as a multiple of 5 and at least 10.
pub(crate) fn steps_argument() -> Option<u64> {
    let steps = std::env::args().find_map(|arg| arg.parse::<u64>().ok())?;
    Some(steps.next_multiple_of(5).max(10))
}

/// Prints each 25th loss and the last one, and writes a picture of all losses into the folder for
/// temporary files.
pub(crate) fn report(name: &str, losses: &[(u64, f32)]) -> Result<()> {
    for (k, (step, loss)) in losses.iter().enumerate() {
        if step % 25 == 0 || k + 1 == losses.len() {
            println!("step {step:3}  loss {loss:.4}");
        }
    }
    let chart = LineChart::new(format!("{name}: loss by step")).line("", losses.iter().copied());
    let path = std::env::temp_dir().join(format!("{name}.svg"));
    eprintln!("{}", path.display());
    std::fs::write(path, chart.to_svg()).map_err(Error::other)
}
// ANCHOR_END: progress
