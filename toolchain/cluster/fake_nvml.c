/* A fake libnvidia-ml with the functions that the exporter calls. It reads its figures from a text file. The environment
   variable FAKE_NVML names this file; the default is the file `card` next to the library. The first line of the file is
   the status that the memory functions return. Then each device has a line, followed by lines about the device:

       device <uuid> <total> <free> <used>
       compute|graphics|mps <pid> <bytes, or N/A>
       unsupported graphics|mps
       broken <status>                 the memory function of the device returns this status
       mig                             MIG divides the device
       retiring                        pages wait for a reset; without this line, the device has no page retirement
       remapping failed|fine           whether a row could not be remapped; without this line, it has no row remapping
       accounting misc|dmem            the driver enforces limits of control groups; without this line, it does not
       refusing <status>               the function that sets a limit returns this status

   The file `limits` in the same folder has a line for each limit that was set and for each allocation, in order:

       set <uuid> <directory> <soft> <hard>
       charge <uuid> <directory> <bytes>

   With misc, limits work as in memacct.c of NVIDIA's open kernel modules 615.71. An allocation counts for the nearest
   group that has a limit at that time, or for no group. A limit below the counted use is refused, and so is a limit of the
   root group. A group without a limit of its own or of a parent returns NOT_SUPPORTED. The source of NVML is not public,
   so the error that NVML returns for NV_ERR_INVALID_LIMIT is a guess. With dmem, limits work as NVIDIA's page on memory
   partitioning describes: the file dmem.max limits a group, and a group without this file has the limit of the nearest
   parent with the file. If the library is built with OLD_DRIVER, the functions for limits are missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
enum { NOT_FOUND = 6 };
static const unsigned long FIRST = 0x7f0000000000UL; /* wider than an int: a truncated handle would be seen */

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;

static int initialized;

/* Returns the path of `name` in the folder of the text file or of the library. */
static const char *beside(const char *name) {
    static char path[4096];
    const char *card = getenv("FAKE_NVML");
    Dl_info self;
    if (card == NULL && dladdr((void *)beside, &self)) card = self.dli_fname;
    snprintf(path, sizeof path, "%s", card);
    strcpy(strrchr(path, '/') + 1, name);
    return path;
}

static FILE *opened(int *status) {
    const char *card = getenv("FAKE_NVML");
    FILE *file = fopen(card ? card : beside("card"), "r");
    if (file == NULL || fscanf(file, "%d\n", status) != 1) exit(99);
    return file;
}

/* Calls `visit` for each line about the device. Returns 0 if the text file has the device. */
static int each_line(unsigned long index, void (*visit)(const char *line, void *result), void *result) {
    int status, found = INVALID_ARGUMENT;
    long at = -1;
    char line[256];
    FILE *file = opened(&status);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "device ", 7) == 0) at++;
        if (at == (long)index) { found = SUCCESS; visit(line, result); }
    }
    fclose(file);
    return found;
}

typedef struct {
    char uuid[96], accounting[8];
    memory_t memory;
    int broken, refusing, mig, retiring, remaps, remapping_failed;
} card_t;

static void read_card(const char *line, void *result) {
    card_t *card = result;
    char state[16];
    sscanf(line, "device %95s %llu %llu %llu", card->uuid, &card->memory.total, &card->memory.free, &card->memory.used);
    sscanf(line, "broken %d", &card->broken);
    sscanf(line, "refusing %d", &card->refusing);
    sscanf(line, "accounting %7s", card->accounting);
    if (strncmp(line, "retiring", 8) == 0) card->retiring = 1;
    if (strncmp(line, "mig", 3) == 0) card->mig = 1;
    if (sscanf(line, "remapping %15s", state) == 1) {
        card->remaps = 1;
        card->remapping_failed = strcmp(state, "failed") == 0;
    }
}

static int card_of(void *handle, card_t *card) {
    memset(card, 0, sizeof *card);
    return each_line((unsigned long)handle - FIRST, read_card, card);
}

typedef struct { const char *kind; process_t *into; unsigned room, count; int unsupported; } listing_t;

