//! Helpers with which the chapters print sections, rules and errors, and draw figures.

use atmesh::{Array, Collectives, Error, Lowered, Result, Tree, type_of};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The folder for pictures; unset if none are written.
static PICTURES: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn pictures_into(folder: PathBuf) {
    let _ = PICTURES.set(folder);
}

/// Starts a section; everything printed after it belongs to it.
pub(crate) fn section(name: &str) {
    println!("== {name}");
}

/// `rule!(a + b; a, b)` runs `a + b` as a program of `a` and `b`, and prints its type, the types of
/// the operands and the collectives; `=> "add"` also draws it.
macro_rules! rule {
    ($f:expr; $($x:ident),+ $(=> $name:literal)?) => {
        $crate::show::rule(
            &$crate::show::text(stringify!($f)),
            &[$((stringify!($x), &$x)),+],
            lowered!($f; $($x),+),
            |program| program.compile()?.call(lowered!(@args $($x),+)),
            None$(.or(Some($name)))?,
        )?
    };
}

/// `rejected!(a + b; a, b)` prints the error of `a + b` as a program of `a` and `b`.
macro_rules! rejected {
    ($f:expr; $($x:ident),+) => { $crate::show::rejected(lowered!($f; $($x),+))? };
}

/// Lowers the program of an expression.
macro_rules! lowered {
    ($f:expr; $a:ident) => {
        atmesh::jit(|$a: &atmesh::Array| $f).lower(&$a)
    };
    ($f:expr; $a:ident, $b:ident) => {
        atmesh::jit(|$a: &atmesh::Array, $b: &atmesh::Array| $f).lower((&$a, &$b))
    };
    (@args $a:ident) => {
        &$a
    };
    (@args $a:ident, $b:ident) => {
        (&$a, &$b)
    };
}

/// Returns an expression as written: `stringify!` without the blanks around macro marks.
pub(crate) fn text(tokens: &str) -> String {
    tokens.split_whitespace().collect::<Vec<_>>().join(" ").replace("! [", "![").replace("ix! ", "ix!")
}

pub(crate) fn rule<I: Tree>(
    text: &str,
    operands: &[(&str, &Array)],
    program: Result<Lowered<I, Array>>,
    run: impl FnOnce(Lowered<I, Array>) -> Result<Array>,
    name: Option<&str>,
) -> Result<()> {
    let program = program?;
    let exchanged = communication(program.collectives());
    let result = run(program)?;
    let types: Vec<String> = operands.iter().map(|(_, x)| type_of(*x).to_string()).collect();
    println!("{text}: {} → {}", types.join(", "), type_of(&result));
    println!("    {exchanged}");
    if let Some(name) = name {
        figure(name, operands, text, &[("", &result)], &exchanged)?;
    }
    Ok(())
}

/// Summarises the collectives of a program in one line.
pub(crate) fn communication(report: &Collectives) -> String {
    if report.is_empty() {
        return "no communication".into();
    }
    let summary = |c: &atmesh::Collective| {
        let times = if c.count > 1 { format!(", {} times", c.count) } else { String::new() };
        format!("{} over {}, {} bytes per device{times}", c.kind, c.axes, c.bytes_per_device)
    };
    report.iter().map(summary).collect::<Vec<_>>().join("; ")
}

pub(crate) fn rejected<T>(result: Result<T>) -> Result<()> {
    match result {
        Ok(_) => Err(Error::other("this was to be rejected")),
        Err(e) => {
            println!("\n{e}\n");
            Ok(())
        }
    }
}

/// The width of a figure, in pixels, that a phone shows unscaled, with 12 px text.
const WIDE: f64 = 344.0;
/// The longer side of an array in pixels: alone, and next to another array.
const ALONE: f64 = 168.0;
const SIDE: f64 = 120.0;
const LETTER: f64 = 7.3;
const GAP: f64 = 16.0;
const LINE: f64 = 20.0;

/// A column of a figure: a picture with its size, and the type below it.
struct Column {
    svg: String,
    size: (f64, f64),
    caption: String,
}

impl Column {
    fn new((name, x): &(&str, &Array), side: f64) -> Column {
        let svg = x.visualize().to_svg_sized(side);
        let number = |name: &str| -> f64 {
            let from = svg.find(&format!(" {name}=\"")).map_or(0, |at| at + name.len() + 3);
            svg[from..].split('"').next().and_then(|n| n.parse().ok()).unwrap_or(side)
        };
        let size = (number("width"), number("height"));
        let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
        Column { size, caption: format!("{name}{}", type_of(*x)), svg }
    }
    fn width(&self) -> f64 {
        self.size.0.max(self.caption.chars().count() as f64 * LETTER)
    }
}

