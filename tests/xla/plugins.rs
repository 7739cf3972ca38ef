//! Files that are not valid plugins, tested without a plugin; and, if `ATMESH_PJRT_PLUGIN` names a
//! plugin, modules that it runs.

use crate::error_checks::Unquoted as _;
use atmesh::pjrt::{Client, ClientOptions, DeviceBuffer, PLUGIN};
use atmesh::prelude::*;
use atmesh::{DType, EngineKind, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

fn error_message<T>(result: Result<T>) -> String {
    result.err().map_or_else(|| "no error".into(), |e| e.diagnostics()[0].fault.message.clone())
}

/// A temporary file for one test, deleted afterwards.
struct Temporary(PathBuf);
impl Temporary {
    fn new(name: &str) -> Temporary {
        Temporary(std::env::temp_dir().join(format!("atmesh-pjrt-{}-{name}", std::process::id())))
    }
}
impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Loads a file that is not a valid plugin, and contains no code that would run.
fn load(path: &Path) -> Result<Client> {
    // SAFETY: the tests' files are not libraries, or their only function is a harmless plugin entry
    // point.
    unsafe { Client::load(path, 1) }
}

#[test]
fn what_is_no_plugin_is_rejected_with_words() {
    assert!(error_message(load(Path::new("/nowhere/plugin.so"))).starts_with("there is no file /nowhere"));
    assert!(error_message(load(&std::env::temp_dir())).ends_with("is not a file"));
    let text = Temporary::new("text.so");
    std::fs::write(&text.0, "no library").unwrap();
    assert!(error_message(load(&text.0)).contains("cannot be loaded: "), "{}", error_message(load(&text.0)));
}

/// Compiles a few lines of C to a shared library; returns `None` if there is no compiler.
fn library(name: &str, source: &str) -> Option<Temporary> {
    let (code, made) = (Temporary::new(&format!("{name}.c")), Temporary::new(&format!("{name}.so")));
    std::fs::write(&code.0, source).unwrap();
    let done = Command::new("cc").arg("-shared").arg("-fPIC").arg("-o").arg(&made.0).arg(&code.0).status();
    match done {
        Ok(status) if status.success() => Some(made),
        _ => {
            println!("skipped: there is no C compiler");
            None
        }
    }
}

#[test]
fn libraries_that_are_no_plugins_are_rejected_with_words() {
    if let Some(other) = library("other", "int f(void) { return 1; }") {
        assert!(error_message(load(&other.0)).contains("it does not export `GetPjrtApi`"));
    }
    let table = |size: usize, major: usize| {
        format!(
            "static long long t[100] = {{{size}, 0, 24, 0, {}}}; void *GetPjrtApi(void) {{ return t; }}",
            major | 7 << 32
        )
    };
    if let Some(old) = library("old", &table(100, 0)) {
        assert!(error_message(load(&old.0)).contains("has PJRT C API 0.7 with a table of 100 bytes"));
    }
    if let Some(new) = library("new", &table(800, 3)) {
        assert!(error_message(load(&new.0)).contains("has PJRT C API 3.7"));
    }
}

#[test]
fn a_plugin_that_fails_is_told_in_its_words() {
    // The function pointers start at word 5: destroy, message, code, initialise; then those of the
    // client.
    let source = r#"
        static long long table[100];
        static void *quiet(long long *a) { (void)a; return 0; }
        static void *message(long long *a) { a[3] = (long long)"no such device here\n"; a[4] = 20; return 0; }
        static void *fail(long long *a) { (void)a; return (void *)table; }
        void *GetPjrtApi(void) {
            for (int k = 5; k < 100; k++) table[k] = (long long)quiet;
            table[0] = 800; table[4] = 70LL << 32; table[6] = (long long)message; table[15] = (long long)fail;
            return table;
        }"#;
    if let Some(fails) = library("fails", source) {
        assert!(error_message(load(&fails.0)).ends_with("has no devices: no such device here"));
    }
    // A client without devices.
    let made = "static void *made(long long *a) { a[8] = (long long)table; return 0; }\n void *GetPjrtApi";
    let none = source.replace("(long long)fail", "(long long)made").replace("void *GetPjrtApi", made);
    if let Some(none) = library("none", &none) {
        assert!(error_message(load(&none.0)).ends_with("has 0 devices, but 1 are needed"));
    }
}

#[test]
fn options_reach_the_plugin_with_their_types() {
    // `create` checks the named values: a bool, a float, a list, a text, and the number of devices.
    let source = r#"
        #include <string.h>
        typedef struct { long long size, ext; const char *name; long long len; int type, pad; union { long long n; float f; char b; const long long *list; const char *s; } v; long long count; } Named;
        static long long table[100];
        static void *quiet(long long *a) { (void)a; return 0; }
        static const char *words = "the options are wrong";
        static void *message(long long *a) { a[3] = (long long)words; a[4] = strlen(words); return 0; }
        static int is(Named *v, const char *name, int type) { return v->len == (long long)strlen(name) && !memcmp(v->name, name, v->len) && v->type == type; }
        static void *create(long long *a) {
            Named *v = (Named *)a[2];
            int ok = a[3] >= 4 && is(v, "preallocate", 4) && v->v.b == 0 && is(v + 1, "memory_fraction", 3) && v[1].v.f == 0.5f
                && is(v + 2, "visible_devices", 2) && v[2].count == 2 && v[2].v.list[1] == 3 && is(v + 3, "allocator", 0)
                && v[3].count == 3 && !memcmp(v[3].v.s, "bfc", 3);
            words = ok ? "RESOURCE_EXHAUSTED: Out of memory" : words;
            return (void *)table;
        }
        void *GetPjrtApi(void) {
            for (int k = 5; k < 100; k++) table[k] = (long long)quiet;
            table[0] = 800; table[4] = 70LL << 32; table[6] = (long long)message; table[15] = (long long)create;
            return table;
        }"#;
    let Some(plugin) = library("options", source) else { return };
    let options =
        ClientOptions::parse("preallocate=false; memory_fraction=0.5; visible_devices=[2, 3]; allocator=bfc")
            .unwrap();
    // SAFETY: the library has the functions of a plugin
    let error = unsafe { Client::load_with(&plugin.0, 1, &options) }.unwrap_err().unquoted();
    assert!(error.contains("RESOURCE_EXHAUSTED: Out of memory"), "{error}");
    assert!(error.contains("ATMESH_PJRT_OPTIONS=\"preallocate=false\""), "{error}");
}

/// Compiles a plugin that misbehaves in one way, to a file for one test; returns `None` if there is no
/// compiler.
fn fake(test: &str, fault: &str) -> Option<Temporary> {
    let source = format!("#define FAKE \"{fault}\"\n{}", include_str!("fake_plugin.c"));
    library(&format!("{test}-{fault}"), &source)
}

/// Runs a module on a plugin that misbehaves in one way.
fn on_fake(fault: &str) -> Option<Result<Vec<u8>>> {
    let made = fake("module", fault)?;
    let run = || {
        let client = load(&made.0)?;
        let executable = client.compile("module {}", 1)?;
        let _ = executable.collectives();
        let x = client.put(&bytes(&[1.0, 2.0]), DType::F32, &[2], 0)?;
        executable.run(&[vec![&x]])?[0][0].read()
    };
    Some(run())
}

/// A plugin that misbehaves gives an error, never wrong numbers or a read outside of its lists.
#[test]
fn plugins_that_misbehave_are_errors() {
    for fault in ["none", "no_optimized", "optimized", "optimized_long"] {
        let Some(result) = on_fake(fault) else { return };
        assert_eq!(result.unwrap(), bytes(&[1.0, 2.0]), "{fault}");
    }
    let missing = [
        "PJRT_Error_Destroy",
        "PJRT_Error_Message",
        "PJRT_Plugin_Initialize",
        "PJRT_Event_Await",
        "PJRT_Client_Create",
        "PJRT_Client_AddressableDevices",
        "PJRT_Client_Compile",
        "PJRT_Client_BufferFromHostBuffer",
        "PJRT_Executable_NumOutputs",
        "PJRT_LoadedExecutable_Execute",
        "PJRT_Buffer_Destroy",
        "PJRT_Buffer_Dimensions",
        "PJRT_Buffer_ToHostBuffer",
    ];
    for name in missing {
        let Some(result) = on_fake(name) else { return };
        assert!(error_message(result).ends_with(&format!("does not have the function {name}")), "{name}");
    }
    for (fault, words) in [
        ("null", "is not a PJRT plugin"),
        ("misaligned", "is not a PJRT plugin"),
        ("start", "does not start: no start for you"),
        ("message_null", "does not start: it gave no reason"),
        ("message_long", "does not start: it gave no reason"),
        ("create", "has no devices: no devices here"),
        ("client_null", "has no devices: the plugin returned no client"),
        ("devices_null", "the plugin returned a list of 2 devices at address 0x0"),
        ("devices_many", "the plugin returned a list of 1152921504606846976 devices"),
        ("device_null", "the plugin returned a list of devices with a null pointer"),
        ("compile", "XLA rejected the module: a line that it does not like"),
        ("executable_null", "the plugin returned no executable"),
        ("inner_null", "the plugin returned no executable"),
        ("outputs_many", "the plugin returned an executable of 1152921504606846976 results"),
        ("put", "no room"),
        ("put_null", "the plugin returned no buffer"),
        ("event", "the event failed"),
        ("execute", "it did not run"),
        ("result_null", "device 0 has 0 results"),
        ("rank", "the plugin returned a list of 1099511627776 dimensions"),
        ("dims_null", "the plugin returned a list of 1 dimensions at address 0x0"),
        ("negative", "the plugin returned a result with a dimension of size -1"),
        ("type", "a result has element type 999"),
        ("read", "it cannot be read"),
    ] {
        let Some(result) = on_fake(fault) else { return };
        let said = error_message(result);
        assert!(said.contains(words), "{fault}: {said}");
    }
}

/// Runs a program with the engine XLA, then one with the default engine. The test below runs it with
/// plugins that misbehave.
#[test]
#[ignore = "another test runs it"]
fn runs_a_program() -> Result<()> {
    let Ok(wanted) = std::env::var("ATMESH_EXPECTED") else { return Ok(()) };
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::arange(0.0..4.0f32).put(&mesh, p!["X"]);
    let f = jit(|x: &Array| x.sin()).engine(EngineKind::Xla);
    for _ in 0..2 {
        let said = match f.call(&x).and_then(|y| y.to_vec::<f32>()) {
            Ok(values) => format!("{values:?}"),
            Err(e) => e.unquoted(),
        };
        assert!(said.contains(&wanted) && !said.contains("fault of atmesh"), "{said}");
    }
    assert_eq!((&x + 1.0).to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    Ok(())
}

/// A plugin whose results have another type or count is reported as such by the engine.
#[test]
fn results_of_other_types_are_errors_of_the_plugin() {
    for (fault, wanted) in [
        ("none", "[0.0, 1.0, 2.0, 3.0]"),
        ("other_shape", "the plugin returned float32[3] on device 0, but the program needs float32[2]"),
        ("other_type", "the plugin returned int32[2] on device 0, but the program needs float32[2]"),
        ("outputs_none", "the plugin compiled a module of 1 results to one of 0"),
        ("outputs_more", "the plugin compiled a module of 1 results to one of 2"),
    ] {
        let Some(made) = fake("program", fault) else { return };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["plugins::runs_a_program", "--exact", "--ignored"]);
        command.env(PLUGIN, &made.0).env("ATMESH_EXPECTED", wanted).env_remove("ATMESH_PJRT_OPTIONS");
        let done = command.output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && text.contains("1 passed"), "{fault}: {text}");
    }
}

