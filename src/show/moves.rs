//! What moves: a row for each device, each element in the colour of the device that it came from.

use super::picture::color;
use super::svg::escape;
use std::fmt::{self, Write};

/// A picture of what a program moves between devices: for each stage one row per device with the block that it holds, each element in
/// the colour of the device that it came from. An element that is a sum is striped in the colours of all its terms. Made by
/// [`Jit::moves`](crate::Jit::moves), which runs the program to find out.
///
/// It prints as text; [`Moves::to_svg`] draws it.
#[derive(Clone, Debug)]
pub struct Moves {
    pub(crate) stages: Vec<Stage>,
    /// What is sent, a line each.
    pub(crate) sent: Vec<String>,
}

/// One value of the program: what each device holds of it.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// Its type.
    pub(crate) caption: String,
    /// Whether the devices hold summands.
    pub(crate) partial: bool,
    pub(crate) rows: Vec<Row>,
}

/// What one device holds of a value.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The device.
    pub(crate) device: usize,
    pub(crate) name: String,
    /// Elements of a line of its block.
    pub(crate) width: usize,
    pub(crate) cells: Vec<Cell>,
}

/// One element.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// The devices that its terms came from.
    pub(crate) from: Vec<usize>,
}

/// The widest that a picture gets: it is not scaled down on a phone.
const WIDTH: f64 = 340.0;
const FONT: f64 = 13.0;
const LETTER: f64 = 7.9;
const EDGE: f64 = 12.0;
const LINE: f64 = 20.0;
/// The height of an element, and the room between two devices.
const HIGH: f64 = 25.0;
const BETWEEN: f64 = 5.0;
/// The height of the stripes of a sum.
const STRIPES: f64 = 8.0;

impl Moves {
    /// As an SVG image, 340 pixels wide, so that it can be read on a phone; `title` is its heading. Where there are three stages or
    /// more, what arrived in each lights up in turn.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([3, 9]).put(&mesh, p!["X"]);
    /// let svg = jit(|x: &Array| x.reshard(p![])).moves(&x)?.to_svg("all-gather");
    /// assert!(svg.starts_with("<svg") && svg.contains("<title>all-gather"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn to_svg(&self, title: &str) -> String {
        let steps = self.stages.len() > 2;
        let (mut body, mut y) = (String::new(), EDGE + FONT);
        for line in wrapped(title) {
            text(&mut body, EDGE, y, "start", "#111", " font-weight=\"bold\"", &line);
            y += LINE;
        }
        let names = self.stages.iter().flat_map(|s| &s.rows).map(|r| r.name.chars().count()).max();
        let left = EDGE + LETTER * names.unwrap_or(0) as f64 + 8.0;
        let mut before: Option<&Stage> = None;
        for (k, stage) in self.stages.iter().enumerate() {
            for line in wrapped(&stage.caption) {
                text(&mut body, EDGE, y, "start", "#444", "", &line);
                y += LINE;
            }
            y -= LINE - 8.0;
            let widest = stage.rows.iter().map(|r| r.width).max().unwrap_or(1).max(1) as f64;
            let letters = stage.rows.iter().flat_map(|r| &r.cells).map(|c| c.text.chars().count()).max();
            let wanted = (letters.unwrap_or(1) as f64 * LETTER + 8.0).max(26.0);
            let wide = wanted.min((WIDTH - left - EDGE) / widest);
            for (d, row) in stage.rows.iter().enumerate() {
                let lines = row.cells.len().div_ceil(row.width.max(1)).max(1);
                let middle = y + lines as f64 * HIGH / 2.0 + FONT * 0.36;
                text(&mut body, EDGE, middle, "start", "#333", "", &row.name);
                if stage.partial && d > 0 {
                    text(&mut body, left - 4.0, y + 1.0, "middle", "#111", " font-weight=\"bold\"", "+");
                }
                for (i, cell) in row.cells.iter().enumerate() {
                    let at = (
                        left + (i % row.width.max(1)) as f64 * wide,
                        y + (i / row.width.max(1)) as f64 * HIGH,
                    );
                    let arrived = steps && before.is_some_and(|b| !b.holds(row.device, cell));
                    element(&mut body, at, wide, cell, arrived.then_some(k));
                }
                if row.cells.is_empty() {
                    text(&mut body, left, middle, "start", "#666", "", "nothing");
                }
                y += lines as f64 * HIGH + BETWEEN;
            }
            y += LINE - 2.0;
            before = Some(stage);
        }
        for line in self.sent.iter().flat_map(|l| wrapped(l)) {
            text(&mut body, EDGE, y, "start", "#555", "", &line);
            y += LINE;
        }
        let (height, told) = (y - FONT + EDGE / 2.0, escape(&format!("{title}: {}", self.sent.join("; "))));
        let period = 1.5 * self.stages.len() as f64;
        let style = if steps {
            format!(
                "<style>@media (prefers-reduced-motion: no-preference) {{ .new {{ animation: arrive {period}s ease-out \
                 infinite; }} }} @keyframes arrive {{ 0% {{ opacity: .15 }} {:.0}% {{ opacity: 1 }} }}</style>\n",
                100.0 / self.stages.len() as f64
            )
        } else {
            String::new()
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {WIDTH:.0} \
             {height:.0}\" font-family=\"ui-monospace, monospace\" font-size=\"{FONT}\" role=\"img\">\n<title>{told}</title>\n\
             {style}<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#fafafa\"/>\n{body}</svg>\n"
        )
    }
}

