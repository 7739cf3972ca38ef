//! Tables of the arrays of a tree: the path, the type, and the memory that each takes.

use super::{Args, Path, Tree};
use crate::api::array::Array;
use crate::core::{Result, util::text::table};
use crate::partition::plan::html::{PageColumn, page};
use std::fmt;

/// The arrays of a tree with their types and sizes, which prints as a table.
///
/// ```
/// use atmesh::prelude::*;
/// let params = (Array::ones([8, 4]), vec![Array::ones([4])]);
/// let summary = tree::summary(&params)?;
/// assert_eq!((summary.rows.len(), summary.elements(), summary.bytes()), (2, 36, 144));
/// assert!(summary.to_string().contains("total  2 arrays"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// One row for each array, in the order of the tree.
    pub rows: Vec<SummaryRow>,
}

/// A row of a [`Summary`].
///
/// ```
/// use atmesh::prelude::*;
/// let summary = tree::summary((Array::ones([2]), Array::ones([100, 100])))?;
/// let largest = summary.rows.iter().max_by_key(|row| row.bytes).expect("there are two rows");
/// assert_eq!((largest.path.as_str(), largest.ty.as_str()), ("1", "float32[100,100]"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SummaryRow {
    /// The path of the array in its tree, such as `layers.0.w`.
    pub path: String,
    /// The type, with the sharding.
    pub ty: String,
    /// The number of elements.
    pub elements: usize,
    /// The size of the global array, in bytes.
    pub bytes: usize,
    /// The size of the block that each device holds, in bytes.
    pub bytes_per_device: usize,
}

/// Returns a table of the arrays of a tree, whose leaves may be types.
///
/// The size on a device is that of its block: an array that is not sharded takes its full size on
/// each device.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let params = (F32.array_type([8, 4]).on(&mesh, p!["X"]), F32.array_type([4]).on(&mesh, p![]));
/// let summary = tree::summary(params)?;
/// assert_eq!(
///     summary.to_string(),
///     "\
/// path   type            elements  bytes  bytes per device
/// 0      float32[8@X,4]        32    128                64
/// 1      float32[4]             4     16                16
/// total  2 arrays              36    144                80
/// "
/// );
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// An array carries an error.
#[doc(alias("tabulate", "parameter_overview", "count_parameters"))]
pub fn summary(tree: impl Args) -> Result<Summary> {
    let (mut rows, mut failed) = (Vec::new(), None);
    tree.into_tree().visit(&mut Path::named(), &mut |path, a| match summary_row(path, a) {
        Ok(row) => rows.push(row),
        Err(error) => drop(failed.get_or_insert(error)),
    });
    failed.map_or(Ok(Summary { rows }), Err)
}

fn summary_row(path: &Path, a: &Array) -> Result<SummaryRow> {
    let ty = a.ty()?;
    let block = match a.sharding()? {
        Some(sharding) => sharding.shard_shape(&ty.shape)?.num_elements(),
        None => ty.shape.num_elements(),
    };
    Ok(SummaryRow {
        path: path.to_string(),
        ty: ty.to_string(),
        elements: ty.shape.num_elements(),
        bytes: ty.nbytes(),
        bytes_per_device: block.saturating_mul(ty.dtype.size()),
    })
}

impl Summary {
    fn sum(&self, of: fn(&SummaryRow) -> usize) -> usize {
        self.rows.iter().map(of).fold(0, usize::saturating_add)
    }
    /// Returns the number of elements of all arrays.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let summary = tree::summary((Array::ones([8, 4]), Array::ones([4])))?;
    /// assert_eq!(summary.elements(), 36);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn elements(&self) -> usize {
        self.sum(|row| row.elements)
    }
    /// Returns the size of all global arrays, in bytes.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// // the global array, in which each element is counted once
    /// let w = BF16.array_type([8, 8]).on(&mesh, p!["X"]);
    /// assert_eq!(tree::summary(w)?.bytes(), 128);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn bytes(&self) -> usize {
        self.sum(|row| row.bytes)
    }
    /// Returns the size of all blocks that a device holds, in bytes.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let w = F32.array_type([8, 8]).on(&mesh, p!["X"]);
    /// assert_eq!(tree::summary(w)?.bytes_per_device(), 64);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn bytes_per_device(&self) -> usize {
        self.sum(|row| row.bytes_per_device)
    }
    /// Returns the table as an HTML page, which is sorted by clicking on the name of a column.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let page = tree::summary(Array::ones([8]))?.to_html();
    /// assert!(page.contains("float32[8]"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn to_html(&self) -> String {
        let figure = |of: fn(&SummaryRow) -> usize| {
            (move |row: &SummaryRow| of(row) as f64, |value: f64| value.to_string())
        };
        let (elements, bytes, per_device) =
            (figure(|r| r.elements), figure(|r| r.bytes), figure(|r| r.bytes_per_device));
        let columns = [
            PageColumn::text("path", |row: &SummaryRow| row.path.clone()),
            PageColumn::text("type", |row: &SummaryRow| row.ty.clone()),
            PageColumn::figure("elements", elements.0, elements.1),
            PageColumn::figure("bytes", bytes.0, bytes.1),
            PageColumn::figure("bytes per device", per_device.0, per_device.1),
        ];
        let head = [
            ("arrays", self.rows.len().to_string()),
            ("elements", self.elements().to_string()),
            ("bytes", self.bytes().to_string()),
            ("bytes per device", self.bytes_per_device().to_string()),
        ];
        page("Parameters", &head, &columns, &self.rows, "")
    }
}

impl Summary {
    /// Returns the cells of the table: its head, a row for each array, and the total.
    pub(crate) fn lines(&self) -> Vec<Vec<String>> {
        let row = |path: &str, ty: &str, sizes: [usize; 3]| -> Vec<String> {
            [path.to_string(), ty.to_string()].into_iter().chain(sizes.map(|n| n.to_string())).collect()
        };
        let head = ["path", "type", "elements", "bytes", "bytes per device"].map(String::from);
        let number = match self.rows.len() {
            1 => "1 array".into(),
            n => format!("{n} arrays"),
        };
        let rows = self.rows.iter().map(|r| row(&r.path, &r.ty, [r.elements, r.bytes, r.bytes_per_device]));
        let total = row("total", &number, [self.elements(), self.bytes(), self.bytes_per_device()]);
        std::iter::once(head.to_vec()).chain(rows).chain([total]).collect()
    }
    /// Returns true if a column of the table is one of numbers.
    pub(crate) fn is_number(column: usize) -> bool {
        column >= 2
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table(&self.lines(), Summary::is_number))
    }
}
