//! Pictures of shardings: an array divided into blocks, each with the devices that hold it.

use super::{svg, table};
use crate::core::{
    ArrayType, Axes, Error, MAX_DEVICES, Mesh, Shape, Sharding, Spec, sharding::blocks_unchecked,
    util::small_sort, util::text::columns,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

/// A picture of the blocks of a sharded array, and of the devices that hold each block.
///
/// It prints as a table; see also [`Picture::colored`], [`Picture::to_svg`] and
/// [`Picture::to_svg_sized`].
///
/// Devices that hold the same block are listed together. If an array is unreduced, the devices of
/// each summand are listed, separated by `+`, and the block is striped in SVG. An array of more
/// than two dimensions is drawn as slices of its last two.
///
/// ```
/// use atmesh::{Picture, Sharding, prelude::*};
/// let mesh = Mesh::new([("x", 2), ("y", 2)])?;
/// let sharding = Sharding::new(&mesh, p!["x", _], &[4, 4])?;
/// let picture = Picture::new([4, 4], &sharding);
/// assert_eq!(picture.to_string(), "\
/// ┌───────────────────────┐
/// │                       │
/// │        CPU 0,1        │
/// │                       │
/// │                       │
/// ├───────────────────────┤
/// │                       │
/// │        CPU 2,3        │
/// │                       │
/// │                       │
/// └───────────────────────┘
/// ");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Picture {
    /// The slices of the array, in order.
    pub(super) grids: Vec<BlockGrid>,
    /// The lines below the picture: devices that hold nothing, and axes that are not yet decided.
    pub(super) notes: Vec<String>,
}

/// A slice of the array: a grid of blocks.
#[derive(Clone, Debug)]
pub(super) struct BlockGrid {
    /// The index of the slice, as text; empty if there is only one slice.
    pub(super) title: String,
    /// The sizes of the two dimensions drawn; an array of one dimension is drawn as a row.
    pub(super) size: (Option<usize>, usize),
    /// The index ranges of the blocks along the two dimensions.
    pub(super) rows: Vec<Range<usize>>,
    pub(super) columns: Vec<Range<usize>>,
    /// The devices that hold each block, row by row.
    pub(super) cells: Vec<Holders>,
}

/// The devices that hold a block.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Holders {
    /// The kind of device, such as `CPU`.
    pub(super) kind: &'static str,
    /// A list of devices for each summand; a single list if the array is not unreduced.
    pub(super) summands: Vec<Vec<usize>>,
}

impl Picture {
    /// Returns the picture of an array with this shape and sharding.
    pub fn new(shape: impl Into<Shape>, sharding: &Sharding) -> Picture {
        draw(&shape.into(), sharding, &Axes::none())
    }
    /// Returns the picture of a type; this also works while tracing.
    ///
    /// The sharding over auto axes is not yet known, and a note in the picture says so. Inside
    /// `shard_map`, the picture has a slice for each device along the varying axes.
    pub fn from_type(ty: &ArrayType) -> Picture {
        let Some(mesh) = &ty.mesh else {
            let alone = Mesh::new::<&str>([]);
            return alone.map_or_else(
                |e| Picture::from_error(&e),
                |mesh| draw(&ty.shape, &Sharding { mesh, spec: Spec::replicated(ty.rank()) }, &Axes::none()),
            );
        };
        // as at run time, a varying value has a leading dimension for each varying axis
        let shape: Shape =
            ty.varying.iter().map(|a| mesh.extent(a)).chain(ty.shape.iter().copied()).collect();
        let dims = ty.varying.iter().map(Axes::from).chain(ty.spec.padded(ty.rank()).dims().iter().cloned());
        let spec = ty.spec.with_dims(dims.collect());
        let mut picture = draw(&shape, &Sharding { mesh: mesh.clone(), spec }, &ty.varying);
        let auto = Axes::from(mesh.axes_of(crate::core::mesh::AxisType::Auto));
        if !auto.is_empty() {
            picture.notes.push(format!("over {auto}: as propagation decides"));
        }
        picture
    }
    /// Returns the picture of a value that carries an error, which shows only the error.
    pub fn from_error(error: &Error) -> Picture {
        Picture { grids: Vec::new(), notes: vec![error.to_string()] }
    }
    /// Returns true if the picture has blocks, and not only notes.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.grids.is_empty()
    }
    /// Formats the picture for terminals with 24-bit colours: each block has a background colour.
    pub fn colored(&self) -> String {
        table::colored(self)
    }
    /// Prints the picture to stdout.
    ///
    /// It is coloured if stdout is a terminal with colours (`NO_COLOR` and `CLICOLOR_FORCE`
    /// override this); otherwise it is the table that `{}` gives. Write errors are ignored.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// Array::ones([4, 2]).put(&mesh, p!["X"]).visualize().print();
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn print(&self) {
        use anstream::ColorChoice::{Always, AlwaysAnsi};
        let mut out = anstream::stdout();
        let text = match out.current_choice() {
            Always | AlwaysAnsi => self.colored(),
            _ => self.to_string(),
        };
        let _ = std::io::Write::write_all(&mut out, text.as_bytes());
    }
    /// Draws the picture as an SVG image.
    pub fn to_svg(&self) -> String {
        svg::svg(self, svg::DEFAULT_SIDE_PX)
    }
    /// Draws the picture as an SVG image; `side` is the longer side of a slice, in pixels.
    pub fn to_svg_sized(&self, side: f64) -> String {
        svg::svg(self, side)
    }
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table::plain(self))
    }
}

