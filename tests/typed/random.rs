//! Random operations against the static rules: rustc accepts a probe exactly if the dynamic layer
//! does. The cases differ in each run.
//!
//! `ATMESH_SEED=7 cargo test --test typed random::` repeats a run. The probes form one program
//! without arrays, which needs only the crate of rules.
use atmesh::array::DimIndex;
use atmesh::prelude::*;
use atmesh::{concat, einsum};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the rules' library that these tests are linked with: the newest one that is not newer
/// than the test binary.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = |path: &Path| path.metadata().unwrap().modified().unwrap();
    let files = std::fs::read_dir(tests.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let libraries = files.filter(|f| {
        let name = f.file_name().unwrap().to_string_lossy();
        name.starts_with("libatmesh_typed-") && name.ends_with(".rlib") && built(f) <= built(&tests)
    });
    libraries.max_by_key(|f| built(f)).expect("the library is next to its tests")
}

struct Rng(u64);
impl Rng {
    fn next(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.next(list.len())].clone()
    }
}

const AXES: [(&str, usize); 3] = [("X", 2), ("Y", 4), ("Z", 3)];
const SIZES: [usize; 5] = [2, 8, 12, 24, 48];

/// A dim: its size and axes.
type Dim = (usize, Vec<&'static str>);

/// Shards dims at random, with each axis at most once, and only if it divides the size.
fn split(rng: &mut Rng, sizes: &[usize]) -> Vec<Dim> {
    let mut dims: Vec<Dim> = sizes.iter().map(|n| (*n, Vec::new())).collect();
    for (axis, size) in AXES {
        let d = rng.next((dims.len() * 2).max(1));
        if let Some((n, axes)) = dims.get_mut(d) {
            let devices: usize = axes.iter().map(|a| AXES.iter().find(|b| b.0 == *a).unwrap().1).product();
            if *n % (devices * size) == 0 {
                let at = rng.next(axes.len() + 1);
                axes.insert(at, axis);
            }
        }
    }
    dims
}
fn entry(axes: &[&str]) -> String {
    match axes {
        [] => "_".into(),
        [one] => (*one).into(),
        many => format!("({})", many.join(", ")),
    }
}
fn spec_text(dims: &[Dim]) -> String {
    format!("P![{}]", dims.iter().map(|d| entry(&d.1)).collect::<Vec<_>>().join(", "))
}
fn shape_text(dims: &[Dim]) -> String {
    let dim = |(n, axes): &Dim| match axes[..] {
        [] if *n == 1 => "~".into(),
        [] => n.to_string(),
        _ => format!("{n}@{}", entry(axes)),
    };
    format!("S![{}]", dims.iter().map(dim).collect::<Vec<_>>().join(", "))
}
fn spec(dims: &[Dim]) -> Spec {
    Spec::from_dims(dims.iter().map(|d| d.1.iter().map(|a| Axis::from(*a)).collect()).collect())
}
fn array(mesh: &Mesh, dims: &[Dim]) -> Array {
    array_of(mesh, F32, dims)
}
fn array_of(mesh: &Mesh, dtype: DType, dims: &[Dim]) -> Array {
    Array::zeros(dtype.array_type(dims.iter().map(|d| d.0).collect::<Vec<_>>())).put(mesh, spec(dims))
}
fn sizes(rng: &mut Rng, ranks: std::ops::Range<usize>) -> Vec<usize> {
    let rank = ranks.start + rng.next(ranks.len());
    (0..rank).map(|_| rng.pick(&SIZES)).collect()
}

/// Returns a read or an update at indices, as a rule and as the result of the dynamic layer.
fn indexed(rng: &mut Rng, mesh: &Mesh, a: &[Dim]) -> (String, Array) {
    let (x, s, d) = (array(mesh, a), shape_text(a), rng.next(a.len()));
    // indices of rank 0 to 2, often unsharded
    let of = sizes(rng, 0..3);
    let ids: Vec<Dim> = match rng.next(2) {
        0 => of.iter().map(|n| (*n, Vec::new())).collect(),
        _ => split(rng, &of),
    };
    let i = array_of(mesh, I32, &ids);
    let part: Vec<Dim> = a[..d].iter().chain(&ids).chain(&a[d + 1..]).cloned().collect();
    let operands = format!("{s}, (), {}, (), D<{d}>", shape_text(&ids));
    match rng.next(3) {
        0 => (format!("Take<{operands}>"), x.take(&i, d as i32)),
        1 => {
            let out = split(rng, &part.iter().map(|d| d.0).collect::<Vec<_>>());
            (format!("TakeTo<{operands}, {}>", spec_text(&out)), x.take_to(&i, d as i32, spec(&out)))
        }
        _ => {
            // mostly of the shape and sharding of the part; the dynamic layer reshards the values at
            // one position, which the typed rule leaves to the program
            let values = match rng.next(3) {
                0 if !of.is_empty() => split(rng, &part.iter().map(|d| d.0).collect::<Vec<_>>()),
                _ => part,
            };
            let values_array = array(mesh, &values);
            if values_array.ty().is_err() {
                return indexed(rng, mesh, a);
            }
            let pick = |k| if k == d { DimIndex::from(&i) } else { DimIndex::from(..) };
            let index: Vec<DimIndex> = (0..a.len()).map(pick).collect();
            (
                format!("Update<{operands}, {}, ()>", shape_text(&values)),
                x.at(index.into()).add(&values_array),
            )
        }
    }
}
/// Returns `take_along_axis` as a rule and as the result of the dynamic layer.
fn along(rng: &mut Rng, mesh: &Mesh, a: &[Dim]) -> (String, Array) {
    let (mut a, d) = (a.to_vec(), rng.next(a.len()));
    let mut of: Vec<usize> = a.iter().map(|d| d.0).collect();
    of[d] = rng.pick(&SIZES);
    let mut ids = match rng.next(3) {
        0 => a.clone(),
        _ => split(rng, &of),
    };
    ids[d] = (of[d], if rng.next(3) == 0 { ids[d].1.clone() } else { Vec::new() });
    if rng.next(3) > 0 {
        a[d].1.clear();
    }
    // a dim of size 1 in the array or in the indices
    for k in 0..a.len() {
        match rng.next(6) {
            0 => ids[k] = (1, Vec::new()),
            1 if k != d => a[k] = (1, Vec::new()),
            _ => {}
        }
    }
    let (x, i) = (array(mesh, &a), array_of(mesh, I32, &ids));
    if x.ty().is_err() || i.ty().is_err() {
        return along(rng, mesh, &a);
    }
    let operands = format!("{}, (), {}, (), D<{d}>", shape_text(&a), shape_text(&ids));
    if rng.next(2) == 0 {
        return (format!("TakeAlong<{operands}>"), x.take_along_axis(&i, d as i32));
    }
    let size = |k: usize| if k == d { ids[k].0 } else { a[k].0.max(ids[k].0) };
    let out = split(rng, &(0..a.len()).map(size).collect::<Vec<_>>());
    let out: Vec<Dim> =
        out.into_iter().map(|(n, axes)| (n, if n == 1 { Vec::new() } else { axes })).collect();
    (format!("TakeAlongTo<{operands}, {}>", spec_text(&out)), x.take_along_axis_to(&i, d as i32, spec(&out)))
}
/// Returns a slice along one dim, in steps or not.
fn slice(rng: &mut Rng, dims: &[Dim], x: &Array) -> (String, Array) {
    let d = rng.next(dims.len());
    let (from, step) = (rng.next(dims[d].0 + 1), rng.pick(&[1, 1, 1, 2, 3, 5, 12]));
    let to = from + rng.next(dims[d].0 - from + 1);
    let range = |k: usize| match k == d {
        true => DimIndex::range(Some(from as i64), Some(to as i64), Some(step as i64)),
        false => DimIndex::range(None, None, None),
    };
    let result = x.slice((0..dims.len()).map(range).collect::<Vec<_>>().into());
    let (s, ends) = (shape_text(dims), format!("N![{from}], N![{to}]"));
    match step {
        1 => (format!("Sliced<{s}, (), D<{d}>, {ends}>"), result),
        _ => (format!("Strided<{s}, (), D<{d}>, {ends}, N![{step}]>"), result),
    }
}
/// Returns a reshape of an unsharded array to random factors of its number of elements.
fn reshape(rng: &mut Rng, mesh: &Mesh, sizes: &[usize]) -> (String, Array) {
    let (mut rest, mut new) = (sizes.iter().product::<usize>(), Vec::new());
    for _ in 0..rng.next(5) {
        let factors: Vec<usize> = (1..=rest).filter(|n| rest.is_multiple_of(*n)).collect();
        new.push(rng.pick(&factors));
        rest /= new.last().unwrap();
    }
    new.push(rest + usize::from(rng.next(6) == 0));
    let unsharded = |sizes: &[usize]| sizes.iter().map(|n| (*n, Vec::new())).collect::<Vec<Dim>>();
    let query = format!("Reshaped<{}, (), {}>", shape_text(&unsharded(sizes)), shape_text(&unsharded(&new)));
    (query, array(mesh, &unsharded(sizes)).reshape(new))
}

/// Returns one operation: the rule as a type, and the result of the dynamic layer.
fn operation(rng: &mut Rng, mesh: &Mesh) -> (String, Array) {
    let one = sizes(rng, 1..4);
    let a = split(rng, &one);
    let x = array(mesh, &a);
    let s = shape_text(&a);
    match rng.next(21) {
        0 | 1 => {
            let mut two = one[rng.next(one.len())..].to_vec();
            if rng.next(8) == 0 {
                two[0] = rng.pick(&SIZES);
            }
            let b = split(rng, &two);
            let y = array(mesh, &b);
            let (kind, r) = if rng.next(2) == 0 { ("Add", &x + &y) } else { ("Join", x.maximum(&y)) };
            (format!("{kind}<{s}, (), {}, ()>", shape_text(&b)), r)
        }
        2 | 3 => {
            let two = [*one.last().unwrap(), rng.pick(&SIZES)];
            let two = if rng.next(10) == 0 { vec![rng.pick(&SIZES)] } else { two.to_vec() };
            let b = split(rng, &two);
            let y = array(mesh, &b);
            if one.len() == 2 && two.len() == 2 && rng.next(2) == 0 {
                let out = split(rng, &[one[0], two[1]]);
                let query = format!("MatmulTo<{s}, (), {}, (), {}>", shape_text(&b), spec_text(&out));
                return (query, x.matmul_to(&y, spec(&out)));
            }
            (format!("Matmul<{s}, (), {}, ()>", shape_text(&b)), x.matmul(&y))
        }
        4 => {
            let last = rng.pick(&SIZES);
            let b = split(rng, &[one[0], last]);
            let y = array(mesh, &b);
            let letters = &"abc"[..one.len()];
            // The first dims are merged, the others are separate.
            let outs: String = (0..one.len())
                .map(|i| if i == 0 { "PairedDim<0, 0>,".into() } else { format!("LeftDim<{i}>,") })
                .collect();
            let query = format!("Einsum<{s}, (), {}, (), ({outs}RightDim<1>,), ()>", shape_text(&b));
            (query, einsum(&format!("{letters},az->{letters}z"), [&x, &y]))
        }
        5 => {
            let out = split(rng, &one);
            (format!("Reshard<{s}, (), {}>", spec_text(&out)), x.reshard(spec(&out)))
        }
        6 => {
            let d = rng.next(one.len() + 1);
            let keep = rng.next(2) == 0;
            let dims = if keep { Dims::keep(d as i32) } else { Dims::from(d as i32) };
            let query = if keep {
                format!("ReduceSum<{s}, (), Kept<D<{d}>>>")
            } else {
                format!("ReduceSum<{s}, (), D<{d}>>")
            };
            (query, x.sum(dims))
        }
        7 => {
            let mut two = one.clone();
            let d = rng.next(one.len());
            two[d] = rng.pick(&SIZES);
            let b = if rng.next(2) == 0 {
                // Sharded in the same way, so that some can be concatenated.
                a.iter().zip(&two).map(|((_, axes), n)| (*n, axes.clone())).collect()
            } else {
                split(rng, &two)
            };
            let y = array(mesh, &b);
            if y.ty().is_err() {
                return operation(rng, mesh);
            }
            (format!("Concat<{s}, (), {}, (), D<{d}>>", shape_text(&b)), concat([&x, &y], d as i32))
        }
        8 | 9 => indexed(rng, mesh, &a),
        10 => along(rng, mesh, &a),
        11 => {
            // The types are stricter than the untyped operation in one case: if the shapes differ,
            // it takes a dim that is sharded in one operand and unsharded in another.
            let alike = rng.next(2) == 0;
            let pick = |rng: &mut Rng| {
                if alike {
                    return if rng.next(2) == 0 { a.clone() } else { split(rng, &one) };
                }
                let dims = a[rng.next(a.len())..].iter().cloned();
                dims.map(|dim| if rng.next(3) == 0 { (1, Vec::new()) } else { dim }).collect()
            };
            let (b, c): (Vec<Dim>, Vec<Dim>) = (pick(rng), pick(rng));
            let query = format!("Select<{s}, (), {}, (), {}, ()>", shape_text(&b), shape_text(&c));
            let condition = array_of(mesh, Bool, &a);
            (query, condition.select(array(mesh, &b), array(mesh, &c)))
        }
        12 => {
            let keep = rng.next(2) == 0;
            let dims: Vec<usize> = (0..one.len()).filter(|_| rng.next(3) > 0).collect();
            let text = dims.iter().map(|d| format!("D<{d}>")).collect::<Vec<_>>().join(", ");
            let text = match dims[..] {
                [] => return operation(rng, mesh),
                [_] => text,
                _ => format!("({text})"),
            };
            let numbers: Vec<i32> = dims.iter().map(|d| *d as i32).collect();
            let dims = if keep { Dims::keep(numbers) } else { Dims::from(numbers) };
            let text = if keep { format!("Kept<{text}>") } else { text };
            (format!("ReduceSum<{s}, (), {text}>"), x.sum(dims))
        }
        13 => (format!("Triangle<{s}, ()>"), x.tril(0)),
        14 => slice(rng, &a, &x),
        15 => {
            let d = rng.next(one.len());
            let (low, high) = (rng.next(7), rng.next(7));
            let widths =
                (0..one.len()).map(|k| if k == d { (low as i64, high as i64, 0) } else { (0, 0, 0) });
            (format!("Padded<{s}, (), D<{d}>, N![{low}], N![{high}]>"), x.pad(0.0, widths))
        }
        16 => {
            let d = rng.next(one.len());
            let cuts = [rng.next(one[d] + 1), rng.next(one[d] + 1)];
            let (low, high) = (cuts[0].min(cuts[1]), cuts[0].max(cuts[1]));
            let mut pieces = [low, high - low, one[d] - high];
            pieces[2] += usize::from(rng.next(8) == 0);
            // the rule is that of all pieces together
            let parts = x.split(pieces, d as i32);
            let shown = parts.iter().find(|p| p.ty().is_err()).unwrap_or(&parts[0]);
            let texts: Vec<String> = pieces.iter().map(|n| format!("N![{n}]")).collect();
            (format!("CutAll<{s}, (), D<{d}>, ({})>", texts.join(", ")), shown.clone())
        }
        17 => reshape(rng, mesh, &one),
        18 => {
            let d = rng.next(one.len());
            let parts: Vec<Vec<Dim>> = (0..3)
                .map(|_| {
                    let n = rng.pick(&SIZES);
                    (0..one.len()).map(|k| if k == d { (n, a[d].1.clone()) } else { a[k].clone() }).collect()
                })
                .collect();
            let arrays: Vec<Array> = parts.iter().map(|dims| array(mesh, dims)).collect();
            if arrays.iter().any(|part| part.ty().is_err()) {
                return operation(rng, mesh);
            }
            let shapes: Vec<String> = parts.iter().map(|dims| shape_text(dims)).collect();
            (format!("ConcatAll<({}), ((), (), ()), D<{d}>>", shapes.join(", ")), concat(&arrays, d as i32))
        }
        _ => {
            let mut order: Vec<usize> = (0..one.len()).collect();
            (1..order.len()).for_each(|i| order.swap(i, rng.next(i + 1)));
            let text: String = order.iter().map(|d| format!("D<{d}>,")).collect();
            (format!("Move<{s}, (), ({text})>"), x.transpose(order))
        }
    }
}

#[test]
fn random_operations_agree() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("ATMESH_SEED").map_or(now, |s| s.parse().expect("ATMESH_SEED is a number"));
    let mut rng = Rng(seed);
    let mesh = Mesh::new(AXES).unwrap();
    let mut source = String::from(
        "#![allow(unused)]\n#[path = \"QUERIES\"]\nmod queries;\nuse queries::*;\nmesh! { pub struct Pod { X: 2, Y: 4, Z: 3 } }\n",
    );
    source = source.replace(
        "QUERIES",
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("typed/tests/agreement/queries.rs").display().to_string(),
    );
    let mut expected = Vec::new();
    for part in 0..5 {
        writeln!(source, "fn part{part}() {{").unwrap();
        for _ in 0..100 {
            let (query, result) = operation(&mut rng, &mesh);
            writeln!(source, "println!(\"{{:?}}\", text(<Probe<{query}>>::FOUND));").unwrap();
            expected.push((query, result.ty().map(|t| t.to_string()).map_err(|e| format!("{e}"))));
        }
        source.push_str("}\n");
    }
    source.push_str("fn main() { part0(); part1(); part2(); part3(); part4(); }\n");

    let library = library();
    let name = library.with_file_name(format!("typed-random-{}", std::process::id()));
    let file = name.with_extension("rs");
    std::fs::write(&file, source).unwrap();
    let out = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
        .args(["--edition=2024", "--crate-type=bin", "-o"])
        .arg(&name)
        .arg("-L")
        .arg(format!("dependency={}", library.parent().unwrap().display()))
        .arg("--extern")
        .arg(format!("atmesh_typed={}", library.display()))
        .arg(&file)
        .output()
        .unwrap();
    assert!(out.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&out.stderr));
    let found = Command::new(&name).output().unwrap();
    let _ = (std::fs::remove_file(&name), std::fs::remove_file(&file));
    let found = String::from_utf8(found.stdout).unwrap();
    let mut wrong = String::new();
    let mut accepted = 0;
    assert_eq!(found.lines().count(), expected.len());
    for (line, (query, dynamic)) in found.lines().zip(&expected) {
        accepted += usize::from(dynamic.is_ok());
        let agreed = match dynamic {
            Ok(ty) => line == format!("Some({:?})", ty.trim_start_matches("float32")),
            Err(_) => line == "None",
        };
        if !agreed {
            writeln!(wrong, "{query}: rustc {line}, the dynamic layer {dynamic:?}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "seed {seed}:\n{wrong}");
    // Both verdicts occur: a probe that is always rejected would otherwise pass.
    assert!((100..450).contains(&accepted), "seed {seed}: {accepted} of 500 are accepted");
}
