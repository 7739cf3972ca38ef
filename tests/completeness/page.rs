//! The book's table of all primitives, generated from their list. Loops are printed from each
//! primitive's factors; types and collectives are found by sharding one loop at a time.
//!
//! `ATMESH_BLESS=1 cargo test --test completeness` writes the page again.

use super::derivatives::specs;
use atmesh::ops::PRIMITIVES;
use atmesh::program::factors::LoopId;
use atmesh::program::{Dim, DimMap, Factors, ManualCollective, Prim, TypedOperand};
use atmesh::types::{ArrayType, DType};
use atmesh::{Args, Array, Axes, CollectiveKind, Mesh, Spec, jit};
use std::path::PathBuf;

const HEAD: &str = "\
# All primitives

The rules of every primitive operation. This page is generated from the crate's list of primitives, with one example for each; a test
compares it with the rules of the primitives. Primitives with equal rules share a row.

**Factors** are an operation's loops, and which dimension of which operand and result runs over which: `[i,k] [k,j] → [i,j]` is a product
of matrices. `1` is a dimension of size 1 that is read again at every step (broadcasting), `(i·j)` a dimension over two loops, the first one outside,
`2i+1` a dimension in which step i is at position 2i+1.

**Types** says what happens to the axes that shard a loop's dimensions, over explicit axes: *kept* (in the result; if several
operands run over the loop, an operand that is unsharded there joins), *match* (kept, if all operands that run over it are sharded the same way), *first* (kept, if the first
operand is sharded), *reduced* (the dimension is summed or otherwise reduced), *one* (reduced, if one of the operands is sharded and the other is not; if both are, give
the result's sharding: `dot_to`), *unsharded* (an error unless the dimension is unsharded), *new* (unsharded, or as requested), *as requested* (determined by the operation itself).

**Unreduced** says whether operands may be unreduced, that is partial sums: *pass* (all operands are, and so is the result), *times reduced* (one is,
the others are reduced), *error*. `reduce_sum` and `dot_general` make such values if the requested sharding says so.

**Communicates** lists the collectives if a loop is sharded (in parentheses: in auto mode, for loops that must be unsharded in
explicit mode). Operations without an entry do not communicate.
";

const MANUAL: &str = "
## Manual mode: allowed inside `shard_map`

They work on one device's block; the types say over which axes values vary.

| | block | result | communicates |
|---|---|---|---|
";

fn letter(l: LoopId) -> char {
    char::from_u32('i' as u32 + l as u32).unwrap_or('?')
}

/// Formats how a dimension maps to loops.
fn dim(d: &Dim) -> String {
    let loops: Vec<String> = d.loops.iter().map(|l| letter(*l).to_string()).collect();
    let loops = if loops.len() == 1 { loops.concat() } else { format!("({})", loops.join("·")) };
    match d.map {
        DimMap::Identity => loops,
        DimMap::Broadcast => "1".into(),
        DimMap::Affine { scale, offset } => {
            let scaled = match scale {
                1 => loops,
                -1 => format!("-{loops}"),
                n => format!("{n}{loops}"),
            };
            match offset {
                0 => scaled,
                n => format!("{scaled}{n:+}"),
            }
        }
        DimMap::Dynamic => format!("{loops} from where it says"),
    }
}

fn loops(f: &Factors) -> String {
    let tensor = |dims: &Vec<Dim>| format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(","));
    let side = |tensors: &[Vec<Dim>]| tensors.iter().map(tensor).collect::<Vec<_>>().join(" ");
    format!("{} → {}", side(&f.operands), side(&f.results)).trim().to_string()
}

fn operands(types: &[ArrayType]) -> Vec<TypedOperand> {
    types.iter().map(|ty| TypedOperand::new(ty.clone(), false)).collect()
}

/// An example of a primitive, for which types and collectives are computed.
struct Asked {
    prim: Prim,
    types: Vec<ArrayType>,
    factors: Factors,
    results: Vec<ArrayType>,
}