/// The devices of each summand, by their coordinates along the unreduced axes.
type SummandDevices = BTreeMap<Vec<usize>, Vec<usize>>;

/// Returns the picture; the leading dimensions of `shape` count the devices along `varying`.
fn draw(shape: &Shape, sharding: &Sharding, varying: &Axes) -> Picture {
    let mesh = &sharding.mesh;
    if mesh.size() > MAX_DEVICES {
        let notes = vec![format!("{} devices are too many to be drawn", mesh.size())];
        return Picture { grids: Vec::new(), notes };
    }
    let kind = mesh.devices().first().map_or("dev", |d| d.kind());
    // find the blocks of each dimension and their devices; a dimension of size 0 is one empty block
    let holds_nothing = |r: &Range<usize>, n: usize| r.is_empty() && n > 0;
    let mut ranges: Vec<BTreeSet<(usize, usize)>> = vec![BTreeSet::new(); shape.rank()];
    let mut holders: BTreeMap<Vec<(usize, usize)>, SummandDevices> = BTreeMap::new();
    let mut idle = Vec::new();
    for (position, block) in blocks_unchecked(sharding, shape).into_iter().enumerate() {
        let id = mesh.devices().get(position).map_or(position, |d| d.id());
        if block.index.iter().zip(shape.iter()).any(|(r, n)| holds_nothing(r, *n)) {
            idle.push(id);
            continue;
        }
        let at: Vec<_> = block.index.iter().map(|r| (r.start, r.end)).collect();
        ranges.iter_mut().zip(&at).for_each(|(set, r)| {
            set.insert(*r);
        });
        let coordinates = mesh.coordinates(position);
        let unreduced = sharding.spec.unreduced_axes().iter().filter_map(|a| mesh.find(a));
        let summand = unreduced.map(|i| coordinates[i]).collect();
        holders.entry(at).or_default().entry(summand).or_default().push(id);
    }
    let ranges: Vec<Vec<Range<usize>>> =
        ranges.into_iter().map(|set| set.into_iter().map(|(a, b)| a..b).collect()).collect();
    let split = shape.rank().saturating_sub(2).max(varying.len().min(shape.rank()));
    let (leading, drawn) = ranges.split_at(split);
    let one: Vec<_> = std::iter::once(0..1).collect();
    let (rows, columns) = match drawn {
        [] => (&one, &one),
        [columns] => (&one, columns),
        [rows, columns, ..] => (rows, columns),
    };
    let size = match shape[split..] {
        [] => (None, 1),
        [n] => (None, n),
        [m, n, ..] => (Some(m), n),
    };
    let cell = |slice: &[Range<usize>], row: &Range<usize>, column: &Range<usize>| {
        let drawn = [row, column];
        let at = slice.iter().chain(drawn.into_iter().skip(2 - (shape.rank() - split)));
        let found = holders.get(&at.map(|r| (r.start, r.end)).collect::<Vec<_>>());
        let summands = found.into_iter().flat_map(|s| s.values()).map(|ids| {
            let mut ids = ids.clone();
            small_sort::sort(&mut ids);
            ids
        });
        Holders { kind, summands: summands.collect() }
    };
    let grids = block_combinations(leading).into_iter().map(|slice| BlockGrid {
        title: title(&slice, shape, varying),
        size,
        cells: rows
            .iter()
            .flat_map(|r| columns.iter().map(move |c| (r, c)))
            .map(|(r, c)| cell(&slice, r, c))
            .collect(),
        rows: rows.clone(),
        columns: columns.clone(),
    });
    let grids = grids.collect();
    let mut notes = Vec::new();
    if !idle.is_empty() {
        small_sort::sort(&mut idle);
        notes.push(format!("{kind} {}: nothing", ids(&idle, true)));
    }
    Picture { grids, notes }
}

