/* A libnvidia-ml.so.1 whose GPUs are lines of the file named by FAKE_NVML_CONTROL.
 *
 * -DOLD leaves out what old drivers lack; -DFULL adds what data-centre cards answer as well. The
 * file is read at every call: write a new one and rename it over the old one. Of a key that is
 * there twice the last line counts. One mutex serves all calls, so an injected hang stops the
 * others too, as a hung driver does. Who waits for an event looks into the file every 20 ms, or
 * every event_poll_ms: a driver that is measured should not cost what looking costs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *dev;
enum { OK, UNINITIALISED, INVALID, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15, VERSION = 25 };
enum { FIRST_HANDLE = 0x1000, MAX_GPUS = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int references;
static char control[65536], delivered[64];
static size_t control_size;
static u64 registered;

static void read_control(void) {
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    control_size = file ? fread(control, 1, sizeof control - 1, file) : 0;
    control[control_size] = 0;
    for (size_t i = 0; i < control_size; i++)
        if (control[i] == '\n') control[i] = 0;
    if (file) fclose(file);
}

/* The value of the key, or NULL. */
static const char *get(const char *format, ...) {
    char key[128];
    va_list arguments;
    va_start(arguments, format);
    size_t length = (size_t)vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    const char *found = NULL;
    for (char *line = control; line < control + control_size; line += strlen(line) + 1)
        if (!strncmp(line, key, length) && line[length] == '=') found = line + length + 1;
    return found;
}

static u64 number(const char *text, u64 otherwise) { return text ? strtoull(text, NULL, 10) : otherwise; }
static void copy(char *to, u32 size, const char *text) { if (size) snprintf(to, size, "%s", text); }
static u32 gpu_count(void) { return (u32)number(get("gpus"), 1); }
static int index_of(dev handle) { return (int)((long)handle - FIRST_HANDLE); }
static u64 value(int gpu, const char *key, u64 otherwise) { return number(get("gpu%d.%s", gpu, key), otherwise); }

/* Of the newest sample, in us: what the file says, or now. */
static u64 sampled_at(int gpu) {
    const char *text = get("gpu%d.sample_ts", gpu);
    if (!text || strcmp(text, "now")) return number(text, 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

static void uuid_of(int gpu, char *to, u32 size) {
    const char *text = get("gpu%d.uuid", gpu);
    if (text) copy(to, size, text);
    else snprintf(to, size, "GPU-00000000-0000-0000-0000-%012d", gpu);
}

/* Takes the mutex; what an injected fault, a lost GPU or a missing init makes of the call. */
static int enter(const char *symbol, int gpu) {
    pthread_mutex_lock(&mutex);
    read_control();
    u64 pause = number(get("sleep_ms.%s", symbol), 0);
    struct timespec left = {(time_t)(pause / 1000), (long)(pause % 1000) * 1000000};
    while (pause && nanosleep(&left, &left)) {}
    if (!references) return UNINITIALISED;
    const char *code = get("fail.%s", symbol);
    if (gpu >= 0 && get("gpu%d.fail.%s", gpu, symbol)) code = get("gpu%d.fail.%s", gpu, symbol);
    if (!code) code = get("fail.*");
    if (code) return atoi(code);
    if (gpu >= (int)gpu_count()) return INVALID;
    return gpu >= 0 && value(gpu, "lost", 0) ? LOST : OK;
}
static int leave(int code) { pthread_mutex_unlock(&mutex); return code; }

#define CALL(name, gpu) int code = enter("nvml" #name, gpu); if (code) return leave(code)
#define DEVICE(name) int g = index_of(d); CALL(DeviceGet##name, g)
/* A call that gives one number; with an absent key and no default it is not supported. */
#define NUMBER(name, type, key, otherwise) \
    API int nvmlDeviceGet##name(dev d, type *out) { \
        DEVICE(name); *out = (type)value(g, key, otherwise); return leave(OK); }
#define OPTIONAL(name, type, key) \
    API int nvmlDeviceGet##name(dev d, type *out) { \
        DEVICE(name); if (!get("gpu%d." key, g)) return leave(NOT_SUPPORTED); \
        *out = (type)value(g, key, 0); return leave(OK); }

