//! Pictures of shardings and of data movement, as terminal tables and as SVG images.

mod canvas;
mod moves;
mod picture;
mod svg;
mod table;

pub use moves::MovementDiagram;
pub(crate) use moves::{DeviceRow, DiagramElement, DiagramStage};
pub use picture::Picture;