/// A figure that grows downwards, at most [`WIDE`] wide unless the labels of one array need more.
struct Figure {
    body: String,
    wide: f64,
    y: f64,
}

impl Figure {
    /// Draws arrays side by side as far as they fit, and the rest below.
    fn arrays(&mut self, mut list: &[Column]) {
        let all = |list: &[Column]| list.iter().map(|c| c.width() + GAP).sum::<f64>() + GAP;
        self.wide = list.iter().map(|c| c.width() + 2.0 * GAP).fold(self.wide, f64::max);
        while !list.is_empty() {
            let fit = (1..=list.len()).rev().find(|&n| all(&list[..n]) <= self.wide).unwrap_or(1);
            let (row, rest) = list.split_at(fit);
            let tall = row.iter().map(|c| c.size.1).fold(0.0, f64::max);
            let mut x = GAP + (self.wide - all(row)) / 2.0;
            for c in row {
                let (w, h) = c.size;
                let at = format!(
                    "<svg x=\"{:.1}\" y=\"{:.1}\"",
                    x + (c.width() - w) / 2.0,
                    self.y + (tall - h) / 2.0
                );
                let whole = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
                let _ = writeln!(self.body, "{}", c.svg.trim_end().replacen(whole, &at, 1));
                word(&mut self.body, x + c.width() / 2.0, self.y + tall + LINE - 6.0, "#111", &c.caption);
                x += c.width() + GAP;
            }
            (self.y, list) = (self.y + tall + LINE, rest);
        }
    }
    /// Draws the label of an operation and an arrow down below it.
    fn arrow(&mut self, done: &str) {
        self.words(done, "#111");
        let middle = self.wide / 2.0;
        let _ = writeln!(
            self.body,
            "<path d=\"M{middle:.1} {:.1}v22m-5 -7l5 7l5 -7\" fill=\"none\" stroke=\"#111\" stroke-width=\"1.5\"/>",
            self.y
        );
        self.y += 22.0 + LINE / 2.0;
    }
    /// Draws lines of text, wrapped to the width of the figure.
    fn words(&mut self, text: &str, ink: &str) {
        let room = ((self.wide - 2.0 * GAP) / LETTER) as usize;
        let mut line = String::new();
        for part in text.split(' ').map(Some).chain([None]) {
            let long = part.is_none_or(|p| line.chars().count() + 1 + p.chars().count() > room);
            if long && !line.is_empty() {
                self.y += LINE;
                word(&mut self.body, self.wide / 2.0, self.y - 4.0, ink, &std::mem::take(&mut line));
            }
            if let Some(part) = part {
                line = if line.is_empty() { part.to_string() } else { format!("{line} {part}") };
            }
        }
        self.y += LINE / 2.0;
    }
}

/// Draws named arrays, an arrow labelled with the operation, and the results, each with its type.
pub(crate) fn figure(
    name: &str,
    from: &[(&str, &Array)],
    done: &str,
    to: &[(&str, &Array)],
    beneath: &str,
) -> Result<()> {
    let Some(folder) = PICTURES.get() else { return Ok(()) };
    let side = if from.len() + to.len() == 1 { ALONE } else { SIDE };
    let columns = |list: &[(&str, &Array)]| -> Vec<_> { list.iter().map(|x| Column::new(x, side)).collect() };
    let (from, to) = (columns(from), columns(to));
    let wide = from.iter().chain(&to).map(|c| c.width() + 2.0 * GAP).fold(WIDE, f64::max);
    let listed =
        |columns: &[Column]| columns.iter().map(|c| c.caption.clone()).collect::<Vec<_>>().join("; ");
    let title = [listed(&from), done.to_string(), listed(&to), beneath.to_string()];
    let title = escaped(&title.into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(" → "));
    let mut figure = Figure { body: String::new(), wide, y: GAP / 2.0 };
    figure.arrays(&from);
    if !to.is_empty() {
        figure.arrow(done);
        figure.arrays(&to);
    }
    figure.words(beneath, "#666");
    let Figure { body, wide: width, y } = figure;
    let height = y + GAP / 2.0;
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} \
         {height:.0}\" font-family=\"ui-monospace, monospace\" font-size=\"12\" role=\"img\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" \
         rx=\"8\" fill=\"#fafafa\"/>\n{body}</svg>\n"
    );
    std::fs::create_dir_all(folder).map_err(Error::other)?;
    std::fs::write(folder.join(format!("{name}.svg")), svg).map_err(Error::other)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Draws text centred at `x`.
fn word(body: &mut String, x: f64, y: f64, ink: &str, label: &str) {
    let label = escaped(label);
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{ink}\">{label}</text>"
    );
}
