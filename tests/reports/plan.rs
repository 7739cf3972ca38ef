//! Compares plans with computations by hand.

use crate::error_checks::Unquoted as _;
use atmesh::plan::{Bound, EntryKind, Link, Machine, Plan};
use atmesh::prelude::*;
use atmesh::{CollectiveKind, Error, Phase};

/// Returns a machine with unrelated figures, so that using a wrong one shows.
fn machine() -> Machine {
    Machine::new("test")
        .flops(F32, 1e12)
        .flops(BF16, 7e12)
        .elementwise(3e11)
        .memory(5e9, 1.1e11)
        .link("X", Link::switch(1.3e10).latency(2e-6))
        .link("Y", Link::ring(1.7e9).latency(3e-6))
}

/// Returns a machine that only waits for its links.
fn links() -> Machine {
    let link = |l: Link| Machine::new("links").links(l.latency(2e-6));
    link(Link::switch(1.3e10))
}

fn same(got: f64, wanted: f64) {
    assert!((got / wanted - 1.0).abs() < 1e-12, "{got:e} and by hand {wanted:e}");
}

fn mesh() -> Result<Mesh> {
    Mesh::without_devices([("X", 8), ("Y", 4)])
}

/// Returns the plan of a function of two arrays with these types.
fn two(m: &Machine, x: ArrayType, y: ArrayType, f: fn(&Array, &Array) -> Array) -> Result<Plan> {
    jit(f).lower((x, y))?.plan(m)
}

/// Returns the plan of `rows` rows of `x` times weights of 1024×512, on the test's machine.
fn product(rows: usize, dtype: DType) -> Result<Plan> {
    let mesh = mesh()?;
    let (x, w) =
        (dtype.array_type([rows, 1024]).on(&mesh, p!["X", _]), dtype.array_type([1024, 512]).on(&mesh, p![]));
    two(&machine(), x, w, |x, w| x.dot(w))
}

#[test]
fn a_product_of_many_rows_is_bound_by_arithmetic() -> Result<()> {
    let plan = product(8192, F32)?;
    same(plan.seconds(), 2.0 * 1024.0 * 1024.0 * 512.0 / 1e12);
    assert_eq!((plan.bound(), plan.utilisation()), (Some((Bound::Arithmetic, 1.0)), 1.0));
    Ok(())
}

#[test]
fn sixteen_bits_have_their_own_rate_and_half_of_the_bytes() -> Result<()> {
    let plan = product(8192, BF16)?;
    same(plan.seconds(), 2.0 * 1024.0 * 1024.0 * 512.0 / 7e12);
    same(plan.matmul_flops(), 2.0 * 1024.0 * 1024.0 * 512.0);
    assert!((plan.utilisation() - 1.0).abs() < 1e-12);
    same(product(8, BF16)?.seconds(), 2.0 * (1024.0 + 1024.0 * 512.0 + 512.0) / 1.1e11);
    Ok(())
}

#[test]
fn one_row_on_each_device_reads_all_weights() -> Result<()> {
    let plan = product(8, F32)?;
    same(plan.seconds(), 4.0 * (1024.0 + 1024.0 * 512.0 + 512.0) / 1.1e11);
    assert_eq!(plan.bound().map(|b| b.0), Some(Bound::Memory));
    Ok(())
}

#[test]
fn elementwise_operations_are_one_kernel_of_two_reads_and_a_write() -> Result<()> {
    let n = 1 << 20;
    let plan = two(&machine(), F32.array_type([n]), F32.array_type([n]), |x, y| (x * y + x) * 2.0 - y)?;
    same(plan.seconds(), 3.0 * 4.0 * n as f64 / 1.1e11);
    assert_eq!(plan.entries().len(), 1);
    Ok(())
}

#[test]
fn a_function_counts_as_ten_operations() -> Result<()> {
    // Four functions, a product, and the reduction of each element.
    let n = 1 << 20;
    let plan = two(&machine(), F32.array_type([n]), F32.array_type([n]), |x, y| {
        (x.sin().exp() * y.tanh()).sin().sum(..)
    })?;
    same(plan.seconds(), 42.0 * n as f64 / 3e11);
    Ok(())
}

