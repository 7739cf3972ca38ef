//! Source lines in a notebook, where the path and the number of a line mean nothing to the user.

use super::SourceLocation;
use std::ops::Range;
use std::path::Path;

/// The name of the source of a cell in messages.
pub(super) const CELL: &str = "cell";

/// The source of the newest cell of the kernel `evcxr`.
///
/// The kernel compiles each cell from `src/lib.rs` of its folder into a library, `libcode_N.so`, in
/// `target` of that folder, and loads it. The file then has the source of the newest cell only.
pub(super) struct NotebookCell {
    /// The addresses at which the newest library is in memory.
    addresses: Vec<Range<usize>>,
    pub(super) source: String,
}

impl NotebookCell {
    /// Reads the newest cell; `None` if the process is not one of a notebook.
    pub(super) fn newest() -> Option<NotebookCell> {
        std::env::var_os("EVCXR_IS_RUNTIME")?;
        Self::from_maps(&std::fs::read_to_string("/proc/self/maps").ok()?)
    }
    /// Finds the newest library in a list of mapped files, which is in Linux's format.
    fn from_maps(maps: &str) -> Option<NotebookCell> {
        let libraries: Vec<_> = maps.lines().filter_map(parse_mapping).collect();
        let (newest, _, path) = libraries.iter().max_by_key(|(number, ..)| *number)?;
        let folder =
            path.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "target"))?;
        let source = std::fs::read_to_string(folder.with_file_name("src").join("lib.rs")).ok()?;
        // the kernel writes the last expression of a cell between two lines, `(` and `).…`, and the
        // location of its first operator is the parenthesis: that line gets a copy of the next one
        let lines: Vec<&str> = source.lines().collect();
        let next = |k: usize| lines.get(k + 1).copied().unwrap_or("(");
        let lines: Vec<&str> =
            lines.iter().enumerate().map(|(k, line)| if *line == "(" { next(k) } else { line }).collect();
        let source = lines.join("\n");
        let of_newest = libraries.iter().filter(|(number, ..)| number == newest);
        Some(NotebookCell { addresses: of_newest.map(|(_, range, _)| range.clone()).collect(), source })
    }
    /// Returns true if the location is in this cell: the library of the cell has its file name.
    pub(super) fn contains(&self, location: SourceLocation) -> bool {
        let address = location.file().as_ptr() as usize;
        self.addresses.iter().any(|range| range.contains(&address))
    }
}

/// Returns the number, the addresses and the path of a library of a cell.
fn parse_mapping(line: &str) -> Option<(usize, Range<usize>, &Path)> {
    let path = Path::new(&line[line.find('/')?..]);
    let number = path.file_name()?.to_str()?.strip_prefix("libcode_")?.strip_suffix(".so")?.parse().ok()?;
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    Some((number, address(from)?..address(to)?, path))
}

/// Names source lines in tables and messages: `file:line`, and in a notebook the code of the line.
pub(crate) struct LineLabels {
    is_notebook: bool,
    cell: Option<NotebookCell>,
}

impl LineLabels {
    pub(crate) fn new() -> LineLabels {
        LineLabels {
            is_notebook: std::env::var_os("EVCXR_IS_RUNTIME").is_some(),
            cell: NotebookCell::newest(),
        }
    }
    /// Returns the label of a line; an empty text for `None`.
    pub(crate) fn label(&self, location: Option<SourceLocation>) -> String {
        const MAX_CODE_CHARS: usize = 48;
        let Some(location) = location else { return String::new() };
        let cell = self.cell.as_ref().filter(|cell| cell.contains(location));
        let code = cell.and_then(|cell| cell.source.lines().nth(location.line().checked_sub(1)? as usize));
        match code.map(str::trim) {
            Some(code) if code.chars().count() > MAX_CODE_CHARS => {
                code.chars().take(MAX_CODE_CHARS).chain(['…']).collect()
            }
            Some(code) => code.into(),
            None if self.is_notebook => format!("an earlier {CELL}"),
            None => format!("{}:{}", location.file(), location.line()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    #[test]
    fn the_source_of_the_newest_cell_is_found() {
        let here = Location::caller();
        let folder = std::env::temp_dir().join(format!("atmesh-cell-{} a", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).expect("the folder is new");
        std::fs::write(folder.join("src/lib.rs"), "(\na + b\n).evcxr_display();\n").expect("the file is new");
        let at = here.file().as_ptr() as usize;
        let library = |from: usize, number: usize| {
            let path = folder.join(format!("target/debug/libcode_{number}.so"));
            format!("{from:x}-{:x} r--p 00000000 08:01 42   {}\n", from + 16, path.display())
        };
        let other = "0-10 r-xp 00000000 00:00 0 [heap]\n20-30 r-xp 00000000 08:01 7 /usr/lib/libc.so.6\n";
        let newest = NotebookCell::from_maps(&format!("{}{other}{}", library(16, 9), library(at, 10)));
        let newest = newest.expect("there is a library");
        assert!(newest.contains(here) && newest.source == "a + b\na + b\n).evcxr_display();");
        let newer = NotebookCell::from_maps(&format!("{}{}", library(at, 10), library(16, 11)));
        assert!(!newer.expect("there is a library").contains(here));
        assert!(NotebookCell::from_maps(other).is_none());
        std::fs::remove_dir_all(folder).expect("the folder is there");
    }
    #[test]
    fn lines_have_numbers_outside_of_notebooks() {
        let (here, line) = (Location::caller(), line!());
        let label = LineLabels::new().label(Some(here));
        assert!(label.ends_with(&format!("cell.rs:{line}")), "{label}");
        assert_eq!(LineLabels::new().label(None), "");
        let earlier = LineLabels { is_notebook: true, cell: None };
        assert_eq!(earlier.label(Some(here)), "an earlier cell");
    }
}
