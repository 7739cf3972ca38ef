//! The functions of the PJRT interface that run a module, by their offsets in the plugin's table.

/// The offset of a function in the plugin's table, in bytes.
#[derive(Clone, Copy)]
pub(super) struct FunctionOffset(pub(super) usize);

macro_rules! required_functions { ($($name:ident = $offset:literal $c_name:literal;)*) => {
    $(pub(super) const $name: FunctionOffset = FunctionOffset($offset);)*
    /// The functions without which nothing runs. A plugin may set others to null if it lacks them.
    pub(super) const REQUIRED: &[(FunctionOffset, &str)] = &[$(($name, $c_name)),*];
} }
required_functions! {
    ERROR_DESTROY = 40 "PJRT_Error_Destroy";
    ERROR_MESSAGE = 48 "PJRT_Error_Message";
    PLUGIN_INITIALIZE = 64 "PJRT_Plugin_Initialize";
    EVENT_DESTROY = 80 "PJRT_Event_Destroy";
    EVENT_AWAIT = 104 "PJRT_Event_Await";
    CLIENT_CREATE = 120 "PJRT_Client_Create";
    CLIENT_DESTROY = 128 "PJRT_Client_Destroy";
    CLIENT_PLATFORM = 136 "PJRT_Client_PlatformName";
    CLIENT_DEVICES = 168 "PJRT_Client_AddressableDevices";
    CLIENT_COMPILE = 200 "PJRT_Client_Compile";
    BUFFER_FROM_HOST = 216 "PJRT_Client_BufferFromHostBuffer";
    EXECUTABLE_DESTROY = 360 "PJRT_Executable_Destroy";
    EXECUTABLE_OUTPUTS = 392 "PJRT_Executable_NumOutputs";
    LOADED_DESTROY = 440 "PJRT_LoadedExecutable_Destroy";
    LOADED_EXECUTABLE = 448 "PJRT_LoadedExecutable_GetExecutable";
    LOADED_EXECUTE = 480 "PJRT_LoadedExecutable_Execute";
    BUFFER_DESTROY = 504 "PJRT_Buffer_Destroy";
    BUFFER_TYPE = 512 "PJRT_Buffer_ElementType";
    BUFFER_DIMENSIONS = 520 "PJRT_Buffer_Dimensions";
    BUFFER_TO_HOST = 600 "PJRT_Buffer_ToHostBuffer";
}
pub(super) const EXECUTABLE_OPTIMIZED: FunctionOffset = FunctionOffset(424);
// the functions for clients of several processes
pub(super) const CLIENT_ALL_DEVICES: FunctionOffset = FunctionOffset(160);
pub(super) const DESCRIPTION_ID: FunctionOffset = FunctionOffset(224);
pub(super) const DESCRIPTION_PROCESS: FunctionOffset = FunctionOffset(232);
pub(super) const DEVICE_DESCRIPTION: FunctionOffset = FunctionOffset(272);
/// `PJRT_Client_UpdateGlobalProcessInfo`, since 0.73.
pub(super) const CLIENT_UPDATE_PROCESSES: FunctionOffset = FunctionOffset(944);
/// The minimum size of the table in bytes, which includes the last of these functions.
pub(super) const MIN_TABLE_BYTES: usize = 608;