#[test]
fn an_epilogue_is_computed_with_its_product() -> Result<()> {
    let ty = || F32.array_type([512, 512]);
    let plan = two(&machine(), ty(), ty(), |x, w| x.dot(w) * 2.0 + 1.0)?;
    same(plan.seconds(), 2.0 * 512.0f64.powi(3) / 1e12 + 2.0 * 512.0 * 512.0 / 3e11);
    assert_eq!(plan.entries().len(), 1);
    Ok(())
}

/// The bytes of the value that the tests of collectives move.
const VALUE: f64 = 4.0 * 4096.0 * 64.0;

/// Returns the plan of a function of that value, with this sharding.
fn moved(m: &Machine, spec: Spec, f: fn(&Array) -> Array) -> Result<Plan> {
    jit(f).lower(F32.array_type([4096, 64]).on(&mesh()?, spec))?.plan(m)
}

/// Returns machines with links alone, the number of rounds of a collective over 8 devices, and the
/// rate in bytes per second.
fn links_of_both_kinds() -> [(Machine, f64, f64); 2] {
    let ring = Machine::new("links").links(Link::ring(1.7e9).latency(2e-6));
    [(links(), 3.0, 1.3e10), (ring, 7.0, 1.7e9)]
}

#[test]
fn an_all_gather_takes_its_rounds_and_the_others_blocks() -> Result<()> {
    for (m, rounds, rate) in links_of_both_kinds() {
        let plan = moved(&m, p!["X", _], |x| x.reshard(p![]))?;
        same(plan.collective_seconds(), rounds * 2e-6 + VALUE * 7.0 / 8.0 / rate);
    }
    Ok(())
}

#[test]
fn an_all_reduce_takes_twice_what_a_gather_takes() -> Result<()> {
    for (m, rounds, rate) in links_of_both_kinds() {
        let plan = moved(&m, p!["X", _], |x| x.sum(Dims::keep(0)))?;
        same(plan.collective_seconds(), 2.0 * rounds * 2e-6 + 2.0 * 256.0 * 7.0 / 8.0 / rate);
    }
    Ok(())
}

#[test]
fn a_reduce_scatter_takes_what_a_gather_takes() -> Result<()> {
    let mesh = mesh()?;
    for (m, rounds, rate) in links_of_both_kinds() {
        let types = (
            F32.array_type([64, 4096]).on(&mesh, p![_, "X"]),
            F32.array_type([4096, 64]).on(&mesh, p!["X", _]),
        );
        let plan = jit(|x: &Array, w: &Array| x.dot_to(w, p!["X", _])).lower(types)?.plan(&m)?;
        same(plan.collective_seconds(), rounds * 2e-6 + 4.0 * 64.0 * 64.0 * 7.0 / 8.0 / rate);
    }
    Ok(())
}

#[test]
fn an_all_to_all_shares_the_links_of_a_ring() -> Result<()> {
    let turn = |x: &Array| x.reshard(p![_, "X"]);
    for (m, rounds, rate) in links_of_both_kinds() {
        // On a ring of 8, each byte shares links with a quarter of the ring.
        let shared = if rounds > 3.0 { 2.0 } else { 1.0 };
        let plan = moved(&m, p!["X", _], turn)?;
        same(plan.seconds(), rounds * 2e-6 + shared * VALUE / 8.0 * 7.0 / 8.0 / rate);
    }
    Ok(())
}

#[test]
fn a_neighbours_block_is_one_message() -> Result<()> {
    let plan = moved(&links(), p!["X", _], |x| x.roll(512, 0))?;
    same(plan.seconds(), 2e-6 + VALUE / 8.0 / 1.3e10);
    Ok(())
}