/// Returns the plugin's client of 8 devices, or `None` if no plugin is named.
fn client() -> Option<Client> {
    if std::env::var_os(PLUGIN).is_none() {
        println!("skipped: {PLUGIN} is not set");
        return None;
    }
    Some(Client::from_env(8).unwrap())
}

fn module(body: &str) -> String {
    format!("module {{\n sdy.mesh @mesh = <[\"X\"=8]>\n{body}\n}}")
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_ne_bytes()).collect()
}
fn floats(buffer: &DeviceBuffer) -> Vec<f32> {
    let all = buffer.read().unwrap();
    all.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn devices_compute_a_sharded_product() {
    let Some(client) = client() else { return };
    assert!(client.devices() >= 8 && !client.platform().is_empty());
    let text = module(
        r#" func.func public @main(%x: tensor<16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"X"}]>},
              %w: tensor<16x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})
            -> (tensor<3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}, tensor<16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"X"}]>}) {
              %0 = stablehlo.dot_general %x, %w, contracting_dims = [0] x [0] : (tensor<16xf32>, tensor<16x3xf32>) -> tensor<3xf32>
              %1 = stablehlo.add %x, %x : tensor<16xf32>
              return %0, %1 : tensor<3xf32>, tensor<16xf32>
            }"#,
    );
    let product = client.compile(&text, 8).unwrap();
    let w: Vec<f32> = (0..48).map(|k| k as f32).collect();
    let put = |d: usize| {
        let x = client.put(&bytes(&[d as f32, 1.0]), DType::F32, &[2], d).unwrap();
        [x, client.put(&bytes(&w), DType::F32, &[16, 3], d).unwrap()]
    };
    let held: Vec<[DeviceBuffer; 2]> = (0..8).map(put).collect();
    let lists: Vec<Vec<&DeviceBuffer>> = held.iter().map(|pair| pair.iter().collect()).collect();
    let mut want = [0.0f32; 3];
    for (row, chunk) in w.chunks(3).enumerate() {
        let x = if row % 2 == 0 { (row / 2) as f32 } else { 1.0 };
        chunk.iter().zip(&mut want).for_each(|(w, sum)| *sum += x * w);
    }
    for _ in 0..3 {
        let results = product.run(&lists).unwrap();
        for (d, list) in results.iter().enumerate() {
            assert_eq!((list[0].shape().to_vec(), list[0].dtype()), (vec![3], DType::F32));
            assert_eq!(floats(&list[0]), want);
            assert_eq!(floats(&list[1]), [2.0 * d as f32, 2.0]);
            assert_eq!(list[1].device(), d);
        }
    }
}

