//! Lowering: equations become the steps of a draft; nested programs are lowered and planned where they are met.

mod branches;
mod collective;
mod control;
mod equations;
mod localise;
mod manual;
mod own;
mod phases;
mod sums;
mod varying;

pub use localise::localise;
pub(crate) use localise::localise_for;
