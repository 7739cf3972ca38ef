//! What propagation reads of an equation: its loops, the dimensions that carry them, and when it speaks.

use crate::program::factors::{At, Dim, Factors, LoopId, Priority, Role};
use smallvec::SmallVec;

/// In which direction an equation passes digits on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Directions {
    pub(super) forward: bool,
    pub(super) backward: bool,
}

impl Directions {
    const NONE: Directions = Directions { forward: false, backward: false };
    const FORWARD: Directions = Directions { forward: true, backward: false };
    const BACKWARD: Directions = Directions { forward: false, backward: true };
    const BOTH: Directions = Directions { forward: true, backward: true };

    pub(super) fn any(self) -> bool {
        self.forward || self.backward
    }
}

/// The loops that a dimension carries, major first; none where it is stretched or at a place known at run time only.
pub(super) type Carried = SmallVec<[LoopId; 2]>;

#[derive(Clone, Debug)]
pub(super) struct RuleLoop {
    pub(super) size: usize,
    role: Role,
    quiet: bool,
}

/// An equation's rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) loops: Vec<RuleLoop>,
    /// Operands, then results: for each dimension the loops that it carries.
    pub(super) tensors: Vec<Vec<Carried>>,
    /// How many of the tensors are operands.
    pub(super) operands: usize,
    rank: Priority,
}

/// How many levels of ops' priorities there are: cheap aliases first, forward broadcasts last.
pub(super) const LEVELS: usize = 5;

impl Rule {
    pub(super) fn new(factors: &Factors, rank: Priority) -> Rule {
        let loops = factors.loops.iter().enumerate();
        let loops = loops.map(|(l, x)| RuleLoop { size: x.size, role: factors.role(l), quiet: x.quiet });
        let carried = |d: &Dim| match d.at {
            At::Same | At::Affine { .. } => Carried::from_slice(&d.loops),
            At::Stretched | At::Window => Carried::new(),
        };
        let tensor = |dims: &Vec<Dim>| dims.iter().map(carried).collect();
        Rule {
            loops: loops.collect(),
            tensors: factors.operands.iter().chain(&factors.results).map(tensor).collect(),
            operands: factors.operands.len(),
            rank,
        }
    }
    /// The rule of `sources` values that are, or may become, each of `targets` values, dimension by dimension.
    pub(super) fn identity(shape: &[usize], sources: usize, targets: usize) -> Rule {
        let loops = shape.iter().map(|n| RuleLoop { size: *n, role: Role::Pass, quiet: false });
        let dims: Vec<_> = (0..shape.len()).map(|l| Carried::from_slice(&[l])).collect();
        Rule {
            loops: loops.collect(),
            tensors: vec![dims; sources + targets],
            operands: sources,
            rank: Priority::Elementwise,
        }
    }
    /// The rule between an array and its slice at one index of the leading dimension.
    pub(super) fn slice_of(shape: &[usize]) -> Rule {
        let mut rule = Rule::identity(shape.get(1..).unwrap_or(&[]), 1, 1);
        rule.tensors[0].insert(0, Carried::new());
        rule.rank = Priority::DynamicSlice;
        rule
    }
    /// The rule between what each step makes and all of them stacked: the stack's leading dimension is new.
    pub(super) fn stack_of(shape: &[usize]) -> Rule {
        let mut rule = Rule::slice_of(shape);
        rule.tensors.reverse();
        rule.rank = Priority::Elementwise;
        rule
    }
    /// Whether more sharded loops go first, and operands never get ahead of the result.
    pub(super) fn is_elementwise(&self) -> bool {
        self.rank == Priority::Elementwise
    }
    /// Where a loop passes at this level. `single`: no operand has another use, so that nothing else can object.
    pub(super) fn directions(&self, l: LoopId, level: usize, single: bool) -> Directions {
        let RuleLoop { role, quiet, .. } = self.loops[l];
        if quiet {
            return Directions::NONE;
        }
        let early = level >= 1 || single;
        match self.rank {
            Priority::Elementwise | Priority::Alias if early || level >= 2 => Directions::BOTH,
            Priority::Broadcast => match level {
                0 | 1 => Directions::NONE,
                2 | 3 => Directions::BACKWARD,
                _ => Directions::BOTH,
            },
            Priority::DynamicSlice if early && level < 2 => Directions::FORWARD,
            _ if level >= 3 || level == 2 && role == Role::Pass => Directions::BOTH,
            Priority::DynamicSlice if early => Directions::FORWARD,
            _ => Directions::NONE,
        }
    }
}
