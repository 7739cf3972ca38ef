//! The book's table of all primitives, made from their list. Nothing in it is written by hand: loops are printed from each primitive's factors,
//! and its types and what it communicates are found by splitting one loop at a time and asking.
//!
//! `ATMESH_BLESS=1 cargo test --test completeness` writes the page anew.

use super::derivatives::specs;
use atmesh::ops::PRIMITIVES;
use atmesh::program::factors::LoopId;
use atmesh::program::{At, Collective, Dim, Factors, Operand, Prim};
use atmesh::types::{ArrayType, DType};
use atmesh::{Args, Array, Axes, Kind, Mesh, Spec, jit};
use std::path::PathBuf;

const HEAD: &str = "\
# All primitives

What every operation of a program is made of. This page is generated from the crate's list of primitives, each by an example; a test
compares it with what the primitives say of themselves. Primitives of which all the same is said share a row.

**Factors** are an operation's loops, and which dimension of which operand and result runs over which: `[i,k] [k,j] → [i,j]` is a product
of matrices. `1` is a dimension of size 1 that is read again at every step (broadcasting), `(i·j)` a dimension made of two loops, the first one outside,
`2i+1` one where step i lies at position 2i+1.

**Types** says what becomes of the axes that split a loop's dimensions, over explicit axes: *kept* (in the result; where several
operands run over the loop, one that is unsharded there joins), *alike* (kept, if all operands that run over it are sharded the same way), *first* (kept, if the first
operand is split), *gone* (the dimension is summed or folded away), *one* (gone, if one of the operands is split and the other not; if both are, say
the result's sharding: `dot_to`), *whole* (refused unless the dimension is unsharded), *new* (unsharded, or as asked), *as asked* (said by the operation itself).

**Parts** says whether operands may be unreduced, that is partial sums: *pass* (all operands are, and so is the result), *times reduced* (one is,
the others are reduced), *refused*. `reduce_sum` and `dot_general` make such values, where the sharding that they are asked for says so.

**Communicates** says what the devices then exchange, where a loop is split (in parentheses: in auto mode, for loops that must be unsharded in
explicit mode). What is not named needs nothing.
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

/// How a dimension runs over loops.
fn dim(d: &Dim) -> String {
    let loops: Vec<String> = d.loops.iter().map(|l| letter(*l).to_string()).collect();
    let loops = if loops.len() == 1 { loops.concat() } else { format!("({})", loops.join("·")) };
    match d.at {
        At::Same => loops,
        At::Stretched => "1".into(),
        At::Affine { scale, offset } => {
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
        At::Window => format!("{loops} from where it says"),
    }
}

fn loops(f: &Factors) -> String {
    let tensor = |dims: &Vec<Dim>| format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(","));
    let side = |tensors: &[Vec<Dim>]| tensors.iter().map(tensor).collect::<Vec<_>>().join(" ");
    format!("{} → {}", side(&f.operands), side(&f.results)).trim().to_string()
}

fn operands(types: &[ArrayType]) -> Vec<Operand> {
    types.iter().map(|ty| Operand::new(ty.clone(), false)).collect()
}

/// A primitive's example, to be asked.
struct Asked {
    prim: Prim,
    types: Vec<ArrayType>,
    factors: Factors,
    results: Vec<ArrayType>,
}

/// Loops, and what is said of them.
type Told = Vec<(String, String)>;

/// What becomes of a split loop.
#[derive(PartialEq)]
enum Fate {
    Kept,
    Gone,
    Refused,
}

impl Asked {
    /// Where a loop leads a dimension that is not stretched: operand and dimension.
    fn carried(&self, l: LoopId) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for (k, dims) in self.factors.operands.iter().enumerate() {
            for (d, over) in dims.iter().enumerate() {
                if over.loops.first() == Some(&l) && over.at != At::Stretched {
                    places.push((k, d));
                }
            }
        }
        places
    }
    /// As many ways as divide all dimensions that carry the loop.
    fn ways(&self, l: LoopId) -> Option<usize> {
        let places = self.carried(l);
        let sizes = |n: usize| places.iter().all(|(k, d)| self.types[*k].shape[*d].is_multiple_of(n));
        (2..=7).find(|n| !places.is_empty() && sizes(*n))
    }
    /// The operands with these places split over X.
    fn split(&self, mesh: &Mesh, places: &[(usize, usize)]) -> Vec<ArrayType> {
        let entry = |k, d| if places.contains(&(k, d)) { Axes::from("X") } else { Axes::none() };
        let lies = |(k, ty): (usize, &ArrayType)| {
            ty.clone().on(mesh, Spec::of((0..ty.rank()).map(|d| entry(k, d)).collect()))
        };
        self.types.iter().enumerate().map(lies).collect()
    }
    fn fate(&self, mesh: &Mesh, places: &[(usize, usize)]) -> Fate {
        match self.prim.types(&operands(&self.split(mesh, places))) {
            Err(_) => Fate::Refused,
            Ok(results) if results.iter().any(|t| !t.spec.is_whole()) => Fate::Kept,
            Ok(_) => Fate::Gone,
        }
    }
    /// Which axes of a loop's dimensions the types keep, and which places to split to see it.
    fn word(&self, l: LoopId, mesh: &Mesh) -> (&'static str, Vec<(usize, usize)>) {
        let all = self.carried(l);
        let alone: Vec<Fate> = all.iter().map(|place| self.fate(mesh, &[*place])).collect();
        let word = match (self.fate(mesh, &all), &alone[..]) {
            (Fate::Kept, fates) if fates.iter().all(|f| *f == Fate::Kept) => "kept",
            (Fate::Kept, [Fate::Kept, ..]) => "first",
            (Fate::Kept, _) => "alike",
            (Fate::Gone, _) => "gone",
            (Fate::Refused, [Fate::Gone, ..]) if all.len() > 1 => return ("one", vec![all[0]]),
            (Fate::Refused, _) => "whole",
        };
        (word, all)
    }
    /// What is exchanged where these operands go in.
    fn exchanged(&self, types: Vec<ArrayType>) -> Vec<Kind> {
        let prim = self.prim.clone();
        let f = jit(move |xs: &Vec<Array>| {
            Array::apply(prim.clone(), &xs.iter().map(Into::into).collect::<Vec<_>>())
        });
        let args: Vec<Array> = types.into_iter().map(Args::into_tree).collect();
        let lowered = f.lower(args).unwrap_or_else(|e| panic!("{}: {e}", self.prim.key()));
        let mut kinds: Vec<Kind> = lowered.collectives().iter().map(|c| c.kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }
    /// Whether operands may be in parts.
    fn parts(&self) -> &'static str {
        let mesh = Mesh::without_devices([("X", 2)]).expect("one axis makes a mesh");
        let all_bool = self.types.iter().all(|t| t.dtype == DType::Bool);
        let numbers: Vec<bool> = self.types.iter().map(|t| t.dtype.is_number() || all_bool).collect();
        let ask = |unreduced: &dyn Fn(usize) -> bool| {
            let types = self.types.iter().enumerate().map(|(k, ty)| {
                let spec = Spec::whole(ty.rank());
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
            _ if self.prim.pins().is_some() => "as asked",
            (_, true, _) => "pass",
            (_, _, true) => "times reduced",
            _ => "refused",
        }
    }
    /// What an operation that is asked for a placement exchanges, wherever its operand may come from.
    fn moves(&self, mesh: &Mesh) -> String {
        let mut kinds: Vec<Kind> = Vec::new();
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
    /// The row's columns on types and on what is exchanged.
    fn columns(&self) -> (String, String) {
        if let Some(pin) = self.prim.pins() {
            return ("as asked".into(), self.moves(&pin.mesh));
        }
        let (mut words, mut kinds) = (Told::new(), Told::new());
        let add = |list: &mut Told, l: LoopId, what: String| match list.iter_mut().find(|x| x.1 == what) {
            Some((loops, _)) => *loops += &format!(" {}", letter(l)),
            None => list.push((letter(l).to_string(), what)),
        };
        for l in 0..self.factors.loops.len() {
            let on_any = self.factors.operands.iter().flatten().any(|d| d.loops.contains(&l));
            if !on_any {
                add(&mut words, l, "new".into());
                continue;
            }
            // inner parts of a dimension and dimensions of size 1 cannot be split alone
            let Some(ways) = self.ways(l) else { continue };
            let mesh = Mesh::without_devices([("X", ways)]).expect("one axis makes a mesh");
            let (word, places) = self.word(l, &mesh);
            add(&mut words, l, word.into());
            let names = |kinds: Vec<Kind>| kinds.iter().map(|k| k.name()).collect::<Vec<_>>().join(", ");
            let told = if word == "whole" {
                let auto = mesh.with_auto("X").expect("X is its axis");
                let kinds = names(self.exchanged(self.split(&auto, &places)));
                if kinds.is_empty() { kinds } else { format!("({kinds})") }
            } else {
                names(self.exchanged(self.split(&mesh, &places)))
            };
            if !told.is_empty() {
                add(&mut kinds, l, told);
            }
        }
        let line =
            |list: Told| list.into_iter().map(|(l, w)| format!("{l}: {w}")).collect::<Vec<_>>().join("; ");
        (line(words), line(kinds))
    }
}

/// The types of an example: `f32[8,4] f32[4,2] → f32[8,2]`.
fn example(types: &[ArrayType], results: &[ArrayType]) -> String {
    let side = |types: &[ArrayType]| types.iter().map(ArrayType::short).collect::<Vec<_>>().join(" ");
    format!("{} → {}", side(types), side(results)).trim().to_string()
}

/// Text in a cell of a table.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

/// A row without its name, by which alone many differ.
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
        Some(Collective::Reduce { .. }) => Kind::AllReduce.name(),
        Some(Collective::AllGather { .. }) => Kind::AllGather.name(),
        Some(Collective::ReduceScatter { .. }) => Kind::ReduceScatter.name(),
        Some(Collective::AllToAll { .. }) => Kind::AllToAll.name(),
        Some(Collective::Permute { .. }) => Kind::Permute.name(),
        Some(Collective::OwnPart { .. } | Collective::AxisIndex { .. } | Collective::Cast { .. }) => {
            "nothing"
        }
        None => panic!("{name} is in the family of collectives, and is none"),
    };
    let side = |types: &[ArrayType]| code(&types.iter().map(ArrayType::short).collect::<Vec<_>>().join(" "));
    format!("| **{name}** {} | {} | {} | {what} |\n", code(&prim.params()), side(&types), side(&results))
}

fn page() -> String {
    let (mut text, mut manual) = (HEAD.to_string(), MANUAL.to_string());
    let mut family = "";
    // the rows of a family, each with the names of those of which all the same is said
    let mut rows: Vec<(String, String)> = Vec::new();
    let told = |rows: &mut Vec<(String, String)>| -> String {
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
            text += &told(&mut rows);
            text += &format!("\n## {}\n\n", title(family));
            text += "| | example | factors | types | parts | communicates |\n|---|---|---|---|---|---|\n";
        }
        let (name, row) = (format!("**{}**", entry.name), row(entry.name, prim, types));
        match rows.iter_mut().find(|r| r.1 == row) {
            Some((names, _)) => *names += &format!(", {name}"),
            None => rows.push((name, row)),
        }
    }
    text += &told(&mut rows);
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
