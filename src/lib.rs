//! Programs over many devices with sharded arrays.

extern crate self as atmesh;

pub mod array;
pub mod batch;
mod compile;
pub mod diagnostic;
pub mod grad;
pub mod mesh;
pub mod ops;
pub mod partition;
pub mod program;
pub mod propagate;
pub mod random;
pub mod runtime;
pub mod shard_map;
pub mod sharding;
pub mod show;
pub mod spmd;
pub mod trace;
pub mod types;

pub use ndarray as nd;

pub use array::{
    Array, Dims, NewAxis, Operand, Rest, Shard, Term, axis_index, axis_size, concat, einsum, einsum_to, keep,
    ring, shift, split, stack, stacked, tiled,
};
pub use atmesh_derive::Tree;
pub use diagnostic::{Diagnostic, Error, ErrorKind, Result};
pub use mesh::{AbstractMesh, Axes, Axis, AxisType, DeviceId, Mesh, devices};
pub use partition::{Collective, Collectives, Kind};
pub use random::Key;
pub use shard_map::{ShardMap, shard_map};
pub use sharding::{Sharding, Spec};
pub use show::Picture;
pub use spmd::{Device, Peer, Spmd, spmd};
pub use trace::tree::{
    self, Args, Func, Inferred, Loss, Output, Param, Specs, Static, Tree, TypeOf, type_of,
};
pub use trace::{
    Compiled, EngineKind, Jit, Lowered, ScanOptions, Traced, cond, debug_print_values, fori_loop, jit, scan,
    scan_with, switch, while_loop,
};
pub use trace::{MapDims, VmapOptions, vmap, vmap_with};
pub use trace::{
    Pullback, auto_axes, auto_axes_over, checkpoint, explicit_axes, explicit_axes_over, grad, jvp,
    value_and_grad, vjp,
};
pub use types::{ArrayType, DType, Element, Scalar, Shape};

/// What programs use: `use atmesh::prelude::*;`.
pub mod prelude {
    pub use crate::DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    pub use crate::EngineKind::{Lockstep, Threads};
    pub use crate::{
        AbstractMesh, Array, ArrayType, Axis, DType, DeviceId, EngineKind, Inferred, Key, Mesh, NewAxis,
        Output, Rest, Result, Sharding, Spec, Static, Tree, assert_collectives, axes, axis_index, axis_size,
        concat, cond, debug_print, devices, einsum, fori_loop, ix, jit, keep, p, ring, scan, shift, split,
        stack, stacked, switch, tiled, tree, type_of, while_loop,
    };
    // what traces, branches and differentiates
    pub use crate::shard_map::shard_map;
    pub use crate::spmd::{Device, spmd};
    pub use crate::trace::{auto_axes, checkpoint, explicit_axes, grad, jvp, value_and_grad, vjp, vmap};
}