/// The loops, and the description of each.
type Labels = Vec<(String, String)>;

/// The effect of sharding a loop.
#[derive(PartialEq)]
enum Fate {
    Kept,
    Gone,
    Rejected,
}

impl Asked {
    /// Returns the operands and dimensions that a loop indexes without broadcasting.
    fn carried(&self, l: LoopId) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for (k, dims) in self.factors.operands.iter().enumerate() {
            for (d, over) in dims.iter().enumerate() {
                if over.loops.first() == Some(&l) && over.map != DimMap::Broadcast {
                    places.push((k, d));
                }
            }
        }
        places
    }
    /// Returns the number of shards that divides all dimensions that the loop indexes.
    fn ways(&self, l: LoopId) -> Option<usize> {
        let places = self.carried(l);
        let sizes = |n: usize| places.iter().all(|(k, d)| self.types[*k].shape[*d].is_multiple_of(n));
        (2..=7).find(|n| !places.is_empty() && sizes(*n))
    }
    /// Shards these dimensions of the operands over X.
    fn split(&self, mesh: &Mesh, places: &[(usize, usize)]) -> Vec<ArrayType> {
        let entry = |k, d| if places.contains(&(k, d)) { Axes::from("X") } else { Axes::none() };
        let placed = |(k, ty): (usize, &ArrayType)| {
            ty.clone().on(mesh, Spec::from_dims((0..ty.rank()).map(|d| entry(k, d)).collect()))
        };
        self.types.iter().enumerate().map(placed).collect()
    }
    fn fate(&self, mesh: &Mesh, places: &[(usize, usize)]) -> Fate {
        match self.prim.types(&operands(&self.split(mesh, places))) {
            Err(_) => Fate::Rejected,
            Ok(results) if results.iter().any(|t| !t.spec.is_replicated()) => Fate::Kept,
            Ok(_) => Fate::Gone,
        }
    }
    /// Describes how the types treat a loop's sharding, and returns the dimensions to shard for
    /// testing it.
    fn word(&self, l: LoopId, mesh: &Mesh) -> (&'static str, Vec<(usize, usize)>) {
        let all = self.carried(l);
        let alone: Vec<Fate> = all.iter().map(|place| self.fate(mesh, &[*place])).collect();
        let word = match (self.fate(mesh, &all), &alone[..]) {
            (Fate::Kept, fates) if fates.iter().all(|f| *f == Fate::Kept) => "kept",
            (Fate::Kept, [Fate::Kept, ..]) => "first",
            (Fate::Kept, _) => "match",
            (Fate::Gone, _) => "reduced",
            (Fate::Rejected, [Fate::Gone, ..]) if all.len() > 1 => return ("one", vec![all[0]]),
            (Fate::Rejected, _) => "unsharded",
        };
        (word, all)
    }
    /// Returns the collectives for operands of these types.
    fn exchanged(&self, types: Vec<ArrayType>) -> Vec<CollectiveKind> {
        let prim = self.prim.clone();
        let f = jit(move |xs: &Vec<Array>| {
            Array::apply(prim.clone(), &xs.iter().map(Into::into).collect::<Vec<_>>())
        });
        let args: Vec<Array> = types.into_iter().map(Args::into_tree).collect();
        let lowered = f.lower(args).unwrap_or_else(|e| panic!("{}: {e}", self.prim.key()));
        let mut kinds: Vec<CollectiveKind> = lowered.collectives().iter().map(|c| c.kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }
    /// Describes whether operands may be unreduced.
    fn parts(&self) -> &'static str {
        let mesh = Mesh::without_devices([("X", 2)]).expect("one axis makes a mesh");
        let all_bool = self.types.iter().all(|t| t.dtype == DType::Bool);
        let numbers: Vec<bool> = self.types.iter().map(|t| t.dtype.is_number() || all_bool).collect();
        let ask = |unreduced: &dyn Fn(usize) -> bool| {
            let types = self.types.iter().enumerate().map(|(k, ty)| {
                let spec = Spec::replicated(ty.rank());
                let spec = match (numbers[k], unreduced(k)) {
                    (true, true) => spec.unreduced("X"),
                    (true, false) => spec.reduced("X"),
                    _ => spec,
                };
                ty.clone().on(&mesh, spec)
            });
            let results = self.prim.types(&operands(&types.collect::<Vec<_>>()));
            results.is_ok_and(|r| r.iter().all(|t| t.spec.unreduced_axes().contains("X".into())))
        };
        match (numbers.contains(&true), ask(&|_| true), ask(&|k| k == 0)) {
            (false, ..) => "",
            _ if self.prim.constraint().is_some() => "as requested",
            (_, true, _) => "pass",
            (_, _, true) => "times reduced",
            _ => "error",
        }
    }
    /// Describes the collectives of an operation with a requested sharding, over all shardings of
    /// its operand.
    fn moves(&self, mesh: &Mesh) -> String {
        let mut kinds: Vec<CollectiveKind> = Vec::new();
        for spec in specs(&self.types[0].shape, mesh) {
            let from = self.types[0].clone().on(mesh, spec);
            if self.prim.types(&operands(std::slice::from_ref(&from))).is_ok() {
                kinds.extend(self.exchanged(vec![from]));
            }
        }
        kinds.sort();
        kinds.dedup();
        let names: Vec<&str> = kinds.iter().map(|k| k.name()).collect();
        format!("what the way needs: {}", names.join(", "))
    }
    /// Returns the row's columns on types and on collectives.
    fn columns(&self) -> (String, String) {
        if let Some(pin) = self.prim.constraint() {
            return ("as requested".into(), self.moves(&pin.mesh));
        }
        let (mut words, mut kinds) = (Labels::new(), Labels::new());
        let add = |list: &mut Labels, l: LoopId, what: String| match list.iter_mut().find(|x| x.1 == what) {
            Some((loops, _)) => *loops += &format!(" {}", letter(l)),
            None => list.push((letter(l).to_string(), what)),
        };
        for l in 0..self.factors.loops.len() {
            let on_any = self.factors.operands.iter().flatten().any(|d| d.loops.contains(&l));
            if !on_any {
                add(&mut words, l, "new".into());
                continue;
            }
            // The minor factors of a dimension, and dimensions of size 1, cannot be sharded alone.
            let Some(ways) = self.ways(l) else { continue };
            let mesh = Mesh::without_devices([("X", ways)]).expect("one axis makes a mesh");
            let (word, places) = self.word(l, &mesh);
            add(&mut words, l, word.into());
            let names =
                |kinds: Vec<CollectiveKind>| kinds.iter().map(|k| k.name()).collect::<Vec<_>>().join(", ");
            let label = if word == "unsharded" {
                let auto = mesh.with_auto("X").expect("X is its axis");
                let kinds = names(self.exchanged(self.split(&auto, &places)));
                if kinds.is_empty() { kinds } else { format!("({kinds})") }
            } else {
                names(self.exchanged(self.split(&mesh, &places)))
            };
            if !label.is_empty() {
                add(&mut kinds, l, label);
            }
        }
        let line =
            |list: Labels| list.into_iter().map(|(l, w)| format!("{l}: {w}")).collect::<Vec<_>>().join("; ");
        (line(words), line(kinds))
    }
}

