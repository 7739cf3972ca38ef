//! Compiles a per-device program to an execution plan: fused kernels, buffers and levels of tasks.
//!
//! The input is the partitioner's `SpmdProgram`, one list of steps for all devices. In shared
//! memory all shards of a value are in one buffer, so the passes work on global arrays. Devices
//! remain only as boxes of loop indices and as a fixed order of addition.
//!
//! | pass | modules | result |
//! |---|---|---|
//! | 0 flush | `flush_subnormals` | explicit flushes, in programs that flush subnormal numbers |
//! | 1 lower | `partition::buffers` | operations over buffers; each operand is a set of boxes with one affine map each |
//! | 2 fuse | `partition::fusion` | the groups of operations that share one iteration space |
//! | 3 materialise | `partition::fusion` | the values that are in memory |
//! | 4 share memory | `partition::fusion` | results that are views of arguments; donated buffers; in-place updates |
//! | 5 generate code | `codegen` | a tile program for each iteration space |
//! | 6 bind | `plan::bind`, and a module for each kind of kernel | kernels with addresses and tasks (`task_kernel`) |
//! | 7 fuse rows | `plan::row_fusion`, `row_program` | chains of kernels that run a batch of rows at a time, in cache |
//! | 8 allocate | `partition::fusion`, `plan::allocate`, `arena` | the levels during which each value is in memory; an offset for each value that has no buffer yet |
//! | 9 schedule | `plan::build` | levels of independent nodes, with a barrier after each |
//!
//! Passes 1 to 3 assign no addresses: they know strides, and which values share a buffer. Pass 5
//! runs inside pass 6, for groups with elementwise code. Nested programs (`plan::control`) go
//! through passes 2 to 9, without row fusion, before the program around them is bound. The
//! lock-step and threads engines run tile programs with `codegen::interpreter`.
//!
//! Fusion changes no bit: each operation rounds as if it ran alone, and each reduction has one
//! order of addition, which depends on shapes and shardings only.
//!
//! # Example: one matmul, pass by pass
//!
//! The program is `x.dot_to(w, p!["X", _])`, followed by `tanh`, on four devices. The types of `x`
//! and `w` are `float32[512,256@X]` and `float32[256@X,128]`. Both operands are sharded over the
//! contracted dimension, so each device computes a partial value. The partitioner returns three
//! steps:
//!
//! ```text
//! (%0: f32[512,256@X], %1: f32[256@X,128]) {
//!   %4: f32[512,128]{+X} = sum of %0[i,k] · %1[k,j] over [512,128; 256@X]  // dot_general
//!   %2: f32[512@X,128] = sum of the partial values of %4  // dot_general
//!   %3: f32[512@X,128] = tanh(%2[i,j]) over [512@X,128]  // tanh
//!   return %3
//! }
//! ```
//!
//! **Lower.** The first step becomes a contraction (`BufferOp::Contraction`), with loops `i`, `j`
//! and `k`. Its result `%4` is a `BufferValue` of shape `[4,512,128]`: the leading dimension runs
//! over the four partials. `ReductionLoops::partials` has a list of shard boxes for each of them,
//! here one box each: `k` in 0..64, 64..128, 128..192 and 192..256. The second step reduces `%4`,
//! and no other step reads `%4`. So `combine_partials` moves the four boxes to one list and makes
//! `%2` the result of the contraction. No partial value is stored, and the collective needs no
//! operation. (If `%2` were only read transposed, `transpose_matmuls` would permute the loops of
//! the contraction at the end of this pass.)
//!
//! **Fuse and materialise.** The contraction is the root of a new `FusionGroup`. The `tanh` reads
//! `%2` at the index that it writes, so it joins the group as a member. Only `%3` is materialised,
//! since it is a result.
//!
//! **Share memory.** No argument is donated, so `%3` gets a fresh buffer.
//!
//! **Generate code.** `%2` is not in memory, and `%3` has elements of the same size. So the matmul
//! computes its tiles where `%3` is stored (`matmul_alias`), and the tile program of the members,
//! the epilogue, works in place. It is one segment over the full space, with two instructions:
//! `tanh` from memory to a register, and a deferred store of that register.
//!
//! **Bind.** `MatmulKernel` cuts the 512 × 128 result into tiles: with two workers, four tiles of
//! 128 × 128. For each tile, gemm multiplies the four contraction blocks; their products are added
//! in the fixed tree (0+1)+(2+3), and then the epilogue runs. Neither the tiles nor the number of
//! workers change a bit. There are no rows to fuse.
//!
//! **Allocate and schedule.** `%0` and `%1` are in the buffers of the arguments, and `%3` is in its
//! fresh buffer. `%2` and `%4` are never stored, so the arena has 0 bytes. The plan has one level
//! with one node. The engine's report lists it, with its level and estimated time, as
//!
//! ```text
//! product %2 f32[512,128] with 1 map; 4 tasks
//! ```

pub(crate) mod arena;
mod bound_tile;
pub(crate) mod codegen;
mod element_word;
pub(crate) mod elementwise;
pub(crate) mod flush_subnormals;
pub(crate) mod gather_scatter;
pub(crate) mod matmul;
pub(crate) mod pack;
pub(crate) mod plan;
pub(crate) mod reduction;
pub(crate) mod row_kernel;
pub(crate) mod row_program;
pub(crate) mod task_kernel;
mod windows;

pub(crate) use crate::partition::buffers::{self as ir, index, lower};
pub(crate) use crate::partition::fusion;
pub(crate) use plan::compile;
