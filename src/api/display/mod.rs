//! Pictures of shardings and of data movement, as terminal tables and as SVG images, and charts.
//!
//! ```
//! use atmesh::prelude::*;
//! let mesh = Mesh::new([("X", 2)])?;
//! let picture = Array::ones([4, 2]).put(&mesh, p!["X"]).visualize();
//! println!("{picture}"); // a table for the terminal
//! assert!(picture.to_svg().starts_with("<svg"));
//! # Ok::<(), atmesh::Error>(())
//! ```

mod canvas;
mod line_chart;
mod moves;
mod picture;
mod svg;
mod table;

pub use line_chart::{Coordinate, LineChart};
pub use moves::MovementDiagram;
pub(crate) use moves::{DeviceRow, DiagramElement, DiagramStage};
pub use picture::Picture;
