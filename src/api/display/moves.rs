//! Diagrams of data movement: a row per device, each element in the colour of its source device.

use super::{canvas::Canvas, picture::color};
use crate::core::util::text::{columns, escape, wrap};
use std::fmt;

/// A diagram of the data that a program moves between devices.
///
/// For each stage of the program it has a row per device with the block that the device holds. Each
/// element has the colour of the device that it came from; a sum is striped in the colours of all
/// its terms. [`Jit::data_movement`](crate::Jit::data_movement) creates it by running the program.
///
/// It prints as text; [`MovementDiagram::to_svg`] draws it.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::from([3, 9]).put(&mesh, p!["X"]);
/// let diagram = jit(|x: &Array| x.reshard(p![])).data_movement(&x)?;
/// assert!(diagram.to_string().contains("CPU 1: 3<0 9<1"), "{diagram}");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone)]
pub struct MovementDiagram {
    /// The argument, then each result.
    pub(crate) stages: Vec<DiagramStage>,
    /// The descriptions of the transfers, one per line.
    pub(crate) sent: Vec<String>,
}

/// A value of the program, with the block that each device holds.
#[derive(Clone, Debug)]
pub(crate) struct DiagramStage {
    /// The type of the value, as text.
    pub(crate) caption: String,
    /// True if the devices hold partial values.
    pub(crate) partial: bool,
    /// The blocks of the value, one per device.
    pub(crate) rows: Vec<DeviceRow>,
}

/// The block of a value that one device holds.
#[derive(Clone, Debug)]
pub(crate) struct DeviceRow {
    /// The index of the device.
    pub(crate) device: usize,
    /// The name of the device, as the row's label.
    pub(crate) name: String,
    /// The number of elements in a row of the block.
    pub(crate) width: usize,
    /// The elements of the block, in row-major order.
    pub(crate) cells: Vec<DiagramElement>,
}

/// An element of a block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DiagramElement {
    /// The label of the element.
    pub(crate) text: String,
    /// The devices that the element's terms came from.
    pub(crate) from: Vec<usize>,
}

/// The width of the image, in pixels. Phones show it without scaling it down.
const WIDTH_PX: f64 = 340.0;
const FONT_PX: f64 = 13.0;
const LETTER_PX: f64 = 7.9;
const MARGIN_PX: f64 = 12.0;
const LINE_PX: f64 = 20.0;
/// The height of an element, and the gap between the rows of two devices, in pixels.
const ELEMENT_HEIGHT_PX: f64 = 25.0;
const ROW_GAP_PX: f64 = 5.0;
/// The height of the stripes of a sum, in pixels.
const STRIPES_PX: f64 = 8.0;

impl MovementDiagram {
    /// Draws the diagram as an SVG image with the heading `title`.
    ///
    /// The image is 340 pixels wide, so that it is legible on a phone. If there are three stages or
    /// more, the elements that arrive in each stage light up in turn.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([3, 9]).put(&mesh, p!["X"]);
    /// let svg = jit(|x: &Array| x.reshard(p![])).data_movement(&x)?.to_svg("all-gather");
    /// assert!(svg.starts_with("<svg") && svg.contains("<title>all-gather"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn to_svg(&self, title: &str) -> String {
        let steps = self.stages.len() > 2;
        let (mut canvas, mut y) = (Canvas::new(2), MARGIN_PX + FONT_PX);
        for line in wrapped(title) {
            text(&mut canvas, (MARGIN_PX, y), "start", "#111", " font-weight=\"bold\"", &line);
            y += LINE_PX;
        }
        let names = self.stages.iter().flat_map(|s| &s.rows).map(|r| columns(&r.name)).max();
        let left = MARGIN_PX + LETTER_PX * names.unwrap_or(0) as f64 + 8.0;
        let mut before: Option<&DiagramStage> = None;
        for (k, stage) in self.stages.iter().enumerate() {
            for line in wrapped(&stage.caption) {
                text(&mut canvas, (MARGIN_PX, y), "start", "#444", "", &line);
                y += LINE_PX;
            }
            y -= LINE_PX - 8.0;
            let widest = stage.rows.iter().map(|r| r.width).max().unwrap_or(1).max(1) as f64;
            let letters = stage.rows.iter().flat_map(|r| &r.cells).map(|c| columns(&c.text)).max();
            let requested = (letters.unwrap_or(1) as f64 * LETTER_PX + 8.0).max(26.0);
            let wide = requested.min((WIDTH_PX - left - MARGIN_PX) / widest);
            for (d, row) in stage.rows.iter().enumerate() {
                let lines = row.cells.len().div_ceil(row.width.max(1)).max(1);
                let middle = y + lines as f64 * ELEMENT_HEIGHT_PX / 2.0 + FONT_PX * 0.36;
                text(&mut canvas, (MARGIN_PX, middle), "start", "#333", "", &row.name);
                if stage.partial && d > 0 {
                    text(&mut canvas, (left - 4.0, y + 1.0), "middle", "#111", " font-weight=\"bold\"", "+");
                }
                for (i, cell) in row.cells.iter().enumerate() {
                    let at = (
                        left + (i % row.width.max(1)) as f64 * wide,
                        y + (i / row.width.max(1)) as f64 * ELEMENT_HEIGHT_PX,
                    );
                    let arrived = steps && before.is_some_and(|b| !b.holds(row.device, cell));
                    element(&mut canvas, at, wide, cell, arrived.then_some(k));
                }
                if row.cells.is_empty() {
                    text(&mut canvas, (left, middle), "start", "#666", "", "nothing");
                }
                y += lines as f64 * ELEMENT_HEIGHT_PX + ROW_GAP_PX;
            }
            y += LINE_PX - 2.0;
            before = Some(stage);
        }
        for line in self.sent.iter().flat_map(|l| wrapped(l)) {
            text(&mut canvas, (MARGIN_PX, y), "start", "#555", "", &line);
            y += LINE_PX;
        }
        let title = escape(&format!("{title}: {}", self.sent.join("; ")));
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
        let head = format!(
            " role=\"img\">\n<title>{title}</title>\n{style}\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#fafafa\"/>"
        );
        canvas.finish((WIDTH_PX, y - FONT_PX + MARGIN_PX / 2.0), FONT_PX, &head)
    }
}

