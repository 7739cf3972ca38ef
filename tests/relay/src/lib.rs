//! A PJRT plugin for tests: its clients span several processes, on a plugin for CPUs whose clients
//! do not.
//!
//! It is the plugin that `ATMESH_RELAY_PLUGIN` names, with some functions replaced. A client that is
//! created without the option `num_nodes` is one of that plugin. With it, each process has a client of
//! the devices of all processes, of which it owns some. To run a module, the processes send the
//! arguments of their devices to process 0, whose client runs the whole module and sends the results
//! back. So everything that a program of several processes needs of a plugin (options, callbacks, own
//! devices, lists of arguments, deaths) runs on any machine. It is slow, and moves all data through
//! process 0.
//!
//! | file | contents |
//! |---|---|
//! | `real` | calls of the plugin below, by offset in its table |
//! | `errors` | errors of this plugin, which the functions for errors accept too |
//! | `world` | a client of several processes: devices, callbacks, state of the processes |
//! | `link` | the connections to process 0, whose waiting can be aborted |
//! | `execute` | blocks as bytes, and the run of a module |

mod errors;
mod execute;
mod link;
mod real;
mod world;

use errors::Code;
use real::{Call, Function};
use std::sync::OnceLock;

/// The environment variable with the path of the plugin below.
pub const RELAY_PLUGIN: &str = "ATMESH_RELAY_PLUGIN";

/// The functions that this plugin replaces, by offset.
const REPLACED: [(usize, Function); 14] = [
    (real::ERROR_DESTROY, errors::destroy),
    (real::ERROR_MESSAGE, errors::message),
    (real::ERROR_CODE, errors::code),
    (real::CLIENT_CREATE, world::create),
    (real::CLIENT_DESTROY, world::destroy),
    (real::CLIENT_PROCESS, world::process_of_client),
    (real::CLIENT_OWN_DEVICES, world::own_devices),
    (real::CLIENT_COMPILE, world::compile),
    (real::BUFFER_FROM_HOST, world::buffer_from_host),
    (real::DESCRIPTION_PROCESS, world::process_of_description),
    (real::DEVICE_IS_OWN, world::is_own),
    (real::LOADED_DESTROY, world::destroy_executable),
    (real::LOADED_EXECUTE, execute::execute),
    (real::UPDATE_PROCESSES, world::update_processes),
];

/// Returns the table of functions; null if there is no plugin below, which is printed.
///
/// # Safety
/// `ATMESH_RELAY_PLUGIN` names a PJRT plugin.
#[allow(non_snake_case, reason = "the interface has this name")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetPjrtApi() -> *const u8 {
    static TABLE: OnceLock<Option<Vec<usize>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| match real::load(RELAY_PLUGIN) {
        Ok(mut table) => {
            for (offset, function) in REPLACED {
                table[offset / 8] = function as usize;
            }
            Some(table)
        }
        Err(why) => {
            eprintln!("relay: {why}");
            None
        }
    });
    table.as_ref().map_or(std::ptr::null(), |table| table.as_ptr().cast())
}

/// Runs a function of this plugin, and returns its error, or null.
///
/// A panic would cross the interface, so it becomes an error too.
fn guarded(run: impl FnOnce() -> Result<(), Call>) -> usize {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.into_word(),
        Err(_) => Call::own(Code::Internal, "the relay panicked").into_word(),
    }
}