#[test]
fn of_two_axes_the_slower_carries_what_the_faster_leaves() -> Result<()> {
    let m = machine().elementwise(f64::INFINITY).memory(1e9, f64::INFINITY);
    let (block, both) = (VALUE / 32.0, |x: &Array| x.reshard(p![]));
    let plan = moved(&m, p![("X", "Y"), _], both)?;
    let waits = 3.0 * 2e-6 + 3.0 * 3e-6;
    // 3 of the 31 other blocks come over Y, the slower one
    same(plan.seconds(), waits + f64::max(28.0 * block / 1.3e10, 3.0 * block / 1.7e9));
    let m = m.link("Y", Link::ring(1e9).latency(3e-6));
    same(moved(&m, p![("X", "Y"), _], both)?.seconds(), waits + 3.0 * block / 1e9);
    // the same switch for both axes carries all
    same(moved(&links(), p![("X", "Y"), _], both)?.seconds(), 5.0 * 2e-6 + 31.0 * block / 1.3e10);
    Ok(())
}

/// The links of an axis follow from its place: in nodes of four, X (8 × 4 apart) is between nodes,
/// and Y (4, adjacent) inside one.
#[test]
fn nodes_give_each_axis_its_link() -> Result<()> {
    let m = Machine::new("links").nodes(4, Link::switch(8e9), Link::switch(1e9).latency(1e-6));
    let whole = |x: &Array| x.reshard(p![]);
    same(moved(&m, p!["Y", _], whole)?.seconds(), VALUE * 3.0 / 4.0 / 8e9);
    same(moved(&m, p!["X", _], whole)?.seconds(), 3e-6 + VALUE * 7.0 / 8.0 / 1e9);
    let block = VALUE / 32.0;
    same(
        moved(&m, p![("X", "Y"), _], whole)?.seconds(),
        3e-6 + f64::max(24.0 * block / 8e9, 7.0 * block / 1e9),
    );
    // an exchange sends 28 of 32 parts of each block to other nodes
    let turn = |x: &Array| x.reshard(p![_, ("X", "Y")]);
    same(moved(&m, p![("X", "Y"), _], turn)?.seconds(), 3e-6 + block * 28.0 / 32.0 / 1e9);
    // one adapter for four devices
    let one = m.clone().adapters(1);
    same(moved(&one, p![("X", "Y"), _], whole)?.seconds(), 3e-6 + 7.0 * block / (1e9 / 4.0));
    // nodes of eight hold pairs of X's neighbours
    let m = Machine::new("links").nodes(8, Link::switch(8e9), Link::switch(1e9));
    let block = VALUE / 8.0;
    same(moved(&m, p!["X", _], whole)?.seconds(), f64::max(4.0 * block / 8e9, 3.0 * block / 1e9));
    // a link that is given for an axis counts, whatever the nodes
    let m = m.link("X", Link::switch(2e9));
    same(moved(&m, p!["X", _], whole)?.seconds(), 7.0 * block / 2e9);
    Ok(())
}

#[test]
fn a_torus_gives_each_axis_its_rings() -> Result<()> {
    let whole = |x: &Array| x.reshard(p![]);
    let turn = |x: &Array| x.reshard(p![_, "X"]);
    let block = VALUE / 8.0;
    let torus = |sizes: &[usize]| Machine::new("links").links(Link::ring(1e9)).torus(sizes);
    // X is a dimension, or two at once
    same(moved(&torus(&[8, 4]), p!["X", _], whole)?.seconds(), 7.0 * block / 1e9);
    same(moved(&torus(&[4, 2, 4]), p!["X", _], whole)?.seconds(), 7.0 * block / 2e9);
    // half of a dimension has no link from its last device to its first
    same(moved(&torus(&[16, 4]), p!["X", _], whole)?.seconds(), 7.0 * block / 0.5e9);
    // every fourth device of a dimension shares its links with three other groups
    same(moved(&torus(&[32]), p!["X", _], whole)?.seconds(), 7.0 * block / 0.25e9);
    // an exchange takes a quarter of each ring, or one hop
    let part = VALUE / 64.0;
    same(moved(&torus(&[8, 4]), p!["X", _], turn)?.seconds(), 2.0 * 7.0 * part / 1e9);
    same(moved(&torus(&[4, 2, 4]), p!["X", _], turn)?.seconds(), 7.0 * part / 1e9);
    // a message to a neighbour uses one dimension
    let next = |x: &Array| x.roll(512, 0);
    same(moved(&torus(&[4, 2, 4]), p!["X", _], next)?.seconds(), block / 1e9);
    Ok(())
}

