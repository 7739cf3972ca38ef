//! Propagation rules: the loops of an equation, and the levels and directions of propagation.

use crate::ir::program::{Dim, DimMap, FactorKind, Factors, LoopId, Priority};
use smallvec::SmallVec;

/// The directions in which an equation propagates sub-axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Directions {
    /// From operands to results.
    pub(super) forward: bool,
    /// From results to operands.
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

/// The loops along a dimension, major first.
/// Empty if it is broadcast or dynamically indexed.
pub(super) type CarriedLoops = SmallVec<[LoopId; 2]>;

/// A loop of a rule.
#[derive(Clone, Debug)]
pub(super) struct RuleLoop {
    /// The number of iterations.
    pub(super) size: usize,
    /// The kind of the loop.
    kind: FactorKind,
    /// True if sub-axes are not propagated along the loop.
    no_propagation: bool,
}

/// The propagation rule of an equation.
#[derive(Clone, Debug)]
pub(super) struct PropagationRule {
    /// The loops.
    pub(super) loops: Vec<RuleLoop>,
    /// For each operand, then each result: the loops along each dimension.
    pub(super) tensors: Vec<Vec<CarriedLoops>>,
    /// The number of operands.
    pub(super) operands: usize,
    /// The priority, which determines at which levels each loop is propagated.
    priority: Priority,
}

/// The number of priority levels. Elementwise operations and views are propagated from the first
/// level on, broadcasts from operand to result only at the last.
pub(super) const NUM_PRIORITY_LEVELS: usize = 5;

impl PropagationRule {
    pub(super) fn new(factors: &Factors, priority: Priority) -> PropagationRule {
        let loops = factors.loops.iter().enumerate();
        let loops = loops.map(|(l, x)| RuleLoop {
            size: x.size,
            kind: factors.kind(l),
            no_propagation: x.no_propagation,
        });
        let carried = |d: &Dim| match d.map {
            DimMap::Identity | DimMap::Affine { .. } => CarriedLoops::from_slice(&d.loops),
            DimMap::Broadcast | DimMap::Dynamic => CarriedLoops::new(),
        };
        let tensor = |dims: &Vec<Dim>| dims.iter().map(carried).collect();
        PropagationRule {
            loops: loops.collect(),
            tensors: factors.operands.iter().chain(&factors.results).map(tensor).collect(),
            operands: factors.operands.len(),
            priority,
        }
    }
    /// Returns the rule that identifies all dimensions of `sources` operands and `targets` results.
    pub(super) fn identity(shape: &[usize], sources: usize, targets: usize) -> PropagationRule {
        let loops =
            shape.iter().map(|n| RuleLoop { size: *n, kind: FactorKind::PassThrough, no_propagation: false });
        let dims: Vec<_> = (0..shape.len()).map(|l| CarriedLoops::from_slice(&[l])).collect();
        PropagationRule {
            loops: loops.collect(),
            tensors: vec![dims; sources + targets],
            operands: sources,
            priority: Priority::Elementwise,
        }
    }
    /// Returns the rule between an array and its slice at one index of the leading dimension.
    pub(super) fn slice(shape: &[usize]) -> PropagationRule {
        let mut rule = PropagationRule::identity(shape.get(1..).unwrap_or(&[]), 1, 1);
        rule.tensors[0].insert(0, CarriedLoops::new());
        rule.priority = Priority::DynamicSlice;
        rule
    }
    /// Returns the rule between a slice and the stack of all slices.
    pub(super) fn stack(shape: &[usize]) -> PropagationRule {
        let mut rule = PropagationRule::slice(shape);
        rule.tensors.reverse();
        rule.priority = Priority::Elementwise;
        rule
    }
    /// Returns true if the equation is elementwise.
    /// Operands of such an equation are never sharded further than the result.
    pub(super) fn is_elementwise(&self) -> bool {
        self.priority == Priority::Elementwise
    }
    /// Returns the directions in which a loop is propagated at a level.
    ///
    /// `single` means that no operand has another use, so that nothing else can conflict.
    pub(super) fn directions(&self, l: LoopId, level: usize, single: bool) -> Directions {
        let RuleLoop { kind: role, no_propagation: quiet, .. } = self.loops[l];
        if quiet {
            return Directions::NONE;
        }
        let early = level >= 1 || single;
        match self.priority {
            Priority::Elementwise | Priority::Alias if early || level >= 2 => Directions::BOTH,
            Priority::Broadcast => match level {
                0 | 1 => Directions::NONE,
                2 | 3 => Directions::BACKWARD,
                _ => Directions::BOTH,
            },
            Priority::DynamicSlice if early && level < 2 => Directions::FORWARD,
            _ if level >= 3 || level == 2 && role == FactorKind::PassThrough => Directions::BOTH,
            Priority::DynamicSlice if early => Directions::FORWARD,
            _ => Directions::NONE,
        }
    }
}
