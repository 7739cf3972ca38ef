//! Prints the program after each pass of the stages that `ATMESH_PRINT` names.

use super::Fault;
use std::fmt;
use std::sync::LazyLock;

/// A stage whose passes can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrintedStage {
    /// The partitioner: `src/partition/mod.rs` describes its passes.
    Partition,
    /// The compiler of kernels: `src/exec/compile/mod.rs` describes its passes.
    Compile,
}

impl PrintedStage {
    const ALL: [PrintedStage; 2] = [PrintedStage::Partition, PrintedStage::Compile];

    fn name(self) -> &'static str {
        match self {
            PrintedStage::Partition => "partition",
            PrintedStage::Compile => "compile",
        }
    }
    /// Prints the program after a pass to stderr, if `ATMESH_PRINT` names the stage.
    /// The variable is read once.
    pub(crate) fn print_pass(self, pass: &str, program: impl FnOnce() -> String) {
        static PRINTED: LazyLock<Vec<PrintedStage>> =
            LazyLock::new(|| requested_stages().unwrap_or_default());
        if PRINTED.contains(&self) {
            eprintln!("{self} after {pass}:\n{}", program().trim_end());
        }
    }
}
impl fmt::Display for PrintedStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the stages that `ATMESH_PRINT` names, separated by commas; none if it is unset or empty.
///
/// # Errors
/// The variable names something else.
pub(crate) fn requested_stages() -> Result<Vec<PrintedStage>, Fault> {
    let value = std::env::var_os("ATMESH_PRINT").unwrap_or_default();
    let names = value.to_string_lossy();
    let stage = |name: &str| {
        PrintedStage::ALL.into_iter().find(|stage| stage.name() == name.trim()).ok_or_else(|| {
            let all = PrintedStage::ALL.map(PrintedStage::name).join(" and ");
            fault!(Syntax, "there is no stage {name:?} to print, which ATMESH_PRINT names")
                .help(format!("the stages are {all}: `ATMESH_PRINT=partition,compile`"))
        })
    };
    names.split(',').filter(|_| !names.is_empty()).map(stage).collect()
}
