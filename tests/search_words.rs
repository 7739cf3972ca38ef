//! The search of the documentation finds functions by the names of JAX, PyTorch and MPI: each name in
//! the left columns of the book's page on JAX is a function of this crate, or an alias of one.

mod lexer;

use lexer::{Token, TokenKind, library_sources};
use std::collections::BTreeSet;

/// Names that users search for, in addition to those on the page.
const WORDS: [&str; 40] = [
    "make_mesh",
    "NamedSharding",
    "PartitionSpec",
    "PRNGKey",
    "device_get",
    "device_put",
    "flatten",
    "clip",
    "power",
    "swish",
    "sigmoid",
    "tree_leaves",
    "tree_flatten",
    "where",
    "concatenate",
    "unsqueeze",
    "chunk",
    "array_split",
    "mod",
    "fmod",
    "expm",
    "allclose",
    "view",
    "len",
    "as_type",
    "cast",
    "Allreduce",
    "Sendrecv",
    "comm",
    "DeviceMesh",
    "repeat_interleave",
    "bitcast_convert_type",
    "geomspace",
    "divmod",
    "argwhere",
    "hstack",
    "mpirun",
    "multi_host",
    "init_process_group",
    "process_index",
];

/// What users of the book search for, and the page that answers it.
const TASKS: [(&str, &str); 121] = [
    ("a row that should not be there", "explain"),
    ("the cause", "explain"),
    ("recomputation", "recompute"),
    ("checkpoint for each layer", "recompute"),
    ("linear algebra", "linalg"),
    ("factor once", "linalg"),
    ("struct of arrays", "trees"),
    ("gradients are trees", "trees"),
    ("products by hand", "schedules"),
    ("how long do they wait", "schedules"),
    ("choosing a mode", "choosing"),
    ("explicit mode", "practice"),
    ("where is the sum", "practice"),
    ("spectral", "spectral"),
    ("how to read", "reading"),
    ("the pictures", "reading"),
    ("install", "install"),
    ("first program", "first"),
    ("cargo features", "install"),
    ("train a network", "network"),
    ("loss and gradient", "network"),
    ("data parallel", "train_data"),
    ("FSDP", "train_fsdp"),
    ("ZeRO", "optimizers"),
    ("tensor parallel", "train_tensor"),
    ("sequence parallel", "train_sequence"),
    ("8-way batch", "network_layouts"),
    ("4-way batch and 2-way model", "network_layouts"),
    ("gradient accumulation", "train_accumulation"),
    ("learning rates", "optimizers"),
    ("schedules", "train_optimizer"),
    ("optimizers", "optimizers"),
    ("clip gradients", "cookbook"),
    ("mixed precision", "train_precision"),
    ("batch norm", "cookbook"),
    ("dropout", "cookbook"),
    ("embeddings", "indexing"),
    ("attention", "layers"),
    ("cache", "layers"),
    ("losses", "layers"),
    ("initializers", "layers"),
    ("all-gather", "seven"),
    ("all-reduce", "seven"),
    ("reduce-scatter", "seven"),
    ("all-to-all", "seven"),
    ("halo", "seven"),
    ("ring", "seven"),
    ("latency", "costs"),
    ("bandwidth", "costs"),
    ("shard_map", "manual"),
    ("spmd", "native"),
    ("deadlock", "native"),
    ("vmap", "vmap"),
    ("scan", "loops"),
    ("while_loop", "loops"),
    ("cond", "loops"),
    ("checkpoint", "derivatives"),
    ("custom derivative", "derivatives"),
    ("random", "random"),
    ("keys", "random"),
    ("replicated", "replicated"),
    ("uneven", "uneven"),
    ("pad", "uneven"),
    ("not divisible", "cookbook"),
    ("logical axes", "layouts"),
    ("stencil", "stencils"),
    ("convolutions", "convolutions"),
    ("fourier", "fft"),
    ("sort", "lines"),
    ("plan", "planning"),
    ("peak memory", "planning"),
    ("profiles", "planning"),
    ("strategy", "strategy"),
    ("debugging", "debugging"),
    ("NaN", "debugging"),
    ("out of memory", "debugging"),
    ("testing", "testing"),
    ("tolerance", "testing"),
    ("sharp bits", "sharp_bits"),
    ("subnormal", "sharp_bits"),
    ("toy sizes", "sharp_bits"),
    ("numpy", "numpy"),
    ("ndarray", "numpy"),
    ("PyTorch", "pytorch"),
    ("DTensor", "pytorch"),
    ("MPI", "mpi"),
    ("communicators", "mpi"),
    ("Reactant", "reactant"),
    ("JAX", "jax"),
    ("optax", "optimizers"),
    ("StableHLO", "beyond"),
    ("cluster", "beyond"),
    ("cluster", "processes"),
    ("several processes", "processes"),
    ("several machines", "processes"),
    ("mpirun", "processes"),
    ("SLURM", "processes"),
    ("torchrun", "processes"),
    ("GPUs", "processes"),
    ("on a GPU", "gpu"),
    ("float32 precision", "gpu"),
    ("process dies", "processes"),
    ("report", "reports"),
    ("explain", "reports"),
    ("unreduced", "unreduced"),
    ("constrain", "auto"),
    ("propagation", "auto"),
    ("donate", "performance"),
    ("performance", "performance"),
    ("slow", "performance"),
    ("train a transformer", "training"),
    ("model on one device", "train_model"),
    ("training loss", "train_model"),
    ("4 × 2", "train_both"),
    ("pipeline", "train_pipeline"),
    ("microbatches", "train_pipeline"),
    ("experts", "train_experts"),
    ("checkpoints", "train_checkpoints"),
    ("layouts", "train_layouts"),
    ("few rows", "train_layouts"),
    ("public model", "llama"),
];

