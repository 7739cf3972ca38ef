//! The operand that selects a branch.

use crate::core::types::DType;

/// The kind of operand that selects a branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BranchSelector {
    /// A bool. The branch for true comes first.
    Cond,
    /// An integer index.
    Switch,
    /// A bool that is true if this device continues a loop that others leave. The body comes first,
    /// then the branch that keeps the carry.
    Loop,
}

impl BranchSelector {
    /// Returns the element type of the selecting operand.
    pub(super) fn dtype(self) -> DType {
        match self {
            BranchSelector::Cond | BranchSelector::Loop => DType::Bool,
            BranchSelector::Switch => DType::I32,
        }
    }
    /// Describes branch `n`, for error messages.
    pub(super) fn describe_branch(self, n: usize) -> String {
        match (self, n) {
            (BranchSelector::Cond, 0) => "where it holds".into(),
            (BranchSelector::Cond, _) => "where it does not".into(),
            (BranchSelector::Loop, 0) => "after the body".into(),
            (BranchSelector::Loop, _) => "before it".into(),
            (BranchSelector::Switch, _) => format!("of branch {n}"),
        }
    }
}
