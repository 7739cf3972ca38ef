//! The operand that selects a branch.

use crate::core::DType;

/// The kind of operand that selects a branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BranchSelector {
    /// A bool. The branch for true comes first.
    Cond,
    /// An integer index.
    Switch,
}

impl BranchSelector {
    /// Returns the element type of the selecting operand.
    pub(super) fn dtype(self) -> DType {
        match self {
            BranchSelector::Cond => DType::Bool,
            BranchSelector::Switch => DType::I32,
        }
    }
    /// Describes branch `n`, for error messages.
    pub(super) fn describe_branch(self, n: usize) -> String {
        match (self, n) {
            (BranchSelector::Cond, 0) => "where it holds".into(),
            (BranchSelector::Cond, _) => "where it does not".into(),
            (BranchSelector::Switch, _) => format!("of branch {n}"),
        }
    }
}