API int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    pthread_mutex_lock(&mutex);
    int before = references;
    references = 1;
    pthread_mutex_unlock(&mutex);
    int code = enter("nvmlInitWithFlags", -1);
    if (code && !get("fail.nvmlInitWithFlags")) code = OK; /* fail.* is not for init */
    references = code ? before : before + 1;
    return leave(code);
}
API int nvmlShutdown(void) {
    int code = enter("nvmlShutdown", -1);
    if (code == UNINITIALISED) return leave(code);
    if (--references == 0) registered = 0;
    return leave(OK);
}
API const char *nvmlErrorString(int code) { (void)code; return "injected"; }

#define TEXT(name, key, otherwise) \
    API int nvmlSystemGet##name(char *out, u32 size) { \
        CALL(SystemGet##name, -1); const char *text = get(key); copy(out, size, text ? text : otherwise); return leave(OK); }
TEXT(DriverVersion, "driver", "570.133.20")
TEXT(NVMLVersion, "nvml", "12.570.133.20")
API int nvmlSystemGetCudaDriverVersion(int *out) { CALL(SystemGetCudaDriverVersion, -1); *out = (int)number(get("cuda"), 12080); return leave(OK); }

API int nvmlDeviceGetCount_v2(u32 *out) { CALL(DeviceGetCount_v2, -1); *out = gpu_count(); return leave(OK); }
API int nvmlDeviceGetHandleByIndex_v2(u32 i, dev *out) { CALL(DeviceGetHandleByIndex_v2, (int)i); *out = (dev)(long)(FIRST_HANDLE + i); return leave(OK); }
API int nvmlDeviceGetHandleByUUID(const char *uuid, dev *out) {
    CALL(DeviceGetHandleByUUID, -1);
    for (int g = 0; g < (int)gpu_count(); g++) {
        char own[96];
        uuid_of(g, own, sizeof own);
        if (strcmp(own, uuid)) continue;
        *out = (dev)(long)(FIRST_HANDLE + g);
        return leave(value(g, "lost", 0) ? LOST : OK);
    }
    return leave(NOT_FOUND);
}
API int nvmlDeviceGetName(dev d, char *out, u32 size) { DEVICE(Name); const char *t = get("gpu%d.name", g); copy(out, size, t ? t : "NVIDIA GeForce RTX 4090"); return leave(OK); }
API int nvmlDeviceGetUUID(dev d, char *out, u32 size) { DEVICE(UUID); uuid_of(g, out, size); return leave(OK); }
API int nvmlDeviceGetSerial(dev d, char *out, u32 size) { DEVICE(Serial); const char *t = get("gpu%d.serial", g); if (!t) return leave(NOT_SUPPORTED); copy(out, size, t); return leave(OK); }

struct pci { char legacy[16]; u32 domain, bus, device, devid, subid; char busid[32]; };
API int nvmlDeviceGetPciInfo_v3(dev d, struct pci *out) {
    DEVICE(PciInfo_v3);
    memset(out, 0, sizeof *out);
    out->bus = (u32)g + 1; out->devid = 0x268410de;
    snprintf(out->busid, sizeof out->busid, "00000000:%02X:00.0", out->bus);
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    return leave(OK);
}
NUMBER(MinorNumber, u32, "minor", (u64)g)
NUMBER(PersistenceMode, u32, "persist", 1)

struct memory { u64 total, free, used; };
struct memory2 { u32 version; u64 total, reserved, free, used; };
static void memory_of(int g, struct memory2 *out) {
    out->total = value(g, "mem_total", 24ULL << 30);
    out->reserved = value(g, "mem_reserved", 512ULL << 20);
    out->used = value(g, "mem_used", 0);
    out->free = out->total - out->reserved - out->used;
}
API int nvmlDeviceGetMemoryInfo(dev d, struct memory *out) {
    DEVICE(MemoryInfo);
    struct memory2 all;
    memory_of(g, &all);
    out->total = all.total; out->free = all.free; out->used = all.used + all.reserved;
    return leave(OK);
}
#ifndef OLD
API int nvmlDeviceGetMemoryInfo_v2(dev d, struct memory2 *out) {
    DEVICE(MemoryInfo_v2);
    if (out->version != 0x02000028) return leave(VERSION);
    memory_of(g, out);
    return leave(OK);
}
NUMBER(CurrentClocksEventReasons, u64, "throttle", 1)
#endif

struct utilisation { u32 gpu, memory; };
API int nvmlDeviceGetUtilizationRates(dev d, struct utilisation *out) {
    DEVICE(UtilizationRates);
    if (value(g, "mig", 0)) return leave(NOT_SUPPORTED);
    out->gpu = (u32)value(g, "util", 0); out->memory = (u32)value(g, "memutil", 0);
    return leave(OK);
}

/* "pid:bytes,pid": calls back for each; returns how many there are. */
struct process { u32 pid; u64 mem; u32 gi, ci; };
static u32 processes(int g, const char *key, struct process *out, u32 room) {
    u32 count = 0;
    for (const char *at = get("gpu%d.%s", g, key); at && *at; count++) {
        char *end;
        struct process one = {(u32)strtoul(at, &end, 10), ~0ULL, ~0U, ~0U};
        if (*end == ':') one.mem = strtoull(end + 1, &end, 10);
        if (count < room) out[count] = one;
        at = *end == ',' ? end + 1 : NULL;
    }
    return count;
}
static int list(int g, const char *key, u32 *count, struct process *out) {
    u32 room = out ? *count : 0;
    *count = processes(g, key, out, room);
    return *count > room ? TOO_SMALL : OK;
}
#ifdef OLD
#define LIST(name, key) API int nvmlDeviceGet##name##_v2(dev d, u32 *count, struct process *out) { DEVICE(name##_v2); return leave(list(g, key, count, out)); }
#else
#define LIST(name, key) API int nvmlDeviceGet##name##_v3(dev d, u32 *count, struct process *out) { DEVICE(name##_v3); return leave(list(g, key, count, out)); }
#endif
LIST(ComputeRunningProcesses, "procs")
LIST(GraphicsRunningProcesses, "gprocs")

struct sample { u32 pid; u64 ts; u32 sm, mem, enc, dec; };
API int nvmlDeviceGetProcessUtilization(dev d, struct sample *out, u32 *count, u64 since) {
    DEVICE(ProcessUtilization);
    if (value(g, "mig", 0)) return leave(NOT_SUPPORTED);
    struct process rows[256];
    u64 ts = sampled_at(g);
    u32 room = out ? *count : 0, n = processes(g, "procs", rows, 256);
    if (n && ts <= since) return leave(NOT_FOUND);
    *count = n;
    if (n > room) return leave(TOO_SMALL);
    for (u32 i = 0; i < n; i++) out[i] = (struct sample){rows[i].pid, ts, (u32)value(g, "util", 0), (u32)value(g, "memutil", 0), 0, 0};
    return leave(OK);
}

API int nvmlDeviceGetTemperature(dev d, u32 sensor, u32 *out) { (void)sensor; DEVICE(Temperature); *out = (u32)value(g, "temp", 40); return leave(OK); }
NUMBER(PowerUsage, u32, "power_mw", 30000)
OPTIONAL(TotalEnergyConsumption, u64, "energy_mj")
NUMBER(CurrPcieLinkGeneration, u32, "pcie_gen", 4)
NUMBER(MaxPcieLinkGeneration, u32, "pcie_gen_max", 4)
NUMBER(CurrPcieLinkWidth, u32, "pcie_width", 16)
NUMBER(MaxPcieLinkWidth, u32, "pcie_width_max", 16)
API int nvmlDeviceGetPcieThroughput(dev d, u32 counter, u32 *out) { DEVICE(PcieThroughput); usleep(20000); *out = counter; return leave(OK); }
API int nvmlDeviceGetMigMode(dev d, u32 *current, u32 *pending) {
    DEVICE(MigMode);
    if (!get("gpu%d.mig", g)) return leave(NOT_SUPPORTED);
    *current = *pending = (u32)value(g, "mig", 0);
    return leave(OK);
}
API int nvmlDeviceGetTotalEccErrors(dev d, u32 type, u32 counter, u64 *out) {
    (void)type; (void)counter;
    DEVICE(TotalEccErrors);
    if (!get("gpu%d.ecc", g)) return leave(NOT_SUPPORTED);
    *out = value(g, "ecc", 0);
    return leave(OK);
}

struct event { dev device; u64 type, data; u32 gi, ci; };
static int the_set;
API int nvmlDeviceGetSupportedEventTypes(dev d, u64 *out) { DEVICE(SupportedEventTypes); *out = 8; return leave(OK); }
API int nvmlEventSetCreate(dev *out) { CALL(EventSetCreate, -1); *out = &the_set; return leave(OK); }
API int nvmlEventSetFree(dev set) { (void)set; return OK; }
API int nvmlDeviceRegisterEvents(dev d, u64 types, dev set) {
    (void)set;
    int g = index_of(d);
    CALL(DeviceRegisterEvents, g);
    if (g < MAX_GPUS && (types & 8)) registered |= 1ULL << g;
    return leave(OK);
}
API int nvmlEventSetWait_v2(dev set, struct event *out, u32 timeout_ms) {
    (void)set;
    u32 pause = 20;
    for (u32 waited = 0;; waited += pause) {
        CALL(EventSetWait_v2, -1);
        pause = (u32)number(get("event_poll_ms"), 20);
        const char *xid = get("xid");
        int g = xid ? atoi(xid) : -1;
        if (xid && registered && strcmp(xid, delivered)) {
            copy(delivered, sizeof delivered, xid);
            *out = (struct event){(dev)(long)(FIRST_HANDLE + g), 8, number(strchr(xid, ':') + 1, 0), ~0U, ~0U};
            return leave(OK);
        }
        leave(OK);
        if (waited >= timeout_ms) return TIMEOUT;
        usleep(1000 * pause);
    }
}

#ifdef FULL
NUMBER(CurrentClocksThrottleReasons, u64, "throttle", 1)
NUMBER(EnforcedPowerLimit, u32, "power_limit_mw", 700000)
NUMBER(PcieReplayCounter, u32, "replays", 0)
NUMBER(MemoryBusWidth, u32, "bus_bits", 5120)
NUMBER(PerformanceState, u32, "pstate", 0)
API int nvmlDeviceGetVbiosVersion(dev d, char *out, u32 size) { DEVICE(VbiosVersion); copy(out, size, "96.00.89.00.01"); return leave(OK); }
API int nvmlDeviceGetCudaComputeCapability(dev d, int *major, int *minor) { DEVICE(CudaComputeCapability); *major = 9; *minor = 0; return leave(OK); }
API int nvmlDeviceGetClockInfo(dev d, u32 type, u32 *out) { DEVICE(ClockInfo); *out = type == 2 ? 2619 : 1980; return leave(OK); }
API int nvmlDeviceGetMaxClockInfo(dev d, u32 type, u32 *out) { DEVICE(MaxClockInfo); *out = type == 2 ? 2619 : 1980; return leave(OK); }
API int nvmlDeviceGetNvLinkState(dev d, u32 link, u32 *out) { DEVICE(NvLinkState); if (link >= value(g, "nvlinks", 18)) return leave(NOT_SUPPORTED); *out = 1; return leave(OK); }
API int nvmlDeviceGetRemappedRows(dev d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    DEVICE(RemappedRows);
    *corrected = (u32)value(g, "rows_corrected", 0); *uncorrected = (u32)value(g, "rows_uncorrected", 0);
    *pending = (u32)value(g, "rows_pending", 0); *failed = (u32)value(g, "rows_failed", 0);
    return leave(OK);
}
API int nvmlDeviceGetRetiredPages(dev d, u32 cause, u32 *count, u64 *out) {
    DEVICE(RetiredPages);
    u32 room = out ? *count : 0, n = (u32)value(g, cause ? "pages_double" : "pages_single", 0);
    for (u32 i = 0; i < n && i < room; i++) out[i] = 0x1000ULL * i;
    *count = n;
    return leave(n > room ? TOO_SMALL : OK);
}
struct measured { u64 ts; u64 value; };
API int nvmlDeviceGetSamples(dev d, u32 type, u64 since, u32 *value_type, u32 *count, struct measured *out) {
    (void)type;
    DEVICE(Samples);
    u64 ts = sampled_at(g);
    if (ts <= since) return leave(NOT_FOUND);
    if (out) for (u32 i = 0; i < *count && i < 3; i++) out[i] = (struct measured){ts - 2 + i, value(g, "util", 0) - 1 + i};
    *value_type = 1; *count = 3;
    return leave(OK);
}
#endif
