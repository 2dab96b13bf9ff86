/* libnvidia-ml as far as the exporter calls it. FAKE_NVML, or `card` beside the library, names a file: the status of the
   memory calls, then a line for each device and for each process on the device before it:

       device <uuid> <total> <free> <used>
       compute|graphics|mps <pid> <bytes, or N/A>
       unsupported graphics|mps
       broken <status>                 the device's memory call fails with it
       mig                             MIG divides the device
       retiring                        pages wait for a reset; without such a line the device knows no page retirement
       remapping failed|fine           a row could not be remapped; without such a line it knows no remapping       */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
static const unsigned long FIRST = 0x7f0000000000UL; /* wider than an int: a truncated handle would be seen */

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;

static int initialized;

static FILE *opened(int *status) {
    char beside[4096];
    const char *path = getenv("FAKE_NVML");
    Dl_info self;
    if (path == NULL && dladdr((void *)opened, &self)) {
        snprintf(beside, sizeof beside, "%s", self.dli_fname);
        strcpy(strrchr(beside, '/') + 1, "card");
        path = beside;
    }
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%d\n", status) != 1) exit(99);
    return file;
}

/* Calls `visit` for each line of the device's section; 0 if the device is there. */
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

typedef struct { char uuid[96]; memory_t memory; int broken, mig, retiring, remaps, remapping_failed; } card_t;

static void read_card(const char *line, void *result) {
    card_t *card = result;
    char state[16];
    sscanf(line, "device %95s %llu %llu %llu", card->uuid, &card->memory.total, &card->memory.free, &card->memory.used);
    sscanf(line, "broken %d", &card->broken);
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
const char *nvmlErrorString(int status) { return status == 15 ? "GPU is lost" : "Invalid Argument"; }

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