/// Weights of the next layer are gathered next to this one, unless the machine does not prefetch.
#[test]
fn a_loop_fetches_the_next_weights_ahead() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let layers = |x: &Array, ws: &Array| scan(x, ws, |x, w: Array| (x.dot(w.reshard(p![])), ())).0;
    let lowered = |rows: usize, n: usize| {
        let x = F32.array_type([8 * rows, 1024]).on(&mesh, p!["X"]);
        jit(layers).lower((x, F32.array_type([n, 1024, 1024]).on(&mesh, p![_, "X"])))
    };
    let m = Machine::new("test").flops(F32, 1e12).links(Link::switch(1e9));
    let gather = 4.0 * 1024.0 * 1024.0 * 7.0 / 8.0 / 1e9;
    for n in [1, 2, 3, 4, 5, 40] {
        for rows in [4096, 256] {
            let lowered = lowered(rows, n)?;
            let product = 2.0 * rows as f64 * 1024.0 * 1024.0 / 1e12;
            let plan = lowered.plan(&m)?;
            let n = n as f64;
            // the first gather and the last product overlap with nothing
            same(plan.seconds(), gather + product + (n - 1.0) * f64::max(gather, product));
            same(plan.exposed_seconds(), gather + (n - 1.0) * (gather - product).max(0.0));
            for blocking in [m.clone().prefetches(false), m.clone().overlaps(false)] {
                same(lowered.plan(&blocking)?.seconds(), n * (gather + product));
            }
            follow(&plan)?;
        }
    }
    Ok(())
}

/// A message that is ready does not wait for one before it in the program that is not.
#[test]
fn messages_start_when_they_are_ready() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let f = |x: &Array, v: &Array, w: &Array| {
        // the sum waits for a product, and the gather of `w` for nothing
        let sum = x.dot(v.reshard(p![])).sum_to(0, p![]);
        (sum, x.dot(w.reshard(p![])))
    };
    let w = F32.array_type([1024, 1024]).on(&mesh, p!["X"]);
    let x = F32.array_type([8 * 4096, 1024]).on(&mesh, p!["X"]);
    let plan = jit(f)
        .lower((x, w.clone(), w))?
        .plan(&Machine::new("test").flops(F32, 1e12).links(Link::switch(1e9)))?;
    let (product, gather) = (2.0 * 4096.0 * 1024.0 * 1024.0 / 1e12, 4.0 * 1024.0 * 1024.0 * 7.0 / 8.0 / 1e9);
    same(plan.seconds(), gather + 2.0 * product);
    Ok(())
}

#[test]
fn a_part_of_the_memory_is_in_reserve() -> Result<()> {
    let fits = |m: Machine| -> Result<Option<bool>> {
        let x = F32.array_type([1000]).on(&mesh()?, p![]);
        Ok(jit(|x: &Array| x * 2.0).lower(x)?.plan(&m)?.fits())
    };
    let m = Machine::new("test").elementwise(1e9);
    assert_eq!(fits(m.clone().memory(8500.0, 1e9))?, Some(false));
    assert_eq!(fits(m.clone().memory(8500.0, 1e9).memory_reserve(0.05))?, Some(true));
    assert_eq!(fits(m.clone().memory(9000.0, 1e9))?, Some(true));
    assert_eq!(fits(m)?, None);
    Ok(())
}

/// A step takes 6 operations for each weight and row, and the weights' gradient is all-reduced.
#[test]
fn a_step_of_data_parallel_layers_takes_six_operations_for_each_weight_and_row() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let (rows, d) = (8 * 4096, 512);
    let step = |x: &Array, ws: &Array| grad(ws, |ws| scan(x, &ws, |h, w| (h.dot(w), ())).0.square().sum(..));
    let types = (F32.array_type([rows, d]).on(&mesh, p!["X", _]), F32.array_type([3, d, d]).on(&mesh, p![]));
    let m = Machine::new("m").flops(F32, 1e12).links(Link::ring(1e9));
    let plan = jit(step).lower(types)?.plan(&m)?;
    let weights = 3.0 * (d * d) as f64;
    same(plan.matmul_flops(), 6.0 * weights * rows as f64 / 8.0);
    same(plan.collective_seconds(), 2.0 * 4.0 * weights * 7.0 / 8.0 / 1e9);
    Ok(())
}

