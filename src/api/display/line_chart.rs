//! Charts of lines as SVG: losses by step.

use super::canvas::Canvas;
use crate::core::util::text::columns;
use std::fmt;

/// The size of the image, and of the frame in which the lines are, in pixels.
const IMAGE: (f64, f64) = (480.0, 320.0);
const LEFT_PX: f64 = 64.0;
const TOP_PX: f64 = 36.0;
const FRAME: (f64, f64) = (IMAGE.0 - LEFT_PX - 20.0, IMAGE.1 - TOP_PX - 36.0);
const FONT_PX: f64 = 16.0;
/// The distance of the entries of the legend, and the width of a letter, in pixels.
const LINE_PX: f64 = 20.0;
const LETTER_PX: f64 = 9.6;
/// The maximum number of intervals between the labels of an axis.
const MAX_INTERVALS: f64 = 5.0;
/// The colours of the lines. After the last one the first follows.
const COLORS: [[u8; 3]; 6] =
    [[31, 95, 168], [214, 99, 32], [45, 130, 70], [150, 60, 140], [120, 120, 120], [176, 140, 20]];

/// A chart of lines, such as the losses of a training run by step.
///
/// [`LineChart::to_svg`] draws it, and in a notebook it shows itself. `{}` prints its title, and the
/// last point of each line.
///
/// ```
/// use atmesh::display::LineChart;
/// let losses = [4.5, 3.6, 3.0, 2.9, 2.6];
/// let chart = LineChart::new("loss by step")
///     .line("training", losses.iter().enumerate().map(|(step, loss)| (25 * step, *loss)));
/// let svg = chart.to_svg();
/// assert!(svg.starts_with("<svg") && svg.contains("training"));
/// // std::fs::write("loss.svg", svg)?;
/// ```
#[doc(alias("plot", "loss_curve", "figure"))]
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LineChart {
    title: String,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl LineChart {
    /// Creates a chart without lines.
    ///
    /// ```
    /// use atmesh::display::LineChart;
    /// let svg = LineChart::new("accuracy").to_svg();
    /// assert!(svg.contains(">accuracy<"));
    /// ```
    pub fn new(title: impl Into<String>) -> LineChart {
        LineChart { title: title.into(), lines: Vec::new() }
    }
    /// Adds a line through points `(x, y)`. A point that is not finite, such as a loss of NaN, is a
    /// gap in the line.
    ///
    /// The legend has the names, unless there is one line without a name.
    ///
    /// ```
    /// use atmesh::display::LineChart;
    /// let chart = LineChart::new("loss")
    ///     .line("training", [(0, 3.0), (1, 2.0), (2, f32::NAN), (3, 1.5), (4, 1.0)])
    ///     .line("validation", [(0, 3.2), (4, 1.4)]);
    /// // two pieces of the first line, the second line, and both entries of the legend
    /// let pieces = ["#1f5fa8", "#d66320"].map(|c| chart.to_svg().matches(c).count());
    /// assert_eq!(pieces, [3, 2]);
    /// ```
    pub fn line<X: Coordinate, Y: Coordinate>(
        mut self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (X, Y)>,
    ) -> LineChart {
        let points = points.into_iter().map(|(x, y)| (x.to_f64(), y.to_f64())).collect();
        self.lines.push((name.into(), points));
        self
    }
    /// Draws the chart as an SVG image.
    ///
    /// ```
    /// use atmesh::display::LineChart;
    /// let path = std::env::temp_dir().join(format!("atmesh-loss-{}.svg", std::process::id()));
    /// let chart = LineChart::new("loss").line("", [(0, 3.0), (1, 2.0)]);
    /// std::fs::write(&path, chart.to_svg())?;
    /// assert!(std::fs::read_to_string(&path)?.starts_with("<svg"));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn to_svg(&self) -> String {
        let finite = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite();
        let points: Vec<&(f64, f64)> = self.lines.iter().flat_map(|line| &line.1).filter(finite).collect();
        let x = AxisScale::new(points.iter().map(|p| p.0), (LEFT_PX, FRAME.0));
        let y = AxisScale::new(points.iter().map(|p| p.1), (TOP_PX + FRAME.1, -FRAME.1));
        let mut canvas = Canvas::new(1);
        canvas.rect((0.0, 0.0), IMAGE, [255; 3], "");
        canvas.text((LEFT_PX, TOP_PX - 14.0), "start", "#222", "", &self.title);
        for at in x.labels() {
            let px = x.pixel(at);
            canvas.polyline(&[(px, TOP_PX), (px, TOP_PX + FRAME.1)], [225; 3], 1.0);
            canvas.text((px, TOP_PX + FRAME.1 + 22.0), "middle", "#222", "", &x.label(at));
        }
        for at in y.labels() {
            let px = y.pixel(at);
            canvas.polyline(&[(LEFT_PX, px), (LEFT_PX + FRAME.0, px)], [225; 3], 1.0);
            canvas.text((LEFT_PX - 8.0, px + 5.0), "end", "#222", "", &y.label(at));
        }
        for (k, (_, points)) in self.lines.iter().enumerate() {
            for run in points.split(|p| !finite(&p)) {
                let pixels: Vec<(f64, f64)> = run.iter().map(|p| (x.pixel(p.0), y.pixel(p.1))).collect();
                canvas.polyline(&pixels, color(k), 2.0);
            }
        }
        self.legend(&mut canvas);
        canvas.finish(IMAGE, FONT_PX, ">")
    }
    /// Writes the names of the lines at the upper right.
    fn legend(&self, canvas: &mut Canvas) {
        let widest = self.lines.iter().map(|line| columns(&line.0)).max().unwrap_or(0);
        if widest == 0 {
            return;
        }
        let start = LEFT_PX + FRAME.0 - 10.0 - widest as f64 * LETTER_PX;
        for (k, (name, _)) in self.lines.iter().enumerate() {
            let y = TOP_PX + 20.0 + k as f64 * LINE_PX;
            canvas.polyline(&[(start - 30.0, y - 5.0), (start - 8.0, y - 5.0)], color(k), 2.0);
            canvas.text((start, y), "start", "#222", "", name);
        }
    }
}