#[test]
fn every_element_type_goes_in_and_out() {
    let Some(client) = client() else { return };
    for (dtype, name) in [
        (DType::Bool, "i1"),
        (DType::I8, "i8"),
        (DType::I64, "i64"),
        (DType::U16, "ui16"),
        (DType::F16, "f16"),
        (DType::BF16, "bf16"),
        (DType::F64, "f64"),
        (DType::C64, "complex<f32>"),
        (DType::C128, "complex<f64>"),
    ] {
        let t = format!("tensor<2x3x{name}>");
        let r = format!("tensor<3x2x{name}>");
        let text = format!(
            "module {{ func.func public @main(%x: {t}) -> {r} {{\n %y = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> {r}\n return %y : {r}\n }} }}"
        );
        let turn = client.compile(&text, 1).unwrap();
        let size = dtype.size();
        let element = |k: usize| -> Vec<u8> {
            (0..size).map(|b| if b == 0 { (k % 2) as u8 } else { k as u8 }).collect()
        };
        let x: Vec<u8> =
            (0..6).flat_map(element).map(|b| if dtype == DType::Bool { b % 2 } else { b }).collect();
        let at = client.put(&x, dtype, &[2, 3], 0).unwrap();
        assert_eq!(at.read().unwrap(), x, "{dtype}");
        let results = turn.run(&[vec![&at]]).unwrap();
        let want: Vec<u8> =
            [0, 3, 1, 4, 2, 5].iter().flat_map(|k| x[k * size..(k + 1) * size].to_vec()).collect();
        assert_eq!((results[0][0].read().unwrap(), results[0][0].dtype()), (want, dtype));
    }
}