/// Returns the names by which the documentation's search finds an item, in lower case.
fn searchable() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in library_sources(&["src", "derive/src"]) {
        // in a file whose macros define public functions, every word may be the name of one, and so
        // in the table of scalar functions
        let defines_methods = |line: &String| {
            ["pub fn $", "macro_rules! scalar_functions"].iter().any(|text| line.contains(text))
        };
        let has_macro = file.lines.iter().any(defines_methods);
        let tokens: Vec<&Token> = file.tokens.iter().filter(|t| !t.is_comment()).collect();
        for (k, token) in tokens.iter().enumerate() {
            let follows = |words: &[&str]| k > 0 && words.iter().any(|word| tokens[k - 1].is(word));
            let defines = ["fn", "struct", "enum", "trait", "type", "mod", "!"];
            if token.kind == TokenKind::Word && (has_macro || follows(&defines)) {
                names.insert(token.text.to_lowercase());
            }
            if token.is("alias") && k > 1 && tokens[k - 2].is("doc") {
                let attribute = tokens[k..].iter().take_while(|t| !t.is("]"));
                let strings = attribute.filter(|t| t.kind == TokenKind::Str);
                names.extend(strings.map(|t| t.text.trim_matches('"').to_lowercase()));
            }
        }
    }
    names
}

/// Returns the names in a piece of code of another library: the last part of the path that is called
/// or meant, those of methods, and those of named arguments.
fn names_in(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    let plain: String = code.split('"').step_by(2).collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let path = plain.split(['(', '[', '=', ' ']).next().unwrap_or_default();
    if path.chars().all(|c| is_name(c) || c == '.') {
        names.extend(path.rsplit('.').next().map(str::to_string));
    }
    let mut rest = plain.as_str();
    while let Some(at) = rest.find(is_name) {
        let before = rest[..at].chars().next_back();
        let end = rest[at..].find(|c| !is_name(c)).map_or(rest.len(), |n| at + n);
        let (word, after) = (&rest[at..end], rest[end..].chars().next());
        let called = before == Some('.') && after == Some('(');
        let argument = after == Some('=') && word.contains('_');
        if called || argument {
            names.push(word.to_string());
        }
        rest = &rest[end..];
    }
    names.retain(|name| name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic()));
    names
}

/// Returns the code in the left column of each row, except of rows that offer nothing.
fn left_columns(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let row = row.replace("\\|", "¦");
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let offers = columns.get(2).is_some_and(|text| !text.starts_with("nothing"));
        if offers {
            found.extend(columns[1].split('`').skip(1).step_by(2).map(str::to_string));
        }
    }
    found
}

#[test]
fn names_of_other_libraries_are_found() {
    let names = searchable();
    let pages = [
        include_str!("../book/src/jax.md"),
        include_str!("../book/src/pytorch.md"),
        include_str!("../book/src/mpi.md"),
        include_str!("../book/src/numpy.md"),
    ];
    let of_pages = pages.into_iter().flat_map(left_columns).flat_map(|code| names_in(&code));
    let words: BTreeSet<String> = of_pages.chain(WORDS.map(str::to_string)).collect();
    assert!(words.len() > 200, "{} words", words.len());
    let found = |word: &String| {
        let word = word.to_lowercase();
        names.contains(word.strip_prefix("mpi_").unwrap_or(&word)) || names.contains(&word)
    };
    let missing: Vec<&String> = words.iter().filter(|word| !found(word)).collect();
    assert!(missing.is_empty(), "add `#[doc(alias = …)]` for: {missing:?}");
}

#[test]
fn names_are_read_from_code() {
    assert_eq!(names_in("jax.device_put(x, NamedSharding(mesh, P()))"), ["device_put", "device_put"]);
    assert_eq!(names_in("jit(f, donate_argnums=0)"), ["jit", "donate_argnums"]);
    assert_eq!(names_in("x.at[ids].add(y)"), ["at", "add"]);
    assert_eq!(names_in("check_vma=False"), ["check_vma", "check_vma"]);
}

/// Returns the headings and the first lines of a page, which the book's search ranks highest.
fn prominent(page: &str) -> String {
    let prose: String = page.split("```").step_by(2).collect();
    let lines = prose.lines().enumerate();
    let lines = lines.filter(|(n, line)| *n < 12 || line.starts_with('#')).map(|(_, line)| line);
    lines.collect::<Vec<_>>().join(" ").to_lowercase()
}

#[test]
fn pages_have_the_words_of_tasks_in_their_headings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("book/src");
    let mut missing = Vec::new();
    for (task, page) in TASKS {
        let text = std::fs::read_to_string(folder.join(format!("{page}.md"))).expect("there is a page");
        let text = prominent(&text);
        let task_words = task.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
        if !task_words.map(str::to_lowercase).all(|word| text.contains(&word)) {
            missing.push(format!("{page}.md: {task}"));
        }
    }
    assert!(missing.is_empty(), "name a section by what readers search for: {missing:#?}");
}