/// Applies two layers whose weights are gathered before their products.
fn layers(x: &Array, up: &Array, down: &Array) -> Array {
    x.dot(up.reshard(p![])).dot(down.reshard(p![]))
}

fn weights(mesh: &Mesh) -> (ArrayType, ArrayType, ArrayType) {
    let w = F32.array_type([1024, 1024]).on(mesh, p!["X", _]);
    (F32.array_type([8 * 4096, 1024]).on(mesh, p!["X", _]), w.clone(), w)
}

#[test]
fn the_second_gather_hides_behind_the_first_product() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let only = Machine::new("test").flops(F32, 1e12).links(Link::switch(1e9));
    let (product, gather) = (2.0 * 4096.0 * 1024.0 * 1024.0 / 1e12, 4.0 * 1024.0 * 1024.0 * 7.0 / 8.0 / 1e9);
    let plan = jit(layers).lower(weights(&mesh))?.plan(&only)?;
    assert_eq!(plan.entries().iter().filter(|i| i.kind != EntryKind::Kernel).count(), 2);
    same(plan.seconds(), gather + 2.0 * product);
    same(plan.exposed_seconds(), gather);
    let one_by_one = jit(layers).lower(weights(&mesh))?.plan(&only.overlaps(false))?;
    same(one_by_one.seconds(), 2.0 * gather + 2.0 * product);
    same(one_by_one.exposed_seconds(), 2.0 * gather);
    Ok(())
}

#[test]
fn steps_of_loops_are_counted() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let (x, w) =
        (F32.array_type([4096, 512]).on(&mesh, p!["X", _]), F32.array_type([512, 512]).on(&mesh, p![]));
    let once = two(&machine(), x.clone(), w.clone(), |x, w| x.dot(w).sum(0).sum(..) + x * 0.0)?;
    let looped = |x: &Array, w: &Array| fori_loop(0..12, x, |_, x| x.dot(w).sum(0).sum(..) + x * 0.0);
    let plan = two(&machine(), x, w, looped)?;
    let sums: Vec<u64> =
        plan.entries().iter().filter(|i| i.kind != EntryKind::Kernel).map(|i| i.count).collect();
    assert_eq!(sums, [12]);
    assert!((plan.seconds() / once.seconds() - 12.0).abs() < 1.0, "{plan}\n{once}");
    Ok(())
}

#[test]
fn of_branches_the_longest_counts() -> Result<()> {
    let branches = |x: &Array, w: &Array| cond(w.sum(..).gt(0.0), || x.dot(w).dot(w).dot(w), || x * 1.0);
    let (x, w) = (F32.array_type([512, 512]), F32.array_type([512, 512]));
    let plan = two(&Machine::new("test").flops(F32, 1e12), x, w, branches)?;
    same(plan.seconds(), 3.0 * 2.0 * 512.0f64.powi(3) / 1e12);
    Ok(())
}

/// A plan has one row per source line, on 65,536 devices as on 8.
#[test]
fn the_number_of_devices_decides_nothing_but_figures() -> Result<()> {
    let step = |x: &Array, w: &Array| {
        grad(w, |w| scan(x, Array::zeros([6]), |x, _| (x.dot(&w).tanh(), x.sum(..))).0.sum(..))
    };
    let items = |n: usize| -> Result<Vec<EntryKind>> {
        let mesh = Mesh::without_devices([("X", n)])?;
        let plan = two(
            &machine(),
            F32.array_type([n * 8, 64]).on(&mesh, p!["X", _]),
            F32.array_type([64, 64]).on(&mesh, p![]),
            step,
        )?;
        assert!(plan.seconds() > 0.0);
        Ok(plan.entries().iter().map(|i| i.kind.clone()).collect())
    };
    assert_eq!(items(8)?, items(65536)?);
    assert!(items(8)?.iter().any(|w| matches!(w, EntryKind::Collective(CollectiveKind::AllReduce, _))));
    Ok(())
}

