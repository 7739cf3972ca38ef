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

const SIDE: f64 = 168.0;
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
    fn of((name, x): &(&str, &Array)) -> Column {
        let svg = x.visualize().to_svg_sized(SIDE);
        let number = |name: &str| -> f64 {
            let from = svg.find(&format!(" {name}=\"")).map_or(0, |at| at + name.len() + 3);
            svg[from..].split('"').next().and_then(|n| n.parse().ok()).unwrap_or(SIDE)
        };
        let size = (number("width"), number("height"));
        let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
        Column { size, caption: format!("{name}{}", type_of(*x)), svg }
    }
    fn width(&self) -> f64 {
        self.size.0.max(self.caption.chars().count() as f64 * LETTER)
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
    let (from, to): (Vec<_>, Vec<_>) =
        (from.iter().map(Column::of).collect(), to.iter().map(Column::of).collect());
    let tall = from.iter().chain(&to).map(|c| c.size.1).fold(LINE, f64::max);
    let (mut body, mut x) = (String::new(), GAP);
    let columns = |body: &mut String, x: &mut f64, list: &[Column]| {
        for c in list {
            let (w, h) = c.size;
            let _ = writeln!(
                body,
                "{}",
                c.svg.trim_end().replacen(
                    "<svg xmlns=\"http://www.w3.org/2000/svg\"",
                    &format!(
                        "<svg x=\"{:.1}\" y=\"{:.1}\"",
                        *x + (c.width() - w) / 2.0,
                        GAP + (tall - h) / 2.0
                    ),
                    1
                )
            );
            word(body, *x + c.width() / 2.0, GAP + tall + LINE, "#111", &c.caption);
            *x += c.width() + GAP;
        }
    };
    columns(&mut body, &mut x, &from);
    if !to.is_empty() {
        let wide = (done.chars().count() as f64 * LETTER).max(4.0 * GAP);
        let middle = GAP + tall / 2.0;
        word(&mut body, x + wide / 2.0, middle - 8.0, "#111", done);
        let _ = writeln!(
            body,
            "<path d=\"M{:.1} {middle:.1}h{:.1}m-7 -5l7 5l-7 5\" fill=\"none\" stroke=\"#111\" stroke-width=\"1.5\"/>",
            x, wide
        );
        x += wide + GAP;
        columns(&mut body, &mut x, &to);
    }
    let mut y = GAP + tall + LINE;
    if !beneath.is_empty() {
        y += LINE;
        x = x.max(beneath.chars().count() as f64 * LETTER + 2.0 * GAP);
        word(&mut body, x / 2.0, y, "#666", beneath);
    }
    let (width, height) = (x, y + GAP);
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} \
         {height:.0}\" font-family=\"ui-monospace, monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         rx=\"8\" fill=\"#fafafa\"/>\n{body}</svg>\n"
    );
    std::fs::create_dir_all(folder).map_err(Error::other)?;
    std::fs::write(folder.join(format!("{name}.svg")), svg).map_err(Error::other)
}

/// Words around a middle.
fn word(body: &mut String, x: f64, y: f64, ink: &str, label: &str) {
    let label = label.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{ink}\">{label}</text>"
    );
}
