//! Checks the architecture of the library: a folder uses only the folders below it in the table on
//! the page of `src/lib.rs`, and modules do not use one another in a cycle.

mod lexer;

use lexer::{SourceFile, Token, TokenKind, library_sources};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Uses that close a cycle of modules and stay: the module, the modules next to it that it uses, and
/// the reason. The others have no cycle, and each of these closes one.
const KNOWN_CYCLES: &[(&str, &str, &str)] = &[
    ("api::display::picture", "svg table", "`Picture` has a method for each form that it is drawn in"),
    ("ir::grad::jvp", "call cond custom loops shard_map", NESTED_PROGRAMS),
    ("ir::grad::transpose", "backward_loop call cond loops shard_map", NESTED_PROGRAMS),
    ("ir::ops::collective::reduce", "cast", TRANSPOSES),
    ("ir::ops::indexing::gather", "scatter", TRANSPOSES),
    ("ir::ops::slicing::pad", "slice", TRANSPOSES),
    ("ir::program::primitive", "builder vmap_rule", "the trait names the arguments of its rules"),
    ("ir::program::primitive", "typing", "the default of `types` infers them from the other rules"),
    ("kernels::float", "simd_f32", REDUCTIONS),
    ("kernels::reduce", "gather index_filter simd_f32", REDUCTIONS),
    ("kernels::row::fft::vector", "butterfly lanes plan transform", FEATURES),
];

const NESTED_PROGRAMS: &str = "the derivative of an equation with nested programs differentiates them";
const FEATURES: &str = "the trait of vectors has the loops that are compiled with their features";
const REDUCTIONS: &str = "a table of loops has those of other modules, which are generic over the reductions";
const TRANSPOSES: &str = "the two operations are each other's transpose";

/// The path of a module or of an item from the crate root: `["partition", "assign", "loops"]`.
type ModulePath = Vec<String>;

/// The modules that each module uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// A path in the code of a module.
#[derive(Clone)]
struct CodePath {
    /// The path as written.
    written: Vec<String>,
    /// The module of the code, which may be inline.
    module: ModulePath,
    line: usize,
    /// The name that a `use` gives to the item, or `*`; `None` for other paths.
    import: Option<String>,
    /// True for a `use` that only passes the name on: the code of the file does not use it.
    is_reexport: bool,
}

/// A module in its own file.
struct Module {
    file: String,
    paths: Vec<CodePath>,
    /// The index in `paths` of each name that the module imports.
    imports: BTreeMap<String, usize>,
}

/// A use of one module by another.
struct ModuleUse {
    from: ModulePath,
    /// The module that owns the used item.
    to: ModulePath,
    /// The module that the code names, which is another one if it passes the item on.
    via: ModulePath,
    file: String,
    line: usize,
    is_reexport: bool,
}

/// All modules of the crate, except those under `#[cfg(test)]`.
struct Modules(BTreeMap<ModulePath, Module>);

impl Modules {
    fn new(files: Vec<SourceFile>) -> Modules {
        let module = |file: SourceFile| {
            let path = file.path.trim_start_matches("src/").trim_end_matches(".rs");
            let path = path.trim_end_matches("/mod");
            let path: ModulePath =
                if path == "lib" { Vec::new() } else { path.split('/').map(String::from).collect() };
            let paths = code_paths(file.tokens, &path);
            let imports = paths.iter().enumerate().filter(|(_, p)| p.module == path);
            let imports = imports.filter_map(|(i, p)| Some((p.import.clone()?, i))).collect();
            (path, Module { file: file.path, paths, imports })
        };
        Modules(files.into_iter().map(module).collect())
    }

    /// Returns the item of a path from the crate root, with its owner's path instead of re-exports.
    fn owner(&self, mut path: ModulePath) -> ModulePath {
        for _ in 0..10 {
            let depth = self.depth(&path);
            let next = path.get(depth).and_then(|name| self.import(&path[..depth], name));
            let Some(mut target) = next else { break };
            target.extend_from_slice(&path[depth + 1..]);
            path = target;
        }
        path
    }