/// Asserts that the events of a track do not overlap, in whole nanoseconds and despite
/// floating-point sums. Returns the end of the last one.
fn follow(plan: &Plan) -> Result<i64> {
    let trace: serde_json::Value = serde_json::from_str(&plan.to_perfetto()).map_err(Error::other)?;
    let mut ends = [(0i64, 0.0f64); 4];
    for e in trace["traceEvents"].as_array().into_iter().flatten().filter(|e| e["ph"] == "X") {
        let of = |what: &str| e[what].as_f64().expect("a number");
        let nanos = |what: &str| (of(what) * 1e3).round() as i64;
        let (last, sum) = &mut ends[e["tid"].as_u64().expect("a number") as usize];
        assert!(nanos("ts") >= *last && of("ts") >= *sum, "{e}");
        (*last, *sum) = (nanos("ts") + nanos("dur"), of("ts") + of("dur"));
    }
    Ok(ends.iter().map(|e| e.0).max().unwrap_or(0))
}

#[test]
fn events_of_a_long_trace_do_not_overlap() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let deep = |x: &Array, w: &Array| {
        (0..60).fold(x.clone(), |x, _| x.dot(w.reshard(p![])).tanh().dot(w.reshard(p![])))
    };
    let (x, w) =
        (F32.array_type([8 * 37, 96]).on(&mesh, p!["X", _]), F32.array_type([96, 96]).on(&mesh, p!["X", _]));
    let plan = two(&machine().flops(F32, 3.1e11), x, w, deep)?;
    assert!(plan.entries().len() > 100);
    follow(&plan)?;
    // A loop is drawn as its first iteration, and the duration of the others.
    let (x, w) = (F32.array_type([64, 64]), F32.array_type([64, 64]));
    let loops = |x: &Array, w: &Array| {
        fori_loop(0..5, x, |_, x| fori_loop(0..3, &x, |_, x| x.dot(w).sum(0) + x) * 2.0)
    };
    let plan = two(&machine(), x, w, loops)?;
    let text = plan.to_perfetto();
    assert!(text.contains("\"2 more steps\"") && text.contains("\"4 more steps\""), "{text}");
    assert_eq!(follow(&plan)?, (plan.seconds() * 1e9).round() as i64);
    Ok(())
}

#[test]
fn texts_are_read_by_others() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let plan = jit(layers).lower(weights(&mesh))?.plan(&machine())?;
    let json: serde_json::Value = serde_json::from_str(&plan.to_json()).map_err(Error::other)?;
    same(json["seconds"].as_f64().unwrap_or(0.0), plan.seconds());
    assert_eq!(json["items"].as_array().map(Vec::len), Some(plan.entries().len()));
    assert!(json["items"][0]["line"].as_str().is_some_and(|l| l.contains("tests/reports/plan.rs")), "{json}");
    let ends = follow(&plan)?;
    assert_eq!(ends, (plan.seconds() * 1e9).round() as i64);
    let page = plan.to_html("https://example.org/");
    assert_eq!(page.matches("<tr>").count(), page.matches("</tr>").count());
    assert!(page.contains("<a href=\"https://example.org/tests/reports/plan.rs#L"), "{page}");
    let text = plan.to_string();
    assert!(text.contains("it fits") && text.contains("all_gather over X"), "{text}");
    Ok(())
}