impl DiagramStage {
    /// Returns true if the device has this element already.
    fn holds(&self, device: usize, cell: &DiagramElement) -> bool {
        let same = |c: &DiagramElement| c.from == cell.from && c.text == cell.text;
        self.rows.iter().any(|r| r.device == device && r.cells.iter().any(same))
    }
}

/// Draws an element, striped if it has several terms.
/// An element that arrives at a stage `k` lights up when that stage is shown.
fn element(
    canvas: &mut Canvas,
    (x, y): (f64, f64),
    wide: f64,
    cell: &DiagramElement,
    arrived: Option<usize>,
) {
    let class = arrived.map_or(String::new(), |k| {
        format!(" class=\"new\" style=\"animation-delay:{:.1}s\"", 1.5 * k as f64)
    });
    canvas.body += &format!("<g{class}>");
    let (w, h, n) = (wide - 2.0, ELEMENT_HEIGHT_PX - 2.0, cell.from.len().max(1) as f64);
    let sum = cell.from.len() > 1;
    if cell.from.len() != 1 {
        // a sum (striped below), or a constant, which comes from no device
        canvas.rect((x, y), (w, h), [0xe4; 3], "");
    }
    // draw the value of a sum above its stripes, so that both are visible
    let (top, high) = if sum { (y + h - STRIPES_PX, STRIPES_PX) } else { (y, h) };
    for (i, device) in cell.from.iter().enumerate() {
        canvas.rect((x + i as f64 * w / n, top), (w / n, high), color(*device).0, "");
    }
    let ink = match cell.from[..] {
        [one] if color(one).1 != [0; 3] => "#fff",
        _ => "#000",
    };
    let label = if columns(&cell.text) as f64 * LETTER_PX <= wide + 1.0 { cell.text.as_str() } else { "" };
    let middle = if sum { y + (h - STRIPES_PX) / 2.0 } else { y + h / 2.0 };
    text(canvas, (x + w / 2.0, middle + FONT_PX * 0.36), "middle", ink, "", label);
    canvas.body.push_str("</g>\n");
}

/// Writes a text on a line of the file.
fn text(canvas: &mut Canvas, at: (f64, f64), anchor: &str, ink: &str, more: &str, label: &str) {
    canvas.text(at, anchor, ink, more, label);
    canvas.body.push('\n');
}

/// Wraps text into lines that fit into the image.
fn wrapped(label: &str) -> Vec<String> {
    let lines = wrap(label, ((WIDTH_PX - 2.0 * MARGIN_PX) / LETTER_PX) as usize);
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

/// Prints a row per device: its elements, and after each `<` the devices that they came from.
impl fmt::Display for MovementDiagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            writeln!(f, "{}", stage.caption)?;
            for (d, row) in stage.rows.iter().enumerate() {
                let sign = if stage.partial && d > 0 { "+" } else { " " };
                let cells: Vec<String> = row.cells.iter().map(element_text).collect();
                writeln!(f, "{sign} {}: {}", row.name, cells.join(" "))?;
            }
        }
        self.sent.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

debug_as_display! { [] MovementDiagram }

fn element_text(cell: &DiagramElement) -> String {
    let from: Vec<String> = cell.from.iter().map(usize::to_string).collect();
    if from.is_empty() { cell.text.clone() } else { format!("{}<{}", cell.text, from.join("+")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(rows: usize, columns: usize, text: &str) -> DiagramStage {
        let row = |device| {
            let cell = DiagramElement { text: text.into(), from: (0..rows).collect() };
            DeviceRow { device, name: format!("CPU {device}"), width: columns, cells: vec![cell; columns] }
        };
        DiagramStage {
            caption: "float32[16,128@(model,data)]{U:replicas}".into(),
            partial: true,
            rows: (0..rows).map(row).collect(),
        }
    }

    /// Checks that text in the diagrams is legible on a phone that is 390 pixels wide.
    /// The book leaves 350 pixels for the image: letters must be at least 11 pixels high, and
    /// within the image.
    #[test]
    fn letters_are_legible_on_a_phone() {
        for (rows, columns, label, stages) in
            [(4, 4, "22", 2), (8, 8, "123", 4), (2, 16, "1.25", 3), (1, 1, "-0.0625", 1)]
        {
            let stages = vec![stage(rows, columns, label); stages];
            let sent =
                vec!["all_reduce over (model, data): the busiest device receives 1183744 bytes".to_string()];
            let svg = MovementDiagram { stages, sent }
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
                let (x, long) = (number(head, " x"), label.chars().count() as f64 * LETTER_PX);
                let middle = head.contains("anchor=\"middle\"");
                let (from, to) = if middle { (x - long / 2.0, x + long / 2.0) } else { (x, x + long) };
                assert!(from >= 0.0 && to <= wide, "{label} is at {from}..{to} of {wide}");
                letters += 1;
            }
            assert!(letters > rows, "{svg}");
        }
    }
}
