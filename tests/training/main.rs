//! Training: layers, losses, initializers and samplers, sharded and unsharded.

mod nn;
