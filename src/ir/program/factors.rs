//! Factors: the loop indices of an operation, and the dimensions that each of them runs over.
//!
//! Explicit typing, auto propagation, partitioning, the cost model and `vmap` all derive their
//! rules from this one description. It corresponds to Shardy's `OpShardingRule`.

use smallvec::SmallVec;

/// The index of a loop in its [`Factors`].
pub type LoopId = usize;

/// The loops of one equation, and the dimensions that they run over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Factors {
    /// The loops.
    pub loops: Vec<FactorLoop>,
    /// The mapping of dimensions to loops, for each operand.
    pub operands: Vec<Vec<Dim>>,
    /// The mapping of dimensions to loops, for each result.
    pub results: Vec<Vec<Dim>>,
}

/// A loop of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FactorLoop {
    /// The number of steps.
    pub size: usize,
    /// True if every step needs the full dimension, as in sorts and cumulative sums.
    /// Explicit typing rejects operands that are sharded along the loop. A dimension that is
    /// sharded over auto axes is gathered first.
    pub need_replication: bool,
    /// The explicit-typing rule for operands that have this loop; `None` for its kind's default.
    pub explicit_rule: Option<ExplicitRule>,
    /// True if auto propagation does not propagate along this loop.
    pub no_propagation: bool,
}

/// An explicit-typing rule for the operands that have a loop, instead of the default of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExplicitRule {
    /// All sharded operands must have the same entry.
    /// The loop gets the entry of the first operand that has the loop, even if that operand is
    /// unsharded.
    FirstWins,
    /// All entries must be equal, even if an output sharding is requested.
    /// An unsharded broadcast dimension is ignored.
    MustMatch,
    /// No operand may be sharded along the loop, unless an output sharding is requested.
    MustBeReplicated,
    /// No data may move between devices.
    /// If a result dimension consists of several loops, the loops after this one may be sharded
    /// only if this one is split completely, with one step per device.
    MustNotMove,
}

/// The kind of a loop, derived from the dimensions that run over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FactorKind {
    /// A loop of operands and results, or of results only.
    /// Splitting it needs no communication.
    PassThrough,
    /// A loop of operands only, which is reduced.
    /// Splitting it gives partial results.
    Reduction,
    /// A loop with a dimension whose map is [`DimMap::Affine`] or [`DimMap::Dynamic`].
    /// Steps are then at different positions in operands and results, so devices fetch regions
    /// from each other if the loop is split.
    Permutation,
    /// A loop with [`need_replication`](FactorLoop::need_replication) set.
    NeedReplication,
}

/// The loops that one dimension runs over, usually one.
/// Only in a reshape does a dimension run over several loops.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// The loops, major first.
    pub loops: SmallVec<[LoopId; 2]>,
    /// The relation between steps of the loop and positions of the dimension.
    pub map: DimMap,
}

/// The relation between steps of a loop and positions of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DimMap {
    /// Step i is position i.
    Identity,
    /// The dimension has size 1 and is read at every step.
    Broadcast,
    /// Step i is position scale·i + offset, if that position exists.
    Affine {
        /// The number of positions per step.
        scale: i64,
        /// The position of step 0.
        offset: i64,
    },
    /// The position is known only at run time.
    Dynamic,
}

/// The linearity of an operation, which determines how unreduced operands are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linearity {
    /// Linear in all operands together.
    /// The unreduced and reduced sets of all operands must agree, and the result has the same sets.
    Joint,
    /// Linear in all operands but the first, which selects among the others.
    /// The first operand must not be unreduced, and does not affect the sets of the result.
    Select,
    /// Linear in the first n operands together.
    /// The others are indices: they must not be unreduced, and do not affect the sets of the
    /// result.
    Indexed(usize),
    /// Linear in the first n operands together, but some elements of the result are a fill value.
    /// The other operands are indices, as for [`Linearity::Indexed`]. The first n operands must not
    /// be unreduced either, because every partial result would contain the fill value.
    IndexedWithFill(usize),
    /// Not linear.
    /// Unreduced operands are an error. The reduced sets must agree, and the result has the same
    /// set.
    None,
    /// Linear in each operand, like a product.
    /// If one operand is unreduced, the other must be reduced over the same axes, and the result
    /// is unreduced over them; if the axes are manual, the other may also be a literal. Otherwise,
    /// the reduced sets must agree, and the result has the same set.
    Product,
    /// Linear in the first operand, and nonlinear in the second, like a division.
    /// Unreduced operands are an error, except over manual axes: the first operand may be unreduced
    /// if the second is reduced over the same axes or a literal, and the result is then unreduced
    /// over them. Otherwise, the reduced sets must agree, and the result has the same set.
    Quotient,
    /// A sum of products.
    /// Unreduced operands are an error, and the result does not inherit reduced axes, except over
    /// manual axes: there, the rules are those of [`Linearity::Product`]. A requested output
    /// sharding may leave the result unreduced over the axes that split the summed loops.
    Contraction,
    /// A sum, over the loops that no result has, of a nonlinear function of the operands.
    /// Unreduced operands are an error. The reduced sets must agree, and the result has the same
    /// set. A requested output sharding may leave the result unreduced over the axes that split
    /// the summed loops.
    NonlinearSum,
    /// An operation whose result type is a parameter: a constant, or random bits from a key.
    /// Unreduced operands are an error. The result is reduced over the axes of the requested
    /// output sharding; a request for an unreduced result is an error. (`full` and `iota` do not
    /// use these rules, because they override [`types`](super::Primitive::types).)
    Nullary,
}

