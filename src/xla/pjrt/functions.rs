//! The functions of the PJRT interface that run a module, by their offsets in the plugin's table.

/// The offset of a function in the plugin's table, in bytes.
#[derive(Clone, Copy)]
pub(super) struct FunctionOffset(pub(super) usize);

pub(super) const ERROR_DESTROY: FunctionOffset = FunctionOffset(40);
pub(super) const ERROR_MESSAGE: FunctionOffset = FunctionOffset(48);
pub(super) const PLUGIN_INITIALIZE: FunctionOffset = FunctionOffset(64);
pub(super) const EVENT_DESTROY: FunctionOffset = FunctionOffset(80);
pub(super) const EVENT_AWAIT: FunctionOffset = FunctionOffset(104);
pub(super) const CLIENT_CREATE: FunctionOffset = FunctionOffset(120);
pub(super) const CLIENT_DESTROY: FunctionOffset = FunctionOffset(128);
pub(super) const CLIENT_PLATFORM: FunctionOffset = FunctionOffset(136);
pub(super) const CLIENT_DEVICES: FunctionOffset = FunctionOffset(168);
pub(super) const CLIENT_COMPILE: FunctionOffset = FunctionOffset(200);
pub(super) const BUFFER_FROM_HOST: FunctionOffset = FunctionOffset(216);
pub(super) const EXECUTABLE_DESTROY: FunctionOffset = FunctionOffset(360);
pub(super) const EXECUTABLE_OUTPUTS: FunctionOffset = FunctionOffset(392);
pub(super) const EXECUTABLE_OPTIMIZED: FunctionOffset = FunctionOffset(424);
pub(super) const LOADED_DESTROY: FunctionOffset = FunctionOffset(440);
pub(super) const LOADED_EXECUTABLE: FunctionOffset = FunctionOffset(448);
pub(super) const LOADED_EXECUTE: FunctionOffset = FunctionOffset(480);
pub(super) const BUFFER_DESTROY: FunctionOffset = FunctionOffset(504);
pub(super) const BUFFER_TYPE: FunctionOffset = FunctionOffset(512);
pub(super) const BUFFER_DIMENSIONS: FunctionOffset = FunctionOffset(520);
pub(super) const BUFFER_TO_HOST: FunctionOffset = FunctionOffset(600);
/// The minimum size of the table in bytes, which includes the last of these functions.
pub(super) const MIN_TABLE_BYTES: usize = 608;

/// The functions without which nothing runs. A plugin may set others to null if it lacks them.
pub(super) const REQUIRED: [(FunctionOffset, &str); 20] = [
    (ERROR_DESTROY, "PJRT_Error_Destroy"),
    (ERROR_MESSAGE, "PJRT_Error_Message"),
    (PLUGIN_INITIALIZE, "PJRT_Plugin_Initialize"),
    (EVENT_DESTROY, "PJRT_Event_Destroy"),
    (EVENT_AWAIT, "PJRT_Event_Await"),
    (CLIENT_CREATE, "PJRT_Client_Create"),
    (CLIENT_DESTROY, "PJRT_Client_Destroy"),
    (CLIENT_PLATFORM, "PJRT_Client_PlatformName"),
    (CLIENT_DEVICES, "PJRT_Client_AddressableDevices"),
    (CLIENT_COMPILE, "PJRT_Client_Compile"),
    (BUFFER_FROM_HOST, "PJRT_Client_BufferFromHostBuffer"),
    (EXECUTABLE_DESTROY, "PJRT_Executable_Destroy"),
    (EXECUTABLE_OUTPUTS, "PJRT_Executable_NumOutputs"),
    (LOADED_DESTROY, "PJRT_LoadedExecutable_Destroy"),
    (LOADED_EXECUTABLE, "PJRT_LoadedExecutable_GetExecutable"),
    (LOADED_EXECUTE, "PJRT_LoadedExecutable_Execute"),
    (BUFFER_DESTROY, "PJRT_Buffer_Destroy"),
    (BUFFER_TYPE, "PJRT_Buffer_ElementType"),
    (BUFFER_DIMENSIONS, "PJRT_Buffer_Dimensions"),
    (BUFFER_TO_HOST, "PJRT_Buffer_ToHostBuffer"),
];
