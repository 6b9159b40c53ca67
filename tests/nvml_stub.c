/* A small stand-in for the library of NVIDIA's driver, for the tests.
 *
 * It has two GPUs. The environment tells it how to behave, at each call anew:
 *   STUB_INIT=9         what nvmlInit answers
 *   STUB_FAILS=power    one of the functions below fails on GPU 1 ...
 *   STUB_CODE=3         ... with this code
 *   STUB_PIDS=none      the lists of processes are empty
 *   STUB_PIDS=strangers they name processes of another pid namespace, not the one that asks
 *   STUB_PIDS=wordless  a process has no figure
 * OLD_DRIVER leaves out what older drivers lack, FUTURE_DRIVER what CUDA 14 will drop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7,
       VERSION_MISMATCH = 25 };

#define MIB (1024ULL * 1024ULL)
#define NO_FIGURE (~0ULL)

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; }
    process;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned version, sensor; int degrees; } temperature;

static int sessions;
static int gpus[2] = {0, 1};

static const char *told(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

/* What a function answers when it does not do its work. */
static int trouble(const char *function, const int *gpu) {
    if (sessions == 0) return UNINITIALIZED;
    if (gpu && *gpu != 1) return SUCCESS;
    if (strcmp(told("STUB_FAILS"), function) && strcmp(told("STUB_FAILS"), "everything"))
        return SUCCESS;
    return atoi(told("STUB_CODE"));
}

#define WORK_OR_FAIL(function, gpu) \
    do { int code = trouble(function, gpu); if (code) return code; } while (0)

int stub_sessions(void) { return sessions; }

int nvmlInitWithFlags(unsigned flags) {
    int code = atoi(told("STUB_INIT"));
    (void)flags;
    if (code == SUCCESS) sessions++;
    return code;
}

int nvmlShutdown(void) {
    int code = trouble("shutdown", NULL);
    if (sessions > 0) sessions--;
    return code;
}

const char *nvmlErrorString(int code) {
    static char text[40];
    snprintf(text, sizeof text, "stand-in error %d", code);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    WORK_OR_FAIL("count", NULL);
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **gpu) {
    if (index > 1) return INVALID_ARGUMENT;
    WORK_OR_FAIL("handle", &gpus[index]);
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(int *gpu, char *name, unsigned size) {
    WORK_OR_FAIL("name", gpu);
    snprintf(name, size, *gpu ? "Stand-in L4" : "Stand-in T4");
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(int *gpu, memory_v1 *memory) {
    WORK_OR_FAIL("memory", gpu);
    memory->total = 16000 * MIB;
    memory->used = 7500 * MIB; /* the reserve is part of it */
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(int *gpu, memory_v2 *memory) {
    WORK_OR_FAIL("memory", gpu);
    if (memory->version != (sizeof *memory | 2u << 24)) return VERSION_MISMATCH;
    memory->total = 16000 * MIB;
    memory->reserved = 500 * MIB;
    memory->used = 7000 * MIB;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

static int list(const process *all, unsigned there, unsigned *room, process *out) {
    unsigned given = *room;
    *room = there;
    if (there == 0) return SUCCESS;
    if (given < there) return INSUFFICIENT_SIZE;
    memcpy(out, all, there * sizeof *all);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(int *gpu, unsigned *room, process *out) {
    const char *pids = told("STUB_PIDS");
    process all[2] = {{1, 3000 * MIB, 0, 0}, {getpid(), 4000 * MIB, 0, 0}};
    unsigned there = 2;
    WORK_OR_FAIL("processes", gpu);
    if (!strcmp(pids, "none")) there = 0;
    if (!strcmp(pids, "strangers")) there = 1;
    if (!strcmp(pids, "wordless")) all[0].used = NO_FIGURE;
    return list(all, there, room, out);
}

/* Process 1 both computes and draws; process 2 only draws. */
int nvmlDeviceGetGraphicsRunningProcesses_v3(int *gpu, unsigned *room, process *out) {
    process all[2] = {{1, 3000 * MIB, 0, 0}, {2, 100 * MIB, 0, 0}};
    WORK_OR_FAIL("drawing", gpu);
    return list(all, strcmp(told("STUB_PIDS"), "none") ? 2 : 0, room, out);
}
#endif

int nvmlDeviceGetUtilizationRates(int *gpu, utilization *rates) {
    WORK_OR_FAIL("utilisation", gpu);
    rates->gpu = *gpu ? 97 : 0;
    rates->memory = 50;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(int *gpu, unsigned *milliwatts) {
    WORK_OR_FAIL("power", gpu);
    *milliwatts = *gpu ? 71500 : 9800;
    return SUCCESS;
}

#ifndef FUTURE_DRIVER
int nvmlDeviceGetTemperature(int *gpu, unsigned sensor, unsigned *degrees) {
    WORK_OR_FAIL("temperature", gpu);
    if (sensor != 0) return INVALID_ARGUMENT;
    *degrees = *gpu ? 68 : 41;
    return SUCCESS;
}
#endif

#ifndef OLD_DRIVER
int nvmlDeviceGetTemperatureV(int *gpu, temperature *reading) {
    WORK_OR_FAIL("temperature", gpu);
    if (reading->version != (sizeof *reading | 1u << 24)) return VERSION_MISMATCH;
    reading->degrees = *gpu ? 68 : 41;
    return SUCCESS;
}
#endif