/// Returns all combinations of one block per dimension, in order.
fn block_combinations(ranges: &[Vec<Range<usize>>]) -> Vec<Vec<Range<usize>>> {
    ranges.iter().fold(vec![Vec::new()], |before, blocks| {
        let longer = |head: &Vec<Range<usize>>| {
            let head = head.clone();
            blocks.iter().map(move |b| head.iter().cloned().chain([b.clone()]).collect()).collect::<Vec<_>>()
        };
        before.iter().flat_map(longer).collect()
    })
}

/// Formats the title of a slice, such as `X=0, [0:2, :, :]`.
fn title(slice: &[Range<usize>], shape: &Shape, varying: &Axes) -> String {
    let mut parts: Vec<String> = varying.iter().zip(slice).map(|(a, r)| format!("{a}={}", r.start)).collect();
    let dims = slice.iter().zip(shape.iter()).skip(varying.len());
    let dims: Vec<_> = dims
        .map(|(r, n)| if *r == (0..*n) { ":".to_string() } else { format!("{}:{}", r.start, r.end) })
        .collect();
    if !dims.is_empty() {
        let rest = shape.rank() - slice.len();
        parts.push(format!("[{}{}]", dims.join(", "), ", :".repeat(rest)));
    }
    parts.join(", ")
}

impl Holders {
    /// Returns the colour of a block, and the colour of text on it.
    /// The block has the colour of the first device that holds it, so that a device has the same
    /// colour in all pictures.
    pub(super) fn color(&self) -> ([u8; 3], [u8; 3]) {
        color(self.summands.first().and_then(|s| s.first()).copied().unwrap_or(0))
    }
    /// Returns the colour of each summand, which is the colour of its first device.
    pub(super) fn terms(&self) -> Vec<[u8; 3]> {
        self.summands.iter().filter_map(|s| s.first()).map(|first| color(*first).0).collect()
    }
    /// Formats the devices without their kind, as in `0-3 + 4-7`, for blocks with little space.
    pub(super) fn device_ids(&self) -> String {
        self.summands.iter().map(|s| ids(s, true)).collect::<Vec<_>>().join(" + ")
    }
    /// Formats the devices as `CPU 0,1 + 2,3`, or `CPU 0-7` if `short` is set.
    pub(super) fn label(&self, short: bool) -> String {
        let summands: Vec<_> = self.summands.iter().map(|s| ids(s, short)).collect();
        let text = format!("{} {}", self.kind, summands.join(" + "));
        const MAX_LABEL_CHARS: usize = 28;
        if !short || columns(&text) <= MAX_LABEL_CHARS {
            return text;
        }
        let devices: usize = self.summands.iter().map(Vec::len).sum();
        let first = self.summands.first().and_then(|s| s.first()).copied().unwrap_or(0);
        let last = self.summands.last().and_then(|s| s.last()).copied().unwrap_or(0);
        match self.summands.len() {
            1 => format!("{} {first},…,{last} ({devices})", self.kind),
            n => format!("{} {first}…{last} ({n} summands)", self.kind),
        }
    }
}

/// Formats device ids as `0,1,2,3`; if `short` is set, runs of three or more become `0-3`.
fn ids(ids: &[usize], short: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut i = 0;
    while i < ids.len() {
        let run = (i..ids.len()).take_while(|j| ids[*j] == ids[i] + (j - i)).count();
        let step = if short && run > 2 { run } else { 1 };
        parts.push(if step > 1 { format!("{}-{}", ids[i], ids[i + run - 1]) } else { ids[i].to_string() });
        i += step;
    }
    parts.join(",")
}

/// Returns the colour of a device, and the colour of text on it.
/// The hues of successive devices are a golden angle apart, so that neighbours differ.
pub(super) fn color(k: usize) -> ([u8; 3], [u8; 3]) {
    let hue = (k as f64 * 137.508 + 210.0) % 360.0 / 60.0;
    let (chroma, light) = (0.40, 0.42 + 0.16 * ((k / 3) % 3) as f64);
    let side = chroma * (1.0 - (hue % 2.0 - 1.0).abs());
    let (r, g, b) = match hue as u32 {
        0 => (chroma, side, 0.0),
        1 => (side, chroma, 0.0),
        2 => (0.0, chroma, side),
        3 => (0.0, side, chroma),
        4 => (side, 0.0, chroma),
        _ => (chroma, 0.0, side),
    };
    let back = [r, g, b].map(|c| ((c + light - chroma / 2.0).clamp(0.0, 1.0) * 255.0) as u8);
    let [r, g, b] = back.map(f64::from);
    let bright = r * 0.299 + g * 0.587 + b * 0.114 > 150.0;
    (back, if bright { [0; 3] } else { [255; 3] })
}
