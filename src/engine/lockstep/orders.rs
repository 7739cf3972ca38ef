//! The runner's branches in many orders of the members' steps, under shuttle.

use super::Shared;
use super::run::Runner;
use crate::compile::index::MAX;
use crate::compile::kernel::Scratch;
use crate::compile::plan::{
    BranchKernel, Kernel, Level, LoopKernel, Node, PackCopy, PackFrom, PackKernel, Plan, What,
};
use crate::runtime::prints::Prints;
use crate::runtime::sync::explore;
use crate::runtime::workers::Team;
use crate::types::DType;
use smallvec::SmallVec;

fn plan(kernels: Vec<Kernel>) -> Plan {
    let what = What { name: "", makes: SmallVec::new(), maps: 0 };
    let node = |kernel| Node { kernel, chunks: 1, cost: 0.0, what: what.clone() };
    let level = |kernel| Level { id: 0, nodes: vec![node(kernel)], chunks: 1 };
    Plan { levels: kernels.into_iter().map(level).collect(), cost: 0.0, in_loop: true }
}
/// `out = from`, one int32.
fn copy(from: PackFrom, out: u32) -> Kernel {
    let part = PackCopy { from, ext: [1; MAX], src: (0, [0; MAX]), dst: (0, [0; MAX]) };
    Kernel::Pack(Box::new(PackKernel { out, elements: 1, size: 4, fill: 0, parts: vec![part] }))
}

/// At each step of a loop one member writes which arm it is, and an arm may have nothing to do: all take the same one.
#[test]
fn members_take_the_same_arm() {
    explore(|| {
        const STEPS: usize = 3;
        let (numbers, which, made, each) = (0, 1, 2, 3);
        let branch = BranchKernel {
            which,
            dtype: DType::I32,
            arms: vec![Plan::default(), plan(vec![copy(PackFrom::Bits(7), made)])],
            wires: vec![Vec::new(); 2],
        };
        let body = plan(vec![copy(PackFrom::Slot(each), which), Kernel::Branch(Box::new(branch))]);
        let steps = LoopKernel {
            body,
            step: 4,
            start: 0,
            length: STEPS,
            reverse: false,
            fixed: Vec::new(),
            carry: Vec::new(),
            xs: vec![(numbers, each, 4)],
            ys: Vec::new(),
        };
        let all = plan(vec![Kernel::Loop(Box::new(steps))]);
        for chosen in [[0i32, 1, 0], [1, 0, 0], [0, 0, 1]] {
            let (mut chosen, mut which, mut made) = (chosen, 0i32, 0i32);
            let null = std::ptr::null_mut();
            let base =
                [chosen.as_mut_ptr().cast(), (&raw mut which).cast(), (&raw mut made).cast(), null, null];
            let (shared, prints) = (Shared(&base), Prints::default());
            let team = Team::start(2);
            let ran = team.run(&|m| {
                let Shared(base) = &shared;
                let mut scratch = Scratch::new();
                let (member, rounds) = (Some(m), Vec::new());
                let mut runner = Runner {
                    member,
                    counters: &[],
                    rounds,
                    prints: &prints,
                    scratch: &mut scratch,
                    marks: None,
                };
                // SAFETY: each slot that is used has its number
                assert!(unsafe { runner.plan(&all, &mut base.to_vec()) }.is_ok());
            });
            assert!(ran.is_ok());
            team.close();
            assert_eq!(made, 7);
        }
    });
}