/// Formats the types of an example, such as `f32[8,4] f32[4,2] → f32[8,2]`.
fn example(types: &[ArrayType], results: &[ArrayType]) -> String {
    let side = |types: &[ArrayType]| types.iter().map(ArrayType::short_text).collect::<Vec<_>>().join(" ");
    format!("{} → {}", side(types), side(results)).trim().to_string()
}

/// Formats text as code in a table cell.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

/// Returns a row without its name, since many rows differ only in the name.
fn row(name: &str, prim: Prim, types: Vec<ArrayType>) -> String {
    let results = prim.types(&operands(&types)).unwrap_or_else(|f| panic!("{name}: {f:?}"));
    let params = prim.params();
    let example = example(&types, &results);
    let shapes: Vec<_> = results.iter().map(|t| (t.dtype, t.shape.clone())).collect();
    let factors = prim.factors(&types, &shapes);
    let key = types.iter().chain(&results).any(|t| t.dtype == DType::Key);
    let asked = Asked { prim, types, factors, results };
    let (types, exchanged) = asked.columns();
    assert!(!asked.results.is_empty());
    let parts = if key { "" } else { asked.parts() };
    let head = [code(&params), code(&example)].join(" ");
    format!("| {} | {} | {types} | {parts} | {exchanged} |\n", head.trim(), code(&loops(&asked.factors)))
}

