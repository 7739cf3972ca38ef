//! Adafactor's second moments: of a matrix, the means of its rows and of its columns.

use super::optimizer::Optimizer;
use super::state::{LeafSlot, Transform, UpdateStep, compute_dtype};
use crate::api::array::Dims;
use crate::core::{ArrayType, Fault, Result};

/// The parameters of `scale_by_factored_rms`.
pub(super) struct FactoredRms {
    pub(super) factored: bool,
    pub(super) decay_rate: f64,
    pub(super) decay_offset: i32,
    pub(super) min_dim_size: usize,
    pub(super) eps: f64,
}

impl FactoredRms {
    /// Returns the second largest and the largest dimension, or `None` if the moments of a
    /// parameter of this shape are not factored.
    fn dims(&self, shape: &[usize]) -> Option<(usize, usize)> {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|d| shape[*d]);
        let [.., second, largest] = order[..] else { return None };
        (self.factored && shape[second] >= self.min_dim_size).then_some((second, largest))
    }
}

impl Transform for FactoredRms {
    fn slot_names(&self) -> Vec<String> {
        ["v_row", "v_col", "v"].map(String::from).into()
    }
    fn slots(&self, _: &str, ty: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        Ok(match self.dims(&ty.shape) {
            Some((second, largest)) => {
                vec![LeafSlot::new("v_row").without_dim(largest), LeafSlot::new("v_col").without_dim(second)]
            }
            None => vec![LeafSlot::new("v")],
        })
    }
    fn update(&self, step: &mut UpdateStep) {
        let count = |d| step.count_as(d, 1 - self.decay_offset);
        let decay = step.by_dtype(|d| 1.0 - count(d).pow(-self.decay_rate));
        for leaf in &mut step.leaves {
            let decay = &decay[&compute_dtype(leaf.ty.dtype)];
            let average = |old, new| decay * &old + (1.0 - decay) * new;
            let square = leaf.update.square() + self.eps;
            let Some((second, largest)) = self.dims(&leaf.ty.shape) else {
                let v = average(leaf.slot("v"), square);
                leaf.update = &leaf.update * v.rsqrt();
                leaf.set_slot("v", v);
                continue;
            };
            let row = average(leaf.slot("v_row"), square.mean(largest as i32));
            let col = average(leaf.slot("v_col"), square.mean(second as i32));
            // the second largest dimension in the means over the largest one
            let within = if second > largest { second - 1 } else { second };
            let scale = &row / row.mean(Dims::keep(within as i32));
            leaf.update = &leaf.update
                * scale.rsqrt().expand_dims(largest as i32)
                * col.rsqrt().expand_dims(second as i32);
            leaf.set_slot("v_row", row);
            leaf.set_slot("v_col", col);
        }
    }
}

/// Divides updates by the root of an average of their squares, which is factored for matrices
/// (Adafactor).
///
/// Parameters whose two largest dimensions have at least 128 elements keep the means over these
/// dimensions, in the slots `v_row` and `v_col`; others keep all squares, in the slot `v`.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let state = optim::scale_by_factored_rms().init(&(Array::ones([128, 256]), Array::ones([4])))?;
/// assert_eq!(type_of(&state.slots["v_row"]["0"]), "float32[128]");
/// assert_eq!(type_of(&state.slots["v"]["1"]), "float32[4]");
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn scale_by_factored_rms() -> Optimizer {
    Optimizer::new(FactoredRms {
        factored: true,
        decay_rate: 0.8,
        decay_offset: 0,
        min_dim_size: 128,
        eps: 1e-30,
    })
}