#[test]
fn a_machine_that_is_none_is_rejected() -> Result<()> {
    let mesh = mesh()?;
    let plan = |m: &Machine| {
        let sum = jit(|x: &Array| x.sum(..)).lower(F32.array_type([64]).on(&mesh, p!["X"]));
        sum.and_then(|l| l.plan(m))
    };
    for (bad, part) in [
        (machine().memory(0.0, 1.0), "the memory of machine \"test\" is 0"),
        (machine().elementwise(f64::NAN), "elementwise rate"),
        (machine().flops(F32, -1.0), "matmul rate for float32"),
        (machine().link("X", Link::switch(0.0)), "bandwidth of the link along \"X\""),
        (machine().links(Link::ring(1.0).latency(-1.0)), "latency of the link along other axes"),
        (machine().launch_overhead(f64::INFINITY), "launch overhead of a kernel"),
        (Machine::new("none"), "no link along mesh axis \"X\""),
        (machine().nodes(0, Link::NVLINK_4, Link::switch(1e9)), "number of devices of a node"),
        (machine().nodes(8, Link::switch(0.0), Link::switch(1e9)), "bandwidth of the link inside nodes"),
        (machine().nodes(8, Link::NVLINK_4, Link::switch(1e9)).adapters(0), "number of adapters"),
        (
            Machine::tpu_v5e().torus([4, 4]),
            "the torus of machine \"TPU v5e\" has 16 devices, and the mesh 32",
        ),
        (Machine::tpu_v5e().torus([4, 0]), "size of a dimension of the torus"),
        (machine().memory_reserve(1.5), "share of memory in reserve"),
    ] {
        let error = plan(&bad).unwrap_err().unquoted();
        assert!(error.contains(part) && error.contains("tests/reports/plan.rs"), "{error}");
    }
    // An axis over which nothing moves needs no link.
    assert!(plan(&Machine::new("one").link("X", Link::switch(1e9))).is_ok());
    Ok(())
}

#[test]
fn a_sweep_ranks_what_fits_what_does_not_and_what_is_rejected() -> Result<()> {
    use atmesh::plan::{mesh_shapes, sweep};
    assert_eq!(mesh_shapes::<3>(4), [[1, 1, 4], [1, 2, 2], [1, 4, 1], [2, 1, 2], [2, 2, 1], [4, 1, 1]]);
    assert_eq!(
        (mesh_shapes::<2>(0), mesh_shapes::<1>(7), mesh_shapes::<0>(1), mesh_shapes::<0>(2)),
        (vec![], vec![[7]], vec![[]], vec![])
    );
    let all = sweep([16, 3, 1, 4], |n| {
        let mesh = Mesh::without_devices([("X", *n)])?;
        let x = F32.array_type([1 << 10, 1 << 10]).on(&mesh, p!["X", _]);
        let machine = Machine::new("small").flops(F32, 1e9).elementwise(1e9).memory(1e6, 1e9);
        jit(|x: &Array| x * 2.0).lower(x)?.plan(&machine)
    });
    // 2 × 4 MiB on one device, 2 × 1 MiB on four; 1,024 is not divisible by 3.
    let order: Vec<i32> = all.rows().map(|(n, _)| *n as i32).collect();
    assert_eq!(order, [16, 4, 1, 3]);
    assert_eq!(all.best().map(|(n, p)| (*n, p.fits())), Some((16, Some(true))));
    let text = all.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("16 ") && lines[1].ends_with("memory"), "{text}");
    assert!(lines[2].ends_with("memory, does not fit") && lines[4].contains("does not divide"), "{text}");
    let nothing = sweep(Vec::<u8>::new(), |_| unreachable!());
    assert!(nothing.best().is_none() && nothing.to_string().lines().count() == 1);
    Ok(())
}

/// Returns the mean square of a layer whose weights are gathered.
fn weighted(x: &Array, w: &Array) -> Array {
    x.dot(w.reshard(p![])).tanh().square().sum(..)
}

/// Returns the phases of the rows of one kind.
fn phases(all: &atmesh::Collectives, kind: CollectiveKind) -> Vec<Phase> {
    all.iter().filter(|c| c.kind == kind).map(|c| c.phase).collect()
}