/// The class of an operation that determines when auto propagation applies it.
/// Elementwise and shape operations come first, broadcasts from operand to result last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Elementwise operations, and changes of sharding.
    Elementwise,
    /// Shape operations, such as reshape and transpose.
    Alias,
    /// Dynamic slices, and updates of a slice with static or dynamic bounds.
    DynamicSlice,
    /// Broadcasts.
    Broadcast,
    /// All other operations.
    Plain,
}

impl Dim {
    /// Returns a dimension that runs over one loop, position by position.
    pub fn identity(l: LoopId) -> Dim {
        Dim { loops: SmallVec::from_slice(&[l]), map: DimMap::Identity }
    }
    /// Returns a dimension that runs over one loop by the given map.
    pub fn mapped(l: LoopId, map: DimMap) -> Dim {
        Dim { loops: SmallVec::from_slice(&[l]), map }
    }
    /// Returns dimensions that run over one loop each, position by position.
    pub fn each(loops: impl IntoIterator<Item = LoopId>) -> Vec<Dim> {
        loops.into_iter().map(Dim::identity).collect()
    }
    /// Returns a dimension made of several loops, major first.
    pub fn merged(loops: impl IntoIterator<Item = LoopId>) -> Dim {
        Dim { loops: loops.into_iter().collect(), map: DimMap::Identity }
    }
}

impl Factors {
    /// Returns factors with a loop of each of these sizes, in order, and without dimensions.
    pub fn from_sizes(sizes: &[usize]) -> Factors {
        let mut f = Factors::default();
        for &n in sizes {
            f.add_loop(n);
        }
        f
    }
    /// Adds a loop.
    pub fn add_loop(&mut self, size: usize) -> LoopId {
        self.loops.push(FactorLoop {
            size,
            need_replication: false,
            explicit_rule: None,
            no_propagation: false,
        });
        self.loops.len() - 1
    }
    /// Adds a loop with this explicit-typing rule.
    pub fn add_loop_with_rule(&mut self, size: usize, rule: ExplicitRule) -> LoopId {
        let l = self.add_loop(size);
        self.loops[l].explicit_rule = Some(rule);
        l
    }
    /// Returns the kind of a loop, derived from the dimensions that run over it.
    pub fn kind(&self, l: LoopId) -> FactorKind {
        let on = |tensors: &[Vec<Dim>], wanted: fn(DimMap) -> bool| {
            tensors.iter().flatten().any(|d| d.loops.contains(&l) && wanted(d.map))
        };
        let carried = |at: DimMap| at != DimMap::Broadcast;
        let moved = |at: DimMap| matches!(at, DimMap::Affine { .. } | DimMap::Dynamic);
        if self.loops[l].need_replication {
            FactorKind::NeedReplication
        } else if !on(&self.results, carried) && on(&self.operands, carried) {
            FactorKind::Reduction
        } else if on(&self.operands, moved) || on(&self.results, moved) {
            FactorKind::Permutation
        } else {
            FactorKind::PassThrough
        }
    }
    /// Returns these factors with this rule as the explicit-typing rule of every loop.
    pub fn with_rule_for_all(mut self, rule: ExplicitRule) -> Factors {
        for l in &mut self.loops {
            l.explicit_rule = Some(rule);
        }
        self
    }
}