    /// Returns the number of segments of `path` that name a module.
    fn depth(&self, path: &[String]) -> usize {
        (0..=path.len()).rev().find(|n| self.0.contains_key(&path[..*n])).unwrap_or(0)
    }

    /// Returns the path from the crate root that `name` is imported from in `module`.
    fn import(&self, module: &[String], name: &str) -> Option<ModulePath> {
        let module = self.0.get(module)?;
        let found = &module.paths[*module.imports.get(name)?];
        // `use x::x;` must not be looked up in itself
        let first = &found.written[0];
        let is_local = !matches!(first.as_str(), "crate" | "super" | "self" | "atmesh");
        if is_local && first == name { self.child(found) } else { self.absolute(found) }
    }

    /// Returns the path of an item of a child module.
    fn child(&self, path: &CodePath) -> Option<ModulePath> {
        let child: ModulePath = path.module.iter().chain(&path.written[..1]).cloned().collect();
        self.0.contains_key(&child).then(|| path.module.iter().chain(&path.written).cloned().collect())
    }

    /// Returns the path from the crate root; `None` for an item of another crate or of the module.
    fn absolute(&self, path: &CodePath) -> Option<ModulePath> {
        let (module, written) = (&path.module, &path.written);
        match written[0].as_str() {
            "crate" | "atmesh" => Some(written[1..].to_vec()),
            "super" | "self" => {
                let ups = written.iter().take_while(|p| *p == "super").count();
                let kept = &module[..module.len().saturating_sub(ups)];
                Some(kept.iter().chain(&written[ups.max(1)..]).cloned().collect())
            }
            name => self.child(path).or_else(|| {
                let mut target = self.import(module, name)?;
                target.extend_from_slice(&written[1..]);
                Some(target)
            }),
        }
    }

    /// Returns every use of one module by another, and what is imported from the crate root.
    fn uses(&self) -> (Vec<ModuleUse>, Vec<String>) {
        let (mut uses, mut faults) = (Vec::new(), Vec::new());
        for (from, module) in self.0.iter().filter(|(from, _)| !from.is_empty()) {
            for path in &module.paths {
                let Some(target) = self.absolute(path) else { continue };
                let (file, line) = (module.file.clone(), path.line);
                // `atmesh` is written in a file that tests include, and names public paths
                let is_own_path = matches!(path.written[0].as_str(), "crate" | "super" | "self");
                if is_own_path && self.depth(&target) == 0 {
                    let name = &path.written.join("::");
                    faults.push(format!("{file}:{line}: `{name}` of the root: import it from its owner"));
                }
                let via = target[..self.depth(&target)].to_vec();
                let owner = self.owner(target);
                let to = owner[..self.depth(&owner)].to_vec();
                // an imported module is used where the code names its items
                let is_module = to == owner && path.import.as_ref().is_some_and(|name| name != "*");
                if to != *from && !is_module {
                    let (from, is_reexport) = (from.clone(), path.is_reexport);
                    uses.push(ModuleUse { from, to, via, file, line, is_reexport });
                }
            }
        }
        (uses, faults)
    }
}

/// Returns the index after the closing bracket of the group that opens at `i`.
fn skip_group(tokens: &[Token], mut i: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(token) = tokens.get(i) {
        depth += usize::from(["(", "[", "{"].iter().any(|b| token.is(b)));
        depth -= usize::from([")", "]", "}"].iter().any(|b| token.is(b)));
        i += 1;
        if depth == 0 {
            break;
        }
    }
    i
}

/// Returns true if `::` is at `i`.
fn is_separator(tokens: &[Token], i: usize) -> bool {
    tokens.get(i).is_some_and(|t| t.is(":")) && tokens.get(i + 1).is_some_and(|t| t.is(":"))
}