#[test]
fn wrong_calls_are_rejected_with_words() {
    let Some(client) = client() else { return };
    let text = module(
        r#" func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"X"}]>})
            -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"X"}]>}) {
              %0 = stablehlo.negate %x : tensor<8xf32>
              return %0 : tensor<8xf32>
            }"#,
    );
    let negate = client.compile(&text, 8).unwrap();
    let put = |n: usize, d: usize| client.put(&bytes(&vec![1.0; n]), DType::F32, &[n], d).unwrap();
    let lists =
        |held: &[DeviceBuffer]| error_message(negate.run(&held.iter().map(|b| vec![b]).collect::<Vec<_>>()));
    let good: Vec<DeviceBuffer> = (0..8).map(|d| put(1, d)).collect();
    let large: Vec<DeviceBuffer> = (0..8).map(|d| put(2, d)).collect();
    let said = [
        lists(&good),
        lists(&good[..7]),
        lists(&large),
        lists(&good.into_iter().rev().collect::<Vec<_>>()),
        error_message(negate.run(&vec![Vec::new(); 8])),
        error_message(client.compile("module { func.func public @main() { return 1 } }", 1)),
        error_message(client.compile(&text, 9000)),
        error_message(client.put(&[0; 3], DType::F32, &[1], 0)),
        error_message(client.put(&[0; 8], DType::Key, &[1], 0)),
        error_message(client.put(&[0; 4], DType::F32, &[1], 9000)),
        error_message(client.put(&[], DType::F32, &[usize::MAX, 8], 0)),
    ];
    println!("{said:#?}");
    let ends = |k: usize, words: &str| assert!(said[k].contains(words), "{k}: {}", said[k]);
    ends(0, "no error");
    ends(1, "arguments of 7 devices, but it runs on 8");
    ends(2, "argument 0 is float32[2]; on each device the module takes float32[1]");
    ends(3, "argument 0 of device 0 is on device 7");
    ends(4, "the module takes 1 argument, and 0 are given");
    ends(5, "XLA rejected the module: ");
    ends(6, "a module for 9000 devices, but ");
    ends(7, "takes 4 bytes, and 3 are given");
    ends(8, "XLA has no element type key<fry>");
    ends(9, "there is no device 9000");
    // The same number of bytes, but another shape, or another element type.
    let one = client.compile(
        &text.replace("\"X\"=8", "\"X\"=1").replace("8xf32", "2x3xf32").replace("[{\"X\"}]", "[{}, {}]"),
        1,
    );
    let one = one.unwrap();
    let of = |dtype, shape: &[usize]| {
        error_message(one.run(&[vec![&client.put(&[0; 24], dtype, shape, 0).unwrap()]]))
    };
    assert_eq!(of(DType::F32, &[2, 3]), "no error");
    assert_eq!(
        of(DType::F32, &[3, 2]),
        "argument 0 is float32[3,2]; on each device the module takes float32[2,3]"
    );
    assert_eq!(
        of(DType::I32, &[2, 3]),
        "argument 0 is int32[2,3]; on each device the module takes float32[2,3]"
    );
    assert_ne!(said[10], "no error");
}
