//! A call allocates its results and nothing else, whatever the number of arguments: an allocator
//! counts. The plugin's memory is not counted.

use atmesh::EngineKind;
use atmesh::pjrt::{Client, DeviceBuffer};
use atmesh::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of the system, with a count for each thread.
struct Counting;

thread_local! {
    /// The number of allocations and of deallocations.
    static COUNTS: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
}

fn count(which: usize) {
    // there is no count when a thread ends
    let _ = COUNTS.try_with(|counts| {
        let mut all = counts.get();
        all[which] += 1;
        counts.set(all);
    });
}

// SAFETY: all memory is that of the system's allocator; counting allocates nothing, since the counts
// are constants at first and have no destructor
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0);
        // SAFETY: the contract is the same
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(1);
        // SAFETY: the contract is the same, and `alloc` returned memory of the system's allocator
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the allocations and deallocations of a call after the first ones, and those of dropping
/// its results.
fn counts<T>(call: impl Fn() -> T) -> [[usize; 2]; 2] {
    (0..3).for_each(|_| drop(call()));
    let before = COUNTS.get();
    let results = call();
    let made = COUNTS.get();
    drop(results);
    let dropped = COUNTS.get();
    let between = |a: [usize; 2], b: [usize; 2]| [b[0] - a[0], b[1] - a[1]];
    [between(before, made), between(made, dropped)]
}

/// Returns the text of a module with `n` arguments and as many results, on `devices` devices.
fn sums(n: usize, devices: usize) -> String {
    let at = r#"{sdy.sharding = #sdy.sharding<@m, [{"x"}]>}"#;
    let list = |one: &dyn Fn(usize) -> String| (0..n).map(one).collect::<Vec<_>>().join(", ");
    let heads = list(&|k| format!("%x{k}: tensor<8xf32> {at}"));
    let types = list(&|_| format!("tensor<8xf32> {at}"));
    let lines: String =
        (0..n).map(|k| format!("    %y{k} = stablehlo.add %x{k}, %x0 : tensor<8xf32>\n")).collect();
    let (outs, plain) = (list(&|k| format!("%y{k}")), list(&|_| "tensor<8xf32>".into()));
    format!(
        "module {{\n  sdy.mesh @m = <[\"x\"={devices}]>\n  func.func public @main({heads}) -> ({types}) {{\n\
         {lines}    return {outs} : {plain}\n  }}\n}}\n"
    )
}

/// The lists of the results are all that a run of a module allocates.
#[test]
fn a_run_allocates_its_lists_of_results() {
    if !crate::plugin() {
        return;
    }
    let client = Client::from_env(4).unwrap();
    for (n, devices) in [(1, 1), (12, 1), (12, 4)] {
        let module = client.compile(&sums(n, devices), devices).unwrap();
        let bytes = vec![0; 4 * 8 / devices];
        let put = |d: usize| client.put(&bytes, F32, &[8 / devices], d).unwrap();
        let blocks: Vec<Vec<DeviceBuffer>> = (0..devices).map(|d| (0..n).map(|_| put(d)).collect()).collect();
        let arguments: Vec<Vec<&DeviceBuffer>> = blocks.iter().map(|list| list.iter().collect()).collect();
        let [made, dropped] = counts(|| module.run(&arguments).unwrap());
        assert_eq!((made, dropped), ([1 + devices, 0], [0, 1 + devices]), "{n} on {devices}");
    }
}

/// A call of a compiled function on values that are on the devices allocates its results, and
/// lists of them, whatever the number of arguments.
#[test]
fn a_call_allocates_its_results() {
    if !crate::plugin() {
        return;
    }
    let mesh = Mesh::new([("x", 4)]).unwrap();
    for n in [1, 2, 6] {
        let there = jit(|x: &Array| x * 2.0).engine(EngineKind::Xla);
        let on_devices = || there.call(Array::ones([8]).put(&mesh, p!["x"])).unwrap();
        let all: Vec<Array> = (0..n).map(|_| on_devices()).collect();
        let step = jit(|all: &Vec<Array>| (&all[0] + &all[all.len() - 1], all[0].sum(0)));
        let step = step.engine(EngineKind::Xla).lower(&all).unwrap().compile().unwrap();
        let [made, dropped] = counts(|| step.call(&all).unwrap());
        assert_eq!(made[0] - made[1], dropped[1] - dropped[0], "{n} arguments");
        assert_eq!(made[1], 2, "{n} arguments: {made:?}");
    }
}
