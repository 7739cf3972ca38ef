//! What the chapters print and draw: sections, rules with their pictures, refusals.

use atmesh::{Array, Collectives, Error, Lowered, Result, Tree, type_of};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Where pictures go, if they are wanted.
static PICTURES: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn pictures_into(folder: PathBuf) {
    let _ = PICTURES.set(folder);
}

/// The head of a section: what follows belongs to it.
pub(crate) fn section(name: &str) {
    println!("== {name}");
}

/// `rule!(a + b; a, b)` runs `a + b` as a program of `a` and `b` and prints its type, the operands' types, and what devices
/// exchange; `=> "add"` draws it as well.
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

/// `refused!(a + b; a, b)` prints why `a + b` is not a program of `a` and `b`.
macro_rules! refused {
    ($f:expr; $($x:ident),+) => { $crate::show::refused(lowered!($f; $($x),+))? };
}

/// The lowered program of an expression.
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

/// An expression as it is written: `stringify!` without the blanks that it puts around macros' marks and line breaks.
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

/// What a program communicates, in a line.
pub(crate) fn communication(report: &Collectives) -> String {
    if report.is_empty() {
        return "no communication".into();
    }
    let tell = |c: &atmesh::Collective| {
        let times = if c.times > 1 { format!(", {} times", c.times) } else { String::new() };
        format!("{} over {}, {} bytes per device{times}", c.kind, c.axes, c.bytes)
    };
    report.iter().map(tell).collect::<Vec<_>>().join("; ")
}

pub(crate) fn refused<T>(result: Result<T>) -> Result<()> {
    match result {
        Ok(_) => Err(Error::other("this was to be refused")),
        Err(e) => {
            println!("\n{e}\n");
            Ok(())
        }
    }
}

/// A phone shows so much at its natural size, 12 px letters and all.
const WIDE: f64 = 344.0;
/// The longer side of an array: alone, and with room for another beside it.
const ALONE: f64 = 168.0;
const SIDE: f64 = 120.0;
const LETTER: f64 = 7.3;
const GAP: f64 = 16.0;
const LINE: f64 = 20.0;

/// A column of a figure: a picture with its size, and the type beneath.
struct Column {
    svg: String,
    size: (f64, f64),
    caption: String,
}

impl Column {
    fn of((name, x): &(&str, &Array), side: f64) -> Column {
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

/// A figure that grows downwards: no wider than [`WIDE`], unless one array's own words are.
struct Figure {
    body: String,
    wide: f64,
    y: f64,
}

impl Figure {
    /// Arrays side by side, as many as have room, and the others beneath them.
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
    /// What is done, and an arrow down beneath it.
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
    /// Lines of words, broken where there is no more room.
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

/// Draws arrays with their names, an arrow with what is done to them, and what comes out: each with its type.
pub(crate) fn figure(
    name: &str,
    from: &[(&str, &Array)],
    done: &str,
    to: &[(&str, &Array)],
    beneath: &str,
) -> Result<()> {
    let Some(folder) = PICTURES.get() else { return Ok(()) };
    let side = if from.len() + to.len() == 1 { ALONE } else { SIDE };
    let columns = |list: &[(&str, &Array)]| -> Vec<_> { list.iter().map(|x| Column::of(x, side)).collect() };
    let (from, to) = (columns(from), columns(to));
    let wide = from.iter().chain(&to).map(|c| c.width() + 2.0 * GAP).fold(WIDE, f64::max);
    let listed =
        |columns: &[Column]| columns.iter().map(|c| c.caption.clone()).collect::<Vec<_>>().join("; ");
    let told = [listed(&from), done.to_string(), listed(&to), beneath.to_string()];
    let told = escaped(&told.into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(" → "));
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
         {height:.0}\" font-family=\"ui-monospace, monospace\" font-size=\"12\" role=\"img\">\n<title>{told}</title>\n<rect width=\"100%\" height=\"100%\" \
         rx=\"8\" fill=\"#fafafa\"/>\n{body}</svg>\n"
    );
    std::fs::create_dir_all(folder).map_err(Error::other)?;
    std::fs::write(folder.join(format!("{name}.svg")), svg).map_err(Error::other)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Words around a middle.
fn word(body: &mut String, x: f64, y: f64, ink: &str, label: &str) {
    let label = escaped(label);
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{ink}\">{label}</text>"
    );
}
