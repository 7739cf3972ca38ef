//! The fusion stage: decides which operations run as one kernel, and which values are in memory.
//!
//! Its input is a [`BufferProgram`](crate::partition::buffers::BufferProgram), its result a
//! [`FusionPlan`], which prints. The compiler binds and runs the plan of the program in shared
//! memory. The memory report reads the plan of the program of one device (`device`), which is the
//! same program if there is one device, and so does the prediction of times (`partition::plan`).
//! The numbers of all decisions are in `policy`.
//!
//! | pass | file | decision |
//! |---|---|---|
//! | group | `group` | Which operations share one iteration space, and hence which values are stored |
//! | views | `result_views` | Which results are arguments, or blocks of one |
//! | reuse | `reuse`, `scatter_chains` | Which values are stored in the memory of other values |
//! | rows | `rows`, `matmul_rows` | Which groups run a batch of rows at a time, so that values between them stay in cache |
//! | order | `order` | At which level each group runs |
//! | lifetimes | `lifetimes` | During which levels each value is in memory |
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

mod addresses;
pub(crate) mod device;
mod group;
pub(crate) mod lifetimes;
pub(crate) mod matmul;
mod matmul_rows;
pub(crate) mod order;
mod plan;
pub(crate) mod policy;
mod result_views;
pub(crate) mod reuse;
pub(crate) mod row_groups;
pub(crate) mod rows;
mod scatter_chains;
pub(crate) mod space;

pub(crate) use group::fuse;
pub(crate) use plan::{FusionMember, FusionPlan, FusionRoot, MatmulNeighbours, RowDims, RowFusion};
pub(crate) use result_views::{ResultPlan, choose_views};
