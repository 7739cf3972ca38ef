// A PJRT plugin that computes nothing, and misbehaves in the way that the macro FAKE names.
// Results are copies of the first argument.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef size_t Word;
typedef Word (*Function)(Word *);
static int is(const char *mode) { return strcmp(FAKE, mode) == 0; }

typedef struct { Word type, rank; int64_t dims[8]; char data[1 << 12]; } Buffer;
static Word object(void) { return (Word)calloc(1, 8); }
static Word error(const char *text) { return (Word)strdup(text); }

static void Error_Destroy(Word *a) { free((void *)a[2]); }
static void Error_Message(Word *a) {
    const char *text = (const char *)a[2];
    a[3] = is("message_null") ? 0 : (Word)text;
    a[4] = is("message_long") ? (Word)1 << 50 : strlen(text);
}
static Word Quiet(Word *a) { (void)a; return 0; }
static Word Initialize(Word *a) {
    (void)a;
    return is("start") || is("message_null") || is("message_long") ? error("no start for you") : 0;
}
static Word Event_Await(Word *a) { (void)a; return is("event") ? error("the event failed") : 0; }
static Word Client_Create(Word *a) {
    if (is("create")) return error("no devices here");
    a[8] = is("client_null") ? 0 : object();
    return 0;
}
static Word Client_Platform(Word *a) { a[3] = (Word) "fake"; a[4] = 4; return 0; }
static Word Client_Devices(Word *a) {
    static Word devices[2];
    devices[0] = object();
    devices[1] = is("device_null") ? 0 : object();
    a[3] = is("devices_null") ? 0 : (Word)devices;
    a[4] = is("devices_many") ? (Word)1 << 60 : 2;
    return 0;
}
static Word Compile(Word *a) {
    if (is("compile")) return error("a line that it does not like");
    a[6] = is("executable_null") ? 0 : object();
    return 0;
}
static Word From_Host(Word *a) {
    if (is("put")) return error("no room");
    Buffer *b = calloc(1, sizeof(Buffer));
    b->type = a[4];
    b->rank = a[6];
    size_t n = 4;
    for (size_t i = 0; i < a[6]; i++) n *= b->dims[i] = ((int64_t *)a[5])[i];
    memcpy(b->data, (void *)a[3], n);
    a[14] = is("put_null") ? 0 : (Word)b;
    a[13] = object();
    return 0;
}
static Word Outputs(Word *a) {
    a[3] = is("outputs_many") ? (Word)1 << 60 : is("outputs_none") ? 0 : is("outputs_more") ? 2 : 1;
    return 0;
}
static Word Optimized(Word *a) {
    ((Word *)a[3])[3] = (Word)1 << 50;
    return is("optimized") ? error("unimplemented") : 0;
}
static Word Loaded_Executable(Word *a) { a[3] = is("inner_null") ? 0 : object(); return 0; }
static Word Execute(Word *a) {
    if (is("execute")) return error("it did not run");
    Word **ins = (Word **)a[4], **outs = (Word **)a[7], *events = (Word *)a[8];
    for (size_t d = 0; d < a[5]; d++) {
        Buffer *b = malloc(sizeof(Buffer));
        *b = *(Buffer *)ins[d][0];
        if (is("rank")) b->rank = (Word)1 << 40;
        if (is("negative")) b->dims[0] = -1;
        if (is("type")) b->type = 999;
        if (is("other_shape")) b->dims[0] = 3;
        if (is("other_type")) b->type = 4;
        outs[d][0] = is("result_null") ? 0 : (Word)b;
        events[d] = object();
    }
    return 0;
}
static Word Buffer_Type(Word *a) { *(int *)&a[3] = (int)((Buffer *)a[2])->type; return 0; }
static Word Buffer_Dimensions(Word *a) {
    Buffer *b = (Buffer *)a[2];
    a[3] = is("dims_null") ? 0 : (Word)b->dims;
    a[4] = b->rank;
    return 0;
}
static Word Buffer_To_Host(Word *a) {
    if (is("read")) return error("it cannot be read");
    memcpy((void *)a[4], ((Buffer *)a[2])->data, a[5]);
    a[6] = object();
    return 0;
}

static Word table[128];
static void set(size_t at, const char *name, Function f) { table[at / 8] = is(name) ? 0 : (Word)f; }
const void *GetPjrtApi(void) {
    table[0] = sizeof table;
    table[2] = 24;
    table[4] = (Word)70 << 32;
    set(40, "PJRT_Error_Destroy", (Function)Error_Destroy);
    set(48, "PJRT_Error_Message", (Function)Error_Message);
    set(64, "PJRT_Plugin_Initialize", Initialize);
    set(80, "PJRT_Event_Destroy", Quiet);
    set(104, "PJRT_Event_Await", Event_Await);
    set(120, "PJRT_Client_Create", Client_Create);
    set(128, "PJRT_Client_Destroy", Quiet);
    set(136, "PJRT_Client_PlatformName", Client_Platform);
    set(168, "PJRT_Client_AddressableDevices", Client_Devices);
    set(200, "PJRT_Client_Compile", Compile);
    set(216, "PJRT_Client_BufferFromHostBuffer", From_Host);
    set(360, "PJRT_Executable_Destroy", Quiet);
    set(392, "PJRT_Executable_NumOutputs", Outputs);
    set(424, "no_optimized", Optimized);
    set(440, "PJRT_LoadedExecutable_Destroy", Quiet);
    set(448, "PJRT_LoadedExecutable_GetExecutable", Loaded_Executable);
    set(480, "PJRT_LoadedExecutable_Execute", Execute);
    set(504, "PJRT_Buffer_Destroy", Quiet);
    set(512, "PJRT_Buffer_ElementType", Buffer_Type);
    set(520, "PJRT_Buffer_Dimensions", Buffer_Dimensions);
    set(600, "PJRT_Buffer_ToHostBuffer", Buffer_To_Host);
    return is("misaligned") ? (char *)table + 4 : is("null") ? 0 : (char *)table;
}
