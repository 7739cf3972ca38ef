//! Model checking of the plan runner: branches under many interleavings of the workers (shuttle).

use super::{SharedTable, run::Runner};
use crate::core::DType;
use crate::exec::compile::pack::{BoundCopyBox, CopySource, PackKernel};
use crate::exec::compile::plan::{
    BranchKernel, ControlKernel, ExecutionPlan, LoopKernel, NodeInfo, NodeKernel, PlanLevel, PlanNode,
};
use crate::exec::{
    compile::codegen::interpreter::Scratch, compile::index::MAX_LOOPS, compile::task_kernel::KernelStage,
    runtime::print_queue::PrintQueue, runtime::sync::explore, runtime::thread_pool::ThreadPool,
};
use smallvec::SmallVec;
use std::sync::Arc;

fn plan(kernels: Vec<NodeKernel>) -> ExecutionPlan {
    let what = NodeInfo { name: "", results: SmallVec::new(), num_maps: 0, origin: None };
    let node = |kernel| PlanNode { kernel, num_tasks: 1, cost_us: 0.0, info: what.clone() };
    let level = |kernel| PlanLevel { id: 0, nodes: vec![node(kernel)], num_tasks: 1 };
    ExecutionPlan { levels: kernels.into_iter().map(level).collect(), cost_us: 0.0, in_loop: true }
}
/// Returns a kernel that copies one int32: `out = from`.
fn copy(from: CopySource, out: u32) -> NodeKernel {
    let part = BoundCopyBox { from, ext: [1; MAX_LOOPS], src: (0, [0; MAX_LOOPS]), dst: (0, [0; MAX_LOOPS]) };
    let kernel =
        PackKernel { out, elements: 1, rows: 1, num_tasks: 1, element_bytes: 4, fill: 0, boxes: vec![part] };
    NodeKernel::Task(Arc::new(kernel), KernelStage::Only)
}

/// Checks that all workers take the same arm of a branch in a loop.
/// In each step one worker writes the index of the arm, and one of the arms has nothing to do.
#[test]
fn members_take_the_same_arm() {
    explore(|| {
        const STEPS: usize = 3;
        let (numbers, which, made, each) = (0, 1, 2, 3);
        let branch = BranchKernel {
            selector: which,
            dtype: DType::I32,
            arms: vec![ExecutionPlan::default(), plan(vec![copy(CopySource::Bits(7), made)])],
            wires: vec![Vec::new(); 2],
        };
        let body = plan(vec![
            copy(CopySource::Slot(each), which),
            NodeKernel::Control(Box::new(ControlKernel::Branch(branch))),
        ]);
        let steps = LoopKernel {
            body,
            iteration: 4,
            start: 0,
            length: STEPS,
            reverse: false,
            fixed: Vec::new(),
            carry: Vec::new(),
            xs: vec![(numbers, each, 4)],
            ys: Vec::new(),
        };
        let all = plan(vec![NodeKernel::Control(Box::new(ControlKernel::Loop(steps)))]);
        for chosen in [[0i32, 1, 0], [1, 0, 0], [0, 0, 1]] {
            let (mut chosen, mut which, mut made) = (chosen, 0i32, 0i32);
            let null = std::ptr::null_mut();
            let base =
                [chosen.as_mut_ptr().cast(), (&raw mut which).cast(), (&raw mut made).cast(), null, null];
            let (shared, prints) = (SharedTable(&base), PrintQueue::default());
            let team = ThreadPool::start(2);
            let ran = team.run(&|m| {
                let SharedTable(base) = &shared;
                let mut scratch = Scratch::new();
                let (member, rounds) = (Some(m), Vec::new());
                let mut runner = Runner {
                    worker: member,
                    counters: &[],
                    rounds,
                    prints: &prints,
                    scratch: &mut scratch,
                    marks: None,
                };
                // SAFETY: every slot that the plan uses points to an int32 that outlives the run
                // (see `base`)
                assert!(unsafe { runner.run_plan(&all, &mut base.to_vec()) }.is_ok());
            });
            assert!(ran.is_ok());
            team.shut_down();
            assert_eq!(made, 7);
        }
    });
}
