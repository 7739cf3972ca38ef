//! Draws a plate on four devices whose hot spot spreads; the program computes the temperatures.

use atmesh::prelude::*;
use std::fmt::Write;

const SIDE: usize = 16;
const CELL: usize = 19;
const EDGE: usize = 18;
/// The steps after which a frame is drawn.
const FRAMES: [i32; 6] = [0, 4, 12, 28, 60, 120];
/// The colours from cold to hot.
const COLOURS: [&str; 8] =
    ["#26456e", "#3b6aa0", "#6f9fd8", "#b9d3ee", "#f3e3c3", "#f2b378", "#dd7442", "#a8322a"];

/// Adds half of each point and an eighth of each neighbour; outside the plate it is cold.
fn step(x: &Array) -> Array {
    let around = x.shift(1, 0, 0) + x.shift(-1, 0, 0) + x.shift(1, 1, 0) + x.shift(-1, 1, 0);
    0.5 * x + 0.125 * around
}

fn frames() -> Result<Vec<Vec<f32>>> {
    let mesh = Mesh::auto([("x", 2), ("y", 2)])?;
    let spot = Array::zeros([SIDE, SIDE]).at(ix![5..9, 3..11]).set(64.0);
    let mut plate = spot.put(&mesh, p!["x", "y"]);
    let (mut done, mut frames) = (0, Vec::new());
    for at in FRAMES {
        plate = jit(|x: &Array| fori_loop(done..at, x, |_, x| step(&x))).call(&plate)?;
        done = at;
        frames.push(plate.to_vec()?);
    }
    Ok(frames)
}

/// Draws one frame, or an animation of all frames where the reader's settings allow motion.
pub(crate) fn draw() -> Result<String> {
    let frames = frames()?;
    let (wide, high, count) = (2 * EDGE + SIDE * CELL, 3 * EDGE + SIDE * CELL + 8, frames.len());
    let mut body = String::new();
    for (k, numbers) in frames.iter().enumerate() {
        let _ = writeln!(body, "<g class=\"frame\" style=\"animation-delay:{}s\">", 2 * k);
        let _ = writeln!(body, "<text x=\"{EDGE}\" y=\"22\" fill=\"#111\">after {} steps</text>", FRAMES[k]);
        for (level, colour) in COLOURS.iter().enumerate() {
            let mut path = String::new();
            for (i, number) in numbers.iter().enumerate() {
                // The square root makes small differences between cold points visible.
                let of = (((number / 64.0).max(0.0).sqrt() * 8.0) as usize).min(7);
                if of == level {
                    let (x, y) = (EDGE + i % SIDE * CELL, 2 * EDGE + i / SIDE * CELL);
                    let _ = write!(path, "M{x} {y}h{CELL}v{CELL}h-{CELL}z");
                }
            }
            if !path.is_empty() {
                let _ = writeln!(body, "<path fill=\"{colour}\" d=\"{path}\"/>");
            }
        }
        body += "</g>\n";
    }
    let (half, end) = (SIDE / 2 * CELL, SIDE * CELL);
    let (left, top) = (EDGE, 2 * EDGE);
    let _ = writeln!(
        body,
        "<path stroke=\"#fff\" stroke-width=\"2\" d=\"M{} {top}v{end}M{left} {}h{end}\"/>",
        left + half,
        top + half
    );
    for (device, (x, y)) in [(0, 0), (half, 0), (0, half), (half, half)].into_iter().enumerate() {
        let (x, y) = (left + x + 6, top + y + 18);
        let _ = writeln!(
            body,
            "<text x=\"{x}\" y=\"{y}\" fill=\"#fff\" stroke=\"#1a2f4b\" stroke-width=\"3\" paint-order=\"stroke\">CPU {device}</text>"
        );
    }
    let (period, shown) = (2 * count, 100.0 / count as f64);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {wide} {high}\" \
         font-family=\"ui-monospace, monospace\" font-size=\"13\" role=\"img\">\n\
         <title>the heat equation on a plate: a hot spot spreads over four devices</title>\n\
         <style>.frame ~ .frame {{ opacity: 0 }} @media (prefers-reduced-motion: no-preference) {{ .frame {{ opacity: 0; \
         animation: frame {period}s step-end infinite }} }} @keyframes frame {{ 0% {{ opacity: 1 }} {shown:.2}% {{ opacity: 0 }} }}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#fafafa\"/>\n{body}</svg>\n"
    ))
}