impl Stage {
    /// Whether the device has this element already.
    fn holds(&self, device: usize, cell: &Cell) -> bool {
        let same = |c: &Cell| c.from == cell.from && c.text == cell.text;
        self.rows.iter().any(|r| r.device == device && r.cells.iter().any(same))
    }
}

/// One element: striped, where it has several terms; one that arrived at stage `k` lights up then.
fn element(body: &mut String, (x, y): (f64, f64), wide: f64, cell: &Cell, arrived: Option<usize>) {
    let class = arrived.map_or(String::new(), |k| {
        format!(" class=\"new\" style=\"animation-delay:{:.1}s\"", 1.5 * k as f64)
    });
    let _ = write!(body, "<g{class}>");
    let (w, h, n) = (wide - 2.0, HIGH - 2.0, cell.from.len().max(1) as f64);
    let sum = cell.from.len() > 1;
    if cell.from.len() != 1 {
        // a sum, or a constant that came from nowhere
        rect(body, (x, y), (w, h), "#e4e4e4");
    }
    // the number of a sum is above its stripes, so that both can be seen
    let (top, high) = if sum { (y + h - STRIPES, STRIPES) } else { (y, h) };
    for (i, device) in cell.from.iter().enumerate() {
        let ([r, g, b], _) = color(*device);
        rect(body, (x + i as f64 * w / n, top), (w / n, high), &format!("#{r:02x}{g:02x}{b:02x}"));
    }
    let ink = match cell.from[..] {
        [one] if color(one).1 != [0; 3] => "#fff",
        _ => "#000",
    };
    let label = match cell.text.chars().count() as f64 * LETTER <= wide + 1.0 {
        true => cell.text.as_str(),
        false => "",
    };
    let middle = if sum { y + (h - STRIPES) / 2.0 } else { y + h / 2.0 };
    text(body, x + w / 2.0, middle + FONT * 0.36, "middle", ink, "", label);
    body.push_str("</g>\n");
}

fn rect(body: &mut String, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str) {
    let _ =
        write!(body, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.2}\" height=\"{h:.1}\" fill=\"{fill}\"/>");
}

fn text(body: &mut String, x: f64, y: f64, anchor: &str, ink: &str, more: &str, label: &str) {
    let label = escape(label);
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{ink}\"{more}>{label}</text>"
    );
}

/// Lines that fit.
fn wrapped(label: &str) -> Vec<String> {
    let most = ((WIDTH - 2.0 * EDGE) / LETTER) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// A row per device: its elements, and after each `<` the devices that it came from.
impl fmt::Display for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            writeln!(f, "{}", stage.caption)?;
            for (d, row) in stage.rows.iter().enumerate() {
                let sign = if stage.partial && d > 0 { "+" } else { " " };
                let cells: Vec<String> = row.cells.iter().map(told).collect();
                writeln!(f, "{sign} {}: {}", row.name, cells.join(" "))?;
            }
        }
        self.sent.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

fn told(cell: &Cell) -> String {
    let from: Vec<String> = cell.from.iter().map(usize::to_string).collect();
    if from.is_empty() { cell.text.clone() } else { format!("{}<{}", cell.text, from.join("+")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(rows: usize, columns: usize, text: &str) -> Stage {
        let row = |device| {
            let cell = Cell { text: text.into(), from: (0..rows).collect() };
            Row { device, name: format!("CPU {device}"), width: columns, cells: vec![cell; columns] }
        };
        Stage {
            caption: "float32[16,128@(model,data)]{U:replicas}".into(),
            partial: true,
            rows: (0..rows).map(row).collect(),
        }
    }

    /// On a phone of 390 pixels the book has 350 for a picture: letters are 11 pixels or more there, and none is beyond the edge.
    #[test]
    fn letters_are_legible_on_a_phone() {
        for (rows, columns, label, stages) in
            [(4, 4, "22", 2), (8, 8, "123", 4), (2, 16, "1.25", 3), (1, 1, "-0.0625", 1)]
        {
            let stages = vec![stage(rows, columns, label); stages];
            let sent =
                vec!["all_reduce over (model, data): the busiest device receives 1183744 bytes".to_string()];
            let svg = Moves { stages, sent }
                .to_svg("a title that is longer than one line of the picture has room for");
            let number = |part: &str, name: &str| -> f64 {
                let (_, rest) = part.split_once(&format!("{name}=\"")).expect(name);
                rest.split('"').next().and_then(|n| n.parse().ok()).expect(name)
            };
            let (wide, font) = (number(&svg, " width"), number(&svg, "font-size"));
            assert!(font * (350.0 / wide).min(1.0) >= 11.0, "{font} of {wide}");
            let mut letters = 0;
            for part in svg.split("<text").skip(1) {
                let (head, label) =
                    part.split_once("</text").and_then(|p| p.0.split_once('>')).expect("a text");
                let (x, long) = (number(head, " x"), label.chars().count() as f64 * LETTER);
                let middle = head.contains("anchor=\"middle\"");
                let (from, to) = if middle { (x - long / 2.0, x + long / 2.0) } else { (x, x + long) };
                assert!(from >= 0.0 && to <= wide, "{label} is at {from}..{to} of {wide}");
                letters += 1;
            }
            assert!(letters > rows, "{svg}");
        }
    }
}
