//! Writes SVG: rectangles, lines and texts, and the image around them.

use crate::core::util::text::escape;
use std::fmt::Write;

/// The elements of an SVG image.
pub(super) struct Canvas {
    pub(super) body: String,
    /// The number of digits after the point of the width of a rectangle.
    digits: usize,
}

impl Canvas {
    pub(super) fn new(digits: usize) -> Canvas {
        Canvas { body: String::new(), digits }
    }
    /// Draws a rectangle. `more` has further attributes.
    pub(super) fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: [u8; 3], more: &str) {
        let (fill, digits) = (hex(fill), self.digits);
        let _ = write!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.digits$}\" height=\"{h:.1}\" fill=\"{fill}\"{more}/>"
        );
    }
    /// Draws a line through points; one point is a dot.
    pub(super) fn polyline(&mut self, points: &[(f64, f64)], color: [u8; 3], width: f64) {
        if points.is_empty() {
            return;
        }
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = if points.len() == 1 { [points.clone(), points].concat() } else { points };
        let (points, color) = (points.join(" "), hex(color));
        let _ = write!(
            self.body,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" \
             stroke-linecap=\"round\"/>"
        );
    }
    /// Writes a label. `x` is its start, middle or end, as `anchor` says; `more` has further
    /// attributes.
    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: &str, ink: &str, more: &str, label: &str) {
        let label = escape(label);
        let _ = write!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{ink}\"{more}>{label}</text>"
        );
    }
    /// Returns the image. `head` is the rest of its start tag, and the elements before the others.
    pub(super) fn finish(self, (width, height): (f64, f64), font: f64, head: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, monospace\" \
             font-size=\"{font}\"{head}\n{}</svg>\n",
            self.body
        )
    }
}

/// Returns a colour as SVG writes it.
fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
