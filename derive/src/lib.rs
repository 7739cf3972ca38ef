//! `#[derive(Tree)]`: a struct of trees is a tree.