static void read_process(const char *line, void *result) {
    listing_t *listing = result;
    char kind[16] = "", used[32] = "";
    unsigned pid;
    if (sscanf(line, "unsupported %15s", kind) == 1 && strcmp(kind, listing->kind) == 0) listing->unsupported = 1;
    if (sscanf(line, "%15s %u %31s", kind, &pid, used) != 3 || strcmp(kind, listing->kind) != 0) return;
    if (listing->count < listing->room) {
        process_t process = {pid, strcmp(used, "N/A") == 0 ? ~0ULL : strtoull(used, NULL, 10), ~0U, ~0U};
        listing->into[listing->count] = process;
    }
    listing->count++;
}

static int list(void *handle, const char *kind, unsigned *count, process_t *into) {
    listing_t listing = {kind, into, into ? *count : 0, 0, 0};
    int status = each_line((unsigned long)handle - FIRST, read_process, &listing);
    if (status) return status;
    if (listing.unsupported) return NOT_SUPPORTED;
    *count = listing.count;
    return listing.count > listing.room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; initialized = 1; return SUCCESS; }
int nvmlShutdown(void) { initialized = 0; return SUCCESS; }
const char *nvmlErrorString(int status) {
    return status == 15 ? "GPU is lost" : status == NOT_SUPPORTED ? "Not Supported" : "Invalid Argument";
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    card_t card;
    if (!initialized) return UNINITIALIZED;
    for (*count = 0; card_of((void *)(FIRST + *count), &card) == SUCCESS; ++*count) {}
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(FIRST + index);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) {
    card_t card;
    int status = card_of(handle, &card);
    if (status == SUCCESS) snprintf(uuid, length, "%s", card.uuid);
    return status;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    card_t card;
    for (unsigned long index = 0; card_of((void *)(FIRST + index), &card) == SUCCESS; index++)
        if (strcmp(card.uuid, uuid) == 0) { *handle = (void *)(FIRST + index); return SUCCESS; }
    return NOT_FOUND;
}

#ifndef OLD_DRIVER
typedef unsigned long long u64;
typedef struct { const char *directory; u64 soft, hard; } set_limits_t;
typedef struct { const char *directory; u64 soft, hard, used; } get_limits_t;
typedef struct { char directory[1024]; u64 soft, hard, used; } group_t;
typedef struct { group_t groups[64]; int count; } groups_t;

/* Returns the limits of the group, or of its nearest parent with limits. */
static group_t *limits_of(groups_t *found, const char *directory) {
    char path[1024];
    snprintf(path, sizeof path, "%s", directory);
    for (char *slash; *path; *slash = 0) {
        for (int i = 0; i < found->count; i++)
            if (strcmp(found->groups[i].directory, path) == 0) return &found->groups[i];
        if ((slash = strrchr(path, '/')) == NULL) break;
    }
    return NULL;
}

static int held(groups_t *found, const char *directory, u64 soft, u64 hard) {
    group_t *group = limits_of(found, directory);
    if (group == NULL || strcmp(group->directory, directory) != 0) {
        group = &found->groups[found->count++];
        snprintf(group->directory, sizeof group->directory, "%s", directory);
        group->used = 0; /* allocations before the limit was set do not count */
    } else if (group->used > hard) return INVALID_ARGUMENT;
    group->soft = soft;
    group->hard = hard;
    return SUCCESS;
}

static int charged(groups_t *found, const char *directory, long long bytes) {
    group_t *group = limits_of(found, directory);
    if (group == NULL) return SUCCESS;
    if (bytes > 0 && group->used + bytes > group->hard) return INSUFFICIENT_SIZE;
    group->used += bytes;
    return SUCCESS;
}

/* Reads all limits and allocations of the device from the file `limits`, in order. */
static void replay(const char *uuid, groups_t *found) {
    char line[1400], of[96], directory[1024];
    u64 soft, hard;
    long long bytes;
    FILE *file = fopen(beside("limits"), "r");
    found->count = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "set %95s %1023s %llu %llu", of, directory, &soft, &hard) == 4 && strcmp(of, uuid) == 0)
            held(found, directory, soft, hard);
        if (sscanf(line, "charge %95s %1023s %lld", of, directory, &bytes) == 3 && strcmp(of, uuid) == 0)
            charged(found, directory, bytes);
    }
    if (file) fclose(file);
}

static int noted(const char *line) {
    FILE *file = fopen(beside("limits"), "a");
    if (file == NULL) return 4; /* NO_PERMISSION */
    fputs(line, file);
    return fclose(file) == 0 ? SUCCESS : 999;
}

