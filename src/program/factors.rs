//! Factors: the loop indices of an operation, and which dimension of which operand and result each runs over.
//!
//! From this one description come explicit typing, auto propagation, partitioning, cost and batching.

use smallvec::SmallVec;

/// A loop's number within its [`Factors`].
pub type LoopId = usize;

/// The loops of one equation and where they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Factors {
    /// The loop indices.
    pub loops: Vec<FactorLoop>,
    /// For each operand, how each of its dimensions runs over the loops.
    pub operands: Vec<Vec<Dim>>,
    /// The same for each result.
    pub results: Vec<Vec<Dim>>,
}

/// A loop index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FactorLoop {
    /// How many steps it has.
    pub size: usize,
    /// Whether every step needs all of it (sort, cumulative sums): gathered first.
    pub whole: bool,
    /// What explicit typing asks of the operands that carry it, where it differs from the role's default.
    pub join: Option<Join>,
    /// Whether auto propagation leaves it alone.
    pub quiet: bool,
}

/// What explicit typing asks of the operands that carry a loop, beside the defaults of its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Join {
    /// At most one distinct entry among the sharded ones; the result takes the first operand's.
    First,
    /// All the same, also where `out` is given; a stretched dimension that is unsharded is left out.
    Equal,
    /// None is sharded.
    Never,
    /// Nothing may move: in a result dimension what is behind this loop is sharded only where this one is split to the last
    /// step.
    Still,
}

/// What a loop is to its operation; derived from where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Runs over operands and results, or results only: split means local.
    Pass,
    /// Runs over operands only: split means partial results.
    Sum,
    /// The same positions in another order or number: split means regions are fetched.
    Moved,
    /// Needed unsharded: a sharded one is gathered first.
    Whole,
}

/// How a dimension runs over loops: usually one; several, major first, only in reshape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// The loops, major first.
    pub loops: SmallVec<[LoopId; 2]>,
    /// How a step of the loop relates to a position of the dimension.
    pub at: At,
}

/// How a step of a loop relates to a position of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// Step i is position i.
    Same,
    /// Size 1, read again at every step: broadcasting.
    Stretched,
    /// Step i is position scale·i + offset, where that exists.
    Affine {
        /// Positions a step.
        scale: i64,
        /// Position of step 0.
        offset: i64,
    },
    /// At a place known at run time only.
    Window,
}

/// How an operation treats unreduced operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linearity {
    /// Linear in all operands together: unreduced and reduced sets agree, and pass.
    Joint,
    /// Linear in all operands but the first, which chooses among them: it is not unreduced, and no matter for the sets.
    Chosen,
    /// Linear in the first so many operands together; the others say where, are not unreduced, and no matter for the sets.
    Placed(usize),
    /// As that, but for a number in some places of the result, which each device's part would have: none of the first so many operands is
    /// unreduced either.
    Filled(usize),
    /// Not linear: unreduced operands are refused, reduced sets agree and pass.
    None,
    /// Linear in each operand: unreduced times reduced is unreduced.
    Product,
    /// Sums products: unreduced operands are refused, reduced ones are forgotten.
    Contraction,
    /// Not linear, but summed over loops that no result has: unreduced operands are refused, reduced sets agree and pass, and the result may be
    /// left unreduced over what splits these loops.
    Sums,
    /// No operands: the sets are those of `out`.
    Nullary,
}

/// When auto propagation lets the operation speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// First: elementwise.
    Elementwise,
    /// Shapes: reshape, transpose.
    Alias,
    /// Dynamic slices.
    DynamicSlice,
    /// Broadcasts.
    Broadcast,
    /// Everything else.
    Plain,
}

impl Dim {
    /// A dimension that runs over one loop, position by position.
    pub fn same(l: LoopId) -> Dim {
        Dim { loops: SmallVec::from_slice(&[l]), at: At::Same }
    }
    /// A dimension that runs over one loop in another way.
    pub fn at(l: LoopId, at: At) -> Dim {
        Dim { loops: SmallVec::from_slice(&[l]), at }
    }
    /// Dimensions that run over one loop each, position by position.
    pub fn each(loops: impl IntoIterator<Item = LoopId>) -> Vec<Dim> {
        loops.into_iter().map(Dim::same).collect()
    }
    /// A dimension made of several loops, major first.
    pub fn several(loops: impl IntoIterator<Item = LoopId>) -> Dim {
        Dim { loops: loops.into_iter().collect(), at: At::Same }
    }
}

impl Factors {
    /// A loop of each of these sizes, in order; where they run is not said yet.
    pub fn over(sizes: &[usize]) -> Factors {
        let mut f = Factors::default();
        for &n in sizes {
            f.add(n);
        }
        f
    }
    /// One more loop.
    pub fn add(&mut self, size: usize) -> LoopId {
        self.loops.push(FactorLoop { size, whole: false, join: None, quiet: false });
        self.loops.len() - 1
    }
    /// One more loop with a join of its own.
    pub fn add_joined(&mut self, size: usize, join: Join) -> LoopId {
        let l = self.add(size);
        self.loops[l].join = Some(join);
        l
    }
    /// What a loop is, from where it runs.
    pub fn role(&self, l: LoopId) -> Role {
        let on = |tensors: &[Vec<Dim>], wanted: fn(At) -> bool| {
            tensors.iter().flatten().any(|d| d.loops.contains(&l) && wanted(d.at))
        };
        let carried = |at: At| at != At::Stretched;
        let moved = |at: At| matches!(at, At::Affine { .. } | At::Window);
        if self.loops[l].whole {
            Role::Whole
        } else if !on(&self.results, carried) && on(&self.operands, carried) {
            Role::Sum
        } else if on(&self.operands, moved) || on(&self.results, moved) {
            Role::Moved
        } else {
            Role::Pass
        }
    }
    /// The same with every loop joined so.
    pub fn join_all(mut self, join: Join) -> Factors {
        for l in &mut self.loops {
            l.join = Some(join);
        }
        self
    }
}