/// Prints the title, and for each line its name, its number of points and its last point.
impl fmt::Display for LineChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for (name, points) in &self.lines {
            let before = if name.is_empty() { String::new() } else { format!("{name}: ") };
            write!(f, "{before}{} points", points.len())?;
            match points.last() {
                Some((x, y)) => writeln!(f, ", the last one at ({x}, {y})")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

fn color(k: usize) -> [u8; 3] {
    COLORS[k % COLORS.len()]
}

/// A number that is a coordinate of a [`LineChart`].
///
/// ```
/// use atmesh::display::Coordinate;
/// assert_eq!((2.5f32.to_f64(), 7usize.to_f64()), (2.5, 7.0));
/// ```
pub trait Coordinate {
    /// Converts the number. Large integers are rounded.
    fn to_f64(self) -> f64;
}
macro_rules! coordinates { ($($T:ty)*) => {$(
    impl Coordinate for $T {
        fn to_f64(self) -> f64 {
            self as f64
        }
    }
)*} }
coordinates!(f32 f64 i32 i64 u32 u64 usize);

/// The scale of an axis: which pixel shows a coordinate, and where the labels are.
struct AxisScale {
    min: f64,
    max: f64,
    /// The distance of labels, a power of ten times 1, 2 or 5.
    step: f64,
    /// The pixel of `min`, and how many pixels away that of `max` is.
    pixels: (f64, f64),
}

impl AxisScale {
    /// Creates the scale that shows all values, from label to label.
    fn new(values: impl Iterator<Item = f64> + Clone, pixels: (f64, f64)) -> AxisScale {
        let (min, max) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::MIN, f64::max));
        // without values, and if all are equal, there is one interval
        let (min, max) = if min > max { (0.0, 1.0) } else { (min, max) };
        let width = if max > min { max - min } else { min.abs().max(1.0) };
        let power = 10f64.powf((width / MAX_INTERVALS).log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power * MAX_INTERVALS >= width);
        let step = power * factor.unwrap_or(10.0);
        let (first, last) = ((min / step).floor(), (max / step).ceil());
        let last = if last > first { last } else { first + 1.0 };
        AxisScale { min: first * step, max: last * step, step, pixels }
    }
    fn pixel(&self, at: f64) -> f64 {
        self.pixels.0 + self.pixels.1 * (at - self.min) / (self.max - self.min)
    }
    fn labels(&self) -> impl Iterator<Item = f64> + '_ {
        let count = ((self.max - self.min) / self.step).round() as usize;
        (0..=count).map(|k| self.min + k as f64 * self.step)
    }
    /// Writes a coordinate with the digits that tell the labels apart.
    fn label(&self, at: f64) -> String {
        if self.min.abs().max(self.max.abs()) >= 1e6 || self.step < 1e-4 {
            return format!("{at:.0e}");
        }
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        format!("{at:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64]) -> Vec<String> {
        let scale = AxisScale::new(values.iter().copied(), (0.0, 1.0));
        scale.labels().map(|at| scale.label(at)).collect()
    }

    #[test]
    fn labels_enclose_the_values() {
        assert_eq!(labels(&[0.0, 299.0]), ["0", "100", "200", "300"]);
        assert_eq!(labels(&[2.49, 4.54]), ["2.0", "2.5", "3.0", "3.5", "4.0", "4.5", "5.0"]);
        assert_eq!(labels(&[-0.02, 0.02]), ["-0.02", "-0.01", "0.00", "0.01", "0.02"]);
        assert_eq!(labels(&[]), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&[3.0]).len(), 2);
        assert_eq!(labels(&[1e6, 3e6])[1], "2e6");
    }

    /// Points that are not finite end a line, and the next ones begin another.
    #[test]
    fn gaps_and_legends() {
        let losses = [3.0, 2.0, f32::NAN, 1.0, 0.5];
        let points = || losses.iter().enumerate().map(|(i, y)| (i, *y));
        let svg = LineChart::new("a < b").line("", points()).to_svg();
        assert_eq!(svg.matches("stroke=\"#1f5fa8\"").count(), 2);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN"));
        let two = LineChart::new("two").line("one", points()).line("other", points()).to_svg();
        assert!(two.contains(">one<") && two.contains(">other<") && two.contains("#d66320"));
        assert!(LineChart::new("").to_svg().contains("<svg"));
    }
}