/// Returns the paths in the code of a module, without comments, literals and calls of macros.
fn code_paths(mut tokens: Vec<Token>, module: &ModulePath) -> Vec<CodePath> {
    tokens.retain(|t| matches!(t.kind, TokenKind::Word | TokenKind::Punct));
    let is = |i: usize, text: &str| tokens.get(i).is_some_and(|t| t.is(text));
    let (mut paths, mut names, mut i) = (Vec::new(), BTreeSet::new(), 0);
    // the inline modules around index `i`, each with its end
    let mut inner: Vec<(String, usize)> = Vec::new();
    while i < tokens.len() {
        inner.retain(|m| m.1 > i);
        let here: ModulePath = module.iter().chain(inner.iter().map(|m| &m.0)).cloned().collect();
        // in a macro the name may be `$name`
        let name = i + 1 + usize::from(is(i + 1, "$"));
        if is(i, "mod") && is(name + 1, "{") {
            inner.push((tokens[name].text.clone(), skip_group(&tokens, name + 1)));
            i = name + 2;
        } else if is(i, "mod") && is(name + 1, ";") {
            i = name + 2;
        } else if is(i, "use") && !is(i + 1, "<") {
            let is_public = i > 0 && (is(i - 1, "pub") || is(i - 1, ")"));
            let start = CodePath {
                written: Vec::new(),
                module: here,
                line: tokens[i].line,
                import: None,
                is_reexport: is_public,
            };
            i = collect_use_tree(&tokens, i + 1, &start, &mut paths);
        } else if tokens[i].kind == TokenKind::Word {
            let mut written = vec![tokens[i].text.clone()];
            let line = tokens[i].line;
            // a method or field comes after one dot, the end of a range after two
            let is_member = i > 1 && is(i - 1, ".") && !is(i - 2, ".");
            let is_first = !is_member && (i < 2 || !is(i - 1, "$") && !is_separator(&tokens, i - 2));
            while is_separator(&tokens, i + 1) && tokens.get(i + 3).is_some_and(|t| t.kind == TokenKind::Word)
            {
                written.push(tokens[i + 3].text.clone());
                i += 3;
            }
            i += 1;
            let is_macro = is(i, "!") && ["(", "[", "{"].iter().any(|b| is(i + 1, b));
            if is_first {
                names.insert(written[0].clone());
            }
            if written.len() > 1 && is_first && !is_macro {
                paths.push(CodePath { written, module: here, line, import: None, is_reexport: false });
            }
        } else {
            i += 1;
        }
    }
    for path in &mut paths {
        path.is_reexport &= path.import.as_ref().is_some_and(|name| !names.contains(name));
    }
    paths
}

/// Collects the paths of the `use` tree that starts at `i`, and returns the index after it.
fn collect_use_tree(tokens: &[Token], mut i: usize, start: &CodePath, found: &mut Vec<CodePath>) -> usize {
    let mut path = start.clone();
    while let Some(token) = tokens.get(i) {
        path.line = token.line;
        if token.is("{") {
            i += 1;
            while tokens.get(i).is_some_and(|t| !t.is("}")) {
                i = collect_use_tree(tokens, i, &path, found);
                i += usize::from(tokens.get(i).is_some_and(|t| t.is(",")));
            }
            return i + 1;
        } else if token.is("as") {
            path.import = tokens.get(i + 1).map(|t| t.text.clone());
            i += 1;
        } else if token.is("*") {
            path.import = Some("*".into());
        } else if token.is(",") || token.is("}") || token.is(";") {
            break;
        } else if token.kind == TokenKind::Word && (token.text != "self" || path.written.is_empty()) {
            path.written.push(token.text.clone());
        }
        i += 1;
    }
    path.line = tokens[i - 1].line;
    path.import = path.import.or_else(|| path.written.last().cloned());
    found.push(path);
    i
}

