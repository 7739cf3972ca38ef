//! The bodies of loops, whose kernels are bound to their operands once.

use crate::exec::compile::plan::{
    CarryBuffers, ControlKernel, ExecutionPlan, LoopKernel, NodeKernel, WhileKernel,
};
use crate::exec::compile::task_kernel::{BoundCall, KernelStage, TaskKernel};

/// The minimum number of iterations of a loop whose body is bound: binding takes about as long as a
/// few iterations.
pub(super) const MIN_BOUND_ITERATIONS: usize = 16;

/// The body of a loop, or the condition of a while loop.
pub(super) struct BoundBody<'p>(pub(super) Vec<BodyNode<'p>>);

/// A node of a body.
pub(super) enum BodyNode<'p> {
    /// A kernel with its operands.
    Bound(Box<dyn BoundCall + 'p>),
    /// A stage of a kernel that finds its operands in each iteration.
    Task(&'p dyn TaskKernel, KernelStage),
    /// Control flow.
    Control(&'p ControlKernel),
}

impl<'p> BoundBody<'p> {
    /// Returns the nodes of a plan, bound to the operands that `base` has; `None` if it prints.
    ///
    /// The slots of `moving` may have other addresses in each iteration.
    fn new(body: &'p ExecutionPlan, moving: &[u32], base: &[*mut u8]) -> Option<BoundBody<'p>> {
        let nodes = body.levels.iter().flat_map(|level| &level.nodes);
        let bind = nodes.map(|n| match &n.kernel {
            NodeKernel::Task(kernel, stage) => {
                let call = if *stage == KernelStage::Only { kernel.bind_call(base, moving) } else { None };
                Some(call.map_or(BodyNode::Task(&**kernel, *stage), BodyNode::Bound))
            }
            NodeKernel::Control(k) => Some(BodyNode::Control(k)),
            NodeKernel::Print(_) => None,
        });
        Some(BoundBody(bind.collect::<Option<_>>()?))
    }
    /// Binds the body of a loop in its second iteration: the first one reads the initial values.
    pub(super) fn bind_loop(l: &'p LoopKernel, base: &[*mut u8]) -> Option<BoundBody<'p>> {
        let slices = l.xs.iter().map(|x| x.1).chain(l.ys.iter().map(|y| y.0));
        BoundBody::new(&l.body, &slices.chain(alternating_slots(&l.carry)).collect::<Vec<_>>(), base)
    }
    /// Binds the condition and the body of a while loop, after its second iteration.
    pub(super) fn bind_while(w: &'p WhileKernel, base: &[*mut u8]) -> Option<[BoundBody<'p>; 2]> {
        let conds = w.carry.iter().zip(&w.cond_carry).filter(|(c, _)| c.alternate.is_some());
        let moving: Vec<u32> = conds.map(|(_, slot)| *slot).chain(alternating_slots(&w.carry)).collect();
        Some([BoundBody::new(&w.cond, &moving, base)?, BoundBody::new(&w.body, &moving, base)?])
    }
}

/// Returns the slots in a body of the carries that are not updated in place.
fn alternating_slots(carry: &[CarryBuffers]) -> impl Iterator<Item = u32> {
    carry.iter().filter(|c| c.alternate.is_some()).flat_map(|c| [c.body_in, c.body_out])
}