#[test]
fn rows_say_whether_they_are_forward_recomputed_or_backward() -> Result<()> {
    use Phase::{Backward, Forward, Recomputed};
    let mesh = Mesh::without_devices([("X", 8)])?;
    let (x, w) =
        (|| F32.array_type([64, 16]).on(&mesh, p!["X"]), || F32.array_type([16, 32]).on(&mesh, p!["X"]));
    let forward = jit(weighted).lower((x(), w()))?;
    assert!(forward.collectives().iter().all(|c| c.phase == Forward));
    assert!(!forward.collectives().to_string().contains("phase"), "{}", forward.collectives());
    // Saved weights are gathered once; their gradient is summed in the backward pass.
    let kept = jit(|x: &Array, w: &Array| grad(w, |w| weighted(x, &w))).lower((x(), w()))?;
    assert_eq!(phases(kept.collectives(), CollectiveKind::AllGather), [Forward]);
    assert_eq!(
        phases(kept.collectives(), CollectiveKind::ReduceScatter),
        [Backward],
        "{}",
        kept.collectives()
    );
    // In a loop of layers with a checkpoint, they are gathered again in the backward pass.
    let stack = |x: &Array, ws: &Array| {
        grad(ws, |ws| {
            let layer = |h: Array, w: Array| checkpoint((h, w), |(h, w)| h.dot(w.reshard(p![])).tanh());
            scan(x, &ws, |h, w| (layer(h, w), ())).0.square().sum(..)
        })
    };
    let ws = F32.array_type([3, 16, 16]).on(&mesh, p![_, "X"]);
    let lowered = jit(stack).lower((x(), ws))?;
    let all = lowered.collectives();
    assert_eq!(phases(all, CollectiveKind::AllGather), [Forward, Recomputed], "{all}");
    assert_eq!(phases(all, CollectiveKind::ReduceScatter), [Backward], "{all}");
    for word in ["phase", "recomputed", "backward"] {
        assert!(all.to_string().contains(word), "{all}");
    }
    // The operation of a row is the one that its reason names.
    for c in all.iter().filter(|c| c.reason.starts_with("the contracting dimension")) {
        assert_eq!(c.op, "dot_general", "{all}");
    }
    let plan = lowered.plan(&links())?;
    let of = |phase: &str| plan.to_json().contains(&format!("\"phase\": \"{phase}\""));
    assert!(of("recomputed") && of("backward"), "{}", plan.to_json());
    assert!(plan.to_html("").contains("<td>recomputed</td>"), "{}", plan.to_html(""));
    Ok(())
}

/// Marks appear in reports only: the program with marks equals the one without.
#[test]
fn marks_are_no_part_of_a_program() -> Result<()> {
    let program = || jit(|x: &Array| grad(x, |x| x.sin().sum(..))).trace(F32.array_type([4]));
    let (marked, mut plain) = (program()?.program().clone(), program()?.program().clone());
    assert!(plain.equations.iter().any(|e| e.phase == Phase::Backward), "{plain}");
    plain.equations.iter_mut().for_each(|e| e.phase = Phase::Forward);
    assert_eq!(marked, plain);
    Ok(())
}

/// Gathers a weight; the rows of the report name the lines that call this function.
#[track_caller]
fn gathered(w: &Array) -> Array {
    w.reshard(p![])
}

#[test]
fn a_helper_that_is_track_caller_names_its_callers() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let w = || F32.array_type([64, 64]).on(&mesh, p!["X"]);
    let first = line!() + 2;
    let f = |up: &Array, down: &Array| {
        let up = gathered(up);
        let down = gathered(down);
        up.sin() + down
    };
    let lowered = jit(f).lower((w(), w()))?;
    let lines: Vec<u32> = lowered.collectives().iter().map(|c| c.location.map_or(0, |p| p.line())).collect();
    assert_eq!(lines, [first, first + 1]);
    Ok(())
}

#[test]
fn a_kernel_has_one_product_and_computes_it_once() -> Result<()> {
    let machine = Machine::new("m").flops(F32, 1e12).memory(1e9, 1e12);
    let one = 2.0 * 64f64.powi(3);
    let ty = || F32.array_type([64, 64]);
    // An elementwise operation reads two products, which are both materialised before.
    let joined = jit(|x: &Array, w: &Array, v: &Array| x.dot(w) * x.dot(v)).lower((ty(), ty(), ty()))?;
    let plan = joined.plan(&machine)?;
    let products: Vec<f64> =
        plan.entries().iter().map(|i| i.matmul_flops.iter().map(|p| p.1).sum()).collect();
    assert_eq!(products, [one, one, 0.0], "{plan}");
    // A value that is computed from one product and read twice is materialised.
    let twice = jit(|x: &Array, w: &Array| {
        let y = x.dot(w).tanh();
        (y.sum(0), &y * 2.0)
    });
    let plan = twice.lower((ty(), ty()))?.plan(&machine)?;
    assert_eq!(plan.matmul_flops(), one, "{plan}");
    Ok(())
}
