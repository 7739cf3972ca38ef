//! The fusion stage: decides which operations run as one kernel, and which values are in memory.
//!
//! Its input is a [`BufferProgram`](crate::partition::buffers::BufferProgram), its result a
//! [`FusionPlan`], which prints. The compiler binds and runs this plan. `partition::fused` predicts
//! it for one device, by the same numbers (`policy`).
//!
//! | pass | file | decision |
//! |---|---|---|
//! | group | `group` | Which operations share one iteration space, and hence which values are stored |
//! | rows | `rows`, `matmul_rows` | Which groups run a batch of rows at a time, so that values between them stay in cache |
//!
//! **Groups.** Operations are visited in order. An elementwise operation joins a group whose value
//! it reads element by element (at the same index, up to a constant shift), if its other operands
//! are computed before that group. Of several such groups it joins the one with the highest level.
//! A reduction absorbs the elementwise groups that only it reads. The level of a group is the
//! length of the longest chain of dependencies that leads to it, so groups of one level are
//! independent.
//!
//! **Rows.** The affine maps of a group's accesses (`space`, `matmul`) say which rows of a value it
//! reads and writes. No code is generated, and no address is known at this point.

mod group;
pub(crate) mod matmul;
mod matmul_rows;
mod plan;
pub(crate) mod policy;
pub(crate) mod row_groups;
pub(crate) mod rows;
pub(crate) mod space;

pub(crate) use group::fuse;
pub(crate) use plan::{
    FusionGroup, FusionMember, FusionPlan, FusionRoot, MatmulNeighbours, RowDims, RowFusion,
};