/* Reads dmem.max of the group, or of its nearest parent with this file. The text max means the whole device. */
static int read_dmem(const char *directory, u64 total, u64 *value) {
    char above[1024], path[1100], text[32] = "";
    snprintf(above, sizeof above, "%s", directory);
    for (char *slash = above; slash; (slash = strrchr(above, '/')) ? *slash = 0 : 0) {
        snprintf(path, sizeof path, "%s/dmem.max", above);
        FILE *file = fopen(path, "r");
        if (file == NULL) continue;
        if (fscanf(file, "%31s", text) != 1) text[0] = 0;
        fclose(file);
        *value = strcmp(text, "max") ? strtoull(text, NULL, 10) : total;
        return SUCCESS;
    }
    return NOT_FOUND;
}

static int write_dmem(const char *directory, u64 value) {
    char path[1100];
    snprintf(path, sizeof path, "%s/dmem.max", directory);
    FILE *file = fopen(path, "r+");
    if (file == NULL) return NOT_FOUND;
    fprintf(file, "%llu\n", value);
    return fclose(file) == 0 ? SUCCESS : 999;
}

int nvmlDeviceSetMemoryLimits_v1(void *handle, const set_limits_t *limits) {
    card_t card;
    groups_t *found = malloc(sizeof *found);
    char line[1400];
    int status = card_of(handle, &card);
    if (status == SUCCESS && (card.mig || !*card.accounting)) status = NOT_SUPPORTED;
    if (status == SUCCESS) status = card.refusing;
    if (status == SUCCESS && strcmp(limits->directory, "/sys/fs/cgroup") == 0) status = NOT_SUPPORTED;
    if (status == SUCCESS && strcmp(card.accounting, "dmem") == 0)
        status = write_dmem(limits->directory, limits->hard);
    else if (status == SUCCESS) {
        replay(card.uuid, found);
        status = held(found, limits->directory, limits->soft, limits->hard);
        snprintf(line, sizeof line, "set %s %s %llu %llu\n", card.uuid, limits->directory, limits->soft, limits->hard);
        if (status == SUCCESS) status = noted(line);
    }
    free(found);
    return status;
}

int nvmlDeviceGetMemoryLimits_v1(void *handle, get_limits_t *limits) {
    card_t card;
    groups_t *found = malloc(sizeof *found);
    int status = card_of(handle, &card);
    if (status == SUCCESS && (card.mig || !*card.accounting)) status = NOT_SUPPORTED;
    if (status == SUCCESS && strcmp(card.accounting, "dmem") == 0)
        status = read_dmem(limits->directory, card.memory.total, &limits->hard);
    else if (status == SUCCESS) {
        replay(card.uuid, found);
        group_t *group = limits_of(found, limits->directory);
        if (group == NULL) status = NOT_SUPPORTED;
        else limits->soft = group->soft, limits->hard = group->hard, limits->used = group->used;
    }
    free(found);
    return status;
}

/* Simulates that a process in the group allocates memory (bytes above 0) or frees memory. NVML has no such function. */
int fake_charge(const char *uuid, const char *directory, long long bytes) {
    char line[1400];
    groups_t *found = malloc(sizeof *found);
    replay(uuid, found);
    int status = charged(found, directory, bytes);
    free(found);
    snprintf(line, sizeof line, "charge %s %s %lld\n", uuid, directory, bytes);
    return status == SUCCESS ? noted(line) : status;
}
#endif

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    int status;
    card_t card;
    fclose(opened(&status));
    if (status == SUCCESS) status = card_of(handle, &card);
    if (status == SUCCESS) status = card.broken;
    if (status == SUCCESS) *memory = card.memory;
    return status;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    card_t card;
    int status = card_of(handle, &card);
    *current = *pending = card.mig;
    return status;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *handle, int *pending) {
    card_t card;
    int status = card_of(handle, &card);
    if (status == SUCCESS && !card.retiring) status = NOT_SUPPORTED;
    *pending = card.retiring;
    return status;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *correctable, unsigned *others, unsigned *pending, unsigned *failed) {
    card_t card;
    int status = card_of(handle, &card);
    if (status == SUCCESS && !card.remaps) status = NOT_SUPPORTED;
    *correctable = *others = *pending = 0;
    *failed = card.remapping_failed;
    return status;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_t *into) {
    return list(handle, "compute", count, into);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process_t *into) {
    return list(handle, "graphics", count, into);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, process_t *into) {
    return list(handle, "mps", count, into);
}
