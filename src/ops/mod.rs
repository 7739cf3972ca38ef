//! The primitives, a file for each family, each with all its rules.