/// Returns a cycle of the graph, if there is one.
fn find_cycle(graph: &Graph) -> Option<Vec<String>> {
    fn walk(
        at: &str,
        graph: &Graph,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(k) = way.iter().position(|w| w == at) {
            return Some(way[k..].iter().map(String::as_str).chain([at]).map(String::from).collect());
        }
        if !done.insert(at.to_string()) {
            return None;
        }
        way.push(at.to_string());
        let found = graph.get(at).into_iter().flatten().find_map(|to| walk(to, graph, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|at| walk(at, graph, &mut Vec::new(), &mut done))
}

/// Returns the folders in the first column of the table on the page of `src/lib.rs`, from the top down.
fn folder_order() -> Vec<ModulePath> {
    let lib = std::fs::read_to_string(lexer::root().join("src/lib.rs")).unwrap();
    let rows = lib.lines().skip_while(|l| !l.starts_with("//! # Folders"));
    let folder = |row: &str| row.split('`').nth(1).map(|f| f.split('/').map(String::from).collect());
    rows.filter(|l| l.starts_with("//! | `")).filter_map(folder).collect()
}

/// Returns the graph of these uses, without those of a module's own submodules: a module and its
/// submodules are one unit, in which types of the module and its code may be above and below them.
fn module_graph(uses: &[ModuleUse]) -> Graph {
    let mut graph = Graph::new();
    for a in uses.iter().filter(|a| !a.is_reexport && !a.to.starts_with(&a.from)) {
        graph.entry(a.from.join("::")).or_default().insert(a.to.join("::"));
    }
    graph
}

/// The uses of the library's modules.
static LIBRARY_USES: LazyLock<Vec<ModuleUse>> = LazyLock::new(|| {
    let (uses, faults) = Modules::new(library_sources(&["src"])).uses();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    uses
});

#[test]
fn a_folder_uses_only_those_below_it() {
    let folders = folder_order();
    let mut groups: Vec<&String> = folders.iter().map(|f| &f[0]).collect();
    groups.dedup();
    let group_set: BTreeSet<&String> = groups.iter().copied().collect();
    assert_eq!(groups.len(), group_set.len(), "the folders of a group follow one another: {groups:?}");
    // the folder of a module is the longest that it begins with
    let folder_of = |module: &ModulePath| {
        let around = (0..folders.len()).filter(|i| module.starts_with(&folders[*i]));
        around.max_by_key(|i| folders[*i].len())
    };
    let (mut faults, mut edges, mut used) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for a in LIBRARY_USES.iter() {
        // the file of a group only declares its folders
        let Some(from) = folder_of(&a.from) else {
            if !a.to.starts_with(&a.from) || !a.is_reexport {
                faults.insert(format!("{}:{}: the page of src/lib.rs lists no such folder", a.file, a.line));
            }
            continue;
        };
        used.insert(from);
        // a public path, which begins at the root, does not say where its item is, and neither does
        // a path through the file of a group
        let is_folder = |target: &&ModulePath| target.len() > 1 || folder_of(target).is_some();
        for target in [&a.to, &a.via].into_iter().filter(|target| !target.is_empty()).filter(is_folder) {
            let Some(to) = folder_of(target) else {
                let name = target.join("::");
                faults.insert(format!("{}:{}: uses {name}, which is no folder", a.file, a.line));
                continue;
            };
            edges.insert((from, to));
            if from > to {
                let (from, to) = (folders[from].join("/"), folders[to].join("/"));
                faults.insert(format!("{}:{}: {from} uses {to}, which is above it", a.file, a.line));
            }
        }
    }
    let unused = (0..folders.len()).filter(|i| !used.contains(i) && !edges.iter().any(|(_, to)| to == i));
    faults.extend(
        unused.map(|i| {
            format!("{}: the page of src/lib.rs lists it, but nothing uses it", folders[i].join("/"))
        }),
    );
    assert!(faults.is_empty(), "{}", faults.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(edges.len() > 150, "the imports were read: {edges:?}");
}

#[test]
fn modules_have_no_cycle_but_those_known() {
    let mut graph = module_graph(&LIBRARY_USES);
    assert!(graph.len() > 250, "the imports were read: {graph:?}");
    let mut known = Vec::new();
    for (from, names, _) in KNOWN_CYCLES {
        let folder = from.rsplit_once("::").unwrap().0;
        known.extend(names.split(' ').map(|to| (from.to_string(), format!("{folder}::{to}"))));
    }
    for (from, to) in &known {
        let is_used = graph.get_mut(from).is_some_and(|list| list.remove(to));
        assert!(is_used, "{from} does not use {to}: take it off the list of known cycles");
    }
    assert_eq!(find_cycle(&graph), None, "modules use one another in a cycle");
    for (from, to) in &known {
        let mut with_use = graph.clone();
        with_use.entry(from.clone()).or_default().insert(to.clone());
        let closes = find_cycle(&with_use).is_some();
        assert!(closes, "{from} uses {to} without a cycle: take it off the list of known cycles");
    }
}

#[test]
fn the_partitioner_has_no_cycle() {
    let is_inside = |name: &str| name.starts_with("partition::");
    let mut files = module_graph(&LIBRARY_USES);
    files.retain(|from, _| is_inside(from));
    files.values_mut().for_each(|list| list.retain(|to| is_inside(to)));
    assert_eq!(find_cycle(&files), None, "files use one another");
    assert!(files.len() > 40, "the imports were read: {files:?}");
    // there must not be a cycle among its folders either
    let folder = |m: &str| m.split("::").nth(1).unwrap_or_default().to_string();
    let mut folders = Graph::new();
    for (from, list) in &files {
        let others = list.iter().map(|to| folder(to)).filter(|to| *to != folder(from));
        folders.entry(folder(from)).or_default().extend(others);
    }
    assert_eq!(find_cycle(&folders), None, "folders use one another");
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let source = r##"
        //! use crate::no;
        use crate::{a::{self, B as C}, other::Super};
        #[cfg(test)]
        use crate::a::Hidden;
        const T: &str = "use crate::a::text;"; const Q: char = '"'; const R: &str = r#"crate::a::raw"#;
        fn f<'a>(x: &'a str) -> super::y::Z { crate::w::v(); crate::p![]; a::G; child::H; x.a::<u8>() }
        #[cfg(all(test, not(shuttle)))]
        mod orders;
        #[cfg(not(test))]
        mod plain { use crate::a::seen; }
        /* crate::a::also /* nested */ */
        mod inside { use super::super::far; }
        macro_rules! m { ($l:ident) => { mod $l { use super::super::y::Q; } $crate::a::N } }
        pub use child::Passed;
        mod child;
        use super::y::*; const N: std::ops::Range<u8> = 0..crate::w::N;
    "##;
    let file = |path: &str, text: &str| SourceFile::new(path.into(), text);
    let modules = Modules::new(vec![
        file("src/lib.rs", ""),
        file("src/a.rs", "pub use crate::w::B;"),
        file("src/other.rs", ""),
        file("src/w.rs", ""),
        file("src/top/mod.rs", "pub use y::{Z, far};"),
        file("src/top/y.rs", ""),
        file("src/top/file.rs", source),
        file("src/top/file/child.rs", "use super::super::none;"),
    ]);
    let (uses, faults) = modules.uses();
    let uses = uses.iter().filter(|u| u.file == "src/top/file.rs");
    let found: Vec<String> = uses
        .map(|u| format!("{} {}{}", u.line, u.to.join("::"), if u.is_reexport { " again" } else { "" }))
        .collect();
    let inside = ["7 top::y", "7 w", "7 a", "7 top::file::child", "11 a", "13 top::y", "14 top::y"];
    let all: Vec<&str> = ["3 w", "3 other"]
        .into_iter()
        .chain(inside)
        .chain(["15 top::file::child again", "17 top::y", "17 w"])
        .collect();
    assert_eq!(found, all);
    assert_eq!(faults, [""; 0]);
    let cycle = |list: &[(&str, &str)]| {
        let mut graph = Graph::new();
        list.iter().for_each(|(a, b)| {
            graph.entry(a.to_string()).or_default().insert(b.to_string());
        });
        find_cycle(&graph)
    };
    assert_eq!(cycle(&[("a", "b"), ("a", "c"), ("b", "c")]), None);
    assert_eq!(cycle(&[("a", "b"), ("b", "c"), ("c", "b")]), Some(["b", "c", "b"].map(String::from).into()));
}
