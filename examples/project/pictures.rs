//! The pictures of the pages, drawn by running programs.

use crate::layouts::chart;
use atmesh::display::LineChart;
use atmesh::prelude::*;
use atmesh::{Error, MovementDiagram, optim};
use std::path::Path;

/// Returns the diagrams of what moves: the file, the title, and the movement.
fn moves() -> Result<[(&'static str, &'static str, MovementDiagram); 4]> {
    let line = Mesh::new([("i", 4)])?;
    let grid = Mesh::new([("data", 2), ("model", 2)])?;
    let digits = || Array::from([3.0f32, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]);
    let examples = digits().reshape([4, 2]).put(&line, p!["i", _]);
    let up = Array::ones([2, 4]).put(&line, p![_, "i"]);
    let down = Array::ones([4, 2]).put(&line, p!["i", _]);
    let split = Array::ones([2, 2]).put(&grid, p![_, "model"]);
    Ok([
        (
            "train-accumulation",
            "two partial sums are added on each device, and then over devices",
            jit(|x: &Array| {
                let parts = [0, 1].map(|k| x.slice(ix![.., k]).sum_to(0, p![; U: "i"]));
                let sum = &parts[0] + &parts[1];
                (sum.clone(), sum.reshard(p![]))
            })
            .data_movement(&examples)?,
        ),
        (
            "train-fsdp",
            "weights are gathered, and their gradient is scattered",
            jit(shard_map(&line, p!["i"], (p![], p!["i"]), |w: &Array| {
                let used = w.all_gather("i", CollectiveDim::tiled(0).invarying());
                let gradient = used.pvary("i").psum_scatter("i", CollectiveDim::tiled(0));
                (used, gradient)
            }))
            .data_movement(&Array::from([1.0f32, 2.0, 3.0, 4.0]).put(&line, p!["i"]))?,
        ),
        (
            "train-tensor",
            "columns of the first matrix, rows of the second, and a sum",
            jit(move |x: &Array| {
                let h = x.dot(&up);
                (h.clone(), h.dot_to(&down, p![_]))
            })
            .data_movement(&Array::from([1.0f32, 2.0]).put(&line, p![]))?,
        ),
        (
            "train-both",
            "the gradient of split weights by split examples",
            jit(move |x: &Array| grad(&split, |w| x.dot(w).sum(..)))
                .data_movement(&digits().reshape([4, 2]).put(&grid, p!["data", _]))?,
        ),
    ])
}

/// Returns the chart of the learning rate.
fn schedule() -> Result<LineChart> {
    let rate = optim::warmup_cosine_decay_schedule(0.0, 1e-2, 5, 40, 1e-3);
    let at = |i: i32| Ok((i, rate.at(i).item::<f32>()?));
    let points = (0..=45).map(at).collect::<Result<Vec<_>>>()?;
    Ok(LineChart::new("learning rate by step").line("", points))
}

/// Returns the chart of the loss of one character.
fn loss() -> LineChart {
    let points = (2..=100).map(|percent| (percent, -(f64::from(percent) / 100.0).ln()));
    LineChart::new("loss, by the probability in %").line("", points)
}

/// Returns the chart of a number to which 0.001 is added, again and again.
fn rounding() -> Result<LineChart> {
    let mut chart = LineChart::new("1, plus 0.001 in each step");
    for dtype in [F32, BF16] {
        let (mut sum, update) = (Array::full([], 1.0).astype(dtype), Array::full([], 0.001).astype(dtype));
        let mut points = Vec::new();
        for step in 0..=20 {
            points.push((step, sum.astype(F32).item::<f32>()?));
            sum = &sum + &update;
        }
        chart = chart.line(dtype.to_string(), points);
    }
    Ok(chart)
}

pub(crate) fn draw(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(Error::other)?;
    let write = |name: &str, svg: String| {
        std::fs::write(folder.join(format!("{name}.svg")), svg).map_err(Error::other)
    };
    for (name, title, moves) in moves()? {
        write(name, moves.to_svg(title))?;
    }
    write("train-loss", loss().to_svg())?;
    write("train-rounding", rounding()?.to_svg())?;
    write("train-schedule", schedule()?.to_svg())?;
    write("train-layouts", chart()?.to_svg())
}