fn manual_row(name: &str, prim: Prim, types: Vec<ArrayType>) -> String {
    let results = prim.types(&operands(&types)).unwrap_or_else(|f| panic!("{name}: {f:?}"));
    let what = match prim.collective() {
        Some(ManualCollective::AllReduce { .. }) => CollectiveKind::AllReduce.name(),
        Some(ManualCollective::AllGather { .. }) => CollectiveKind::AllGather.name(),
        Some(ManualCollective::ReduceScatter { .. }) => CollectiveKind::ReduceScatter.name(),
        Some(ManualCollective::AllToAll { .. }) => CollectiveKind::AllToAll.name(),
        Some(ManualCollective::Permute { .. } | ManualCollective::Broadcast { .. }) => {
            CollectiveKind::Permute.name()
        }
        Some(
            ManualCollective::KeepShard { .. }
            | ManualCollective::AxisIndex { .. }
            | ManualCollective::Pcast { .. },
        ) => "nothing",
        None => panic!("{name} is in the family of collectives, and is none"),
    };
    let side =
        |types: &[ArrayType]| code(&types.iter().map(ArrayType::short_text).collect::<Vec<_>>().join(" "));
    format!("| **{name}** {} | {} | {} | {what} |\n", code(&prim.params()), side(&types), side(&results))
}

fn page() -> String {
    let (mut text, mut manual) = (HEAD.to_string(), MANUAL.to_string());
    let mut family = "";
    // The rows of a family, each with the names of all primitives that share it.
    let mut rows: Vec<(String, String)> = Vec::new();
    let drain_rows = |rows: &mut Vec<(String, String)>| -> String {
        rows.drain(..).map(|(names, row)| format!("| {names} {row}")).collect()
    };
    for entry in PRIMITIVES {
        let (prim, types) = (entry.example)();
        if prim.collective().is_some() {
            manual += &manual_row(entry.name, prim, types);
            continue;
        }
        if entry.family != family {
            family = entry.family;
            text += &drain_rows(&mut rows);
            text += &format!("\n## {}\n\n", title(family));
            text += "| | example | factors | types | unreduced | communicates |\n|---|---|---|---|---|---|\n";
        }
        let (name, row) = (format!("**{}**", entry.name), row(entry.name, prim, types));
        match rows.iter_mut().find(|r| r.1 == row) {
            Some((names, _)) => *names += &format!(", {name}"),
            None => rows.push((name, row)),
        }
    }
    text += &drain_rows(&mut rows);
    text + &manual
}

fn title(family: &str) -> String {
    let family = if family == "linalg" { "linear algebra" } else { family };
    let mut letters = family.chars();
    letters.next().map(|c| c.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[test]
fn the_page_of_the_book_is_what_primitives_say() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("book/src/primitives.md");
    let page = page();
    if std::env::var_os("ATMESH_BLESS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "the page is not what primitives say: ATMESH_BLESS=1 writes it anew\n{page}");
    for entry in PRIMITIVES {
        assert!(page.contains(&format!("**{}**", entry.name)), "{} has no row", entry.name);
    }
}
