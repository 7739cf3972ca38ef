//! Pictures of shardings and of data movement, as terminal tables and as SVG images, and charts.

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
