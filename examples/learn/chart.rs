//! Draws the chart of questions by which a mode is chosen.

use std::fmt::Write;

const LEFT: usize = 8;
const QUESTION: usize = 212;
const GAP: usize = 32;
const ANSWER: usize = 140;
const ROW: usize = 76;
const BOX: usize = 48;

/// The questions, each in two lines, and the answer if it is "yes".
const QUESTIONS: [([&str; 2], &str); 4] = [
    (["does it run code that", "cannot be traced?"], "native: spmd"),
    (["is the exchange itself", "the algorithm?"], "manual: shard_map"),
    (["should rustc check", "each sharding?"], "typed arrays"),
    (["is its communication to", "be under control?"], "explicit axes"),
];

fn text(body: &mut String, x: usize, y: usize, line: &str) {
    let _ = writeln!(body, "<text x=\"{x}\" y=\"{y}\" fill=\"#111\" text-anchor=\"middle\">{line}</text>");
}

fn boxed(body: &mut String, at: (usize, usize), wide: usize, fill: &str, lines: &[&str]) {
    let (x, y) = at;
    let _ = writeln!(
        body,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{BOX}\" rx=\"8\" fill=\"{fill}\" stroke=\"#26456e\"/>"
    );
    for (k, line) in lines.iter().enumerate() {
        let y = if lines.len() == 1 { y + 29 } else { y + 20 + 18 * k };
        text(body, x + wide / 2, y, line);
    }
}

/// Draws the questions from top to bottom, with the answers at their right.
pub(crate) fn draw() -> String {
    let (wide, high) = (2 * LEFT + QUESTION + GAP + ANSWER, 16 + QUESTIONS.len() * ROW + BOX);
    let (middle, right) = (LEFT + QUESTION / 2, LEFT + QUESTION + GAP);
    let mut body = String::new();
    for (k, (lines, answer)) in QUESTIONS.iter().enumerate() {
        let y = 8 + k * ROW;
        boxed(&mut body, (LEFT, y), QUESTION, "#b9d3ee", lines);
        boxed(&mut body, (right, y), ANSWER, "#f3e3c3", &[answer]);
        let (from, to) = (LEFT + QUESTION, right - 2);
        let (line, bottom) = (y + BOX / 2, y + BOX);
        let _ = writeln!(
            body,
            "<path stroke=\"#26456e\" fill=\"none\" d=\"M{from} {line}H{to}m-6 -4l6 4l-6 4M{middle} {bottom}V{}m-4 -6l4 6l4 -6\"/>",
            y + ROW - 2
        );
        text(&mut body, from + GAP / 2, line - 6, "yes");
        text(&mut body, middle + 16, bottom + 18, "no");
    }
    boxed(&mut body, (LEFT, 8 + QUESTIONS.len() * ROW), QUESTION, "#f3e3c3", &["auto axes"]);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {wide} {high}\" \
         font-family=\"ui-monospace, monospace\" font-size=\"13\" role=\"img\">\n\
         <title>which mode: four questions, and auto axes if none of them is answered by yes</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#fafafa\"/>\n{body}</svg>\n"
    )
}
